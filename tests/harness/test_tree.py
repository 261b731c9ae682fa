"""The tree itself: its defaults, its words, what Hydra does with it, and configs of SimHarness's brought over."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.harness.composing import composed
from tests.harness.simharness_tree import write_simharness
from tests.machine import patience

from operant.errors import UsageError
from operant.harness.application import run_tree
from operant.harness.command import _addable, main
from operant.harness.own import own_config
from operant.harness.tree import CONF, Origins, make_plan
from operant.harness.words import DEFAULTS as DEFAULTS_OF_WORDS
from operant.harness.words import GONE_RESULTS, RESULTS, lookup, todays_result
from operant.tracking import Run

GROUPS = (
    *("environment/env_config", "evaluation/evaluation_config/env_config", "exploration/exploration_config"),
    *("framework", "hydra", "resources", "rollouts", "simulation/simfire", "training", "tunables", "aim", "cluster"),
)
DEFAULTS: dict[str, Any] = {
    "algo.name": "DQN",
    "runtime.name": None,
    "checkpoint.checkpoint_frequency": 20,
    "checkpoint.num_to_keep": None,
    "stop_conditions.training_iteration": 1_000_000,
    "stop_conditions.timesteps_total": 2_000_000_000,
    "stop_conditions.episode_reward_mean": 100,
    "debugging.log_level": "WARN",
    "debugging.log_sys_usage": True,
    "debugging.seed": 2000,
}
# Every result that RLlib had at the time of SimHarness, without the settings that were among them.
OLD_RESULTS = """
episode_reward_max episode_reward_min episode_reward_mean episode_len_mean episodes_this_iter num_faulty_episodes
num_healthy_workers num_in_flight_async_reqs num_remote_worker_restarts num_agent_steps_sampled num_agent_steps_trained
num_env_steps_sampled num_env_steps_trained num_env_steps_sampled_this_iter num_env_steps_trained_this_iter
timesteps_total num_steps_trained_this_iter agent_timesteps_total done episodes_total training_iteration trial_id
experiment_id date timestamp time_this_iter_s time_total_s pid hostname node_ip time_since_restore
timesteps_since_restore iterations_since_restore warmup_time info/num_env_steps_sampled info/num_env_steps_trained
info/num_agent_steps_sampled info/num_agent_steps_trained sampler_results/episode_reward_max
sampler_results/episode_reward_min sampler_results/episode_reward_mean sampler_results/episode_len_mean
sampler_results/episodes_this_iter sampler_results/num_faulty_episodes hist_stats/episode_reward
hist_stats/episode_lengths sampler_perf/mean_raw_obs_processing_ms sampler_perf/mean_inference_ms
sampler_perf/mean_action_processing_ms sampler_perf/mean_env_wait_ms sampler_perf/mean_env_render_ms
connector_metrics/ObsPreprocessorConnector_ms connector_metrics/StateBufferConnector_ms
connector_metrics/ViewRequirementAgentConnector_ms timers/training_iteration_time_ms counters/num_env_steps_sampled
counters/num_env_steps_trained counters/num_agent_steps_sampled counters/num_agent_steps_trained
perf/cpu_util_percent perf/ram_util_percent sampler_results/hist_stats/episode_reward
sampler_results/hist_stats/episode_lengths sampler_results/sampler_perf/mean_raw_obs_processing_ms
sampler_results/sampler_perf/mean_inference_ms sampler_results/sampler_perf/mean_action_processing_ms
sampler_results/sampler_perf/mean_env_wait_ms sampler_results/sampler_perf/mean_env_render_ms
sampler_results/connector_metrics/ObsPreprocessorConnector_ms
sampler_results/connector_metrics/StateBufferConnector_ms
sampler_results/connector_metrics/ViewRequirementAgentConnector_ms
""".split()  # noqa: SIM905
UNCHANGED = {
    *("training_iteration", "timestamp", "time_this_iter_s", "time_total_s", "time_since_restore"),
    *("iterations_since_restore", "perf/cpu_util_percent", "perf/ram_util_percent"),
}


def test_the_groups_and_the_defaults_of_the_document() -> None:
    assert all((CONF / group).is_dir() for group in GROUPS)
    raw = yaml.safe_load((CONF / "config.yaml").read_text())
    assert raw["cli"]["mode"] == "???" and raw["runtime"]["local_dir"] == "${hydra:run.dir}"
    for path, value in DEFAULTS.items():
        group, key = path.split(".")
        assert raw[group][key] == value, path
    for file in CONF.rglob("*.yaml"):
        assert file.read_text().startswith("#"), f"{file} says nothing about itself"


def test_an_older_name_wins_over_a_default_of_the_tree() -> None:
    tree = composed("config")
    assert all(lookup(tree, path) == value for path, value in DEFAULTS_OF_WORDS.items())
    plan = make_plan(composed("dqn", "+rollouts.num_rollout_workers=2", "+rollouts.num_envs_per_worker=3"))
    assert own_config(plan).env.num_envs == 6
    both = composed("dqn", "rollouts.num_env_runners=1", "+rollouts.num_rollout_workers=2")
    with pytest.raises(UsageError, match="both are given"):
        make_plan(both)


@pytest.mark.parametrize("name", ["config", "dqn", "ppo", "sac", "wildfire-dqn", "wildfire-ppo", "wildfire-marl"])
def test_every_experiment_is_right(name: str) -> None:
    own_config(make_plan(composed(name)))


@pytest.mark.parametrize("name", OLD_RESULTS)
def test_every_older_result_is_translated_or_refused(name: str) -> None:
    if name in GONE_RESULTS:
        with pytest.raises(UsageError, match="no training could be judged by it"):
            todays_result(name)
    else:
        assert (todays_result(name) == name) == (name in UNCHANGED) and (name in RESULTS or name in UNCHANGED)


def test_settings_are_no_results_and_times_are_seconds() -> None:
    with pytest.raises(UsageError, match="is a setting and no result"):
        make_plan(composed("dqn", "++stop_conditions={config/lr: 1}"))
    plan = make_plan(composed("dqn", "++stop_conditions={timers/training_iteration_time_ms: 500}"))
    assert plan.stop_conditions["timers/training_iteration"] == 0.5


def test_only_what_the_user_wrote_in_older_words_is_told(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("stop_conditions: {episode_reward_mean: 5}\n")
    files = (("", CONF / "config.yaml"), ("", file))
    [line] = make_plan(composed("config"), Origins(files)).said
    assert line.startswith("the result episode_reward_mean is called")
    asked = Origins((("", CONF / "config.yaml"),), ("++stop_conditions.timesteps_total=3",))
    assert ["timesteps_total" in line for line in make_plan(composed("config"), asked).said] == [True]
    assert not make_plan(composed("config"), Origins(files[:1])).said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["training=null", "cli.mode=train"], "training=null chooses no file of the group; it is one of default, dqn"),
        (["init", "a", "b"], "unrecognized arguments: b"),
        (["init", "--to", "a"], "unrecognized arguments: --to"),
        (["migrate", "nothing.yaml"], "there is no file nothing.yaml"),
        (["--help", "trainin"], "did you mean 'training'"),
    ],
)
def test_mistakes_in_commands_are_one_sentence(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        assert main(words) == 1
    except SystemExit as ended:
        assert ended.code == 2
    assert message in capsys.readouterr().err and not list(tmp_path.iterdir())


@pytest.mark.parametrize("place", ["tensorboard.logdir", "aim.repo"])
def test_a_place_that_cannot_be_written_to_is_told(place: str, tmp_path: Path) -> None:
    if place == "aim.repo":
        pytest.importorskip("aim", reason="aim is not installed")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=f"{place} cannot be written to: "):
        run_tree(composed("dqn", f"{place}={tmp_path}/file/below"), root=tmp_path)


def test_an_override_that_the_tree_lacks_is_checked_by_who_would_take_it() -> None:
    assert _addable("training.clip_param=1") == "++training.clip_param=1"
    for word in ("training=ppo", "+training.x=1", "hydra.run.dir=x", "env@a.b=c", "environment/env_config=x", "-cn"):
        assert _addable(word) == word
    slashed = _addable("stop_conditions.env_runners/episode_return_mean=3")
    assert slashed == "++stop_conditions={env_runners/episode_return_mean: 3}"
    assert composed("dqn", slashed)["stop_conditions"]["env_runners/episode_return_mean"] == 3


def test_help_of_one_group_and_completion(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help", "tunables"]) == 0
    assert "loguniform" in capsys.readouterr().out
    assert main(["--help", "tunable"]) == 1 and "did you mean 'tunables'" in capsys.readouterr().err
    assert main(["-sc", "install=bash"]) == 0
    script = capsys.readouterr().out
    bin_ = Path(sys.executable).parent
    asked = (
        f"PATH={bin_}:$PATH\n{script}\nCOMP_WORDS=(operant harness training=d); COMP_CWORD=2\n"
        'COMP_LINE="operant harness training=d"; COMP_POINT=${#COMP_LINE}; _operant_harness; echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, timeout=patience(60))
    assert done.stdout.split() == ["training=default", "training=dqn"], done.stderr


def test_a_folder_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("defaults: [dqn, _self_]\ntraining:\n  gamma: 0.9\n  epsilom: 3\n")
    words = ["--config-dir", str(tmp_path), "-cn", "mine", "cli.mode=train", f"hydra.run.dir={tmp_path}/out"]
    done = subprocess.run(
        [sys.executable, "-m", "operant.harness", *words], capture_output=True, text=True, timeout=patience(120)
    )
    assert done.returncode == 1
    assert f"there is no training.epsilom ({tmp_path}/mine.yaml:4) (did you mean 'epsilon'?)" in done.stderr


class Scale:
    """What a config describes by `_target_`."""

    def __init__(self, by: float) -> None:
        self.by = by


def scaled(scale: Scale, make: Any, render_mode: str | None = None) -> Any:
    """An environment whose arguments are objects."""
    import gymnasium

    assert isinstance(scale, Scale) and callable(make)
    env = gymnasium.make("CartPole-v1", render_mode=render_mode)
    return gymnasium.wrappers.TransformReward(env, lambda reward: make(float(reward) * scale.by))


DESCRIBED = (
    "environment.env=tests.harness.test_tree:scaled",
    "+environment.env_config.scale={_target_: tests.harness.test_tree.Scale, by: 10}",
    "+environment.env_config.make={_target_: builtins.float, _partial_: true}",
    "stop_conditions.timesteps_total=1000",
    "evaluation.evaluation_duration=1",
)


def test_described_objects_and_whoever_looks_at_it_later(tmp_path: Path) -> None:
    report = run_tree(composed("dqn", *DESCRIBED), root=tmp_path)
    assert report.mean_return > 100  # ten for each step
    look = ("cli.mode=view", f"algo.checkpoint_path={report.run_id}", f"runtime.local_dir={tmp_path}")
    seen = run_tree(composed("dqn", *DESCRIBED, *look), root=tmp_path)
    [played] = seen.episodes
    assert played.total == 10 * played.length
    assert seen.table.read_text().splitlines() == [
        "episode,seed,return,length",
        f"0,2000,{played.total},{played.length}",
    ]
    [film] = Run.open(seen.run_id, tmp_path).media()
    assert film.kind == "video"
    with pytest.raises(UsageError, match=r"environment.env_config: .*Scale"):
        run_tree(composed("dqn", *DESCRIBED, "+environment.env_config.scale.bye=1"), root=tmp_path)


def test_films_checkpoints_callbacks_and_event_files_of_a_training(tmp_path: Path) -> None:
    more = ("film.frames=5", f"tensorboard.logdir={tmp_path}/tb", "callbacks=[tests.harness.test_tree.count]")
    stop = ("stop_conditions.timesteps_total=1000", "evaluation.evaluation_duration=1")
    report = run_tree(composed("dqn", *more, *stop), root=tmp_path)
    run = Run.open(report.run_id, tmp_path)
    assert [one.tag for one in run.media()] == ["evaluation/episode"] and COUNTED
    [saved] = [one.text for one in run.text() if one.tag == "checkpoint"]
    assert Path(saved).is_dir()
    [file] = (tmp_path / "tb" / report.run_id).iterdir()
    assert b"env_runners/episode_return_mean" in file.read_bytes()


COUNTED: list[int] = []


def count(training: Any) -> Any:
    return lambda ctx: COUNTED.append(training.env_step)


@pytest.mark.long
@pytest.mark.filterwarnings("default")  # Aim's own
def test_aim_as_a_second_place(tmp_path: Path) -> None:
    aim = pytest.importorskip("aim", reason="aim is not installed")
    stop = ("stop_conditions.timesteps_total=1000", "evaluation.evaluation_duration=1")
    report = run_tree(composed("dqn", f"aim.repo={tmp_path}/aim", *stop), root=tmp_path)
    repo = aim.Repo(str(tmp_path / "aim"))
    (number,) = repo.list_all_runs()
    # Opened for writing: read-only access goes through an index that only Aim's own server makes.
    there = aim.Run(number, repo=repo, system_tracking_interval=None, capture_terminal_logs=False)
    try:
        assert there["operant_run"] == report.run_id and there["hparams"]["training.lr"] == 0.0005
        series = {one.name: one for one in there.metrics()}
        assert list(dict(series["env_runners/episode_return_mean"].data.items())) == [1000]
    finally:
        there.close()


@pytest.mark.parametrize("name", ["config", "marl_config", "debug_marl", "ccai_paper_config"])
def test_configs_of_simharness_run_after_they_were_brought_over(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = write_simharness(tmp_path / "old")
    assert main(["migrate", str(old / f"{name}.yaml"), "--to", str(tmp_path / "new"), "--name", "brought"]) == 0
    said = capsys.readouterr().out
    for line in (
        "simulation.train.fire.seed: left out, it cannot be resolved",
        "rollouts.num_rollout_workers is called rollouts.num_env_runners today",
        "SimFire's wind.perlin: one wind for the whole map",
        "training.epsilon=[[0, 1.0], [10000000, 0.05]]",
        "reward_cls_partial: AreaSavedPropReward is reward: area_saved",
        "model.conv_filters: left out",
        f"wrote {tmp_path}/new/brought.yaml",
    ):
        assert line in said
    written = yaml.safe_load((tmp_path / "new" / "brought.yaml").read_text())
    assert written["stop_conditions"]["training_iteration"] == 4 and "runtime" not in written
    _package_beside(tmp_path / "new")
    quick = ("rollouts.num_env_runners=0", "++reporting.min_sample_timesteps_per_iteration=50")
    quick += ("stop_conditions.training_iteration=1", "environment.env_config.simulation.area.screen_size=12")
    quick += ("evaluation.evaluation_interval=null", "checkpoint.checkpoint_frequency=0")
    report = run_tree(composed("brought", *quick, folder=tmp_path / "new"), root=tmp_path)
    assert report.steps >= 50
    assert main(["migrate", str(old / f"{name}.yaml"), "--to", str(tmp_path / "new"), "--name", "brought"]) == 1


def _package_beside(folder: Path) -> None:
    """What Hydra would find of the package's tree behind a folder of one's own."""
    for there in CONF.iterdir():
        if there.is_dir() or there.name == "config.yaml":
            (folder / there.name).symlink_to(there)


def test_several_agents_of_simharness_have_a_policy_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pettingzoo")
    old, new = write_simharness(tmp_path / "old"), tmp_path / "new"
    (old / "marl.yaml").write_text("defaults: [config, override environment: marl, _self_]\n")
    assert main(["migrate", str(old / "marl.yaml"), "--to", str(new)]) == 0
    said = capsys.readouterr().out
    assert "multi_agent: a policy for each of agent_0, agent_1, agent_2" in said
    assert "several agents are stepped in one process; environments: 8 × 1" in said
    written = yaml.safe_load((new / "marl.yaml").read_text())
    assert written["multi_agent"]["policies"] == [f"agent_{number}" for number in range(3)]
    assert written["environment"]["env_config"]["num_agents"] == 3 and "algo" not in written
    _package_beside(new)
    quick = ("++reporting.min_sample_timesteps_per_iteration=64", "stop_conditions.training_iteration=3")
    quick += ("++training.num_steps_sampled_before_learning_starts=64", "evaluation.evaluation_interval=null")
    quick += ("environment.env_config.simulation.area.screen_size=12", "training.train_batch_size_per_learner=32")
    report = run_tree(composed("marl", *quick, folder=new), root=tmp_path)
    run = Run.open(report.run_id, tmp_path)
    assert run.scalars("training_iteration")["value"].tolist() == [1.0, 2.0, 3.0]
    for agent in written["multi_agent"]["policies"]:
        assert math.isfinite(run.scalars(f"learners/{agent}/q_loss")["value"][-1])
    with pytest.raises(UsageError, match=r"in one process: 0, and rollouts\.num_envs_per_env_runner=16"):
        own_config(make_plan(composed("marl", "rollouts.num_env_runners=2", folder=new)))
