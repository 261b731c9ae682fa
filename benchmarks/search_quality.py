"""How good is the best of 100 trials: each searcher and its counterpart in Optuna, seeds 0 to 19.

    python benchmarks/search_quality.py [--searchers TpeSearcher,...] [--problems branin,...] [--seeds 20-39] [--rows]

Minimised; lower is better. The last column of a pair is the one-sided Mann-Whitney test of "Operant is
worse": below 0.05 it is. Optuna's results are computed once for each of its versions and kept beside this
file; with other seeds for ours, theirs stay those of seeds 0 to 19, which were chosen for nobody.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

from _problems import PROBLEMS, SEEDS, TRIALS, Problem

from operant.searchers import Observation, build_searcher

COUNTERPARTS = {
    "TpeSearcher": "TPE",
    "CmaEsSearcher": "CMA-ES",
    "GpSearcher": "GP",
    "SkoptSearcher": "GP",
    "EvolutionSearcher": "NSGA-II",
    "RandomSearcher": "Random",
}


def best_after(searcher_type: str, problem: Problem, seed: int, trials: int = TRIALS, **options: Any) -> float:
    searcher = build_searcher(
        {"type": searcher_type, "optimize_mode": "minimize", "seed": seed, **options}, problem.search_args
    )
    for _ in range(trials):
        proposal = searcher.propose()
        assert proposal is not None
        searcher.observe(Observation(proposal.number, values={"acc": problem.function(proposal.config)}))
    assert searcher.best is not None
    return searcher.reward(searcher.best)


def compare(searcher_type: str, problem: Problem, options: dict[str, Any], seeds: range, rows: bool) -> bool:
    from _search_peers import results
    from scipy.stats import mannwhitneyu

    started = time.perf_counter()
    ours = [best_after(searcher_type, problem, seed, **options) for seed in seeds]
    seconds = (time.perf_counter() - started) / len(seeds)
    peer = COUNTERPARTS[searcher_type]
    theirs = results(peer, problem)
    worse = float(mannwhitneyu(ours, theirs, alternative="greater").pvalue)
    better = float(mannwhitneyu(ours, theirs, alternative="less").pvalue)
    verdict = "WORSE" if worse < 0.05 else "better" if better < 0.05 else "equal"
    print(
        f"| {searcher_type} | {peer} | {problem.name} | {statistics.median(ours):.5g} | "
        f"{statistics.median(theirs):.5g} | {worse:.3f} | {better:.3f} | {verdict} | {seconds:.2f} |",
        flush=True,
    )
    if rows:
        print("  ours  ", *(f"{value:.5g}" for value in ours))
        print("  theirs", *(f"{value:.5g}" for value in theirs))
    return worse >= 0.05


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searchers", default=",".join(COUNTERPARTS))
    parser.add_argument("--problems", default=",".join(PROBLEMS))
    parser.add_argument("--option", action="append", default=[], help="name=value for the searcher, as YAML")
    parser.add_argument("--seeds", default=f"{SEEDS[0]}-{SEEDS[-1]}", help="our seeds, first and last")
    parser.add_argument("--rows", action="store_true", help="show the value of every seed")
    arguments = parser.parse_args()
    from operant.space import load_yaml

    first, _, last = arguments.seeds.partition("-")
    seeds = range(int(first), int(last) + 1)
    options = {}
    for text in arguments.option:
        name, _, value = text.partition("=")
        options[name] = load_yaml(value)[0]
    print("| searcher | Optuna's | problem | median | Optuna median | p worse | p better | | s per run |")
    print("|---|---|---|---|---|---|---|---|---|")
    fine = [
        compare(searcher, PROBLEMS[problem], options, seeds, arguments.rows)
        for searcher in arguments.searchers.split(",")
        for problem in arguments.problems.split(",")
    ]
    print(f"\n{sum(fine)} of {len(fine)} rows are not significantly worse than their counterpart.")


if __name__ == "__main__":
    main()
