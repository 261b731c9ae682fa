"""DI-engine's way to spell a training, in both directions; one table for each algorithm says which setting is which."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from operant.errors import UsageError, nearest

__all__ = ["from_di_engine", "looks_like_di_engine", "to_di_engine"]

# DI-engine's dotted key -> ours, where the value is the same on both sides. What counts differently is below.
_COMMON = {
    "env.collector_env_num": "env.num_envs",
    "env.n_evaluator_episode": "evaluation.episodes",
    "env.evaluator_env_num": "evaluation.num_envs",
    "env.stop_value": "evaluation.stop_value",
    "policy.model.encoder_hidden_size_list": "model.hidden",
    "policy.learn.learning_rate": "algorithm.learning_rate",
}
_ON_POLICY = {
    "policy.collect.discount_factor": "algorithm.gamma",
    "policy.collect.gae_lambda": "algorithm.gae_lambda",
    "policy.learn.entropy_weight": "algorithm.entropy_weight",
    "policy.learn.value_weight": "algorithm.value_weight",
}
_TABLES = {
    "dqn": {
        **_COMMON,
        "policy.model.dueling": "algorithm.dueling",
        "policy.nstep": "algorithm.n_step",
        "policy.discount_factor": "algorithm.gamma",
        "policy.priority": "algorithm.prioritized",
        "policy.learn.batch_size": "algorithm.batch",
        "policy.learn.update_per_collect": "algorithm.updates",
        "policy.collect.n_sample": "algorithm.train_every",
        "policy.other.replay_buffer.replay_buffer_size": "algorithm.buffer",
    },
    "ppo": {
        **_COMMON,
        **_ON_POLICY,
        "policy.learn.epoch_per_collect": "algorithm.epochs",
        "policy.learn.batch_size": "algorithm.minibatch",
        "policy.learn.clip_ratio": "algorithm.clip",
        "policy.learn.adv_norm": "algorithm.normalize_advantage",
        "policy.learn.grad_clip_value": "algorithm.max_gradient_norm",
        "policy.learn.ppo_param_init": "model.orthogonal",
    },
    "a2c": {
        **_COMMON,
        **_ON_POLICY,
        "policy.learn.normalize_advantage": "algorithm.normalize_advantage",
        "policy.learn.grad_norm": "algorithm.max_gradient_norm",
        "policy.learn.eps": "algorithm.optimizer_eps",
    },
}

# What DI-engine takes where a config says nothing and we would take something else.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "dqn": {"policy.learn.update_per_collect": 3, "policy.collect.n_sample": 8, "policy.model.dueling": True},
    "ppo": {"policy.learn.epoch_per_collect": 10, "policy.learn.batch_size": 64},
    "a2c": {
        "policy.learn.learning_rate": 0.001,
        "policy.learn.entropy_weight": 0.01,
        "policy.learn.eps": 1e-8,
        "policy.collect.discount_factor": 0.9,
        "policy.collect.gae_lambda": 0.95,
    },
}
_EPS = {"start": 0.95, "end": 0.1, "decay": 10_000, "type": "exp"}

# Keys that say where and how to run, repeat what the spaces tell, or are read below. `ignore_done` and `value_norm`
# work around what truncations and the scale of returns do to DI-engine's targets; ours bootstrap at truncations.
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
_ELSEWHERE_OF = {
    "dqn": ("policy.other.eps", "policy.learn.target_update_freq"),
    "ppo": (
        "policy.action_space",
        "policy.continuous",
        "policy.on_policy",
        "policy.recompute_adv",
        "policy.model.action_space",
        "policy.model.actor_head_hidden_size",
        "policy.model.critic_head_hidden_size",
        "policy.collect.n_sample",
        "policy.learn.grad_clip_type",
        "policy.learn.ignore_done",
        "policy.learn.update_per_collect",
        "policy.learn.value_norm",
    ),
    "a2c": (
        "policy.action_space",
        "policy.on_policy",
        "policy.model.action_space",
        "policy.model.actor_head_hidden_size",
        "policy.model.critic_head_hidden_size",
        "policy.collect.n_sample",
        "policy.learn.batch_size",  # one gradient step takes the whole rollout, there as here
        "policy.learn.betas",
        "policy.learn.ignore_done",
        "policy.learn.update_per_collect",
        "policy.other.replay_buffer",
    ),
}

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
    kind = str(create.get("policy", {}).get("type", "dqn")).removesuffix("_command")
    if kind not in _TABLES:
        raise UsageError(
            f"create_config.policy.type is {kind!r}{nearest(kind, _TABLES)}; of DI-engine's policies "
            f"{', '.join(sorted(_TABLES))} are understood"
        )
    env_type = str(create.get("env", {}).get("type", ""))
    env_id = main.get("env", {}).get("env_id") or _ENVS.get(env_type)
    if env_id is None:
        raise UsageError(
            f"create_config.env.type is {env_type!r}{nearest(env_type, _ENVS)}; known: {', '.join(_ENVS)} "
            "(or give main_config.env.env_id)"
        )
    table, elsewhere = _TABLES[kind], (*_ELSEWHERE, *_ELSEWHERE_OF[kind])
    given = {**_DEFAULTS[kind], **_flatten(main)}
    result: dict[str, Any] = {}
    _put(result, "env.id", env_id)
    if "env_id" not in main.get("env", {}) and env_type in _ENV_ARGUMENTS:
        _put(result, "env.arguments", dict(_ENV_ARGUMENTS[env_type]))
    _put(result, "algorithm.name", kind)
    _put(result, "model.activation", "relu")
    _put(result, "model.orthogonal", kind == "ppo")
    for key, value in given.items():
        if key in table:
            _put(result, table[key], list(value) if isinstance(value, (list, tuple)) else value)
        elif not any(key == one or key.startswith(f"{one}.") for one in elsewhere):
            raise UsageError(f"main_config has {key!r}{nearest(key, table)}, which has no counterpart here")
    if "exp_name" in main:
        result["name"] = str(main["exp_name"])
    if kind == "dqn":
        _explore(result, main)
        # DI-engine copies every `target_update_freq` iterations; ours counts environment steps.
        copies = given.get("policy.learn.target_update_freq", 100)
        _put(result, "algorithm.target_every", max(1, round(copies * _steps_per_iteration(kind, given))))
    else:
        _put(result, "algorithm.rollout", _rollout(given))
        _add_head_layer(result, given)
        if kind == "a2c":
            _put(result, "algorithm.optimizer", "adam")
    frequency = given.get("policy.eval.evaluator.eval_freq", 1000)
    _put(result, "evaluation.every", max(1, round(frequency * _steps_per_iteration(kind, given))))
    return result


def _explore(result: dict[str, Any], main: Mapping[str, Any]) -> None:
    eps = {**_EPS, **main.get("policy", {}).get("other", {}).get("eps", {})}
    _put(result, "algorithm.exploration_start", eps["start"])
    _put(result, "algorithm.exploration_end", eps["end"])
    if eps["type"] == "exp":
        _put(result, "algorithm.exploration_decay", float(eps["decay"]))
    elif eps["type"] == "linear":
        _put(result, "algorithm.exploration_steps", int(eps["decay"]))
    else:
        raise UsageError(f"policy.other.eps.type is {eps['type']!r}; exp and linear are known")


def _steps_per_iteration(kind: str, given: Mapping[str, Any]) -> float:
    """Environment steps for each of DI-engine's training iterations, which are gradient steps."""
    if kind == "dqn":
        return float(given["policy.collect.n_sample"] / given["policy.learn.update_per_collect"])
    collected = _rollout(given) * given.get("env.collector_env_num", 1)
    if kind == "a2c":
        return float(collected)
    batches = math.ceil(collected / given["policy.learn.batch_size"])
    return float(collected / (given["policy.learn.epoch_per_collect"] * batches))


