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
def test_mistakes_are_found_before_anything_starts() -> None:
    from operant.harness.rllib import algorithm_config
    from operant.harness.tree import make_plan

    for override, message in {
        "algo.name=ppo": "did you mean 'PPO'",
        "environment.env=null": "environment.env is a Gymnasium id",
        "++environment.env_config=3": "environment: RLlib's environment.. says",
        "rollouts.num_env_runners=many": "rollouts.num_env_runners is a number, got 'many'",
        "rollouts.num_envs_per_env_runner=0": "must be larger 0",
        "++rollouts.batch_mode=nope": "must be one of",
        "training.lr=x": "training.lr is a number, got 'x'",
        "++training.use_kl_loss=maybe": "use_kl_loss is true or false",
        "++training.nope=3": "there is no training.nope",
        "evaluation.evaluation_interval=often": "evaluation_interval is a whole number from 0 up",
        "++evaluation.evaluation_config=3": "evaluation_config is a group of settings",
        "++multi_agent={policies: 3}": "policies is a list of names",
        "++film.frames=x": "film.frames is a whole number",
        "++callbacks=[os.path.join]": "is no RLlibCallback",
        "++model.module=os.path.join": "is no RLModule",
        "++model.use_lstm=maybe": "use_lstm is true or false",
        "debugging.seed=x": "debugging.seed is a whole number",
        "framework.framework=tf2": "it is 'torch'",
    }.items():
        with pytest.raises(UsageError, match=message):
            algorithm_config(make_plan(composed("ppo", "algo.library=rllib", override)))


SMALL = ("algo.library=rllib", "rollouts.num_envs_per_env_runner=1", "training.train_batch_size_per_learner=256")
SMALL += ("stop_conditions.training_iteration=2", "training.num_epochs=1", "checkpoint.checkpoint_frequency=1")
SMALL += ("checkpoint.num_to_keep=1", "evaluation.evaluation_interval=1", "evaluation.evaluation_duration=1")


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("default")  # RLlib's own
def test_a_training_on_a_real_ray(tmp_path: Path) -> None:
    from operant.harness.application import run_tree
    from operant.tracking import Run
    from operant.training.trust import Untrusted

    more = ("film.frames=5", f"tensorboard.logdir={tmp_path}/tb", "callbacks=[tests.harness.counting.Counting]")
    report = run_tree(composed("ppo", *SMALL, *more), root=tmp_path)
    assert "training_iteration is 2" in report.reason
    run = Run.open(report.run_id, tmp_path)
    for name in RESULTS.values():  # what is promised of today's results, of the installed Ray
        assert len(run.scalars(name)["value"]) >= 1, name
    assert len(run.scalars("evaluation/env_runners/counted")["value"]) == 2
    assert [one.tag for one in run.media()] == ["evaluation/env_runners/episode_film"] * 2
    saved = list((report.folder / "checkpoints").iterdir())
    assert [one.name for one in saved] == ["iteration-000000002"]
    assert str(saved[0]) in [one.text for one in run.text() if one.tag == "checkpoint"]
    assert b"learners/default_policy/entropy" in next((tmp_path / "tb" / report.run_id).iterdir()).read_bytes()

    on = (f"algo.checkpoint_path={report.folder}", "stop_conditions.training_iteration=3")
    again = run_tree(composed("ppo", *SMALL, *on), root=tmp_path)
    assert again.steps == 3 * 256
    look = ("cli.mode=view", f"algo.checkpoint_path={report.folder}", f"runtime.local_dir={tmp_path}")
    seen = run_tree(composed("ppo", *SMALL, *look), root=tmp_path)
    assert seen.gif.is_file() and len(seen.returns) == 1
    pickle = next(saved[0].glob("**/*.pkl"))
    pickle.write_bytes(pickle.read_bytes() + b"x")
    with pytest.raises(Untrusted):
        run_tree(composed("ppo", *SMALL, *look), root=tmp_path)

    with pytest.raises(UsageError, match=r"\d+ CPUs are asked for and the cluster has"):
        run_tree(composed("ppo", *SMALL, f"rollouts.num_env_runners={os.cpu_count()}"), root=tmp_path)
    with pytest.raises(UsageError, match=r"0.5 GPUs are asked for and the cluster has 0"):
        run_tree(composed("ppo", *SMALL, "+resources.num_gpus=0.5"), root=tmp_path)
    for wrong, message in (("+training.clip_parm=1", "clip_param"), ("algo.name=TRPO", "RLlib's are")):
        with pytest.raises(UsageError, match=message):
            run_tree(composed("ppo", *SMALL, wrong), root=tmp_path)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("default")  # RLlib's own
def test_a_network_of_ones_own_and_several_agents(tmp_path: Path) -> None:
    from operant.harness.application import run_tree
    from operant.harness.rllib import algorithm_config
    from operant.harness.tree import make_plan
    from operant.tracking import Run

    with pytest.raises(UsageError, match="which is no RLModule"):
        algorithm_config(make_plan(composed("ppo", *SMALL, "++model={module: builtins.int}")))
    own = "ray.rllib.algorithms.ppo.torch.default_ppo_torch_rl_module.DefaultPPOTorchRLModule"
    run_tree(composed("ppo", *SMALL, f"++model.module={own}", "model.fcnet_hiddens=[8]"), root=tmp_path)

    land = ("simulation.simfire.train.area.screen_size=[12,12]", "simulation.simfire.train.simulation.runtime=20m")
    flat = "++rollouts.env_to_module_connector._target_=operant.harness.rllib.flat_observations"
    flats = (
        flat,
        "++rollouts.env_to_module_connector._partial_=true",
        "++rollouts.env_to_module_connector.multi_agent=false",
    )
    with pytest.raises(UsageError, match=r"RLlib: `minibatch_size` .512. must be"):
        run_tree(composed("wildfire-ppo", *SMALL, *land, *flats), root=tmp_path)
    flats += ("training.minibatch_size=128",)
    assert run_tree(composed("wildfire-ppo", *SMALL, *land, *flats), root=tmp_path).steps == 512
    report = run_tree(composed("marl", *SMALL, *land), root=tmp_path)
    run = Run.open(report.run_id, tmp_path)
    for policy in ("left", "right"):
        assert len(run.scalars(f"learners/{policy}/policy_loss")["value"]) == 2
    look = ("cli.mode=view", f"algo.checkpoint_path={report.folder}", f"runtime.local_dir={tmp_path}")
    assert run_tree(composed("marl", *SMALL, *land, *look), root=tmp_path).frames == 21
