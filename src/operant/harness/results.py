"""Results of an iteration under one vocabulary, whoever trains; when they say that it is enough."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from operant.errors import UsageError, nearest

Result = dict[str, float]
Heard = Callable[[Result], None]
"""Is told the result of each iteration."""
STEPS = "num_env_steps_sampled_lifetime"
FILM = "episode_film"
"""Where a result has the frames of an episode."""
_EPISODES = {f"env_runners/episode_{what}_{how}" for what in ("return", "len") for how in ("mean", "min", "max")}
_LATE = ("learners/", "env_runners/agent_episode_", "env_runners/module_episode_")
"""How further results begin that come only once something was learned, or an episode has ended."""


@dataclass(frozen=True)
class Report:
    """What came of a training by the harness."""

    run_id: str
    folder: Path
    steps: int
    mean_return: float
    """Of the last training episodes."""
    reason: str
    """Why it ended."""


def flatten(result: Mapping[str, Any], prefix: str = "") -> tuple[Result, dict[str, list[float]]]:
    """Numbers by names joined with slashes, and lists of numbers apart; the rest (config, texts) is left out."""
    numbers: Result = {}
    lists: dict[str, list[float]] = {}
    for key, value in result.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            if name != "config":
                inner, inner_lists = flatten(value, f"{name}/")
                numbers |= inner
                lists |= inner_lists
        elif isinstance(value, (bool, int, float, np.number)):
            numbers[name] = float(value)
        elif isinstance(value, (list, tuple, np.ndarray)) and len(value) and _all_numbers(value):
            lists[name] = [float(one) for one in value]
        elif isinstance(value, np.ndarray) and value.ndim == 0:
            numbers[name] = float(value)
    return numbers, lists


def films_of(result: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Films of episodes by their names, frames [T, H, W, C], as `OperantRLlibCallback` leaves them."""
    for key, value in result.items():
        name = f"{prefix}{key}"
        if key == FILM:
            rows = [np.asarray(one) for one in value] if isinstance(value, (list, tuple)) else [np.asarray(value)]
            yield from ((name, one) for one in rows[-1:] if one.ndim == 4)
        elif isinstance(value, Mapping) and name != "config":
            yield from films_of(value, f"{name}/")


def _all_numbers(values: Any) -> bool:
    return all(isinstance(one, (int, float, np.number)) and not isinstance(one, bool) for one in values)


def machine_load() -> Result:
    """What `debugging.log_sys_usage` asks for."""
    return {
        "perf/cpu_util_percent": float(psutil.cpu_percent()),
        "perf/ram_util_percent": float(psutil.virtual_memory().percent),
    }


class StopConditions:
    """The first of these that a result reaches ends the training."""

    def __init__(self, conditions: Mapping[str, float]) -> None:
        self.conditions = dict(conditions)

    def reached(self, result: Mapping[str, float]) -> str:
        """Which condition is met, in words; empty while none is. A name that no result has is an error."""
        for name, limit in self.conditions.items():
            value = result.get(name)
            if value is None:
                check_name(name, result, f"stop_conditions.{name}", "it would never stop")
            elif math.isfinite(value) and value >= limit:
                return f"{name} is {value:g}, which has reached {limit:g}"
        return ""


def check_name(name: str, result: Mapping[str, float], where: str, otherwise: str) -> None:
    """Refuse a name of a result that this one lacks, and later ones will lack too."""
    if name not in result and not _comes_later(name, result):
        raise UsageError(
            f"{where}: no result has this name{nearest(name, result)}, so {otherwise}; there are "
            f"{', '.join(sorted(result))}"
        )


def _comes_later(name: str, result: Mapping[str, float]) -> bool:
    """Whether a result of this name is still to come: once an episode has ended, or the policy was evaluated."""
    trained = name.removeprefix("evaluation/")
    return trained in _EPISODES or trained.startswith(_LATE) or (trained != name and trained in result)
