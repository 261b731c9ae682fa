"""Callbacks and loggers of one's own: by object, import path and entry point of an installed package."""

from __future__ import annotations

import importlib
import sys

import pytest

from operant.errors import UsageError
from operant.tracking import Run
from operant.training import train

CONFIG = {
    "total_steps": 200,
    "env": {"id": "CartPole-v1", "num_envs": 2},
    "algorithm": {"name": "a2c"},
    "evaluation": {"every": 100, "episodes": 2},
    "log": {"every": 50},
}

SOURCE = """
class Notes:
    made = []

    def __init__(self, training):
        self.training, self.scalars, self.texts, self.closed = training, [], [], False
        Notes.made.append(self)

    def add_scalar(self, tag, value, step):
        self.scalars.append((tag, step, value))

    def add_text(self, tag, text, step):
        self.texts.append((tag, text))

    def close(self):
        self.closed = True


def counted(training):
    def count(ctx):
        Notes.passes = getattr(Notes, "passes", 0) + 1
    return count


number = 3
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package as pip leaves it: a module, and a dist-info with entry points that `importlib.metadata` finds."""
    site = tmp_path / "site"
    about = site / "notebook-1.0.dist-info"
    about.mkdir(parents=True)
    (site / "notebook.py").write_text(SOURCE)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: notebook\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[operant.loggers]\nnotes = notebook:Notes\n\n[operant.callbacks]\ncounted = notebook:counted\n"
    )
    monkeypatch.syspath_prepend(str(site))
    yield importlib.import_module("notebook")
    del sys.modules["notebook"]


@pytest.mark.parametrize("name", ["notes", "notebook.Notes", "notebook:Notes", None])
def test_a_logger_hears_what_is_recorded(root, package, name):
    result = train({**CONFIG, "loggers": [name or package.Notes]}, root=root)
    (notes,) = package.Notes.made
    run = Run.open(result.run_id, root)
    evaluated = run.scalars("evaluation/return")
    heard = [(step, value) for tag, step, value in notes.scalars if tag == "evaluation/return"]
    assert heard == list(zip(evaluated["step"], evaluated["value"], strict=True)) and len(heard) == 2
    assert {tag for tag, _, _ in notes.scalars} == {tag for tag in run.scalar_tags if not tag.startswith("system/")}
    assert ("log", "networks: fused (closed-form gradients)") in notes.texts
    assert notes.closed


def test_a_callback_by_entry_point(root, package):
    train({**CONFIG, "callbacks": ["counted"]}, root=root)
    assert package.Notes.passes == 200 // (2 * 5)


def test_a_logger_is_closed_when_the_training_breaks(root, package):
    def broken(training):
        def fail(ctx):
            raise RuntimeError("broken")

        return fail

    with pytest.raises(RuntimeError, match="broken"):
        train({**CONFIG, "loggers": ["notes"], "callbacks": [broken]}, root=root)
    assert package.Notes.made[0].closed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loggers": ["note"]}, "no logger 'note' .did you mean 'notes'"),
        ({"callbacks": ["count"]}, "no callback 'count' .did you mean 'counted'"),
        ({"loggers": ["notebook.Note"]}, "has no 'Note'"),
        ({"callbacks": ["notebook.number"]}, "cannot be called"),
    ],
)
def test_a_wrong_name_is_a_sentence(root, package, change, message):
    with pytest.raises(UsageError, match=message):
        train({**CONFIG, **change}, root=root)
