"""Configs of the launcher: written complete, read strictly, launched. Only `launch` loads Lightning."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from operant.algorithms import ALGORITHMS, find_algorithm
from operant.auto.envs import find_environment
from operant.errors import MissingExtraError, UsageError, nearest
from operant.settings import fill, setting, to_mapping
from operant.training.machin import PARTS, from_machin, to_machin

if TYPE_CHECKING:
    from operant.auto.launching import LaunchResult

Config = dict[str, Any]


class _Frame(NamedTuple):
    """A frame of Machin's that is settings here."""

    algorithm: str
    implied: Mapping[str, Any] = {}
    own: Mapping[str, Any] = {}
    """Machin's own values where they are not those of the algorithm's frame."""


_FRAMES = {
    "hddpg": _Frame("ddpg", own={"update_rate": 0.005}),
    "ddpgapex": _Frame("apex_ddpg"),
    "ddpgper": _Frame("ddpg", {"prioritized": True}),
    "dqnapex": _Frame("apex_dqn"),
    "dqnper": _Frame("dqn", {"prioritized": True}),
}


@dataclass(frozen=True)
class LaunchSettings:
    """The keys of a config. What `frame_config` and the two groups of the environment hold is theirs to say."""

    frame: str = setting("", "name of the algorithm, such as DQN")
    frame_config: dict[str, Any] = setting({}, "its settings, in Machin's words or Operant's")
    env: str = setting("", "name of the environment module: openai_gym, an entry point, or an import path")
    train_env_config: dict[str, Any] = setting({}, "the environment to train in")
    test_env_config: dict[str, Any] = setting({}, "the environment to evaluate in")
    root_dir: str = setting("trial", "folder of checkpoints, pictures and the config; a taken one is never overwritten")
    episode_per_epoch: int = setting(10, "training episodes of one epoch")
    max_episodes: int = setting(10_000, "training episodes at most")
    early_stopping_patience: int | None = setting(20, "epochs without a better total reward before it ends; null: none")
    stop_reward: float | None = setting(None, "end when the total reward of an evaluation reaches this")
    gpus: Any = setting(
        None,
        "list, number or string; the first learns, and of a distributed algorithm each is a process; where there is "
        "none, the CPU",
    )
    device: str | None = setting(None, "where networks live, instead of gpus: auto, cpu, cuda, cuda:1 or mps")
    num_nodes: int = setting(1, "machines: with engine ray its cluster's, otherwise those that run `operant join`")
    num_processes: int = setting(1, "processes on each machine: one of all learns, the others collect for it")
    engine: str = setting("local", "who starts them: local, or ray")
    batch_num: dict[str, int] = setting(
        {},
        "of an epoch: `sampler` episodes of each process that collects, instead of episode_per_epoch; `learner` times "
        "as many updates from replay",
    )
    seed: int | None = setting(None, "decides everything random; null: OPERANT_SEED, or 0")
    name: str = setting("", "what the run is called; by default environment and algorithm")

    def __post_init__(self) -> None:
        for key in ("episode_per_epoch", "max_episodes"):
            if getattr(self, key) < 1:
                raise UsageError(f"{key} is {getattr(self, key)}; it must be at least 1")
        if self.early_stopping_patience is not None and self.early_stopping_patience < 1:
            raise UsageError(
                f"early_stopping_patience is {self.early_stopping_patience}; it must be at least 1, or null for none"
            )
        for key in ("num_nodes", "num_processes"):
            if getattr(self, key) < 1:
                raise UsageError(f"{key} is {getattr(self, key)}; it must be at least 1")
        for role, count in self.batch_num.items():
            if role not in ("sampler", "learner"):
                raise UsageError(f"batch_num has sampler and learner, not {role!r}")
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise UsageError(f"batch_num.{role} is {count!r}; it is a whole number from 1 up")


