"""Optuna's samplers on the same problems;
their results are kept in `search_quality_peers.json` by version.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import optuna
from _problems import PROBLEMS, SEEDS, TRIALS, Problem

CACHE = Path(__file__).with_name("search_quality_peers.json")
PEERS = ("Random", "TPE", "CMA-ES", "NSGA-II", "GP")
VERSION = f"optuna {optuna.__version__}"

optuna.logging.set_verbosity(optuna.logging.ERROR)
warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
warnings.filterwarnings("ignore", module="optuna")


def sampler(peer: str, seed: int) -> optuna.samplers.BaseSampler:
    match peer:
        case "Random":
            return optuna.samplers.RandomSampler(seed=seed)
        case "TPE":
            return optuna.samplers.TPESampler(seed=seed)
        case "CMA-ES":
            return optuna.samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False)
        case "NSGA-II":
            return optuna.samplers.NSGAIISampler(seed=seed)
        case "GP":
            return optuna.samplers.GPSampler(seed=seed)
        case _:
            raise ValueError(f"there is no peer {peer!r}; the peers are {', '.join(PEERS)}")


def distributions(search_args: list[dict[str, Any]]) -> dict[str, optuna.distributions.BaseDistribution]:
    found: dict[str, optuna.distributions.BaseDistribution] = {}
    for arg in search_args:
        log = arg.get("log", False)
        if arg["type"] == "Categorical":
            found[arg["name"]] = optuna.distributions.CategoricalDistribution(arg["data"])
        elif arg["type"] == "Int":
            found[arg["name"]] = optuna.distributions.IntDistribution(*arg["data"], log=log)
        else:
            found[arg["name"]] = optuna.distributions.FloatDistribution(*arg["data"], log=log)
    return found


def best_after(peer: str, problem: Problem, seed: int, trials: int = TRIALS) -> float:
    study = optuna.create_study(sampler=sampler(peer, seed))
    space = distributions(problem.search_args)
    for _ in range(trials):
        trial = study.ask(space)
        study.tell(trial, problem.function(trial.params))
    return float(study.best_value)


def load() -> dict[str, Any]:
    return json.loads(CACHE.read_text()) if CACHE.exists() else {}


def results(peer: str, problem: Problem, seeds: range = SEEDS) -> list[float]:
    """The peer's best values, from the cache where this version has been run before."""
    values = []
    for seed in seeds:
        cache = load()
        row = cache.setdefault(VERSION, {}).setdefault(peer, {}).setdefault(problem.name, {})
        if str(seed) not in row:
            value = best_after(peer, problem, seed)
            cache = load()
            cache.setdefault(VERSION, {}).setdefault(peer, {}).setdefault(problem.name, {})[str(seed)] = value
            CACHE.write_text(json.dumps(cache, indent=1, sort_keys=True) + "\n")
        values.append(load()[VERSION][peer][problem.name][str(seed)])
    return values


if __name__ == "__main__":
    import sys

    for name in sys.argv[1:] or PEERS:
        for task in PROBLEMS.values():
            results(name, task)