def _rollout(given: Mapping[str, Any]) -> int:
    """DI-engine counts the samples of all environments together, we the steps of each."""
    if "policy.collect.n_sample" not in given:
        raise UsageError("main_config.policy.collect.n_sample is missing: how many steps are collected for an update")
    return math.ceil(float(given["policy.collect.n_sample"] / given.get("env.collector_env_num", 1)))


def _add_head_layer(result: dict[str, Any], given: Mapping[str, Any]) -> None:
    """DI-engine's heads have a layer of their own behind the encoder; ours is one more hidden layer."""
    sizes = {given[key] for key in given if key.endswith(("actor_head_hidden_size", "critic_head_hidden_size"))}
    if len(sizes) > 1:
        raise UsageError(
            "policy.model.actor_head_hidden_size and critic_head_hidden_size differ; actor and critic have the same "
            "hidden layers here, unless model.actor and model.critic name modules"
        )
    hidden = result.get("model", {}).get("hidden")
    if sizes and hidden:
        _put(result, "model.hidden", [*hidden, *sizes])


def to_di_engine(config: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """DI-engine's pair from a mapping of ours, for the settings that both know."""
    ours = _flatten(config, keep=("env.arguments",))
    if ours.get("algorithm.updates") == 0:  # as many as environment steps, which DI-engine says in full
        ours["algorithm.updates"] = ours["algorithm.train_every"]
    kind = str(ours["algorithm.name"])
    if kind not in _TABLES:
        raise UsageError(f"{kind!r} cannot be said in DI-engine's words; {', '.join(sorted(_TABLES))} can")
    main: dict[str, Any] = {}
    for theirs, mine in _TABLES[kind].items():
        if mine in ours:
            _put(main, theirs, ours[mine])
    _put(main, "env.env_id", ours["env.id"])
    if ours.get("name"):
        main["exp_name"] = ours["name"]
    if kind == "dqn":
        decay = ours.get("algorithm.exploration_decay", 0.0)
        _put(main, "policy.other.eps.type", "exp" if decay else "linear")
        _put(main, "policy.other.eps.start", ours.get("algorithm.exploration_start", _EPS["start"]))
        _put(main, "policy.other.eps.end", ours.get("algorithm.exploration_end", _EPS["end"]))
        _put(main, "policy.other.eps.decay", decay or _linear_steps(ours))
    else:
        _put(main, "policy.collect.n_sample", ours["algorithm.rollout"] * ours.get("env.num_envs", 1))
    per_iteration = _steps_per_iteration(kind, {**_DEFAULTS[kind], **_flatten(main)})
    if kind == "dqn" and "algorithm.target_every" in ours:
        _put(main, "policy.learn.target_update_freq", max(1, round(ours["algorithm.target_every"] / per_iteration)))
    if ours.get("evaluation.every"):
        _put(main, "policy.eval.evaluator.eval_freq", max(1, round(ours["evaluation.every"] / per_iteration)))
    names = {env_id: kind for kind, env_id in _ENVS.items()}
    return main, {"env": {"type": names.get(str(ours["env.id"]), "gym")}, "policy": {"type": kind}}


def _linear_steps(ours: Mapping[str, Any]) -> int:
    """Over how many environment steps exploration falls: as said, or as a part of the training."""
    share = ours.get("algorithm.exploration_fraction", 0.1) * ours.get("total_steps", 100_000)
    return int(ours.get("algorithm.exploration_steps") or max(1, round(share)))


def _flatten(values: Mapping[str, Any], prefix: str = "", keep: tuple[str, ...] = ()) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and path not in keep:
            flat.update(_flatten(value, f"{path}.", keep))
        else:
            flat[path] = value
    return flat


def _put(tree: dict[str, Any], path: str, value: Any) -> None:
    *groups, last = path.split(".")
    for group in groups:
        tree = tree.setdefault(group, {})
    tree[last] = value
