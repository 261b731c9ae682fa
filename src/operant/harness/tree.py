"""The composed tree: plain values, checked whole before anything starts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from operant.errors import UsageError, nearest
from operant.harness.words import Tree, todays_words

CONF = Path(__file__).parent / "conf"
MODES = ("train", "tune", "view")
LIBRARIES = ("operant", "rllib")
_LEVELS = ("DEBUG", "INFO", "WARN", "ERROR")
# What the harness itself reads. The other groups are the library's.
_OWN_KEYS = {
    "cli": ("mode",),
    "algo": ("name", "library", "checkpoint_path", "trust"),
    "runtime": ("name", "local_dir"),
    "checkpoint": ("checkpoint_frequency", "num_to_keep"),
    "debugging": ("log_level", "log_sys_usage", "seed"),
    "ray": ("address",),
    "aim": ("repo", "experiment", "run_hash", "system_tracking_interval", "log_system_params", "capture_terminal_logs"),
    "tensorboard": ("logdir",),
    "film": ("frames",),
}
# Groups that a mode reads, and checks; `simulation` is read by others, through its name.
_MODE_GROUPS = ("stop_conditions", "tune", "tunables", "callbacks", "simulation")
LIBRARY_GROUPS = (
    "environment",
    "evaluation",
    "exploration",
    "framework",
    "resources",
    "rollouts",
    "training",
    "model",
    "learners",
    "fault_tolerance",
    "reporting",
    "multi_agent",
)


@dataclass(frozen=True)
class Origins:
    """Where the values of a tree were written: the files that it was composed of, and the command line."""

    files: tuple[tuple[str, Path], ...] = ()
    """The package of each file (the group it fills, empty for the main config) and its path; the last one wins."""
    overrides: tuple[str, ...] = ()

    def of(self, path: str) -> str:
        """``conf/training/dqn.yaml:4``, or the command line; empty where nobody knows."""
        for override in self.overrides:
            if override.lstrip("+~").partition("=")[0] == path:
                return f" (on the command line: {override.removeprefix('++')})"
        for package, file in reversed(self.files):
            inside = path.removeprefix(f"{package}.") if package else path
            if (package and inside == path) or not file.is_file():
                continue
            line = _line_of(file, inside.split("."))
            if line:
                return f" ({file}:{line})"
        return ""

    def shipped(self, path: str) -> bool:
        """Whether a value is as the package's own tree has it."""
        return self.of(path).startswith(f" ({CONF}/")


@dataclass
class Plan:
    """What one call of the harness is to do, in plain values."""

    mode: str
    library: str
    algorithm: str
    tree: Tree
    said: list[str] = field(default_factory=list)
    """A line for each older name that was translated, where it was the user who wrote it."""
    origins: Origins = field(default_factory=Origins)

    @property
    def stop_conditions(self) -> dict[str, float]:
        return {name: float(value) for name, value in (self.tree.get("stop_conditions") or {}).items()}

    def unknown(self, path: str, known: Iterable[str], who: str) -> UsageError:
        """An error about a key that nobody takes, with its place and the nearest that somebody does."""
        name, known = path.rpartition(".")[2], sorted(known)
        return UsageError(
            f"there is no {path}{self.origins.of(path)}{nearest(name, known)}; {who} takes {', '.join(known)}"
        )


def make_plan(tree: Tree, origins: Origins | None = None) -> Plan:
    """Read a composed tree: older words become today's, what is the harness's own is checked."""
    origins = origins or Origins()
    for group in (*_OWN_KEYS, *LIBRARY_GROUPS, *_MODE_GROUPS):
        if group != "callbacks" and not isinstance(tree.get(group) or {}, Mapping):
            raise UsageError(f"{group}{origins.of(group)} is a group of settings, got {tree[group]!r:.80}")
    tree, said = todays_words(tree)
    algo = tree.get("algo") or {}
    plan = Plan(
        mode=str((tree.get("cli") or {}).get("mode")),
        library=str(algo.get("library", "operant")),
        algorithm=str(algo.get("name")),
        tree=tree,
        said=[line for path, line in said if not origins.shipped(path)],
        origins=origins,
    )
    for what, value, known in (("cli.mode", plan.mode, MODES), ("algo.library", plan.library, LIBRARIES)):
        if value not in known:
            raise UsageError(
                f"{what} is {value!r}{nearest(value, known)}; it is {', '.join(known[:-1])} or {known[-1]}"
            )
    for group, keys in _OWN_KEYS.items():
        _check_group(plan, group, keys)
    for group in tree:
        if group not in (*_OWN_KEYS, *LIBRARY_GROUPS, *_MODE_GROUPS):
            raise plan.unknown(group, (*_OWN_KEYS, *LIBRARY_GROUPS, *_MODE_GROUPS), "the harness")
    _check_values(plan)
    return plan


