"""The tree with Operant's own algorithms: training, results, stopping, going on, searching, looking."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from tests.harness.composing import composed
from tests.machine import patience

from operant.errors import UsageError
from operant.harness.application import run_tree
from operant.harness.command import _as_space, _for_hydra, _split, _todays_override, main
from operant.harness.own import own_config
from operant.harness.results import StopConditions
from operant.harness.tree import Origins, flag, make_plan
from operant.harness.tuning import _keep_tree, _name, spaces_of
from operant.schedulers.views.overview import describe
from operant.tracking import Run
from operant.training.trust import Untrusted

SHORT = ("stop_conditions.timesteps_total=2000", "evaluation.evaluation_duration=2")


def test_a_training_reports_rllibs_results_and_stops_by_them(tmp_path: Path) -> None:
    report = run_tree(composed("dqn", *SHORT, "runtime.name=first"), root=tmp_path)
    assert report.steps == 2000 and "num_env_steps_sampled_lifetime is 2000" in report.reason
    run = Run.open(report.run_id, tmp_path)
    assert run.scalars("training_iteration")["value"].tolist() == [1.0, 2.0]
    assert run.scalars("env_runners/num_env_steps_sampled")["value"].tolist() == [1000.0, 1000.0]
    for name in ("env_runners/episode_return_mean", "learners/default_policy/q_loss", "perf/cpu_util_percent"):
        assert math.isfinite(run.scalars(name)["value"][-1])
    assert run.params["algo.name"] == "DQN" and run.params["training.lr"] == 0.0005


def test_identical_configs_give_identical_results_and_another_seed_others(tmp_path: Path) -> None:
    returns = []
    for seed in (2000, 2000, 1):
        report = run_tree(composed("dqn", *SHORT, f"debugging.seed={seed}"), root=tmp_path)
        returns.append(Run.open(report.run_id, tmp_path).scalars("env_runners/episode_return_mean")["value"].tolist())
    assert returns[0] == returns[1] != returns[2]


def test_a_return_that_is_reached_ends_it(tmp_path: Path) -> None:
    report = run_tree(composed("ppo", "stop_conditions.episode_reward_mean=5"), root=tmp_path)
    assert report.steps == 2048 and "episode_return_mean" in report.reason


def test_it_goes_on_from_a_run_and_checkpoints_are_as_often_as_asked(tmp_path: Path) -> None:
    every = ("checkpoint.checkpoint_frequency=1", "checkpoint.num_to_keep=1")
    report = run_tree(composed("dqn", *SHORT, *every), root=tmp_path)
    assert len(list((report.folder / "checkpoints").glob("step-*"))) == 1
    more = ("stop_conditions.timesteps_total=3000", f"algo.checkpoint_path={report.run_id}", SHORT[1])
    again = run_tree(composed("dqn", *more), root=tmp_path)
    assert again.run_id == report.run_id and again.steps == 3000
    with pytest.raises(UsageError, match="cannot go on with model"):
        run_tree(composed("dqn", *more, "model.fcnet_hiddens=[8]"), root=tmp_path)
    none = run_tree(composed("dqn", *SHORT, "checkpoint.checkpoint_frequency=0"), root=tmp_path)
    assert len(list((none.folder / "checkpoints").glob("step-*"))) <= 1  # only what the end of a training saves


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["cli.mode=veiw"], r"cli.mode is 'veiw' \(did you mean 'view'\?\)"),
        (["algo.library=rlib"], "did you mean 'rllib'"),
        (["algo.name=DQM"], "did you mean 'dqn'"),
        (["+training.learning_rat=1"], "did you mean 'learning_rate'"),
        (["+rollouts.num_env_runers=1"], "did you mean 'num_env_runners'"),
        (["+enviroment.env=x"], "did you mean 'environment'"),
        (["+model.use_attention=true"], "there is no model.use_attention"),
        (["+model.conv_filter=true"], "there is no model.conv_filter"),
        (["++multi_agent={policies: [a, b]}"], "policy_mapping_fn says which agent has which"),
        (["callbacks=3"], "list of dotted paths"),
        (["environment.is_atari=true"], "no counterpart with algo.library=operant"),
        (["checkpoint.num_to_keep=0"], "1 or more"),
        (["debugging.log_level=LOUD"], "debugging.log_level"),
        (["stop_conditions.episode_reward_mean=much"], "is a number"),
        (["training.epsilon=[1,2,3]"], "two points"),
        (["+environment.horizon=3"], "do not have"),
        (
            ["exploration/exploration_config=epsilon_greedy", "exploration.exploration_config.type=Curiosity"],
            "Curiosity",
        ),
        (["rollouts.num_env_runners=many"], "num_env_runners is a whole number from 0 up, got 'many'"),
        (["rollouts.num_envs_per_env_runner=0"], "from 1 up, got 0"),
        (["evaluation.evaluation_interval=-1"], "evaluation_interval is a whole number from 0 up"),
        (["evaluation.evaluation_duration=0"], "evaluation_duration is a whole number from 1 up"),
        (["++evaluation.evaluation_config=3"], "evaluation_config is a group of settings"),
        (["++evaluation.evaluation_config.env_config=3"], "env_config is a group of settings"),
        (["checkpoint.checkpoint_frequency=true"], "checkpoint_frequency is True"),
        (["++stop_conditions=3"], "stop_conditions is a group of settings, got 3"),
        (["stop_conditions.training_iteration=0"], "nothing would be trained"),
        (["debugging.seed=-1"], "seed is a whole number from 0 up"),
        (["++training.replay_buffer_config=3"], "replay_buffer_config is a group of settings"),
        (["++training.training_intensity=x"], "training_intensity is a number from 0 up"),
        (["training.epsilon=[[0,1],[x,0]]"], "two points"),
        (["++exploration.exploration_config=3"], "exploration_config is a group of settings"),
        (["++exploration.exploration_config={type: EpsilonGreedy, warmup_timesteps: x}"], "whole numbers from 0 up"),
        (["++model.use_lstm=maybe"], "use_lstm is true or false"),
        (["++multi_agent={policies: 3}"], "policies is a list of names"),
        (["++multi_agent={policies: [a, b], policy_mapping_fn: 3}"], "is a table of agents and policies"),
        (["++learners.num_gpus_per_learner=x"], "num_gpus_per_learner is a number"),
        (["++reporting.min_sample_timesteps_per_iteration=0"], "from 1 up"),
        (["++film.frames=x"], "film.frames is a whole number"),
        (["++algo=3"], "algo is a group of settings"),
        (["environment.env=null"], "environment.env is a Gymnasium id"),
        (["++training.v_min=-10"], "v_min is -10, which has no counterpart with algo.library=operant; leave it out$"),
    ],
)
def test_mistakes_are_found_before_anything_starts(overrides: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        own_config(make_plan(composed("dqn", *overrides)))


def test_a_mistake_in_a_file_is_told_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "dqn.yaml"
    file.write_text("lr: 0.1\n# a comment\nepsilonn: 3\n")
    plan = make_plan(composed("dqn", "+training.epsilonn=3"), Origins((("training", file),)))
    with pytest.raises(UsageError, match=r"training.epsilonn \(.*dqn.yaml:3\).*did you mean 'epsilon'"):
        own_config(plan)


def test_a_stop_condition_that_no_result_has_is_an_error_at_the_first(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"stop_conditions.rewrad_mean: no result has this name"):
        run_tree(composed("dqn", *SHORT, "+stop_conditions.rewrad_mean=3"), root=tmp_path)


@pytest.mark.parametrize(
    ("name", "later"),
    [
        ("env_runners/episode_return_mean", True),
        ("env_runners/episode_return_meen", False),
        ("evaluation/env_runners/episode_len_max", True),
        ("evaluation/env_runners/num_episodes", True),
        ("evaluation/env_runners/num_episode", False),
        ("learners/default_policy/q_loss", True),
    ],
)
def test_a_result_that_is_still_to_come_is_waited_for(name: str, later: bool) -> None:
    conditions = StopConditions({name: 3.0})
    first = {"training_iteration": 1.0, "env_runners/num_episodes": 0.0}
    if later:
        assert conditions.reached(first) == "" and name in conditions.reached({name: 3.0})
    else:
        with pytest.raises(UsageError, match="it would never stop"):
            conditions.reached(first)


def test_older_words_are_translated_with_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert _todays_override("rollouts.num_rollout_workers=2") == "++rollouts.num_env_runners=2"
    assert "num_rollout_workers is called rollouts.num_env_runners today" in capsys.readouterr().err
    old = ["+training.train_batch_size=64", "exploration/exploration_config=epsilon_greedy", "+resources.num_gpus=0"]
    plan = make_plan(composed("dqn", *old, "training.train_batch_size_per_learner=null", "+rollouts.num_workers=0"))
    config = own_config(plan)
    assert config.algorithm_settings.batch == 64 and config.algorithm_settings.exploration_steps == 10_000
    assert any("train_batch_size is called" in line for line in plan.said)
    with pytest.raises(UsageError, match="both are given"):
        make_plan(composed("ppo", "+training.sgd_minibatch_size=32"))


def test_settings_of_both_libraries_become_ours() -> None:
    ppo = own_config(make_plan(composed("ppo", "debugging.seed=7")))
    assert (ppo.env.num_envs, ppo.algorithm_settings.rollout, ppo.algorithm_settings.clip, ppo.seed) == (8, 256, 0.2, 7)
    sac = own_config(make_plan(composed("sac", "+training.twin_q=false", "+training.increase_rate=0.9")))
    assert (sac.algorithm_settings.critics, sac.algorithm_settings.increase_rate) == (1, 0.9)
    assert sac.algorithm_settings.actor_learning_rate == 0.001 and sac.env.id == "Pendulum-v1"
    with pytest.raises(UsageError, match="cannot share evenly; make it 2040"):
        own_config(make_plan(composed("ppo", "training.train_batch_size_per_learner=2047")))


def test_sweeps_are_spaces() -> None:
    assert _as_space("training.lr=tag(log,interval(1e-5,1e-2))") == (
        "++training.lr={type: Real, data: [1e-05, 0.01], log: true}"
    )
    assert _as_space("training.n_step=1,3") == "++training.n_step={type: Categorical, data: [1, 3]}"
    assert _as_space("training.lr=3") == "training.lr=3"
    assert _split(["a=1", "-cn", "dqn", "b=2"]) == (["-cn", "dqn"], ["a=1", "b=2"])
    words = ["cli.mode=tune", "-cn", "dqn", "training.n_step=1,3", "--trust"]
    space = "++tunables.training.n_step={type: Categorical, data: [1, 3]}"
    assert _for_hydra(words) == ["-cn", "dqn", "++cli.mode=tune", space, "++algo.trust=true"]
    assert "++training.n_step=1,3" in _for_hydra(["cli.mode=train", *words[1:], "--multirun"])


def test_every_spelling_of_a_space_is_one() -> None:
    for word, space in {
        "training.lr=tag(log,interval(1e-5,1e-2))": {"type": "Real", "data": [1e-5, 1e-2], "log": True},
        "training.lr={type: Real, data: [1e-5, 1e-2], log: true}": {"type": "Real", "data": [1e-5, 1e-2], "log": True},
        "tunables.training.lr={type: uniform, values: [0.1, 0.2]}": {"type": "Real", "data": [0.1, 0.2]},
        "training.lr=0.1,0.2": {"type": "Categorical", "data": [0.1, 0.2]},
        "training.lr=range(1,3)": {"type": "Categorical", "data": [1, 2]},
        "training.lr=int(interval(1,3))": {"type": "Int", "data": [1, 3]},
        "model.fcnet_hiddens=[8],[16,16]": {"type": "Categorical", "data": [[8], [16, 16]]},  # in the place of a list
    }.items():
        _, _, *words = _for_hydra(["-cn", "dqn", "cli.mode=tune", word])
        [found] = spaces_of(composed("dqn", *words)).values()
        assert found == space, word
    with pytest.raises(UsageError, match="--multirun goes through files of a group"):
        _for_hydra(["cli.mode=tune", "training=dqn,ppo"])


def test_a_search_over_the_tree(tmp_path: Path) -> None:
    (tmp_path / ".operant").mkdir()
    overrides = [
        "cli.mode=tune",
        "++training.lr={type: Real, data: [1e-4, 1e-2], log: true}",
        "+tunables.training.gamma={type: uniform, values: [0.9, 0.99]}",
        "tune.num_samples=2",
        "tune.parallel=2",
        "tune.searcher=RandomSearcher",
        "stop_conditions.timesteps_total=1000",
        "runtime.name=lr",
    ]
    tree = composed("dqn", *overrides)
    outcome = run_tree(tree, root=tmp_path / ".operant")
    assert outcome.status == "FINISHED"
    jobs = describe(tmp_path / ".operant" / "searches" / "lr")["jobs"]
    assert len(jobs) == 2 and all(1e-4 <= job["arg_dict"]["training.lr"] <= 1e-2 for job in jobs)
    assert all(job["reward"] > 5 and job["status"] == "FINISHED" for job in jobs)
    with pytest.raises(UsageError, match="the search 'lr' is finished"):
        run_tree(composed("dqn", *overrides), root=tmp_path / ".operant")
    with pytest.raises(UsageError, match="nothing in the config is a space"):
        run_tree(composed("dqn", "cli.mode=tune"), root=tmp_path / ".operant")
    with pytest.raises(UsageError, match="did you mean 'learning_rate'"):  # before the first trial
        run_tree(composed("dqn", *overrides[:-1], "+training.learning_rat=3"), root=tmp_path / ".operant")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("++tunables={training: 3}", "tunables.training is a group of spaces"),
        ("++tunables={training: {lr: {type: uniform, values: [2, 1]}}}", "training.lr.data: the lower end 2 is above"),
        ("training.lr={type: Real, data: 3}", "training.lr.data is a list"),
        ("training.lr={type: Categorical, data: []}", "training.lr.data is a list"),
        ("training.lr={type: Reel, data: [1, 2]}", "training.lr.type is 'Reel' .did you mean 'Real'"),
        ("training.n_step={type: Real, data: [1, 5]}", "n_step' is a whole number, got 2.5"),
        ("tune.num_samples=0", "tune.num_samples is a whole number from 1 up"),
        ("tune.parallel=two", "tune.parallel is a whole number from 1 up"),
        ("tune.metric=3", "tune.metric is the name of a result"),
        ("tune.metric=date", "no training could be judged by it"),
        ("tune.mode=best", "it is max or min"),
        ("tune.searcher=3", "tune.searcher is a name or"),
        ("tune.searcher=Nope", "tune.searcher.type: unknown searcher 'Nope'"),
        ("tune.assessor=Nope", "tune.assessor.type: unknown assessor 'Nope'"),
        ("tune.site=nowhere", "tune.site.type: unknown site"),
        ("tune.engine=rya", "did you mean 'ray'"),
        ("runtime.name=../elsewhere", "without slashes"),
    ],
)
def test_mistakes_in_a_search_are_found_before_the_first_trial(override: str, message: str, tmp_path: Path) -> None:
    usual = "training.gamma={type: Categorical, data: [0.9, 0.99]}"
    with pytest.raises(UsageError, match=message):
        run_tree(composed("dqn", "cli.mode=tune", usual, override), root=tmp_path)
    assert not list(tmp_path.rglob("jobs/*"))


def test_a_metric_that_no_result_has_ends_a_trial_at_its_first(tmp_path: Path) -> None:
    tree = tmp_path / "tree.json"
    tree.write_text(json.dumps(composed("dqn", "cli.mode=tune", "tune.metric=rewrad", "training.lr=null")))
    words = [sys.executable, "-m", "operant.harness.trial", str(tree), "training.lr=0.001"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=patience(120), cwd=tmp_path)
    assert done.returncode == 1 and "tune.metric is rewrad: no result has this name" in done.stderr


def test_what_is_searched_over_is_in_no_name() -> None:
    space = "environment.env={type: Categorical, data: [CartPole-v1, Acrobot-v1]}"
    assert _name(make_plan(composed("dqn", "cli.mode=tune", space))) == "dqn-tune"


def test_trials_of_one_search_train_the_same_tree(tmp_path: Path) -> None:
    _keep_tree(make_plan(composed("dqn", "runtime.local_dir=first")), tmp_path / "tree.json")
    _keep_tree(make_plan(composed("dqn", "runtime.local_dir=second")), tmp_path / "tree.json")
    with pytest.raises(UsageError, match="begun with another config"):
        _keep_tree(make_plan(composed("dqn", "training.gamma=0.5")), tmp_path / "tree.json")


def test_what_was_learned_is_looked_at(tmp_path: Path) -> None:
    report = run_tree(composed("dqn", *SHORT), root=tmp_path)
    look = ["cli.mode=view", f"algo.checkpoint_path={report.run_id}", f"runtime.local_dir={tmp_path}", SHORT[1]]
    seen = run_tree(composed("dqn", *look), root=tmp_path)
    assert seen.gif.read_bytes().startswith(b"GIF8") and len(seen.returns) == 2
    with pytest.raises(UsageError, match="whose policy"):
        run_tree(composed("dqn", "cli.mode=view"), root=tmp_path)


def test_a_tree_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project = tmp_path / "project"
    project.mkdir()
    assert main(["init", str(project)]) == 0 and main(["init", str(project)]) == 1
    assert "exists already" in capsys.readouterr().err
    words = ["--config-name", "dqn", "cli.mode=train", "stop_conditions.timesteps_total=1000"]
    ended = subprocess.run(
        [sys.executable, "main.py", *words], cwd=project, capture_output=True, text=True, timeout=patience(120)
    )
    assert ended.returncode == 0, ended.stderr
    assert list((project / ".operant" / "runs").iterdir())
    ended = subprocess.run(
        [sys.executable, "main.py", "cli.mode=trian"], cwd=project, capture_output=True, text=True, timeout=patience(60)
    )
    assert ended.returncode == 1 and "cli.mode is 'trian' (did you mean 'train'?)" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_checkpoint_that_is_not_ones_own_is_not_unpickled(tmp_path: Path) -> None:
    from operant.harness.rllib_checkpoints import find_checkpoint

    folder = tmp_path / "iteration-000000001"
    folder.mkdir()
    (folder / "rllib_checkpoint.json").write_text("{}")
    with pytest.raises(Untrusted, match=r"algo.trust=true"):
        find_checkpoint(str(tmp_path), trust=False)
    assert find_checkpoint(str(tmp_path), trust=True) == folder


def test_a_limit_by_todays_name_wins_over_a_default_by_its_older_one() -> None:
    plan = make_plan(composed("config", "++stop_conditions={env_runners/episode_return_mean: 300}"))
    assert plan.stop_conditions["env_runners/episode_return_mean"] == 300
    assert any("gives way" in line for line in plan.said)


def test_trust_is_said_in_so_many_words(tmp_path: Path) -> None:
    for word in ("no", "off", "0"):
        with pytest.raises(UsageError, match=r"algo.trust .*is true or false"):
            make_plan(composed("dqn", f"++algo.trust={word}"))
    for words in ((), ("algo.trust=true",)):
        assert flag(make_plan(composed("dqn", *words)), "algo", "trust") == bool(words)


def test_several_agents_are_trained_and_looked_at(tmp_path: Path) -> None:
    """The shipped tree `marl`, which is RLlib's, with our own algorithms."""
    pytest.importorskip("pettingzoo")
    small = ("algo.library=operant", "stop_conditions.timesteps_total=80", "training.train_batch_size_per_learner=40")
    small += ("training.minibatch_size=40", "training.num_epochs=2", "evaluation.evaluation_duration=1")
    small += ("simulation.simfire.train.area.screen_size=[8,8]", "simulation.simfire.train.simulation.runtime=10m")
    report = run_tree(composed("marl", *small), root=tmp_path)
    run = Run.open(report.run_id, tmp_path)
    assert len(run.scalars("learners/left/policy_loss")["value"]) == report.steps // 40 > 0
    both = [run.scalars(f"agents/agent_{number}/return")["value"][-1] for number in range(2)]
    assert sum(both) == pytest.approx(run.scalars("env_runners/episode_return_mean")["value"][-1])
    look = ("cli.mode=view", f"algo.checkpoint_path={report.run_id}", f"runtime.local_dir={tmp_path}")
    assert run_tree(composed("marl", *small, *look), root=tmp_path).frames > 4
