"""DI-engine's way to spell a training, in both directions; each algorithm's settings say how they are spelled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from operant._util.dotted import flat, put
from operant.algorithms import ALGORITHMS, find_algorithm
from operant.algorithms.dialects import DIEngine
from operant.errors import UsageError, nearest

# DI-engine's dotted key -> ours, where the value is the same on both sides. What counts differently is below.
_COMMON = {
    "env.collector_env_num": "env.num_envs",
    "env.n_evaluator_episode": "evaluation.episodes",
    "env.evaluator_env_num": "evaluation.num_envs",
    "seed": "seed",
    "env.stop_value": "evaluation.stop_value",
    "env.norm_obs.use_norm": "env.normalize_obs",
    "env.norm_reward.use_norm": "env.normalize_reward",
    "policy.model.encoder_hidden_size_list": "model.hidden",
    "policy.learn.learning_rate": "algorithm.learning_rate",
}

# Keys that say where and how to run, repeat what the spaces tell, or are read below.
_ELSEWHERE = (
    "exp_name",
    "env.env_id",
    "env.manager",
    "policy.cuda",
    "policy.model.obs_shape",
    "policy.model.action_shape",
    "policy.eval.evaluator.eval_freq",
    "policy.priority_IS_weight",
    "policy.collect.unroll_len",
    "policy.collect.collector",
    "policy.learn.learner",
)
# What iterations are counted by, and evaluations by these; with what DI-engine takes where nothing is said.
_COUNTS = {"policy.collect.n_sample": 1, "policy.learn.update_per_collect": 1, "policy.eval.evaluator.eval_freq": 1000}
_ENVS = {
    "cartpole": "CartPole-v1",
    "acrobot": "Acrobot-v1",
    "mountain_car": "MountainCar-v0",
    "lunarlander": "LunarLander-v3",
    "pendulum": "Pendulum-v1",
}
# DI-engine's CartPole is v0, whose episodes end after 200 steps.
_ENV_ARGUMENTS = {"cartpole": {"max_episode_steps": 200}}


def looks_like_di_engine(values: Mapping[str, Any]) -> bool:
    return set(values) == {"main_config", "create_config"}


def from_di_engine(main: Mapping[str, Any], create: Mapping[str, Any]) -> dict[str, Any]:
    """A mapping for `TrainConfig` from DI-engine's pair; a key without a counterpart is an error."""
    for name, config in (("main_config", main), ("create_config", create)):
        for group in ("env", "policy"):
            if not isinstance(config.get(group, {}), Mapping):
                raise UsageError(f"{name}.{group} is {config[group]!r}; it is a group of settings")
    kind = str(create.get("policy", {}).get("type", "")).removesuffix("_command")
    words = _words_of(kind, "create_config.policy.type is")
    env_type = str(create.get("env", {}).get("type", ""))
    env_id = main.get("env", {}).get("env_id") or _ENVS.get(env_type)
    if env_id is None:
        raise UsageError(
            f"create_config.env.type is {env_type!r}{nearest(env_type, _ENVS)}; known: {', '.join(_ENVS)} "
            "(or give main_config.env.env_id)"
        )
    table, elsewhere = {**_COMMON, **words.table}, (*_ELSEWHERE, *words.elsewhere)
    given = {**words.defaults, **flat(main)}
    for key, usual in _COUNTS.items():
        value = given.get(key, usual)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UsageError(f"main_config.{key} is {value!r}; it is a whole number from 1 up")
    result: dict[str, Any] = {}
    put(result, "env.id", env_id)
    if "env_id" not in main.get("env", {}) and env_type in _ENV_ARGUMENTS:
        put(result, "env.arguments", dict(_ENV_ARGUMENTS[env_type]))
    put(result, "algorithm.name", kind)
    put(result, "model.activation", "relu")
    put(result, "model.orthogonal", False)
    for key, value in given.items():
        if key in table:
            put(result, table[key], list(value) if isinstance(value, (list, tuple)) else value)
        elif not any(key == one or key.startswith(f"{one}.") for one in elsewhere):
            raise UsageError(f"main_config has {key!r}{nearest(key, table)}, which has no counterpart here")
    if "exp_name" in main:
        result["name"] = str(main["exp_name"])
    if "policy.cuda" in given:
        result["device"] = "auto" if given["policy.cuda"] else "cpu"
    for key, value in words.read(given).items():
        put(result, key, value)
    frequency = given.get("policy.eval.evaluator.eval_freq", _COUNTS["policy.eval.evaluator.eval_freq"])
    put(result, "evaluation.every", max(1, round(frequency * words.steps_per_iteration(given))))
    return result


def to_di_engine(config: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """DI-engine's pair from a mapping of ours, for the settings that both know."""
    ours = flat(config, keep=("env.arguments",))
    kind = str(ours["algorithm.name"])
    words = _words_of(kind, "algorithm.name is")
    main: dict[str, Any] = {}
    for theirs, mine in {**_COMMON, **words.table}.items():
        if mine in ours:
            put(main, theirs, ours[mine])
    put(main, "env.env_id", ours["env.id"])
    if ours.get("name"):
        main["exp_name"] = ours["name"]
    if "device" in ours:
        put(main, "policy.cuda", ours["device"] != "cpu")
    for key, value in words.write(ours).items():
        put(main, key, value)
    if ours.get("evaluation.every"):
        per_iteration = words.steps_per_iteration({**words.defaults, **flat(main)})
        put(main, "policy.eval.evaluator.eval_freq", max(1, round(ours["evaluation.every"] / per_iteration)))
    names = {env_id: kind for kind, env_id in _ENVS.items()}
    return main, {"env": {"type": names.get(str(ours["env.id"]), "gym")}, "policy": {"type": kind}}


def _words_of(kind: str, where: str) -> DIEngine:
    """DI-engine's words for an algorithm."""
    words = getattr(find_algorithm(kind)[1], "di_engine", None) if kind in ALGORITHMS else None
    if words is None:
        known = [name for name in ALGORITHMS.names if getattr(find_algorithm(name)[1], "di_engine", None)]
        raise UsageError(
            f"{where} {kind!r}{nearest(kind, known)}; of DI-engine's policies {', '.join(known)} are understood"
        )
    return words  # type: ignore[no-any-return]
