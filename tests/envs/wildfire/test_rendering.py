"""Pictures of fires, and the window."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.envs.wildfire.fires import RICH, deterministic, ring

from operant.envs import make_env
from operant.envs.wildfire import WildfireVector
from operant.envs.wildfire.rendering import draw_frame
from operant.envs.wildfire.verbs import AGENT


def test_agents_are_seen_and_drawn() -> None:
    env = WildfireVector(2, seed=0, simulation=RICH, num_agents=2, normalized_attributes=[])
    obs = env.reset()
    assert (obs >= AGENT).sum((1, 2, 3)).tolist() == [2, 2]
    env.step(np.zeros((2, 2), int))
    frame = env.render_frame(1)
    assert frame.dtype == np.uint8 and frame.shape[2] == 3 and len(np.unique(frame.reshape(-1, 3), axis=0)) > 20


def test_pictures_show_the_fire_that_nobody_fights_beside_this_one() -> None:
    env = deterministic(render_benchmark=True)
    env.reset(seed=0)
    ring(env, 1)
    for _ in range(190):
        env.step(0)
    frame = env.render()[:500]  # without the key below
    fought, alone = ((half.max(-1) < 100).sum() for half in np.array_split(frame, 2, axis=1))
    assert alone > 2 * fought > 0


@pytest.mark.parametrize("name", ["Wildfire", "WildfireVector", "parallel:WildfireParallel"])
def test_every_door_has_pictures(name: str) -> None:
    target = f"operant.envs.wildfire.{name}" if ":" in name else f"operant.envs.wildfire:{name}"
    env = make_env(target, 2, seed=0, simulation=RICH)
    env.reset()
    assert env.render_frame(1).ndim == 3


def test_a_window_shows_the_frames_that_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    pygame = pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    env = deterministic(render_mode="human")
    try:
        env.reset(seed=0)
        env.step(0)
        expected = draw_frame(env.world, 0)
        assert (pygame.surfarray.array3d(pygame.display.get_surface()).swapaxes(0, 1) == expected).all()
    finally:
        env.close()
    assert not pygame.display.get_init()


@pytest.mark.parametrize("shape", [[1, 1], [3, 90], [90, 3], [12, 12]])
@pytest.mark.parametrize("size", [16, 120, 400])
@pytest.mark.parametrize("render_benchmark", [False, True])
def test_pictures_of_any_shape_and_size(shape: list[int], size: int, render_benchmark: bool) -> None:
    wind = {"type": "terrain", "speed": 5.0}
    env = WildfireVector(
        1, seed=0, simulation={**RICH, "shape": shape, "wind": wind}, render_benchmark=render_benchmark
    )
    env.reset()
    frame = draw_frame(env.world, 0, size=size)
    scale = max(1, size // max(shape))
    assert frame.shape[0] > shape[0] * scale and frame.shape[1] >= shape[1] * scale * (1 + render_benchmark)


def test_the_key_names_what_can_be_seen() -> None:
    def key(**settings: Any) -> Any:
        env = deterministic(**settings)
        env.reset(seed=0)
        return env.render()[-40:]

    plain = key()
    assert plain.shape == key(interactions=["none"]).shape
    for more in ({"interactions": ["none", "wetline"]}, {"simulation": {"assets": {"type": "houses"}}}):
        assert (key(**more)[: len(plain)] != plain).any()