@dataclass(frozen=True)
class Plan:
    """A config that was checked: what is to be trained, with which settings and parts, and for how long."""

    launch: LaunchSettings
    algorithm: str
    """The algorithm's name in Operant, such as ``dqn``."""
    settings: Any
    parts: Config
    """What of `frame_config` is no setting: models, optimizer, criterion, …"""
    model: Config
    """Settings of networks that are built from the spaces."""
    seed: int

    @property
    def is_distributed(self) -> bool:
        """Whether the algorithm is made for many that act: several GPUs are then several processes."""
        from operant.algorithms.base import BasePolicy

        kind, _ = find_algorithm(self.algorithm)
        spec = kind.data_spec(self.settings)
        explores_by_worker = getattr(kind, "explore_as", None) is not BasePolicy.explore_as
        return spec.lag > 0 or spec.unit == "candidate" or explores_by_worker

    @property
    def workers(self) -> int:
        """Processes that collect: all but the one that learns."""
        each = self.launch.num_processes
        if self.is_distributed:
            each = max(each, len(asked_gpus(self.launch.gpus)))
        return self.launch.num_nodes * each - 1

    @property
    def episode_per_epoch(self) -> int:
        """Of all processes together."""
        each = self.launch.batch_num.get("sampler")
        return self.launch.episode_per_epoch if each is None else each * max(1, self.workers)

    @property
    def epochs(self) -> int:
        return math.ceil(self.launch.max_episodes / self.episode_per_epoch)


def get_available_algorithms() -> list[str]:
    """The names that `frame` may have."""
    return sorted([name.upper() for name in [*ALGORITHMS.names, *_FRAMES]])


def generate_training_config(
    root_dir: str = LaunchSettings.root_dir,
    episode_per_epoch: int = LaunchSettings.episode_per_epoch,
    max_episodes: int = LaunchSettings.max_episodes,
    config: Mapping[str, Any] | None = None,
    early_stopping_patience: int | None = LaunchSettings.early_stopping_patience,
) -> Config:
    """Add how long to train and where to keep it. What the config has already stays, unless it is given here."""
    ours = {
        "root_dir": root_dir,
        "episode_per_epoch": episode_per_epoch,
        "max_episodes": max_episodes,
        "early_stopping_patience": early_stopping_patience,
    }
    given = {key: value for key, value in ours.items() if value != getattr(LaunchSettings, key)}
    return {**ours, **copied(config or {}), **given}


def generate_algorithm_config(
    algorithm: str, config: Mapping[str, Any] | None = None, defaults: str = "operant"
) -> Config:
    """Add the algorithm with all of its settings. What the config has of them already stays.

    :param defaults: whose values to take, ``operant`` or ``machin``; what Machin has no word for is always ours.
    """
    result: Config = copied(config or {})
    kind = algorithm_key(algorithm)
    given = result.get("frame_config", {})
    found, settings_class = find_algorithm(kind)
    own = _machins_own(algorithm, settings_class) if _is_machin(defaults) else {}
    settings, _ = from_machin(settings_class, {**own, **_implied(algorithm)})
    count = len(found.model_roles)
    parts = copied(PARTS)
    parts |= {"models": [None] * count, "model_args": [[] for _ in range(count)]}
    parts["model_kwargs"] = [{} for _ in range(count)]
    result["frame"] = algorithm.upper()
    result["frame_config"] = {**parts, **to_machin(settings), **own, **given}
    result.setdefault("gpus", [0])
    if kind in ("a3c", "apex_ddpg", "apex_dqn", "ars", "impala"):
        more: Config = {"num_nodes": 1, "num_processes": 3}  # as Machin has it: one learns, two collect
        if own and kind in ("impala", "apex_dqn", "apex_ddpg"):
            more["batch_num"] = {"sampler": 10, "learner": 1}
        result = {**more, **result}
    return result


def generate_env_config(env: str, config: Mapping[str, Any] | None = None) -> Config:
    """Add an environment to a config; what the config has of it already stays."""
    found: Config = find_environment(env).generate_env_config(config)
    return found


def copied(config: Any) -> Any:
    """The groups and lists of a config anew; what stands in them (models, buffers) is the user's and stays the same."""
    if isinstance(config, Mapping):
        return {key: copied(value) for key, value in config.items()}
    return [copied(value) for value in config] if isinstance(config, (list, tuple)) else config


