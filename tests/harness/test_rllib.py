"""The same tree with RLlib: its names against the installed Ray, and a training on a real one."""

from __future__ import annotations

import gc
import importlib.util
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.harness.composing import composed

from operant.errors import UsageError
from operant.harness.words import OPTIONS, RESULTS

pytestmark = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")


@pytest.fixture(autouse=True)
def authenticated(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    yield
    with warnings.catch_warnings():  # Ray does not wait for the processes that it has ended
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.mark.long
def test_every_word_of_today_is_one_of_the_installed_ray() -> None:
    from ray.rllib.algorithms.ppo import PPOConfig

    from operant.harness.rllib import _METHODS, _parameters

    config = PPOConfig()
    for old, new in OPTIONS.items():
        group, _, name = new.partition(".")
        if group in _METHODS and name:
            assert name in _parameters(config, _METHODS[group]), (old, new)


@pytest.mark.long
@pytest.mark.filterwarnings("default")  # RLlib's own
def test_a_training_on_a_real_ray(tmp_path: Path) -> None:
    from operant.harness.application import run_tree
    from operant.tracking import Run
    from operant.training.trust import Untrusted

    small = ("algo.library=rllib", "rollouts.num_envs_per_env_runner=1", "training.train_batch_size_per_learner=256")
    small += ("stop_conditions.training_iteration=2", "training.num_epochs=1", "checkpoint.checkpoint_frequency=1")
    small += ("checkpoint.num_to_keep=1", "evaluation.evaluation_interval=1", "evaluation.evaluation_duration=1")
    report = run_tree(composed("ppo", *small), root=tmp_path)
    assert "training_iteration is 2" in report.reason
    run = Run.open(report.run_id, tmp_path)
    for name in RESULTS.values():
        if name.startswith(("env_runners/episode_", "evaluation/", "num_env_steps_sampled", "timers/training_iter")):
            assert len(run.scalars(name)["value"]) >= 1, name
    saved = list((report.folder / "checkpoints").iterdir())
    assert [one.name for one in saved] == ["iteration-000000002"]

    look = ("cli.mode=view", f"algo.checkpoint_path={report.folder}", f"runtime.local_dir={tmp_path}")
    seen = run_tree(composed("ppo", *small, *look), root=tmp_path)
    assert seen.gif.is_file() and len(seen.returns) == 1
    pickle = next(saved[0].glob("**/*.pkl"))
    pickle.write_bytes(pickle.read_bytes() + b"x")
    with pytest.raises(Untrusted):
        run_tree(composed("ppo", *small, *look), root=tmp_path)

    with pytest.raises(UsageError, match=r"\d+ CPUs are asked for and the cluster has"):
        run_tree(composed("ppo", *small, f"rollouts.num_env_runners={os.cpu_count()}"), root=tmp_path)
    for wrong, message in (("+training.clip_parm=1", "clip_param"), ("algo.name=TRPO", "RLlib's are")):
        with pytest.raises(UsageError, match=message):
            run_tree(composed("ppo", *small, wrong), root=tmp_path)
