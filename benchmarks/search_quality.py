"""How good is the best of 100 trials: each searcher beside its counterpart in Optuna, on the same fresh seeds.

    python benchmarks/search_quality.py [--searchers TpeSearcher,...] [--problems branin,...] [--peer NAME] [--rows]

Minimised; lower is better. Beside the usual functions: noisy ones, 16 trials pending at a time, arguments on a log
scale, categories, and branches with arguments of their own, of which the best is the narrowest (`hits`: how many
searches ended in it). A row is worse, or better, when the two-sided Mann-Whitney test says so after Holm's correction
over all rows of the run. Optuna's results are computed once for each of its versions and kept beside this file.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from _problems import PROBLEMS, Config, Problem, minimise

from operant.searchers import Observation, build_searcher

COUNTERPARTS = {
    "TpeSearcher": "TPE multivariate",
    "CmaEsSearcher": "CMA-ES",
    "GpSearcher": "GP",
    "SkoptSearcher": "GP",
    "EvolutionSearcher": "NSGA-II",
    "RandomSearcher": "Random",
    # For these Optuna has none of the kind.
    "TurboSearcher": "GP",
    "LamctsSearcher": "CMA-ES",
}
USUAL = "TpeSearcher,CmaEsSearcher,GpSearcher,SkoptSearcher,EvolutionSearcher,RandomSearcher"
LEVEL = 0.05


@dataclass
class Row:
    searcher: str
    peer: str
    problem: Problem
    ours: list[list[float]]
    theirs: list[list[float]]
    seconds: float

    @property
    def p(self) -> float:
        from scipy.stats import mannwhitneyu

        return float(mannwhitneyu(*self.values()).pvalue)

    def values(self) -> tuple[list[float], list[float]]:
        return [value for value, _ in self.ours], [value for value, _ in self.theirs]

    def hits(self) -> str:
        if self.problem.better is None:
            return "-"
        return " / ".join(f"{sum(hit for _, hit in one):.0f}" for one in (self.ours, self.theirs))


def best_after(searcher_type: str, problem: Problem, seed: int, **options: Any) -> list[float]:
    searcher = build_searcher(
        {"type": searcher_type, "optimize_mode": "minimize", "seed": seed, **options}, problem.search_args
    )

    def ask() -> tuple[int, Config]:
        proposal = searcher.propose()
        assert proposal is not None
        return proposal.number, proposal.config

    return minimise(
        problem, seed, ask, lambda number, value: searcher.observe(Observation(number, values={"acc": value}))
    )


def compare(
    searcher_type: str, problem: Problem, options: dict[str, Any], first_seed: int, most: int, peer: str | None = None
) -> Row:
    from _search_peers import results

    seeds = range(first_seed, first_seed + min(problem.seeds, most))
    started = time.process_time()
    ours = [best_after(searcher_type, problem, seed, **options) for seed in seeds]
    seconds = (time.process_time() - started) / len(seeds)
    peer = peer or COUNTERPARTS[searcher_type]
    return Row(searcher_type, peer, problem, ours, results(peer, problem, seeds), seconds)


def judge(rows: Sequence[Row]) -> list[str]:
    """`better`, `worse` or `level` of each row: Holm's step-down procedure over all of them."""
    order = sorted(range(len(rows)), key=lambda i: rows[i].p)
    verdicts = ["level"] * len(rows)
    for step, i in enumerate(order):
        if rows[i].p > LEVEL / (len(rows) - step):
            break
        ours, theirs = rows[i].values()
        wins = sum((a < b) - (a > b) for a in ours for b in theirs)
        verdicts[i] = "better" if wins > 0 else "worse"
    return verdicts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searchers", default=USUAL, help="also TurboSearcher, LamctsSearcher")
    parser.add_argument("--problems", default=",".join(PROBLEMS))
    parser.add_argument("--option", action="append", default=[], help="name=value for the searcher, as YAML")
    parser.add_argument("--peer", help="Optuna's sampler to compare with instead of the counterpart")
    parser.add_argument("--first-seed", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=100, help="at most so many (20 usually, 100 with branches)")
    parser.add_argument("--rows", action="store_true", help="show the value of every seed")
    arguments = parser.parse_args()
    from operant.space import load_yaml

    options = {name: load_yaml(value)[0] for name, _, value in (text.partition("=") for text in arguments.option)}
    rows: list[Row] = []
    for searcher in arguments.searchers.split(","):
        for problem in arguments.problems.split(","):
            row = compare(searcher, PROBLEMS[problem], options, arguments.first_seed, arguments.seeds, arguments.peer)
            rows.append(row)
            print(f"{searcher} {problem}: p {row.p:.4g}, hits {row.hits()}", flush=True)
    verdicts = judge(rows)
    print(
        "\n| searcher | Optuna's | problem | seeds | median | Optuna median | hits / Optuna's | p | | CPU s per run |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for row, verdict in zip(rows, verdicts, strict=True):
        ours, theirs = row.values()
        print(
            f"| {row.searcher} | {row.peer} | {row.problem.name} | {len(ours)} | {statistics.median(ours):.5g} | "
            f"{statistics.median(theirs):.5g} | {row.hits()} | {row.p:.3g} | {verdict} | {row.seconds:.2f} |"
        )
        if arguments.rows:
            print("  ours  ", *(f"{value:.5g}" for value in ours))
            print("  theirs", *(f"{value:.5g}" for value in theirs))
    counts = {verdict: verdicts.count(verdict) for verdict in ("better", "level", "worse")}
    print("\n" + ", ".join(f"{count} {verdict}" for verdict, count in counts.items()))


if __name__ == "__main__":
    main()