def algorithm_key(name: str) -> str:
    if not isinstance(name, str) or not (name.lower() in ALGORITHMS or name.lower() in _FRAMES):
        known = get_available_algorithms()
        raise UsageError(f"there is no algorithm {name!r}{nearest(str(name), known)}; known: {', '.join(known)}")
    return _FRAMES[name.lower()].algorithm if name.lower() in _FRAMES else name.lower()


def _implied(name: str) -> Config:
    """Settings that the name of a frame stands for."""
    return dict(_FRAMES[name.lower()].implied) if name.lower() in _FRAMES else {}


def _is_machin(defaults: str) -> bool:
    if defaults not in ("operant", "machin"):
        raise UsageError(f"defaults are those of operant or machin, not {defaults!r}")
    return defaults == "machin"


def _machins_own(name: str, settings_class: type) -> Config:
    """What Machin takes for a frame where a config says nothing."""
    words = getattr(settings_class, "machin", None)
    if words is None or not words.own:
        raise UsageError(f"no defaults of Machin's are known for {name.upper()}; leave --defaults out")
    return {**words.own, **(_FRAMES[name.lower()].own if name.lower() in _FRAMES else {})}


def check_config(config: Mapping[str, Any]) -> Plan:
    """Check a whole config before anything is made of it; what is wrong is said in one sentence."""
    if not isinstance(config, Mapping):
        raise UsageError(f"a config is a mapping of names and values, not {type(config).__name__}")
    for key in ("frame", "env"):
        if not config.get(key):
            command = "generate_algorithm_config" if key == "frame" else "generate_env_config"
            raise UsageError(f"the config has no {key!r}; `{command}` or `operant auto generate` writes it")
    launch = fill(LaunchSettings, config)
    asked_gpus(launch.gpus)
    kind = algorithm_key(launch.frame)
    _, settings_class = find_algorithm(kind)
    frame_config = {**_implied(launch.frame), **launch.frame_config}
    model = frame_config.pop("model", {})
    if not isinstance(model, Mapping):
        raise UsageError(f"'frame_config.model' is a group of settings such as {{'hidden': [64, 64]}}, got {model!r}")
    settings, parts = from_machin(settings_class, frame_config)
    settings = _with_more_updates(settings, launch)
    seed = launch.seed if launch.seed is not None else int(os.environ.get("OPERANT_SEED") or 0)
    return Plan(launch, kind, settings, parts, dict(model), seed)


def _with_more_updates(settings: Any, launch: LaunchSettings) -> Any:
    """What `batch_num.learner` asks for: so many times the updates that the frame would make."""
    times = launch.batch_num.get("learner", 1)
    if times == 1:
        return settings
    if not hasattr(settings, "train_every"):
        raise UsageError(
            f"batch_num.learner is {times}, but {launch.frame} learns once from what was collected: it is 1"
        )
    return replace(settings, updates=times * (settings.updates or settings.train_every))


def asked_gpus(gpus: Any) -> list[int]:
    """The numbers of the GPUs that are asked for (−1: all): a list, a number of them, "0,1" or "-1", or null."""
    if gpus is None:
        return []
    if isinstance(gpus, str):
        words = [word.strip() for word in gpus.split(",") if word.strip()]
        if not all(word.lstrip("-").isdigit() for word in words):
            raise UsageError(f'gpus is {gpus!r}; write numbers, such as "0,1", or null for the CPU')
        numbers = [int(word) for word in words]
        if numbers == [-1]:
            return numbers
        # As Lightning reads it: "3" is a count, "3," is GPU number 3.
        gpus = numbers if "," in gpus else (numbers[0] if numbers else 0)
    if isinstance(gpus, bool) or not isinstance(gpus, (int, list, tuple)):
        raise UsageError(f"gpus is a list, a number, a string or null, got {gpus!r}")
    if isinstance(gpus, int):
        if gpus < -1:
            raise UsageError(f"gpus is {gpus}; it is a count from 0 up, or -1 for all")
        return [-1] if gpus == -1 else list(range(gpus))
    if any(isinstance(one, bool) or not isinstance(one, int) or one < 0 for one in gpus):
        raise UsageError(f"gpus is {list(gpus)!r}; a list names GPUs by their numbers, from 0 up")
    return list(gpus)


