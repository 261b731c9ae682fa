"""Optuna's samplers on the same problems;
their results are kept in `search_quality_peers.json` by version.
"""

from __future__ import annotations

import itertools
import json
import warnings
from pathlib import Path
from typing import Any

import optuna
from _problems import Config, Problem, minimise

CACHE = Path(__file__).with_name("search_quality_peers.json")
PEERS = ("Random", "TPE multivariate", "CMA-ES", "NSGA-II", "GP")
VERSION = f"optuna {optuna.__version__}"

optuna.logging.set_verbosity(optuna.logging.ERROR)
warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
warnings.filterwarnings("ignore", module="optuna")


def sampler(peer: str, seed: int) -> optuna.samplers.BaseSampler:
    match peer:
        case "Random":
            return optuna.samplers.RandomSampler(seed=seed)
        case "TPE multivariate":
            return optuna.samplers.TPESampler(seed=seed, multivariate=True)
        case "CMA-ES":
            return optuna.samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False)
        case "NSGA-II":
            return optuna.samplers.NSGAIISampler(seed=seed)
        case "GP":
            return optuna.samplers.GPSampler(seed=seed)
        case _:
            raise ValueError(f"there is no peer {peer!r}; the peers are {', '.join(PEERS)}")


def distribution(arg: dict[str, Any]) -> optuna.distributions.BaseDistribution:
    if arg["type"] == "Categorical":
        return optuna.distributions.CategoricalDistribution(arg["data"])
    kind = optuna.distributions.IntDistribution if arg["type"] == "Int" else optuna.distributions.FloatDistribution
    return kind(*arg["data"], log=arg.get("log", False))


def distributions(search_args: list[dict[str, Any]]) -> dict[str, optuna.distributions.BaseDistribution]:
    return {arg["name"]: distribution(arg) for arg in search_args}


def suggest(trial: optuna.Trial, arg: dict[str, Any]) -> None:
    if arg["type"] == "Categorical":
        trial.suggest_categorical(arg["name"], arg["data"])
    else:
        trial.suggest_float(arg["name"], *arg["data"], log=arg.get("log", False))


def best_after(peer: str, problem: Problem, seed: int) -> list[float]:
    study = optuna.create_study(sampler=sampler(peer, seed))
    conditional = any("when" in arg for arg in problem.search_args)
    space = {} if conditional else distributions(problem.search_args)

    def ask() -> tuple[optuna.Trial, Config]:
        trial = study.ask(space)
        # With conditions, one argument after the other, as its define-by-run has it.
        for arg in problem.search_args if conditional else ():
            if all(trial.params[name] == value for name, value in arg.get("when", {}).items()):
                suggest(trial, arg)
        return trial, dict(trial.params)

    return minimise(problem, seed, ask, study.tell)


def load() -> dict[str, Any]:
    return json.loads(CACHE.read_text()) if CACHE.exists() else {}


def results(peer: str, problem: Problem, count: int, first_seed: int) -> list[list[float]]:
    """What the peer came to with so many seeds: those that were run before with this version, whichever they are, and
    others from `first_seed` on.
    """
    known = load().get(VERSION, {}).get(peer, {}).get(problem.name, {})
    for seed in itertools.count(first_seed):
        if len(known) >= count:
            return [known[seed] for seed in sorted(known, key=int)[:count]]
        if str(seed) not in known:
            found = best_after(peer, problem, seed)
            cache = load()  # another process may have written meanwhile
            known = cache.setdefault(VERSION, {}).setdefault(peer, {}).setdefault(problem.name, {})
            known[str(seed)] = found
            text = json.dumps(cache, sort_keys=True, separators=(",", ":")).replace('}},"', '}},\n"')
            CACHE.write_text(text + "\n")
    raise AssertionError("seeds do not end")
