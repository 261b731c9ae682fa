"""How often a searcher finds the better branch of a conditional space: the best one is the narrowest.

    python benchmarks/conditional.py [--searchers TpeSearcher,...] [--seeds 1000-1099] [--trials 100] [--no-optuna]

Each branch has two arguments of its own, and all share one. A hit is a search whose best trial is of the better branch.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np

from operant.searchers import Observation, build_searcher

Config = dict[str, Any]


def problem(branches: int) -> tuple[list[dict[str, Any]], Callable[[Config], float]]:
    kinds = [f"k{i}" for i in range(branches)]
    args: list[dict[str, Any]] = [
        {"type": "Categorical", "name": "kind", "data": kinds},
        {"type": "Real", "name": "shared", "data": [0.0, 1.0]},
    ]
    for i, kind in enumerate(kinds):
        args += [{"type": "Real", "name": f"{n}{i}", "data": [0.0, 1.0], "when": {"kind": kind}} for n in "uv"]

    def loss(config: Config) -> float:
        i = kinds.index(config["kind"])
        radius = (config[f"u{i}"] - 0.3 - 0.1 * i) ** 2 + (config[f"v{i}"] - 0.7 + 0.1 * i) ** 2
        shared = 0.05 * (config["shared"] - 0.4) ** 2
        if i == branches - 1:
            return float(1 - np.exp(-radius / (2 * 0.12**2))) + shared
        return 0.2 + 0.1 * i + 0.8 * radius + shared

    return args, loss


def ours(kind: str, branches: int, seed: int, trials: int) -> tuple[bool, float]:
    args, loss = problem(branches)
    searcher = build_searcher({"type": kind, "optimize_mode": "minimize", "seed": seed}, args)
    for _ in range(trials):
        proposal = searcher.propose()
        assert proposal is not None
        searcher.observe(Observation(proposal.number, values={"acc": loss(proposal.config)}))
    assert searcher.best is not None
    return searcher.best.config["kind"] == f"k{branches - 1}", searcher.reward(searcher.best)


def optunas(branches: int, seed: int, trials: int) -> tuple[bool, float]:
    """Its TPE, multivariate, which is its default from version 5 on."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    _, loss = problem(branches)

    def objective(trial: Any) -> float:
        kind = trial.suggest_categorical("kind", [f"k{i}" for i in range(branches)])
        own = {f"{n}{kind[1:]}": trial.suggest_float(f"{n}{kind[1:]}", 0, 1) for n in "uv"}
        return loss({"kind": kind, "shared": trial.suggest_float("shared", 0, 1), **own})

    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed, multivariate=True))
    study.optimize(objective, n_trials=trials)
    return study.best_params["kind"] == f"k{branches - 1}", study.best_value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searchers", default="TpeSearcher,EvolutionSearcher,RandomSearcher")
    parser.add_argument("--seeds", default="1000-1099")
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--no-optuna", action="store_true")
    arguments = parser.parse_args()
    first, _, last = arguments.seeds.partition("-")
    seeds = range(int(first), int(last) + 1)
    print("| branches | searcher | better branch found | median best |")
    print("|---|---|---|---|")
    for branches in (2, 4):
        for kind in [*arguments.searchers.split(","), *([] if arguments.no_optuna else ["Optuna TPE (multivariate)"])]:
            runs = [
                optunas(branches, seed, arguments.trials)
                if kind.startswith("Optuna")
                else ours(kind, branches, seed, arguments.trials)
                for seed in seeds
            ]
            found, best = sum(hit for hit, _ in runs), statistics.median(value for _, value in runs)
            print(f"| {branches} | {kind} | {found} of {len(runs)} | {best:.4g} |", flush=True)


if __name__ == "__main__":
    main()
