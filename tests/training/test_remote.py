"""Workers that collect for the process that learns."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from tests.machine import free_port, spawned

from operant.errors import OperantError, UsageError
from operant.tracking import Run
from operant.training import CheckpointStore, load_config, resume, train
from operant.training.normalizing import Normalizer

ENVS = "operant.envs.identity:"
PPO = {"name": "ppo", "rollout": 16, "minibatch": 64, "epochs": 2, "learning_rate": 3e-3, "gamma": 0.5}
IMPALA = {"name": "impala", "rollout": 8, "learning_rate": 5e-3, "gamma": 0.5}
A3C = {"name": "a3c", "rollout": 16, "minibatch": 16, "learning_rate": 5e-3, "gamma": 0.5}
DQN = {
    "name": "dqn",
    "train_every": 16,
    "updates": 4,
    "learning_starts": 100,
    "batch": 64,
    "buffer": 5000,
    "learning_rate": 2e-3,
    "target_every": 100,
    "gamma": 0.5,
    "prioritized": True,
}
SAC = {"name": "sac", "train_every": 8, "learning_starts": 64, "batch": 32, "gamma": 0.5}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / ".operant"
    folder.mkdir()
    return folder


def config(algorithm: dict[str, Any], steps: int, env: str = "DiscreteIdentity", **other: Any) -> dict[str, Any]:
    normalize = other.pop("normalize", False)
    return {
        "total_steps": steps,
        "workers": 2,
        "silence": 600.0,
        "env": {"id": ENVS + env, "num_envs": 8, "normalize_obs": normalize},
        "algorithm": algorithm,
        "model": {"hidden": [32, 32]},
        "evaluation": {"every": steps, "episodes": 16},
        **other,
    }


class Killer:
    """Looks on, and kills a worker once there have been some points."""

    def __init__(self, after: int = 3) -> None:
        self.left = after
        self.said_sentences: list[str] = []

    def said(self, sentence: str) -> None:
        self.said_sentences.append(sentence)

    def point(self, step: int, rate: float, mean: float) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(spawned()[0].pid, signal.SIGKILL)

    def evaluated(self, *_: Any) -> None: ...


def weights_of(result: Any) -> dict[str, Any]:
    _, state = CheckpointStore(result.folder / "checkpoints").load()
    return dict(state["algorithm"]["weights"])


def same(one: Any, other: Any) -> bool:
    mine, its = weights_of(one), weights_of(other)
    return mine.keys() == its.keys() and all(np.array_equal(mine[name], its[name]) for name in mine)


def test_rounds_do_not_depend_on_timing_and_resume_exactly(root: Path) -> None:
    whole = train(config(PPO, 1024, normalize=True), root=root)
    half = train(config(PPO, 512, normalize=True), root=root)
    assert whole.exact and half.exact and not same(whole, half)
    assert same(whole, resume(half.run_id, ["total_steps=1024", "evaluation.every=1024"], root=root))
    assert not spawned()


def test_learning_goes_on_when_a_worker_is_killed(root: Path) -> None:
    looking_on = Killer()
    result = train(config(IMPALA, 40_000), observer=looking_on, root=root)
    assert result.final_return >= 18.0 and not result.exact
    replaced = [one for one in looking_on.said_sentences if "is replaced" in one]
    assert len(replaced) == 1 and "SIGKILL" in replaced[0]
    run = Run.open(result.run_id, root)
    assert run.latest("workers/restarts").value == 1.0
    # Which of the two had time to send anything depends on how soon each came up.
    told = [tag for tag in run.scalar_tags if tag.startswith("workers/") and tag.endswith("/steps_per_second")]
    assert told and all(run.latest(tag).value > 0.0 for tag in told)
    lags = run.scalars("workers/lag_max")["value"]
    assert max(lags) <= 16 and run.latest("workers/dropped").value >= 0.0
    assert not spawned()


def test_replay_is_filled_by_workers_in_the_ratio_of_one_process(root: Path) -> None:
    result = train(config(DQN, 6_000), root=root)
    assert result.final_return >= 18.0
    # 4 batches for each 16 steps, but for those before the start and the message that ends it.
    assert 6_000 / 4 - 4 * 64 <= result.train_iter <= result.steps / 4
    assert Run.open(result.run_id, root).latest("replay/ratio").value == pytest.approx(16.0, abs=2.0)


@pytest.mark.long
@pytest.mark.parametrize(
    ("algorithm", "env", "steps", "threshold"),
    [
        ({**IMPALA, "name": "appo", "minibatch": 64, "epochs": 4, "rollout": 32}, "DiscreteIdentity", 16_000, 18.0),
        (IMPALA, "MaskedIdentity", 24_000, 18.0),
        (IMPALA, "DictIdentity", 24_000, 18.0),
        ({"name": "a2c", "rollout": 8, "learning_rate": 3e-3, "gamma": 0.5}, "DiscreteIdentity", 16_000, 18.0),
        ({**SAC, "learning_rate": 3e-3, "updates": 4}, "ContinuousIdentity", 5_000, -1.0),
        ({"name": "a3c", "rollout": 8, "learning_rate": 3e-3, "gamma": 0.5}, "DiscreteIdentity", 24_000, 18.0),
        ({**DQN, "name": "apex_dqn"}, "DiscreteIdentity", 8_000, 18.0),
        ({**SAC, "name": "apex_ddpg", "learning_rate": 3e-3, "updates": 4}, "ContinuousIdentity", 5_000, -1.0),
        ({"name": "ars", "directions": 8, "learning_rate": 0.3, "noise": 0.3}, "DiscreteIdentity", 20_000, 18.0),
        ({"name": "es", "directions": 16}, "DiscreteIdentity", 40_000, 18.0),
    ],
    ids=lambda one: one["name"] if isinstance(one, dict) else str(one),
)
def test_it_learns_with_two_workers(root: Path, algorithm: Any, env: str, steps: int, threshold: float) -> None:
    assert train(config(algorithm, steps, env), root=root).final_return >= threshold


@pytest.mark.long
@pytest.mark.parametrize(
    ("algorithm", "env"),
    [
        (IMPALA, "DiscreteIdentity"),
        (A3C, "DiscreteIdentity"),
        (DQN, "DiscreteIdentity"),
        (SAC, "ContinuousIdentity"),
    ],
)
def test_lockstep_repeats_exactly_and_resumes_exactly(root: Path, algorithm: Any, env: str) -> None:
    whole = train(config(algorithm, 2048, env, schedule="lockstep"), root=root)
    again = train(config(algorithm, 2048, env, schedule="lockstep"), root=root)
    assert whole.exact and same(whole, again)
    half = train(config(algorithm, 1024, env, schedule="lockstep"), root=root)
    longer = resume(half.run_id, ["total_steps=2048", "evaluation.every=2048"], root=root)
    if algorithm in (IMPALA, A3C):  # schedules of the others go by the length of the training
        assert same(whole, longer)
    assert longer.exact


@pytest.mark.long
def test_a_worker_that_fails_again_and_again_ends_the_training(root: Path) -> None:
    broken = config(PPO, 512)
    broken["env"]["arguments"] = {"choices": 3, "max_episode_steps": "many"}
    broken["env"]["id"] = "tests.training.test_remote:breaks_elsewhere"
    with pytest.raises(OperantError, match=r"(?s)failed 3 times in a row.*not in a worker"):
        train(broken, root=root)
    assert not spawned()


def breaks_elsewhere(num_envs: int = 1, **_: Any) -> Any:
    from operant.envs.identity import DiscreteIdentity

    if "spawn_main" in " ".join(psutil.Process().cmdline()):
        raise RuntimeError("not in a worker")
    return DiscreteIdentity(num_envs)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(UsageError, match="workers is -1"):
        load_config("cartpole-ppo", ["workers=-1"])
    with pytest.raises(UsageError, match=r"engine is local or ray; got 'rai'"):
        load_config("cartpole-ppo", ["engine=rai"])
    with pytest.raises(UsageError, match="schedule is free or lockstep"):
        load_config("cartpole-ppo", ["schedule=often"])
    with pytest.raises(UsageError, match=r"set workers or env\.workers, not both"):
        load_config("cartpole-ppo", ["workers=2", "env.workers=2"])


@pytest.mark.parametrize("address", ["127.0.0.1:{port}", "not an address"])
def test_a_ray_that_is_not_there(root: Path, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    ray = pytest.importorskip("ray", reason="needs operant[ray]")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr("operant.framework.parallel.ray_engine._ANSWER_TIMEOUT", 1.0)
    address = address.format(port=free_port())
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(OperantError, match=rf"^there is no Ray cluster at {address} \(.*RAY_ADDRESS"):
        train(config(IMPALA, 100, engine="ray"), root=root)


def test_workers_that_do_not_come_up(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("operant.framework.parallel.supervised._JOIN_TIMEOUT", 0.01)
    with pytest.raises(OperantError, match=r"^the other workers were not ready within"):
        train(config(IMPALA, 100), root=root)
    assert not spawned()


def test_scales_of_several_are_those_of_one() -> None:
    """What two workers saw, absorbed one after the other, is what one would have seen."""
    rng = np.random.default_rng(0)
    rows = rng.normal(3.0, 2.0, size=(40, 4, 2))
    alone = Normalizer(2, 4, 0.9, obs=True, reward=False)
    for step in rows:
        alone.observe(step)
    learner = Normalizer(2, 4, 0.9, obs=True, reward=False)
    parts = [Normalizer(2, 4, 0.9, obs=True, reward=False) for _ in range(2)]
    for part, steps in zip(parts, (rows[:25], rows[25:]), strict=True):
        part.defer()
        for step in steps:
            np.testing.assert_allclose(part.observe(step), step.clip(-10, 10), rtol=1e-6)  # the scale stays
        learner.absorb(part.take_unseen())
        learner.absorb(part.take_unseen())  # what was taken is not counted twice
    assert alone.obs_moments is not None and learner.obs_moments is not None
    np.testing.assert_allclose(learner.obs_moments.mean, alone.obs_moments.mean)
    np.testing.assert_allclose(learner.obs_moments.variance, alone.obs_moments.variance)
    parts[0].load_scales(learner.scales())
    np.testing.assert_allclose(parts[0].observe(rows[0], learn=False), alone.observe(rows[0], learn=False))


def test_callbacks_stay_with_the_learner(root: Path) -> None:
    """They may be anything that this process has: nobody else is given them."""
    passes: list[int] = []
    train(config(IMPALA, 500, callbacks=[lambda training: lambda ctx: passes.append(training.env_step)]), root=root)
    assert passes and passes[-1] >= 500
