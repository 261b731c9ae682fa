"""How good is the best of 100 trials: each searcher beside its counterpart in Optuna.

    python benchmarks/search_quality.py [--searchers TpeSearcher,...] [--problems branin,...] [--peer NAME]
    python benchmarks/search_quality.py --report

Minimised; lower is better. Beside the usual functions: noisy ones, 16 trials pending at a time, arguments on a log
scale, categories, and branches with arguments of their own, of which the best is the narrowest (`hits`: the part of the
searches that ended in it). A row is worse, or better, when the two-sided Mann-Whitney test says so after Holm's
correction over all rows of the table. What every seed came to is kept beside this file: ours in
`search_quality_results.json`, Optuna's in `search_quality_peers.json` by its version, where it is not run again.
`--report` runs nothing and prints the table of all that is kept.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
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
KEPT = Path(__file__).with_name("search_quality_results.json")


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
        return " / ".join(f"{statistics.mean(hit for _, hit in one):.2f}" for one in (self.ours, self.theirs))


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


def compare(searcher: str, problem: Problem, options: dict[str, Any], seeds: range, peer: str, peer_seeds: int) -> Row:
    from _search_peers import results

    started = time.process_time()
    ours = [best_after(searcher, problem, seed, **options) for seed in seeds]
    seconds = (time.process_time() - started) / len(seeds)
    theirs = results(peer, problem, min(len(seeds), peer_seeds), seeds[0])
    return Row(searcher, peer, problem, ours, theirs, seconds)


def load() -> dict[str, Any]:
    return json.loads(KEPT.read_text()) if KEPT.exists() else {}


def keep(row: Row, seeds: range) -> None:
    kept = load()  # another process may have written meanwhile
    entry = {"first seed": seeds[0], "seconds": round(row.seconds, 3), "results": row.ours}
    kept.setdefault(row.searcher, {}).setdefault(row.peer, {})[row.problem.name] = entry
    KEPT.write_text(json.dumps(kept, sort_keys=True, separators=(",", ":")).replace('},"', '},\n"') + "\n")


def kept_rows() -> list[Row]:
    """What was run before, beside all that is known of Optuna's."""
    import _search_peers

    peers = _search_peers.load()[_search_peers.VERSION]
    rows = []
    for searcher, by_peer in load().items():
        for peer, by_problem in by_peer.items():
            for name, entry in by_problem.items():
                problem, theirs = PROBLEMS[name], peers[peer][name]
                known = [theirs[seed] for seed in sorted(theirs, key=int)[: problem.seeds]]
                rows.append(Row(searcher, peer, problem, entry["results"], known, entry["seconds"]))
    order = list(COUNTERPARTS)
    return sorted(rows, key=lambda row: (order.index(row.searcher), list(PROBLEMS).index(row.problem.name)))


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


def report(rows: Sequence[Row]) -> None:
    verdicts = judge(rows)
    print("\n| searcher | Optuna's | problem | seeds | median | Optuna's | hits | p | | CPU s per search |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for row, verdict in zip(rows, verdicts, strict=True):
        ours, theirs = row.values()
        cells = [row.searcher, row.peer, row.problem.name, f"{len(ours)} / {len(theirs)}"]
        cells += [f"{statistics.median(values):.5g}" for values in (ours, theirs)]
        cells += [row.hits(), f"{row.p:.2g}", verdict, f"{row.seconds:.2f}"]
        print("| " + " | ".join(cells) + " |")
    counts = {verdict: verdicts.count(verdict) for verdict in ("better", "level", "worse")}
    print("\n" + ", ".join(f"{count} {verdict}" for verdict, count in counts.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searchers", default=USUAL, help="also TurboSearcher, LamctsSearcher")
    parser.add_argument("--problems", default=",".join(PROBLEMS))
    parser.add_argument("--option", action="append", default=[], help="name=value for the searcher, as YAML: not kept")
    parser.add_argument("--peer", help="Optuna's sampler to compare with instead of the counterpart")
    parser.add_argument("--first-seed", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=100, help="at most so many (20 usually, 100 with branches)")
    parser.add_argument("--peer-seeds", type=int, default=100, help="at most so many of Optuna's")
    parser.add_argument("--report", action="store_true", help="only the table of all that is kept")
    arguments = parser.parse_args()
    if arguments.report:
        report(kept_rows())
        return
    from operant.space import load_yaml

    options = {name: load_yaml(value)[0] for name, _, value in (text.partition("=") for text in arguments.option)}
    rows: list[Row] = []
    for searcher in arguments.searchers.split(","):
        for problem in (PROBLEMS[name] for name in arguments.problems.split(",")):
            seeds = range(arguments.first_seed, arguments.first_seed + min(problem.seeds, arguments.seeds))
            peer = arguments.peer or COUNTERPARTS[searcher]
            row = compare(searcher, problem, options, seeds, peer, arguments.peer_seeds)
            if not options:
                keep(row, seeds)
            rows.append(row)
            print(f"{searcher} {problem.name}: p {row.p:.4g}, hits {row.hits()}", flush=True)
    report(rows)


if __name__ == "__main__":
    main()
