"""Names of older versions of RLlib, and what they are called today: of options, and of results.

Nothing is ignored: a name that has a successor is translated with a line that says so, one that has none is an error
unless its value asks for what happens anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from operant._util.dotted import put
from operant.errors import UsageError

Tree = dict[str, Any]

OPTIONS = {
    "run.name": "runtime.name",
    "run.storage_path": "runtime.local_dir",
    "rollouts.num_workers": "rollouts.num_env_runners",
    "rollouts.num_rollout_workers": "rollouts.num_env_runners",
    "rollouts.num_envs_per_worker": "rollouts.num_envs_per_env_runner",
    "rollouts.validate_workers_after_construction": "rollouts.validate_env_runners_after_construction",
    "rollouts.recreate_failed_workers": "fault_tolerance.restart_failed_env_runners",
    "rollouts.ignore_worker_failures": "fault_tolerance.ignore_env_runner_failures",
    "rollouts.restart_failed_sub_environments": "fault_tolerance.restart_failed_sub_environments",
    "resources.num_cpus_per_worker": "rollouts.num_cpus_per_env_runner",
    "resources.num_gpus_per_worker": "rollouts.num_gpus_per_env_runner",
    "resources.num_cpus_for_driver": "resources.num_cpus_for_main_process",
    "resources.num_cpus_for_local_worker": "resources.num_cpus_for_main_process",
    "resources.num_gpus": "learners.num_gpus_per_learner",
    "resources.num_trainer_workers": "learners.num_learners",
    "resources.num_learner_workers": "learners.num_learners",
    "resources.num_cpus_per_trainer_worker": "learners.num_cpus_per_learner",
    "resources.num_cpus_per_learner_worker": "learners.num_cpus_per_learner",
    "resources.num_gpus_per_trainer_worker": "learners.num_gpus_per_learner",
    "resources.num_gpus_per_learner_worker": "learners.num_gpus_per_learner",
    "evaluation.evaluation_num_workers": "evaluation.evaluation_num_env_runners",
    "evaluation.enable_async_evaluation": "evaluation.evaluation_parallel_to_training",
    "training.model": "model",
    "training.lambda": "training.lambda_",
    "training.num_sgd_iter": "training.num_epochs",
    "training.sgd_minibatch_size": "training.minibatch_size",
    "training.train_batch_size": "training.train_batch_size_per_learner",
    "training.lr_schedule": "training.lr",
}
"""Dotted options of the harness's tree -> today's."""

DEFAULTS: Mapping[str, Any] = {
    "rollouts.num_env_runners": 0,
    "rollouts.num_envs_per_env_runner": 1,
    "evaluation.evaluation_num_env_runners": 0,
    "evaluation.evaluation_parallel_to_training": False,
}
"""What the package's own tree says of these: whoever says something else by an older name means that."""

GONE: Mapping[str, tuple[Any, ...]] = {
    "environment.env_task_fn": (None,),
    "environment.render_env": (None, False),
    "environment.horizon": (None,),
    "environment.soft_horizon": (None, False),
    "environment.no_done_at_end": (None, False),
    "environment.auto_wrap_old_gym_envs": (None, True, False),
    "environment.observation_filter": (None, "NoFilter"),
    "rollouts.observation_filter": (None, "NoFilter"),
    "rollouts.preprocessor_pref": (None, "deepmind"),
    "rollouts.enable_connectors": (None, True),
    "framework.eager_tracing": (None, False),
    "framework.eager_max_retraces": (None, 20),
    "debugging.logger_config": (None,),
}
"""Options that are no more -> the values that ask for what happens anyway."""

_TRAINED = "learners/__all_modules__/num_env_steps_trained"
_AGENT_STEPS = "env_runners/num_agent_steps_sampled_lifetime/default_agent"
_COUNTS = {
    "num_env_steps_sampled": "num_env_steps_sampled_lifetime",
    "num_env_steps_trained": f"{_TRAINED}_lifetime",
    "num_agent_steps_sampled": _AGENT_STEPS,
    "num_agent_steps_trained": "learners/__all_modules__/num_module_steps_trained_lifetime",
}
_EPISODES = {
    **{f"episode_reward_{one}": f"env_runners/episode_return_{one}" for one in ("mean", "min", "max")},
    "episode_len_mean": "env_runners/episode_len_mean",
    "episodes_this_iter": "env_runners/num_episodes",
}
_TIMES = {
    "sampler_perf/mean_raw_obs_processing_ms": "env_runners/env_to_module_connector/connector_pipeline_timer",
    "sampler_perf/mean_inference_ms": "env_runners/rlmodule_inference_timer",
    "sampler_perf/mean_action_processing_ms": "env_runners/module_to_env_connector/connector_pipeline_timer",
    "sampler_perf/mean_env_wait_ms": "env_runners/env_step_timer",
}
RESULTS = {
    **_EPISODES,
    **_COUNTS,
    **_TIMES,
    **{f"sampler_results/{old}": new for old, new in (_EPISODES | _TIMES).items()},
    **{f"{group}/{old}": new for group in ("info", "counters") for old, new in _COUNTS.items()},
    **{f"evaluation/{old}": f"evaluation/{new}" for old, new in _EPISODES.items()},
    "episodes_total": "env_runners/num_episodes_lifetime",
    "timesteps_total": "num_env_steps_sampled_lifetime",
    "agent_timesteps_total": _AGENT_STEPS,
    "num_env_steps_sampled_this_iter": "env_runners/num_env_steps_sampled",
    "num_env_steps_trained_this_iter": _TRAINED,
    "num_steps_trained_this_iter": _TRAINED,
    "num_healthy_workers": "fault_tolerance/num_healthy_workers",
    "num_remote_worker_restarts": "fault_tolerance/num_remote_worker_restarts",
    "num_in_flight_async_reqs": "env_runner_group/actor_manager_num_outstanding_async_reqs",
    "timers/training_iteration_time_ms": "timers/training_iteration",
}
"""Names of results in earlier versions -> today's. Times were milliseconds (`…_ms`) and are seconds."""

