"""docs/coming-from/simharness.md, row by row."""

from __future__ import annotations

import copy
import re
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.harness.composing import composed

from operant._util.dotted import put
from operant.errors import UsageError
from operant.harness.own import own_config
from operant.harness.tree import make_plan
from operant.harness.tuning import spaces_of
from operant.harness.words import lookup

PAGE = Path(__file__).parents[2] / "docs" / "coming-from" / "simharness.md"
ROWS = dict(re.findall(r"^\| `([\w.]+)` \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE))

# Key of the page -> the override, and what comes of it: a value of our config (`config …`) or of the tree (`tree …`),
# a translation that is told, or an error.
CASES: dict[str, tuple[str, str, Any]] = {
    "cli.mode": ("cli.mode=traain", "error", "it is train, tune or view"),
    "algo.name": ("algo.name=DQN", "config algorithm.name", "dqn"),
    "algo.checkpoint_path": ("algo.checkpoint_path=last", "tree algo.checkpoint_path", "last"),
    "runtime.name": ("runtime.name=mine", "config name", "mine"),
    "runtime.local_dir": ("runtime.local_dir=here", "tree runtime.local_dir", "here"),
    "run.name": ("++run.name=mine", "config name", "mine"),
    "run.storage_path": ("++run.storage_path=there", "told", "run.storage_path is called runtime.local_dir today"),
    "checkpoint.checkpoint_frequency": ("checkpoint.checkpoint_frequency=3", "config checkpoint.every", 3000),
    "checkpoint.num_to_keep": ("checkpoint.num_to_keep=4", "config checkpoint.keep", 4),
    "stop_conditions.training_iteration": ("stop_conditions.training_iteration=2", "config total_steps", 2000),
    "stop_conditions.timesteps_total": ("stop_conditions.timesteps_total=700", "config total_steps", 700),
    "stop_conditions.episode_reward_mean": (
        "stop_conditions.episode_reward_mean=7",
        "stop env_runners/episode_return_mean",
        7,
    ),
    "stop_conditions.episodes_total": (
        "++stop_conditions.episodes_total=9",
        "stop env_runners/num_episodes_lifetime",
        9,
    ),
    "debugging.log_level": ("debugging.log_level=QUIET", "error", "DEBUG, INFO, WARN, ERROR"),
    "debugging.log_sys_usage": ("debugging.log_sys_usage=false", "tree debugging.log_sys_usage", False),
    "debugging.seed": ("debugging.seed=5", "config seed", 5),
    "debugging.logger_config": ("++debugging.logger_config.type=x", "error", "leave it out"),
    "environment.env": ("environment.env=Acrobot-v1", "config env.id", "Acrobot-v1"),
    "environment.env_config": (
        "++environment.env_config.sutton_barto_reward=true",
        "config env.arguments",
        {"sutton_barto_reward": True},
    ),
    "environment.env_task_fn": ("++environment.env_task_fn=f", "error", "leave it out"),
    "environment.render_env": ("++environment.render_env=true", "error", "leave it out"),
    "environment.clip_rewards": ("environment.clip_rewards=true", "error", "no counterpart"),
    "evaluation.evaluation_interval": ("evaluation.evaluation_interval=2", "config evaluation.every", 2000),
    "evaluation.evaluation_duration": ("evaluation.evaluation_duration=3", "config evaluation.episodes", 3),
    "evaluation.evaluation_num_workers": (
        "++evaluation.evaluation_num_workers=0",
        "told",
        "evaluation_num_env_runners",
    ),
    "evaluation.enable_async_evaluation": (
        "++evaluation.enable_async_evaluation=false",
        "told",
        "evaluation_parallel_to_training",
    ),
    "evaluation.evaluation_config.env_config": (
        "++evaluation.evaluation_config.env_config.max_episode_steps=9",
        "config evaluation.arguments",
        {"max_episode_steps": 9},
    ),
    "exploration.explore": ("exploration.explore=false", "error", "no counterpart"),
    "exploration.exploration_config": (
        "++exploration.exploration_config={type: EpsilonGreedy, epsilon_timesteps: 77}",
        "config algorithm_settings.exploration_steps",
        77,
    ),
    "framework.framework": ("framework.framework=tf2", "error", "'torch'"),
    "framework.eager_tracing": ("++framework.eager_tracing=true", "error", "leave it out"),
    "resources.num_gpus": ("++resources.num_gpus=1", "config device", "auto"),
    "resources.num_cpus_per_worker": ("++resources.num_cpus_per_worker=1", "told", "rollouts.num_cpus_per_env_runner"),
    "resources.num_gpus_per_worker": ("++resources.num_gpus_per_worker=0", "told", "rollouts.num_gpus_per_env_runner"),
    "resources.num_cpus_for_local_worker": (
        "++resources.num_cpus_for_local_worker=1",
        "told",
        "resources.num_cpus_for_main_process",
    ),
    "resources.placement_strategy": ("resources.placement_strategy=PACK", "tree resources.placement_strategy", "PACK"),
    "rollouts.num_rollout_workers": ("++rollouts.num_workers=0", "told", "rollouts.num_env_runners"),
    "rollouts.num_envs_per_worker": ("rollouts.num_envs_per_env_runner=4", "config env.num_envs", 4),
    "rollouts.rollout_fragment_length": ("rollouts.rollout_fragment_length=7", "error", "'auto'"),
    "rollouts.recreate_failed_workers": (
        "++rollouts.recreate_failed_workers=false",
        "told",
        "restart_failed_env_runners",
    ),
    "rollouts.ignore_worker_failures": (
        "++rollouts.ignore_worker_failures=false",
        "told",
        "ignore_env_runner_failures",
    ),
    "training.model": ("++training.model.fcnet_hiddens=[8]", "config model.hidden", (8,)),
    "training.train_batch_size": ("++training.train_batch_size=32", "config algorithm_settings.batch", 32),
    "training.sgd_minibatch_size": ("++training.sgd_minibatch_size=64", "told", "training.minibatch_size"),
    "training.num_sgd_iter": ("++training.num_sgd_iter=10", "told", "training.num_epochs"),
    "training.lr": ("training.lr=0.5", "config algorithm_settings.learning_rate", 0.5),
    "tunables.training.lr": (
        "++tunables.training.lr={type: loguniform, values: [0.00001, 0.01]}",
        "space training.lr",
        {"type": "Real", "data": [1e-5, 1e-2], "log": True},
    ),
    "simulation.simfire": ("simulation=simfire", "tree simulation.simfire.train.environment.moisture", 0.03),
    "aim.repo": ("aim.repo=here", "tree aim.repo", "here"),
}


@cache
def _base(name: str) -> dict[str, Any]:
    return composed(name)


def _changed(name: str, override: str) -> dict[str, Any]:
    """The tree of an experiment with one setting changed."""
    if "." not in override.partition("=")[0]:
        return composed(name, override)
    tree = copy.deepcopy(_base(name))
    key, _, value = override.lstrip("+").partition("=")
    put(tree, key, yaml.safe_load(value))
    return tree


def test_every_row_has_its_test() -> None:
    assert list(ROWS) == list(CASES)


@pytest.mark.parametrize("key", CASES)
def test_a_row_of_the_page(key: str) -> None:
    override, how, expected = CASES[key]
    experiment = "ppo" if expected in ("training.minibatch_size", "training.num_epochs") else "dqn"
    how, _, path = how.partition(" ")
    if how == "error":
        with pytest.raises(UsageError, match=expected):
            own_config(make_plan(_changed(experiment, override)))
        return
    plan = make_plan(_changed(experiment, override))
    config = own_config(plan)
    if how == "told":
        assert any(f"called {expected}" in line or expected in line for line in plan.said)
        assert "translated" in ROWS[key]
    elif how == "stop":
        assert plan.stop_conditions[path] == expected and f"`{path}`" in ROWS[key]
    elif how == "space":
        assert spaces_of(plan.tree)[path] == expected
    elif how == "tree":
        assert lookup(plan.tree, path) == expected
    else:
        found = config.algorithm["name"] if path == "algorithm.name" else attrgetter(path)(config)
        assert found == expected
