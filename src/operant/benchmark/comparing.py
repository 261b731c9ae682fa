"""Runs a searcher on a function with no scheduler between: what a comparison repeats for each searcher and seed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from operant.benchmark.functions import Function, search_args
from operant.searchers import Observation, build_searcher

_CONFIRMING = 0xC0


@dataclass
class Outcome:
    """What one search came to. A hit is a sample at the threshold whose mean over fresh episodes is there too."""

    searcher: str
    function: str
    seed: int
    samples: int
    best: float
    # How many there were to be at most, and the episodes of one.
    samples_asked: int = 0
    rollouts: int = 1
    # The first sample with a confirmed reward, None without one; what confirming cost, in episodes.
    hit: int | None = None
    confirmed: float | None = None
    confirming_episodes: int = 0
    checks: int = 0
    # How many regions the tree had at the hit (1: it had not split); None of searchers without a tree.
    regions: int | None = None
    propose_seconds: float = 0.0
    # Each sample that was better than all before: how many there were by then, and its value.
    rises: list[tuple[int, float]] = field(default_factory=list)

    @property
    def episodes(self) -> int:
        """All that were run, with those for confirming."""
        return self.samples * self.rollouts + self.confirming_episodes

    def curve(self) -> list[float]:
        """The best value after each sample, NaN before the first."""
        best = [math.nan] * self.samples
        for (start, value), end in zip(self.rises, [*(at for at, _ in self.rises[1:]), self.samples + 1], strict=True):
            best[start - 1 : end - 1] = [value] * (end - start)
        return best


def run_search(
    name: str,
    options: Mapping[str, Any],
    function: Function,
    seed: int,
    samples: int,
    threshold: float | None = None,
    confirm_rollouts: int = 20,
    each: Callable[[int, float, Any], None] | None = None,
) -> Outcome:
    """Ask, evaluate and tell, one sample after the other, until the threshold is reached or the samples are used up."""
    searcher = build_searcher({**options, "seed": seed}, search_args(function))
    outcome = Outcome(name, function.name, seed, 0, -np.inf, samples, int(getattr(function, "rollouts", 1)))
    for number in range(samples):
        started = time.perf_counter()
        proposal = searcher.propose()
        outcome.propose_seconds += time.perf_counter() - started
        if proposal is None:
            break
        point = list(proposal.config.values())
        value = function(point, [seed, number])
        searcher.observe(Observation(proposal.number, values={"acc": value}))
        outcome.samples = number + 1
        if value > outcome.best:
            outcome.best = value
            outcome.rises.append((number + 1, float(f"{value:.6g}")))
        if each is not None:
            each(number, value, searcher)
        if threshold is not None and value >= threshold:
            outcome.checks += 1
            outcome.confirmed = confirm(function, point, [seed, number], confirm_rollouts)
            outcome.confirming_episodes += confirming_cost(function, confirm_rollouts)
            if outcome.confirmed >= threshold:
                outcome.hit = number + 1
                break
    tree = getattr(searcher, "tree", None)
    outcome.regions = None if tree is None else len(tree().splitlines())
    return outcome


def confirm(function: Function, point: list[float], seed: list[int], rollouts: int) -> float:
    """The mean return over fresh episodes; of a formula, which is not random, its value."""
    returns = getattr(function, "returns", None)
    if returns is None:
        return function(point, seed)
    return float(np.mean(returns(point, [*seed, _CONFIRMING], rollouts)))


def confirming_cost(function: Function, rollouts: int) -> int:
    """How many episodes `confirm` runs: of a formula, which has the same value each time, none."""
    return rollouts if hasattr(function, "returns") else 0
