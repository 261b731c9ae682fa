"""Names to environments, autoreset modes, workers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from operant.envs import GymnasiumVectorAdapter, InProcessVectorEnv, NumpyVectorEnv, VectorEnv, make_env
from operant.envs.identity import DictIdentity, MaskedIdentity, MemoryIdentity
from operant.envs.workers import WorkerVectorEnv
from operant.errors import OperantError, UsageError


def test_importing_environments_is_light() -> None:
    code = "import sys, operant.envs, operant.data; print(sorted({'torch', 'mujoco', 'PIL'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        ("CartPole-v1", NumpyVectorEnv),
        ("Taxi-v3", InProcessVectorEnv),
        ("operant.envs.identity:DictIdentity", DictIdentity),
        ("gymnasium.envs.classic_control:CartPoleEnv", InProcessVectorEnv),
        ("gymnasium.envs.classic_control:CartPole-v1", InProcessVectorEnv),
        (lambda: gymnasium.make("CartPole-v1"), InProcessVectorEnv),
        (lambda: gymnasium.make_vec("CartPole-v1", 3, vectorization_mode="sync"), InProcessVectorEnv),
        (lambda: make_env("CartPole-v1", 3), NumpyVectorEnv),
    ],
)
def test_what_a_target_may_be(target: Any, kind: type[VectorEnv]) -> None:
    env = make_env(target, 3, seed=0)
    assert isinstance(env, kind)
    assert env.num_envs == 3
    obs = env.reset()
    assert len(next(iter(obs.values())) if isinstance(obs, dict) else obs) == 3
    assert env.name


def test_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import EntryPoint

    point = EntryPoint("my-task", "operant.envs.identity:MemoryIdentity", "operant.envs")
    monkeypatch.setattr("operant.envs.making.entry_points", lambda group: [point] if group == "operant.envs" else [])
    assert isinstance(make_env("my-task", 2, length=5), MemoryIdentity)


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        ("CartPoel-v1", {}, r"no environment 'CartPoel-v1' \(did you mean 'CartPole-v1'"),
        ("no_such_module:Thing", {}, "module 'no_such_module', which cannot be found"),
        ("operant.envs.identity:DictIdentit", {}, r"did you mean 'DictIdentity'"),
        ("CartPole-v1", {"num_envs": 0}, "at least one"),
        ("CartPole-v1", {"workers": 3}, "between 0 and the 1 environments"),
        ("CartPole-v1", {"colour": "red"}, "does not take these arguments.*colour"),
        ("operant.envs.identity:DictIdentity", {"colour": "red"}, "does not take these arguments.*colour"),
        (lambda: 3, {}, "made a int, which is no Gymnasium environment"),
        ("operant.envs.identity:DictIdentity", {"wrappers": [lambda env: env]}, "wrappers go around single"),
        (make_env("CartPole-v1", 1), {"colour": "red"}, "takes no arguments.*colour"),
        (lambda: gymnasium.make_vec("CartPole-v1", 3), {"num_envs": 2}, "holds 3 environments, but num_envs is 2"),
    ],
)
def test_mistakes_are_named(target: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_env(target, **options)


def test_an_environment_that_gymnasium_has_no_more_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As its MuJoCo of before v4: the id is there, making it is an ImportError."""

    def moved() -> Any:
        raise ImportError("they have moved to another project")

    monkeypatch.setitem(gymnasium.registry, "Moved-v3", gymnasium.envs.registration.EnvSpec("Moved-v3", moved))
    with pytest.raises(UsageError, match="Moved-v3 cannot be made: they have moved to another project"):
        make_env("Moved-v3", 1)


def test_stepping_needs_a_reset_and_one_action_each() -> None:
    for env in (make_env("CartPole-v1", 2), make_env("CartPole-v1", 2, vectorized=False)):
        with pytest.raises(UsageError, match="before it was reset"):
            env.step(np.zeros(2, np.int64))
        env.reset()
        with pytest.raises(UsageError, match="actions"):
            env.step(np.zeros(3, np.int64))


class Corridor(gymnasium.Env[Any, Any]):
    """Walk to the right: observation is the place, and every third episode is cut off after four steps."""

    observation_space = gymnasium.spaces.Dict({"place": gymnasium.spaces.Box(0, 99, (1,), np.float32)})
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        self.episode = -1

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode += 1
        self.place, self.steps = int(self.np_random.integers(5)), 0
        return {"place": np.array([self.place], np.float32)}, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place, self.steps = self.place + 1 + int(action), self.steps + 1
        cut = self.episode % 3 == 2 and self.steps >= 4
        return {"place": np.array([self.place], np.float32)}, float(self.place), self.place >= 9, cut, {}


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])
def test_every_autoreset_mode_becomes_ours(mode: AutoresetMode, kind: Any) -> None:
    expected = make_env(Corridor, 3)
    adapted = GymnasiumVectorAdapter(kind([Corridor] * 3, autoreset_mode=mode))
    np.testing.assert_equal(adapted.reset(4), expected.reset(4))
    rng = np.random.default_rng(0)
    for _ in range(60):
        actions = rng.integers(2, size=3)
        ours, theirs = expected.step(actions), adapted.step(actions)
        for a, b in zip(ours[:5], theirs[:5], strict=True):
            np.testing.assert_equal(a, b)
        np.testing.assert_equal(theirs.episodes, ours.episodes)
    assert not adapted.exact
    assert adapted.load_state(adapted.save_state())["place"].shape == (3, 1)
    adapted.close()


