from __future__ import annotations

import importlib.metadata

import pytest

from operant.errors import ConfigError
from operant.registry import Registry


@pytest.fixture
def toys():
    registry = Registry("toy", "operant.test_toys")

    @registry.register_module
    class Ball:
        def __init__(self, size, colour="red"):
            self.size, self.colour = size, colour

    @registry.register_module("Cube", force=False)
    class Box:
        def __init__(self, *args, **kwargs):
            self.args, self.kwargs = args, kwargs

    return registry


def test_classes_are_built_by_name(toys):
    assert toys.names == ["Ball", "Cube"]
    assert toys.build({"type": "Ball", "size": 3}).size == 3
    assert toys.build({"type": "Cube", "anything": 1}, 7).kwargs == {"anything": 1}
    assert toys.build({"size": 3}, default_type="Ball").colour == "red"
    assert "Ball" in toys
    assert "Bal" not in toys


@pytest.mark.parametrize(
    ("cfg", "message"),
    [
        ({"type": "Bal", "size": 1}, "type: unknown toy 'Bal'; did you mean 'Ball'"),
        ({"type": "xyzzy"}, "known are Ball, Cube"),
        ({"type": "Ball", "sise": 1}, "sise: unknown key of Ball 'sise'; did you mean 'size'"),
        ({"type": "Ball"}, "'size' is missing"),
        ({"size": 1}, "`type` is missing; known are Ball, Cube"),
        ({"type": 3}, "must be the name"),
        (["Ball"], "described by a mapping"),
    ],
)
def test_mistakes_name_the_nearest(toys, cfg, message):
    with pytest.raises(ConfigError, match=message):
        toys.build(cfg)


def test_a_taken_name_needs_force(toys):
    def make():
        class Ball:
            pass

        return Ball

    with pytest.raises(ConfigError, match="already registered"):
        toys.register_module()(make())
    again = toys.register_module("Ball", force=True)(make())
    assert toys.get("Ball") is again
    assert toys.register_module()(make()) is toys.get("Ball"), "the same class, imported once more"


def test_aliases_come_with_a_note(toys):
    toys.alias("Bll", "Ball", "spelt otherwise")
    assert toys.resolve("Bll") == ("Ball", "spelt otherwise")
    assert toys.build({"type": "Bll", "size": 2}).size == 2


def test_entry_points_are_read_when_a_name_is_not_known(toys, monkeypatch):
    point = importlib.metadata.EntryPoint("Fraction", "fractions:Fraction", "operant.test_toys")
    monkeypatch.setattr(
        importlib.metadata, "entry_points", lambda group: [point] if group == "operant.test_toys" else []
    )
    assert toys.get("Fraction")(1, 2) == 0.5
    assert "Fraction" in toys.names
