"""The same training for several seeds, at the same time where there are cores, and one figure for all."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from operant._util.pools import spawn_pool
from operant.errors import OperantError, UsageError
from operant.training.config import TrainConfig
from operant.training.running import train
from operant.training.statistics import interval
from operant.training.training import TrainResult

_MOST = 100_000  # seeds at once; more are a mistake in writing


@dataclass(frozen=True)
class SeedsResult:
    """The results of all seeds; `best` and `last` are interquartile means with their 95 % intervals."""

    seeds: tuple[int, ...]
    results: tuple[TrainResult, ...]
    best: tuple[float, float, float]
    last: tuple[float, float, float]

    def to_mapping(self) -> dict[str, Any]:
        each = [
            {"seed": seed, "run": one.run_id, "steps": one.steps, "best": one.best_return, "last": one.final_return}
            for seed, one in zip(self.seeds, self.results, strict=True)
        ]
        return {"seeds": each, "best": list(self.best), "last": list(self.last)}


def parse_seeds(text: str) -> list[int]:
    """``0..4`` (both ends included) or ``0,3,7``."""
    seeds: Sequence[int] = []
    try:
        if ".." in text:
            first, last = (int(part) for part in text.split(".."))
            seeds = range(first, last + 1)
        else:
            seeds = [int(part) for part in text.split(",")]
    except ValueError:
        pass
    if not seeds or len(seeds) > _MOST or min(seeds) < 0 or len(set(seeds)) < len(seeds):
        raise UsageError(f"{text!r} are no seeds: write 0..4, or 0,3,7")
    return list(seeds)


def train_seeds(
    config: TrainConfig, seeds: Sequence[int], *, workers: int = 0, root: str | Path | None = None
) -> SeedsResult:
    """Train once for each seed; one process for each core unless `workers` says otherwise."""
    if workers < 0:
        raise UsageError(f"{workers} trainings at the same time are none: 1 or more, or 0 for one on each core")
    configs = [{**config.to_mapping(), "seed": seed, "name": f"{config.name}-seed{seed}"} for seed in seeds]
    count = min(workers or len(os.sched_getaffinity(0)), len(seeds))
    if count == 1:
        made = (train(one, root=root, tags=["seeds"]) for one in configs)
        results = _naming_seed(seeds, made)
    else:
        with _passing_on_sigterm(), spawn_pool(count) as pool:
            results = _naming_seed(seeds, pool.map(_train_one, configs, [root] * len(configs)))
    return SeedsResult(
        tuple(seeds),
        tuple(results),
        interval([one.best_return for one in results]),
        interval([one.final_return for one in results]),
    )


def _naming_seed(seeds: Sequence[int], made: Iterator[TrainResult]) -> list[TrainResult]:
    """The results of all seeds; of the first that fails, an error says which it is."""
    results: list[TrainResult] = []
    try:
        for result in made:
            results.append(result)  # how many there are tells which one failed
    except OperantError as error:
        raise OperantError(f"seed {seeds[len(results)]}: {error}") from error
    return results


@contextmanager
def _passing_on_sigterm() -> Iterator[None]:
    """Let the trainings save and end when this process is asked to; ctrl-C reaches all of them anyway."""

    def pass_on(number: int, _: Any) -> None:
        for child in multiprocessing.active_children():
            if child.pid is not None:
                os.kill(child.pid, number)
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, pass_on)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _train_one(config: dict[str, Any], root: str | Path | None) -> TrainResult:
    try:
        return train(config, root=root, tags=["seeds"])
    except (KeyboardInterrupt, SystemExit) as end:  # the pool would give this process the next seed
        os._exit(130 if isinstance(end, KeyboardInterrupt) else 143)
