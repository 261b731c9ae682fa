"""How long one proposal takes, by the number of finished trials: each searcher beside Optuna's, in one run.

    OMP_NUM_THREADS=1 python benchmarks/proposals.py [--counts 100,500,1000,10000] [--repeats 15]

Sixteen arguments (12 continuous, four of them on a log scale; two whole numbers; two categorical). Both
sides get the same history of random configurations; then proposals are asked for one after the other, each
with its result told before the next. The figure is the median CPU time of a proposal and its result (one
thread; other work on the machine does not count). The Gaussian processes are asked at up to 1,000 trials.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import _search_peers as peers
import optuna

from operant.searchers import Observation, Proposal, build_searcher
from operant.space import build_space

SEARCH_ARGS: list[dict[str, Any]] = [
    *({"type": "Real", "name": f"x{i}", "data": [-5.0, 5.0]} for i in range(8)),
    *({"type": "Real", "name": f"r{i}", "data": [1e-5, 1.0], "log": True} for i in range(4)),
    {"type": "Int", "name": "layers", "data": [1, 8]},
    {"type": "Int", "name": "width", "data": [16, 1024], "log": True},
    {"type": "Categorical", "name": "kind", "data": ["a", "b", "c"]},
    {"type": "Categorical", "name": "act", "data": ["relu", "tanh"]},
]
PAIRS = [
    ("RandomSearcher", {}, "Random"),
    ("GridSearcher", {}, None),
    ("EvolutionSearcher", {}, "NSGA-II"),
    ("CmaEsSearcher", {}, "CMA-ES"),
    ("TpeSearcher", {}, "TPE multivariate"),
    ("GpSearcher", {}, "GP"),
    ("SkoptSearcher", {}, "GP"),
]
SLOW = ("GpSearcher", "SkoptSearcher")
MOST_FOR_SLOW = 1000


def value(config: dict[str, Any]) -> float:
    """Something smooth to minimise."""
    total = 0.0
    for one in config.values():
        if isinstance(one, str):
            total += 0.3 * len(one)
        elif one > 0:
            total += abs(math.log10(one) + 1) + 0.1 * one
        else:
            total -= 0.1 * one
    return total


def history(search_args: list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    import numpy as np

    space, rng = build_space(search_args), np.random.default_rng(0)
    return [space.sample(rng) for _ in range(count)]


def time_ours(kind: str, options: dict[str, Any], count: int, repeats: int) -> float:
    search_args = SEARCH_ARGS
    if kind == "GridSearcher":
        search_args = [{**arg, "step": 1e-3, "log": False} if arg["type"] == "Real" else arg for arg in SEARCH_ARGS]
    searcher = build_searcher({"type": kind, "optimize_mode": "minimize", **options}, search_args)
    if kind == "CmaEsSearcher":
        # Its history is its own: the distribution comes from what it proposed itself.
        for _ in range(count):
            proposal = searcher.propose()
            assert proposal is not None
            searcher.observe(Observation(proposal.number, values={"acc": value(proposal.config)}))
    else:
        configs = history(search_args, count)
        searcher.restore(
            [Observation(n, values={"acc": value(config)}) for n, config in enumerate(configs)],
            [Proposal(n, config) for n, config in enumerate(configs)],
        )
    searcher.propose()
    times = []
    for _ in range(repeats):
        started = time.process_time()
        proposal = searcher.propose()
        assert proposal is not None
        searcher.observe(Observation(proposal.number, values={"acc": value(proposal.config)}))
        times.append(time.process_time() - started)
    return statistics.median(times)


def time_peer(peer: str, count: int, repeats: int) -> float:
    study = optuna.create_study(sampler=peers.sampler(peer, 0))
    space = peers.distributions(SEARCH_ARGS)
    if peer in ("CMA-ES", "NSGA-II"):
        for _ in range(count):
            trial = study.ask(space)
            study.tell(trial, value(trial.params))
    else:
        for config in history(SEARCH_ARGS, count):
            study.add_trial(optuna.trial.create_trial(params=config, distributions=space, value=value(config)))
    study.ask(space)
    times = []
    for _ in range(repeats):
        started = time.process_time()
        trial = study.ask(space)
        study.tell(trial, value(trial.params))
        times.append(time.process_time() - started)
    return statistics.median(times)


class Row(NamedTuple):
    searcher: str
    count: int
    ours: float
    peer: str | None
    theirs: float | None


def measure(
    counts: Sequence[int] = (100, 500, 1000, 10_000), repeats: int = 15, searchers: Collection[str] | None = None
) -> Iterator[Row]:
    """Every pair, printed as the row of a table as soon as it is there."""
    print("| searcher | finished trials | Operant, ms | Optuna's | Optuna, ms | times faster |")
    print("|---|---|---|---|---|---|")
    cache: dict[tuple[str, int], float] = {}
    for kind, options, peer in PAIRS:
        if searchers is not None and kind not in searchers:
            continue
        for count in counts:
            if kind in SLOW and count > MOST_FOR_SLOW:
                continue
            times = repeats if kind not in SLOW else max(repeats // 3, 3)
            ours = time_ours(kind, options, count, times)
            if peer is None:
                print(f"| {kind} | {count} | {ours * 1e3:.3f} | - | | |", flush=True)
                yield Row(kind, count, ours, None, None)
                continue
            if (peer, count) not in cache:
                cache[peer, count] = time_peer(peer, count, times)
            theirs = cache[peer, count]
            shown = f"{ours * 1e3:.3f} | {peer} | {theirs * 1e3:.2f} | {theirs / ours:.0f}"
            print(f"| {kind} | {count} | {shown} |", flush=True)
            yield Row(kind, count, ours, peer, theirs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", default="100,500,1000,10000")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--searchers", default=",".join(kind for kind, _, _ in PAIRS))
    arguments = parser.parse_args()
    for _ in measure(
        [int(count) for count in arguments.counts.split(",")], arguments.repeats, arguments.searchers.split(",")
    ):
        pass


if __name__ == "__main__":
    main()
