"""DI-engine's way to spell a training, in both directions; one table says which setting is which."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from operant.errors import UsageError, nearest

__all__ = ["from_di_engine", "looks_like_di_engine", "to_di_engine"]

# DI-engine's dotted key -> ours. What DI-engine counts in collected samples and training iterations stays so by value.
_DQN = {
    "env.collector_env_num": "env.num_envs",
    "env.n_evaluator_episode": "evaluation.episodes",
    "env.evaluator_env_num": "evaluation.num_envs",
    "env.stop_value": "evaluation.stop_value",
    "policy.model.encoder_hidden_size_list": "model.hidden",
    "policy.model.dueling": "algorithm.dueling",
    "policy.nstep": "algorithm.n_step",
    "policy.discount_factor": "algorithm.gamma",
    "policy.priority": "algorithm.prioritized",
    "policy.learn.batch_size": "algorithm.batch",
    "policy.learn.learning_rate": "algorithm.learning_rate",
    "policy.learn.update_per_collect": "algorithm.updates",
    "policy.collect.n_sample": "algorithm.train_every",
    "policy.other.replay_buffer.replay_buffer_size": "algorithm.buffer",
}
_DQN_DEFAULTS = {"policy.learn.update_per_collect": 3, "policy.collect.n_sample": 8, "policy.model.dueling": True}

# Keys that say where and how to run, or repeat what the spaces tell.
_WITHOUT_EFFECT = (
    "exp_name",
    "policy.cuda",
    "policy.model.obs_shape",
    "policy.model.action_shape",
    "policy.eval.evaluator.eval_freq",
    "policy.other.eps.type",
    "policy.other.eps.start",
    "policy.other.eps.end",
    "policy.other.eps.decay",
    "policy.priority_IS_weight",
    "policy.learn.target_update_freq",
    "policy.collect.unroll_len",
    "policy.collect.collector",
    "policy.learn.learner",
    "env.manager",
)

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
    if kind != "dqn":
        raise UsageError(f"create_config.policy.type is {kind!r}; of DI-engine's policies dqn is understood")
    env_type = str(create.get("env", {}).get("type", ""))
    env_id = main.get("env", {}).get("env_id") or _ENVS.get(env_type)
    if env_id is None:
        raise UsageError(
            f"create_config.env.type is {env_type!r}{nearest(env_type, _ENVS)}; known: {', '.join(_ENVS)} "
            "(or give main_config.env.env_id)"
        )
    given = {**_DQN_DEFAULTS, **_flatten(main)}
    result: dict[str, Any] = {}
    _put(result, "env.id", env_id)
    if "env_id" not in main.get("env", {}) and env_type in _ENV_ARGUMENTS:
        _put(result, "env.arguments", dict(_ENV_ARGUMENTS[env_type]))
    _put(result, "algorithm.name", "dqn")
    _put(result, "model.activation", "relu")
    _put(result, "model.orthogonal", False)
    for key, value in given.items():
        if key in _DQN:
            _put(result, _DQN[key], list(value) if isinstance(value, (list, tuple)) else value)
        elif key != "env.env_id" and not any(key == one or key.startswith(f"{one}.") for one in _WITHOUT_EFFECT):
            raise UsageError(f"main_config has {key!r}{nearest(key, _DQN)}, which has no counterpart here")
    if "exp_name" in main:
        result["name"] = str(main["exp_name"])
    eps = {
        "start": 0.95,
        "end": 0.1,
        "decay": 10_000,
        "type": "exp",
        **main.get("policy", {}).get("other", {}).get("eps", {}),
    }
    _put(result, "algorithm.exploration_start", eps["start"])
    _put(result, "algorithm.exploration_end", eps["end"])
    if eps["type"] == "exp":
        _put(result, "algorithm.exploration_decay", float(eps["decay"]))
    elif eps["type"] == "linear":
        _put(result, "algorithm.exploration_steps", int(eps["decay"]))
    else:
        raise UsageError(f"policy.other.eps.type is {eps['type']!r}; exp and linear are known")
    learn = main.get("policy", {}).get("learn", {})
    # DI-engine copies every `target_update_freq` iterations; ours counts environment steps.
    per_collect = given["policy.learn.update_per_collect"]
    copies = learn.get("target_update_freq", 100)
    _put(result, "algorithm.target_every", max(1, round(copies / per_collect * given["policy.collect.n_sample"])))
    freq = main.get("policy", {}).get("eval", {}).get("evaluator", {}).get("eval_freq", 1000)
    _put(result, "evaluation.every", max(1, round(freq / per_collect * given["policy.collect.n_sample"])))
    return result


def to_di_engine(config: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """DI-engine's pair from a mapping of ours, for the settings that both know."""
    ours = _flatten(config, keep=("env.arguments",))
    main: dict[str, Any] = {}
    for theirs, mine in _DQN.items():
        if mine in ours:
            _put(main, theirs, ours[mine])
    _put(main, "env.env_id", ours["env.id"])
    decay = ours.get("algorithm.exploration_decay", 0.0)
    _put(main, "policy.other.eps.type", "exp" if decay else "linear")
    _put(main, "policy.other.eps.start", ours.get("algorithm.exploration_start", 0.95))
    _put(main, "policy.other.eps.end", ours.get("algorithm.exploration_end", 0.1))
    _put(main, "policy.other.eps.decay", decay or ours.get("algorithm.exploration_steps", 10_000))
    names = {env_id: kind for kind, env_id in _ENVS.items()}
    create = {"env": {"type": names.get(str(ours["env.id"]), "gym")}, "policy": {"type": "dqn"}}
    return main, create


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
