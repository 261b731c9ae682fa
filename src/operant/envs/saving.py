"""The exact state of a Gymnasium environment: of each wrapper around it, of the task itself, of its random numbers.

An environment is walked from the outermost wrapper inwards. A layer that has ``save_state()`` and ``load_state(state)``
of its own is asked; otherwise it must be one whose changing attributes are listed here. One unknown layer, and the
environment cannot be brought back bit by bit; :func:`why_inexact` then says which.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np

from operant.envs.rng import generator_state, restore_generator
from operant.envs.vector import Array
from operant.errors import UsageError

# Attributes that change as an environment runs. Clocks and pictures are left out: nothing depends on them.
_WRAPPERS: dict[str, tuple[str, ...]] = {
    "OrderEnforcing": ("_has_reset",),
    "PassiveEnvChecker": (),
    "TimeLimit": ("_elapsed_steps",),
    "RecordEpisodeStatistics": (
        "episode_count",
        "episode_returns",
        "episode_lengths",
        "return_queue",
        "length_queue",
        "time_queue",
    ),
    "TimeAwareObservation": ("timesteps",),
    "FrameStackObservation": ("obs_queue", "padding_value"),
    "DelayObservation": ("observation_queue",),
    "NormalizeObservation": ("obs_rms",),
    "NormalizeReward": ("return_rms", "discounted_reward"),
    "StickyAction": ("last_action", "is_sticky_actions", "num_repeats", "repeats_taken"),
    "MaxAndSkipObservation": (),
    "Autoreset": ("autoreset",),
    "TransformObservation": (),
    "TransformAction": (),
    "TransformReward": (),
    "FilterObservation": (),
    "FlattenObservation": (),
    "GrayscaleObservation": (),
    "ResizeObservation": (),
    "ReshapeObservation": (),
    "RescaleObservation": (),
    "DtypeObservation": (),
    "DiscretizeObservation": (),
    "ClipAction": (),
    "RescaleAction": (),
    "DiscretizeAction": (),
    "ClipReward": (),
}
_TASKS: dict[str, tuple[str, ...]] = {
    "CartPoleEnv": ("state", "steps_beyond_terminated"),
    "AcrobotEnv": ("state",),
    "MountainCarEnv": ("state",),
    "Continuous_MountainCarEnv": ("state",),
    "PendulumEnv": ("state", "last_u"),
    "FrozenLakeEnv": ("s", "lastaction"),
    "CliffWalkingEnv": ("s", "lastaction"),
    "TaxiEnv": ("s", "lastaction", "fickle_step", "taxi_orientation"),
    "BlackjackEnv": ("player", "dealer", "dealer_top_card_suit", "dealer_top_card_value_str"),
}


def why_inexact(env: gymnasium.Env[Any, Any]) -> str:
    """The reason why this environment cannot be saved bit by bit, or an empty string."""
    for layer in _layers(env):
        if not (_saves_itself(layer) or _is_mujoco(layer)) and _attributes(layer) is None:
            kind = type(layer)
            return (
                f"{kind.__module__}.{kind.__qualname__} keeps state that cannot be read from outside; "
                "give it save_state() and load_state(state) to make it exact"
            )
    return ""


def save_env(env: gymnasium.Env[Any, Any]) -> dict[str, Any]:
    """Everything that ``load_env`` needs, as nested dicts of arrays and plain values."""
    return {"random": save_random(env), "layers": {str(i): _save_layer(layer) for i, layer in enumerate(_layers(env))}}


def load_env(env: gymnasium.Env[Any, Any], state: dict[str, Any]) -> None:
    """Put a newly made environment into a saved state. It need not have been reset."""
    layers = list(_layers(env))
    saved = state["layers"]
    kinds = [type(layer).__name__ for layer in layers]
    saved_kinds = [saved[str(i)]["kind"] for i in range(len(saved))]
    if kinds != saved_kinds:
        raise UsageError(f"the saved environment is made of {saved_kinds}, this one of {kinds}")
    load_random(env, state["random"])
    for i, layer in enumerate(layers):
        _load_layer(layer, saved[str(i)])


def save_random(env: gymnasium.Env[Any, Any]) -> dict[str, Any]:
    """The random numbers of the task. Reading ``np_random`` makes a generator where there is none yet."""
    return {"seed": env.unwrapped.np_random_seed, "generator": generator_state(env.unwrapped.np_random)}


def load_random(env: gymnasium.Env[Any, Any], state: dict[str, Any]) -> None:
    env.unwrapped.np_random = restore_generator(state["generator"])
    env.unwrapped._np_random_seed = state["seed"]  # has no setter; tells which seed the numbers came from


def _layers(env: gymnasium.Env[Any, Any]) -> Iterator[gymnasium.Env[Any, Any]]:
    while True:
        yield env
        if not isinstance(env, gymnasium.Wrapper):
            return
        env = env.env


def _saves_itself(layer: Any) -> bool:
    # On the class: a wrapper's __getattr__ must not answer for what it wraps.
    return hasattr(type(layer), "save_state") and hasattr(type(layer), "load_state")


def _attributes(layer: Any) -> tuple[str, ...] | None:
    kind = type(layer)
    if kind.__module__.startswith("gymnasium.wrappers."):
        return _WRAPPERS.get(kind.__name__)
    if kind.__module__.startswith(("gymnasium.envs.classic_control.", "gymnasium.envs.toy_text.")):
        return _TASKS.get(kind.__name__)
    return None


def _is_mujoco(layer: Any) -> bool:
    return type(layer).__module__.startswith("gymnasium.envs.mujoco.") and hasattr(layer, "data")


def _save_layer(layer: Any) -> dict[str, Any]:
    kind = type(layer).__name__
    if _saves_itself(layer):
        return {"kind": kind, "own": layer.save_state()}
    if _is_mujoco(layer):
        return {"kind": kind, "mujoco": _save_mujoco(layer.model, layer.data)}
    names = _attributes(layer) or ()
    return {"kind": kind, "values": {name: _encode(getattr(layer, name)) for name in names if hasattr(layer, name)}}


def _load_layer(layer: Any, saved: dict[str, Any]) -> None:
    if "own" in saved:
        layer.load_state(saved["own"])
    elif "mujoco" in saved:
        _load_mujoco(layer.model, layer.data, saved["mujoco"])
    else:
        for name, value in saved["values"].items():
            setattr(layer, name, _decode(value))


# Values of attributes: plain ones stay as they are, the rest become {"type": ...}.


def _encode(value: Any) -> Any:
    if value is None or (isinstance(value, bool | int | float | str) and not isinstance(value, np.generic)):
        return value
    if isinstance(value, np.ndarray | np.generic):
        kind = "array" if isinstance(value, np.ndarray) else "number"
        return {"type": kind, "value": np.array(value)}
    if isinstance(value, deque | list | tuple):
        items = {str(i): _encode(item) for i, item in enumerate(value)}
        return {"type": type(value).__name__, "items": items, "maxlen": getattr(value, "maxlen", None)}
    if isinstance(value, dict):
        return {"type": "dict", "items": {str(name): _encode(item) for name, item in value.items()}}
    if all(hasattr(value, name) for name in ("mean", "var", "count")):  # Gymnasium's RunningMeanStd
        return {"type": "moments", "mean": np.array(value.mean), "var": np.array(value.var), "count": value.count}
    raise UsageError(f"a value of type {type(value).__name__} in an environment cannot be saved")


def _decode(saved: Any) -> Any:
    if not isinstance(saved, dict):
        return saved
    kind = saved["type"]
    if kind == "array":
        return saved["value"].copy()
    if kind == "number":
        return saved["value"][()]
    if kind == "moments":
        from gymnasium.wrappers.utils import RunningMeanStd

        make: Any = RunningMeanStd
        moments = make(shape=saved["mean"].shape, dtype=saved["mean"].dtype)
        moments.mean, moments.var, moments.count = saved["mean"].copy(), saved["var"].copy(), saved["count"]
        return moments
    if kind == "dict":
        return {name: _decode(item) for name, item in saved["items"].items()}
    items = [_decode(saved["items"][str(i)]) for i in range(len(saved["items"]))]
    if kind == "deque":
        return deque(items, maxlen=saved["maxlen"])
    return tuple(items) if kind == "tuple" else items


# MuJoCo. The integration state decides the future of the physics, but tasks also read quantities derived from it:
# Ant takes the torso's place before a step from `xpos`, which lags `qpos` by one substep. Forward kinematics after
# loading would move it on, so derived arrays are stored as they are. Arrays that live in the arena (contacts and their
# constraints) change shape from step to step and are computed anew at the start of each.


def _save_mujoco(model: Any, data: Any) -> dict[str, Any]:
    import mujoco

    spec = mujoco.mjtState.mjSTATE_INTEGRATION
    integration = np.empty(mujoco.mj_stateSize(model, spec))
    mujoco.mj_getState(model, data, integration, spec)
    return {"integration": integration, "derived": {name: np.array(a) for name, a in _derived(data).items()}}


def _load_mujoco(model: Any, data: Any, saved: dict[str, Any]) -> None:
    import mujoco

    spec = mujoco.mjtState.mjSTATE_INTEGRATION
    if saved["integration"].shape != (mujoco.mj_stateSize(model, spec),):
        raise UsageError(
            "the saved MuJoCo state does not fit this model; it was saved by another model or version of MuJoCo"
        )
    mujoco.mj_setState(model, data, saved["integration"], spec)
    for name, array in _derived(data).items():
        if name in saved["derived"]:
            array[...] = saved["derived"][name]


def _derived(data: Any) -> dict[str, Array]:
    found = {}
    for name in dir(data):
        if name.startswith(("_", "efc_", "iefc_", "contact", "island_")):
            continue
        value = getattr(data, name)
        if isinstance(value, np.ndarray) and value.size and value.dtype == np.float64 and value.flags.writeable:
            found[name] = value
    return found
