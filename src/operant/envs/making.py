"""From a name to N environments that step together."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import entry_points
from inspect import signature
from typing import Any

import gymnasium
from gymnasium.vector import VectorEnv as GymnasiumVectorEnv

from operant.envs._mujoco_library import stop_timers
from operant.envs.classics import CLASSICS
from operant.envs.gymnasium_vector import adapt
from operant.envs.in_process import InProcessVectorEnv
from operant.envs.parallel import ParallelVectorEnv, is_parallel
from operant.envs.vector import VectorEnv
from operant.errors import MissingExtraError, UsageError, nearest
from operant.importing import modules_from_here

ENTRY_POINTS = "operant.envs"

Target = str | Callable[..., Any] | VectorEnv | GymnasiumVectorEnv[Any, Any, Any]


def make_env(
    target: Target,
    num_envs: int = 1,
    *,
    seed: int | None = None,
    workers: int = 0,
    vectorized: bool = True,
    wrappers: Sequence[str | Callable[[gymnasium.Env[Any, Any]], gymnasium.Env[Any, Any]]] = (),
    **kwargs: Any,
) -> VectorEnv:
    """Make ``num_envs`` copies of an environment.

    ``target`` is a Gymnasium id (``CartPole-v1``), an importable name (``package.module:callable``), the name of an
    entry point of the group ``operant.envs``, or a callable that makes a Gymnasium environment; a vector environment,
    ours or Gymnasium's, made or made by such a callable, is taken too. ``kwargs`` go to the environment.

    A module with ``parallel_env`` (``mpe2.simple_spread_v3``), or a callable that makes a parallel environment of
    PettingZoo, has several agents: see `operant.envs.parallel.ParallelVectorEnv`.

    The classic control tasks run vectorised in numpy unless ``vectorized`` is false or ``wrappers`` (callables, or
    their importable names) are to be put around each environment. Others are stepped one after the other in this
    process, or with ``workers=W`` spread over W processes: worth it where cores are free and one step of one
    environment takes longer than about 50 microseconds (``docs/environments.md`` has the measurements).
    """
    if num_envs < 1:
        raise UsageError(f"num_envs is {num_envs}; at least one environment is needed")
    if workers < 0 or workers > num_envs:
        raise UsageError(f"workers is {workers}; it must be between 0 and the {num_envs} environments")
    if workers:
        from operant.envs.workers import WorkerVectorEnv

        make = partial(make_env, target, vectorized=vectorized, wrappers=wrappers, **kwargs)
        return WorkerVectorEnv(make, num_envs, workers=workers, seed=seed)
    if isinstance(target, str) and vectorized and not wrappers:
        env = _classic(target, num_envs, seed, kwargs)
        if env is not None:
            return env
    if isinstance(target, VectorEnv | GymnasiumVectorEnv):
        if kwargs:
            raise UsageError(f"the vector environment is made already; it takes no arguments: {sorted(kwargs)}")
        return _as_ours(target, num_envs, seed, wrappers)
    make_one, name = _maker(target)
    if isinstance(make_one, type) and issubclass(make_one, VectorEnv):
        made: VectorEnv = _call(make_one, name, {"num_envs": num_envs, "seed": seed, **kwargs})
        made.name = made.name or name
        return _as_ours(made, num_envs, seed, wrappers)
    first = _call(make_one, name, kwargs)
    if isinstance(first, VectorEnv | GymnasiumVectorEnv):
        return _as_ours(first, num_envs, seed, wrappers)
    if is_parallel(first):
        agents = [first, *(_call(make_one, name, kwargs) for _ in range(num_envs - 1))]
        return ParallelVectorEnv(_wrapped(agents, wrappers), name=name, seed=seed)
    if not isinstance(first, gymnasium.Env):
        raise UsageError(f"{name} made a {type(first).__name__}, which is no Gymnasium environment{_why_not(first)}")
    envs = [first, *(_call(make_one, name, kwargs) for _ in range(num_envs - 1))]
    return InProcessVectorEnv(_wrapped(envs, wrappers), name=name, seed=seed)


def _wrapped(envs: list[Any], wrappers: Sequence[Any]) -> list[Any]:
    for wrapper in wrappers:
        wrap = _import(wrapper) if isinstance(wrapper, str) else wrapper
        envs = [wrap(env) for env in envs]
    return envs


def _classic(name: str, num_envs: int, seed: int | None, kwargs: Mapping[str, Any]) -> VectorEnv | None:
    """The vectorised form of a classic task, or None where there is none that takes these arguments."""
    if name not in CLASSICS:
        return None
    kind, limit = CLASSICS[name]
    own = dict(kwargs)
    render_mode = own.pop("render_mode", None)  # pictures are always to be had; a window is not
    known = {"max_episode_steps", *signature(kind).parameters}
    if render_mode not in (None, "rgb_array") or not own.keys() <= known:
        return None
    if own.get("max_episode_steps") == -1:  # Gymnasium's way to say: no limit
        own["max_episode_steps"] = None
    env = kind(num_envs, seed=seed, **({"max_episode_steps": limit} | own))
    env.name = name
    return env


def environment_maker(target: str | Callable[..., Any]) -> Callable[..., Any]:
    """What makes one environment: of a Gymnasium id, an entry point, an importable name or a callable."""
    return _maker(target)[0]


def _maker(target: str | Callable[..., Any]) -> tuple[Callable[..., Any], str]:
    """What makes one environment, and what to call it."""
    if callable(target):
        return target, getattr(target, "__name__", type(target).__name__)
    if not isinstance(target, str):
        raise UsageError(f"an environment is a name or a callable that makes one, not {target!r:.80}")
    if target in gymnasium.registry:
        return _registered(target), target
    plugins = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    if target in plugins:
        return plugins[target].load(), target
    if ":" in target:
        return _import(target), target
    if _is_module(target):
        _expect_no_screen()
        return _import(f"{target}:parallel_env"), target
    if "." in target and _is_module(target.rpartition(".")[0]):
        return _import(":".join(target.rpartition(".")[::2])), target
    package = target.partition(".")[0]
    if package in ("mpe2", "pettingzoo") and not _is_module(package):
        raise MissingExtraError(f"{target} (several agents)", "agents")
    known = [*gymnasium.registry, *plugins]
    raise UsageError(
        f"there is no environment {target!r}{nearest(target, known)}; "
        "give a Gymnasium id, an entry point of 'operant.envs', or 'package.module:callable'"
    )


def _expect_no_screen() -> None:
    """Have pygame draw to memory where there is no screen: environments of mpe2 start it, and it complains of that."""
    if not any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")) and sys.platform == "linux":
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")


def _registered(name: str) -> Callable[..., Any]:
    # The checker looks at every observation and action of the first episode's steps; these environments are known.
    return partial(gymnasium.make, name, disable_env_checker=True)


def _import(name: str) -> Callable[..., Any]:
    module_name, _, attribute = name.partition(":")
    if "<" in attribute:  # <lambda>, <locals>
        raise UsageError(
            f"the environment {name!r} was a lambda or a function inside another, which cannot be found again; "
            "put it into a module and name it as env.id=package.module:callable"
        )
    try:
        with modules_from_here():
            module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # the module is there; something that it imports is not
        raise UsageError(f"{name!r} names the module {module_name!r}, which cannot be found") from None
    if attribute in gymnasium.registry:  # Gymnasium's own form: 'module:Id-v0', where importing registers the id
        return _registered(attribute)
    found: Any = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        if module_name == "__main__":
            raise UsageError(
                f"the environment {attribute!r} was defined in a script that is not the one running now; "
                "go on from that script, or put it into a module and name it as env.id=module:" + attribute
            )
        raise UsageError(
            f"the module {module_name!r} has nothing to call {attribute!r}{nearest(attribute, dir(module))}"
        )
    return found  # type: ignore[no-any-return]


def _is_module(name: str) -> bool:
    try:
        with modules_from_here():
            return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):  # a parent is missing; `__main__` of an interactive session
        return name in sys.modules


def _why_not(made: Any) -> str:
    if hasattr(made, "agent_iter"):
        return ": its agents act in turn (AEC); give its parallel form, as pettingzoo.utils.aec_to_parallel makes it"
    if not (hasattr(made, "reset") and hasattr(made, "step")):
        return ""
    return ": derive it from gymnasium.Env (the package shimmy brings over environments of the old Gym)"


def why_not_found_again(target: Target) -> str:
    """Why a later process could not make this environment from its name; empty where it could."""
    if isinstance(target, str):
        return ""
    name = f"{getattr(target, '__module__', '')}:{getattr(target, '__qualname__', '')}"
    try:
        if _import(name) is target:
            return ""
    except Exception:  # whatever goes wrong, it is not found by this name
        pass
    kind = "a function inside another" if "<locals>" in name else f"a {type(target).__name__}"
    kind = "a lambda" if "<lambda>" in name else kind
    return f"env.id is {kind}, which has no name to be found by again; give it as 'package.module:callable'"


def _call(make: Callable[..., Any], name: str, kwargs: Mapping[str, Any]) -> Any:
    try:
        made = make(**kwargs)
    except TypeError as error:
        if "unexpected keyword argument" not in str(error):
            raise
        raise UsageError(f"{name} does not take these arguments: {error}") from error
    except gymnasium.error.DependencyNotInstalled as error:
        raise UsageError(f"{name} needs a package that is not installed: {error}") from error
    except ImportError as error:  # Gymnasium's way to say that it knows an environment and has it no more
        if name not in gymnasium.registry:
            raise
        raise UsageError(f"{name} cannot be made: {error}") from error
    stop_timers()
    return made


def _as_ours(
    env: VectorEnv | GymnasiumVectorEnv[Any, Any, Any], num_envs: int, seed: int | None, wrappers: Sequence[Any]
) -> VectorEnv:
    if wrappers:
        raise UsageError("wrappers go around single environments, and this is a vector environment; wrap its members")
    if num_envs not in (1, env.num_envs):
        raise UsageError(f"the vector environment holds {env.num_envs} environments, but num_envs is {num_envs}")
    return env if isinstance(env, VectorEnv) else adapt(env, seed=seed)