def flag(plan: Plan, group: str, key: str) -> bool:
    """Whether a switch is on; off where nobody has set it."""
    found = given(plan, group).get(key, False)
    if not isinstance(found, bool):  # a word such as `no` would be true
        raise UsageError(f"{group}.{key}{plan.origins.of(f'{group}.{key}')} is true or false, got {found!r:.80}")
    return found


def given(plan: Plan, group: str) -> dict[str, Any]:
    """What a group says; null means the library's default."""
    return {str(key): value for key, value in (plan.tree.get(group) or {}).items() if value is not None}


def whole(plan: Plan, path: str, default: int, least: int = 0) -> int:
    """The whole number at a dotted path."""
    group, _, key = path.partition(".")
    found = given(plan, group).get(key, default)
    if isinstance(found, bool) or not isinstance(found, int) or found < least:
        raise UsageError(f"{path}{plan.origins.of(path)} is a whole number from {least} up, got {found!r:.80}")
    return found


def environment_name(plan: Plan) -> str:
    """What is trained in, or looked at."""
    name = given(plan, "environment").get("env")
    if not name or not isinstance(name, str):
        raise UsageError(
            f"environment.env{plan.origins.of('environment.env')} is a Gymnasium id, an entry point or a dotted path, "
            f"got {name!r:.80}"
        )
    return name


def mapping(plan: Plan, path: str, values: Any) -> Mapping[str, Any]:
    """A group within a group; null: an empty one."""
    if not isinstance(values or {}, Mapping):
        raise UsageError(f"{path}{plan.origins.of(path)} is a group of settings, got {values!r:.80}")
    return values or {}


def _check_group(plan: Plan, group: str, known: tuple[str, ...]) -> None:
    for key in given(plan, group):
        if key not in known:
            raise plan.unknown(f"{group}.{key}", known, "the harness")


def _check_values(plan: Plan) -> None:
    checkpoint, debugging = given(plan, "checkpoint"), given(plan, "debugging")
    frequency, keep = checkpoint.get("checkpoint_frequency", 20), checkpoint.get("num_to_keep", 1)
    if isinstance(frequency, bool) or not isinstance(frequency, int) or frequency < 0:
        raise UsageError(
            f"checkpoint.checkpoint_frequency is {frequency!r}; it is a whole number, 0 for no checkpoints"
        )
    if isinstance(keep, bool) or not isinstance(keep, int) or keep < 1:
        raise UsageError(f"checkpoint.num_to_keep is {keep!r}; it is 1 or more, or null for all")
    for group, key in (("algo", "trust"), ("debugging", "log_sys_usage")):
        flag(plan, group, key)
    callbacks = plan.tree.get("callbacks") or []
    if not isinstance(callbacks, list) or not all(isinstance(one, str) for one in callbacks):
        raise UsageError(f"callbacks is a list of dotted paths, got {callbacks!r}")
    agents = given(plan, "multi_agent")
    if not isinstance(agents.get("policies", []), (list, Mapping)):
        raise UsageError(f"multi_agent.policies is a list of names, got {agents['policies']!r:.80}")
    if not isinstance(agents.get("policy_mapping_fn", ""), (str, Mapping)):
        raise UsageError(
            "multi_agent.policy_mapping_fn is a table of agents and policies, or a dotted path, got "
            f"{agents['policy_mapping_fn']!r:.80}"
        )
    framework = given(plan, "framework").get("framework", "torch")
    if framework != "torch":
        raise UsageError(f"framework.framework is {framework!r:.80}; it is 'torch', which both libraries have today")
    level = debugging.get("log_level", "WARN")
    if level not in _LEVELS:
        raise UsageError(f"debugging.log_level is {level!r}{nearest(str(level), _LEVELS)}; it is {', '.join(_LEVELS)}")
    for name, value in given(plan, "stop_conditions").items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
            raise UsageError(
                f"stop_conditions.{name}{plan.origins.of(f'stop_conditions.{name}')} is a number, got {value!r}"
            )


def _line_of(file: Path, names: list[str]) -> int:
    """The line in which a YAML file has a key, 0 if it has not."""
    try:
        node: Any = yaml.compose(file.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError):
        return 0
    line = 0
    for name in names:
        if not isinstance(node, yaml.MappingNode):
            return 0
        found = next(((key, value) for key, value in node.value if key.value == name), None)
        if found is None:
            return 0
        line, node = found[0].start_mark.line + 1, found[1]
    return line