def test_a_vector_environment_that_ignores_the_mask_is_refused() -> None:
    adapted = make_env(gymnasium.make_vec("CartPole-v1", 4))  # numpy, resets with the next step
    adapted.reset(0)
    with pytest.raises(UsageError, match="SAME_STEP"):
        for _ in range(100):
            adapted.step(np.ones(4, np.int64))


def broken(fail: bool = True) -> gymnasium.Env[Any, Any]:
    raise RuntimeError("no such device")


class Dying(Corridor):
    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        import os

        os._exit(7)


@pytest.mark.parametrize("target", ["CartPole-v1", "operant.envs.identity:MaskedIdentity"])
def test_workers_are_the_same_environments(target: str) -> None:
    here, there = make_env(target, 5, seed=2), make_env(target, 5, seed=2, workers=2)
    assert isinstance(there, WorkerVectorEnv)
    obs = here.reset()
    np.testing.assert_equal(there.reset(), obs)
    rng = np.random.default_rng(0)

    def choose(env: VectorEnv) -> Any:
        mask = env.action_mask
        return rng.integers(2, size=5) if mask is None else np.array([rng.choice(np.flatnonzero(row)) for row in mask])

    for _ in range(60):
        actions = choose(here)
        for a, b in zip(here.step(actions), there.step(actions), strict=True):
            np.testing.assert_equal(a, b)
    resumed = make_env(target, 5, workers=2)
    resumed.load_state(there.save_state())
    for _ in range(30):
        actions = choose(there)
        for a, b in zip(there.step(actions), resumed.step(actions), strict=True):
            np.testing.assert_equal(a, b)
    if target == "CartPole-v1":
        np.testing.assert_array_equal(there.render_frame(4), resumed.render_frame(4))
    resumed.close()
    there.close()
    there.close()


def test_workers_tell_what_went_wrong() -> None:
    with pytest.raises(OperantError, match="no such device"):
        make_env(broken, 2, workers=1)
    with pytest.raises(UsageError, match="cannot be sent to another process"):
        make_env(lambda: Corridor(), 2, workers=1)
    env = make_env(Dying, 2, workers=2)
    env.reset()
    with pytest.raises(OperantError, match="environments 0 to 0 ended with code 7"):
        env.step(np.zeros(2, np.int64))
    env.close()


def test_identity_tasks_can_be_solved() -> None:
    for name, best in (
        ("Discrete", 20.0),
        ("MultiDiscrete", 20.0),
        ("Continuous", 0.0),
        ("Dict", 20.0),
        ("Masked", 20.0),
    ):
        env = make_env(f"operant.envs.identity:{name}Identity", 4, seed=0)
        obs = env.reset()
        for _ in range(20):
            seen = obs if not isinstance(obs, dict) else obs.get("answer", obs.get("observation"))
            if name == "Continuous":
                actions = seen
            elif name == "MultiDiscrete":
                actions = np.stack([seen[:, :3].argmax(1), seen[:, 3:].argmax(1)], axis=1)
            else:
                actions = seen.argmax(axis=1)
            assert env.single_observation_space.contains(
                {key: value[0] for key, value in obs.items()} if isinstance(obs, dict) else obs[0]
            )
            step = env.step(actions)
            obs = step.obs
        assert step.episodes is not None
        np.testing.assert_allclose(step.episodes.returns, best, atol=1e-10)
        assert step.truncated.all() and not step.terminated.any()


def test_memory_is_needed_and_enough() -> None:
    env = make_env("operant.envs.identity:MemoryIdentity", 6, seed=0, length=4)
    obs, shown = env.reset(), np.zeros(6, np.int64)
    for t in range(12):
        if t % 4 == 0:
            shown = (obs[:, 0] > 0).astype(np.int64)
        else:
            assert (obs[:, 0] == 0).all()
        step = env.step(shown)
        obs = step.obs
        if step.episodes is not None:
            assert t % 4 == 3
            np.testing.assert_array_equal(step.episodes.returns, 1.0)


def test_a_masked_action_is_an_error() -> None:
    env = MaskedIdentity(1, seed=0)
    env.reset()
    forbidden = np.flatnonzero(~env.action_mask[0])[:1]
    with pytest.raises(UsageError, match="masked out"):
        env.step(forbidden)


def test_an_environment_in_the_current_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The installed commands do not look there by themselves."""
    (tmp_path / "beside.py").write_text("from operant.envs.identity import DictIdentity\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one not in ("", str(tmp_path))])
    try:
        assert make_env("beside:DictIdentity", 1).num_envs == 1
    finally:
        sys.modules.pop("beside", None)
    assert str(tmp_path) not in sys.path