_NO_NUMBER = "is no number that grows"
_NO_MORE = "is measured no more"
GONE_RESULTS = {
    **dict.fromkeys(("trial_id", "experiment_id", "date", "hostname", "node_ip", "done", "pid"), _NO_NUMBER),
    **dict.fromkeys(("num_faulty_episodes", "sampler_results/num_faulty_episodes"), _NO_MORE),
    **dict.fromkeys(("timesteps_since_restore", "warmup_time"), _NO_MORE),
    **{
        f"{prefix}{name}": _NO_MORE
        for prefix in ("", "sampler_results/")
        for name in (
            "sampler_perf/mean_env_render_ms",
            *("connector_metrics/ObsPreprocessorConnector_ms", "connector_metrics/StateBufferConnector_ms"),
            "connector_metrics/ViewRequirementAgentConnector_ms",
        )
    },
    **{
        f"{prefix}hist_stats/{name}": "is a list, recorded as a histogram where there is one"
        for prefix in ("", "sampler_results/")
        for name in ("episode_reward", "episode_lengths")
    },
}
"""Names of results in earlier versions that have no counterpart -> why."""


def todays_result(name: str) -> str:
    """What a result is called today; policies' statistics keep their own names."""
    stats = "info/learner/default_policy/learner_stats/"
    if name.startswith(stats):
        return f"learners/default_policy/{name.removeprefix(stats)}"
    why = "is a setting and no result" if name.startswith("config/") else GONE_RESULTS.get(name)
    if why is not None:
        raise UsageError(
            f"{name} {why}: no training could be judged by it; take env_runners/episode_return_mean, "
            "num_env_steps_sampled_lifetime, training_iteration or time_total_s"
        )
    return RESULTS.get(name, name)


def todays_words(tree: Tree) -> tuple[Tree, list[tuple[str, str]]]:
    """A tree in today's words, and for each that was another its path and a line."""
    said: list[tuple[str, str]] = []
    for old, new in OPTIONS.items():
        _, value = take(tree, old)
        if value is None:
            continue
        today = lookup(tree, new)
        meant = today in (None, {}, value, DEFAULTS.get(new)) or new in ("model", "runtime.local_dir")
        if not meant:
            raise UsageError(f"{old} is called {new} today, and both are given: {value!r} and {today!r}")
        put(tree, new, value)
        said.append((old, f"{old} is called {new} today"))
    if not tree.get("run", True):
        del tree["run"]
    for old, harmless in GONE.items():
        found, value = take(tree, old)
        if found and value not in harmless:
            raise UsageError(f"{old} is {value!r}, which today's libraries do not have; leave it out")
    said += _exploration(tree)
    conditions = tree.get("stop_conditions") or {}
    for name in list(conditions):
        today = todays_result(name)
        if today != name:
            limit, path = conditions.pop(name), f"stop_conditions.{name}"
            if today in conditions:  # said by its name of today, over a default
                said.append((path, f"{path} gives way to {today}, which is the same"))
                continue
            milliseconds = name.endswith("_ms") and isinstance(limit, (int, float))
            conditions[today] = limit / 1000 if milliseconds else limit
            said.append((path, f"the result {name} is called {today} today{', in seconds' if milliseconds else ''}"))
    return tree, said


def _exploration(tree: Tree) -> list[tuple[str, str]]:
    """RLlib's `exploration_config` went; of its kinds the one that DQN has is a schedule of DQN's."""
    _, config = take(tree, "exploration.exploration_config")
    if not config:
        return []
    if not isinstance(config, Mapping):
        raise UsageError(f"exploration.exploration_config is a group of settings, got {config!r:.80}")
    kind = str(config.get("type", ""))
    if kind.rpartition(".")[2] != "EpsilonGreedy":
        raise UsageError(
            f"exploration.exploration_config.type is {kind!r}; today only EpsilonGreedy has a counterpart (of DQN): "
            "other algorithms explore by themselves"
        )
    start, end = config.get("initial_epsilon", 1.0), config.get("final_epsilon", 0.05)
    warmup, falling = config.get("warmup_timesteps", 0), config.get("epsilon_timesteps", 10_000)
    if not all(isinstance(one, int) and one >= 0 for one in (warmup, falling)):
        raise UsageError(
            "exploration.exploration_config: warmup_timesteps and epsilon_timesteps are whole numbers from 0 up, got "
            f"{warmup!r:.80} and {falling!r:.80}"
        )
    schedule = [[0, start], [warmup + falling, end]]
    if warmup:
        schedule.insert(1, [warmup, start])
    put(tree, "training.epsilon", schedule)
    path = "exploration.exploration_config"
    return [(path, f"{path} is training.epsilon={schedule} today")]


def lookup(tree: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted path, or None."""
    place: Any = tree
    for name in path.split("."):
        if not isinstance(place, Mapping) or name not in place:
            return None
        place = place[name]
    return place


def take(tree: Tree, path: str) -> tuple[bool, Any]:
    """Whether there is something at a dotted path, and what; it is there no more."""
    *groups, last = path.split(".")
    place: Any = tree
    for name in groups:
        place = place.get(name) if isinstance(place, dict) else None
    if not isinstance(place, dict) or last not in place:
        return False, None
    return True, place.pop(last)