def read_config(path: str | Path) -> Config:
    """A config file; `Infinity` may be written bare or as a string."""
    file = Path(path)
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"there is no file {file}; `operant auto generate` writes one") from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UsageError(f"{file} is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise UsageError(f"{file} must hold a mapping of names and values, not {type(values).__name__}")
    return values


def write_config(config: Mapping[str, Any], path: str | Path) -> None:
    """Write a config as JSON that every reader takes: infinity is a string, a class its name."""
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(plain_config(config), indent=4, sort_keys=True) + "\n", encoding="utf-8")


def plain_config(config: Any) -> Any:
    """A config as plain values."""
    if isinstance(config, Mapping):
        return {str(key): plain_config(value) for key, value in config.items()}
    if isinstance(config, (list, tuple)):
        return [plain_config(value) for value in config]
    if isinstance(config, float) and not math.isfinite(config):
        return "NaN" if math.isnan(config) else ("Infinity" if config > 0 else "-Infinity")
    if config is None or isinstance(config, (str, int, float, bool)):
        return config
    if hasattr(config, "__dataclass_fields__") and not isinstance(config, type):
        return plain_config(to_mapping(config))
    kind: Any = config if hasattr(config, "__qualname__") else type(config)
    return f"{kind.__module__}.{kind.__qualname__}"


def launch(
    config: Mapping[str, Any],
    callbacks: list[Any] | None = None,
    *,
    resume: bool | str | Path = False,
    root: str | Path | None = None,
    progress: bool | None = None,
    say: Callable[[str], None] | None = None,
) -> LaunchResult:
    """Train as a config says, with PyTorch Lightning, and say what came of it.

    Names of models, optimizers, criteria and schedulers may be those of the module that calls this. `callbacks` are
    Lightning's. With `resume=True` a training goes on from the last checkpoint in its root_dir, exactly.

    >>> launch(config).best_reward
    """
    names = sys._getframe(1).f_globals
    try:
        import lightning.pytorch  # noqa: F401
    except ImportError:
        raise MissingExtraError("operant.auto", "auto") from None
    from operant.auto.launching import LaunchOptions, LaunchResult, using
    from operant.auto.parts import prepare_parts, resolve_names

    resolved = resolve_names(config, names) if isinstance(config, Mapping) else config
    plan = check_config(resolved)
    prepare_parts(plan)
    environment = find_environment(plan.launch.env)
    shown = sys.stderr.isatty() if progress is None else progress
    with using(LaunchOptions(resume=resume, root=root, progress=shown, say=say)):
        result = environment.launch(resolved, callbacks)
    if not isinstance(result, LaunchResult):
        raise TypeError(f"{plan.launch.env}.launch gave a {type(result).__name__}; it must return its LaunchResult")
    return result


def measured_config(algorithm: str) -> Config:
    """What was measured of an algorithm on the environment that it is shown with: its preset, or {} without one."""
    from operant.training.targets import list_presets

    kind = algorithm_key(algorithm)
    preset = f"{example_env(kind).partition('-')[0].lower()}-{kind}"
    return {**config_of_preset(preset), "frame": algorithm.upper()} if preset in list_presets() else {}


def example_env(algorithm: str) -> str:
    """The Gymnasium id of a simple environment that an algorithm can learn in."""
    return str(getattr(find_algorithm(algorithm)[0], "example_env", "CartPole-v1"))


def config_of_preset(name: str) -> Config:
    """The algorithm, its settings, networks and environment as a preset of `operant train` has them."""
    from operant.training.targets import load_config

    config = load_config(name)
    usual = to_mapping(type(config.model)())
    model = {
        key: value
        for key, value in to_mapping(config.model).items()
        if key in ("hidden", "activation", "orthogonal") or value != usual[key]
    }
    env = to_mapping(config.env)
    train = {"env_name": env.pop("id"), **{key: value for key, value in env.items() if value}}
    test = {key: train[key] for key in ("env_name", "arguments", "wrappers") if key in train}
    return {
        "frame": config.algorithm["name"].upper(),
        "frame_config": {**to_machin(config.algorithm_settings), "model": model},
        "train_env_config": train,
        "test_env_config": test,
    }
