"""The same training for several seeds, at the same time where there are cores, and one figure for all."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
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
    """The results of the seeds that finished; `best` and `last` are interquartile means with their 95 % intervals.
    `failed` has what the others ended with."""

    seeds: tuple[int, ...]
    results: tuple[TrainResult, ...]
    best: tuple[float, float, float]
    last: tuple[float, float, float]
    failed: Mapping[int, str]

    def to_mapping(self) -> dict[str, Any]:
        each = [
            {"seed": seed, "run": one.run_id, "steps": one.steps, "best": one.best_return, "last": one.final_return}
            for seed, one in zip(self.seeds, self.results, strict=True)
        ]
        failed = [{"seed": seed, "error": error} for seed, error in self.failed.items()]
        return {"seeds": each, "best": list(self.best), "last": list(self.last), "failed": failed}


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
    ends: dict[int, TrainResult | OperantError] = {}
    if count == 1:
        for seed, one in zip(seeds, configs, strict=True):
            ends[seed] = _end_of(lambda one=one: train(one, root=root, tags=["seeds"]))  # type: ignore[misc]
    else:
        with _passing_on_sigterm(), spawn_pool(count) as pool:
            begun = [pool.submit(_train_one, one, root) for one in configs]
            try:
                ends = {seed: _end_of(one.result) for seed, one in zip(seeds, begun, strict=True)}
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    finished = {seed: end for seed, end in ends.items() if isinstance(end, TrainResult)}
    failed = {seed: str(end) for seed, end in ends.items() if isinstance(end, OperantError)}
    if not finished:
        seed, error = next(iter(failed.items()))
        raise OperantError(f"seed {seed}: {error}")
    return SeedsResult(
        tuple(finished),
        tuple(finished.values()),
        interval([one.best_return for one in finished.values()]),
        interval([one.final_return for one in finished.values()]),
        failed,
    )


def _end_of(training: Callable[[], TrainResult]) -> TrainResult | OperantError:
    """What a training came to: one that fails costs the others nothing."""
    try:
        return training()
    except OperantError as error:
        return error
    except BrokenProcessPool:
        return OperantError("a training's process was killed, and those beside it ended with it; was memory short?")


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
