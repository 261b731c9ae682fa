"""What the median rule saves and what it costs: MedianStopAssessor beside Optuna's MedianPruner on simulated curves.

    python benchmarks/assessors.py [--seeds 60]

A search of 60 jobs with up to 50 steps each on 8 workers, some jobs two or three times as slow as others; rising curves
with and without noise. `saved` is the part of all steps that were not run, `kept` how many searches ran the best job
to its end, `regret` what the best job that ran to its end lacks, both by the curves without noise. All meet the same
curves.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import optuna

from operant.assessors import AssessResult, build_assessor

JOBS, STEPS, WORKERS = 60, 50, 8


def curves(seed: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """What each job reports, and what it is worth."""
    rng = np.random.default_rng(seed)
    worth = rng.random(JOBS)
    # The better a job is in the end, the slower it begins.
    speed = np.exp(rng.uniform(np.log(0.05), np.log(0.5), JOBS)) * (1.2 - worth)
    steps = np.arange(1, STEPS + 1)
    values = worth[:, None] * (1 - np.exp(-speed[:, None] * steps)) + noise * rng.standard_normal((JOBS, STEPS))
    return values, worth * (1 - np.exp(-speed * STEPS))


def simulate(
    values: np.ndarray, stops: Callable[[int, list[float]], bool], ended: Callable[[int, bool], None]
) -> list[int]:
    """How many steps each job ran; workers take their steps by turns."""
    waiting: list[int] = list(range(JOBS))
    running: list[int] = []
    ran = [0] * JOBS
    for clock in itertools.count():
        running += [waiting.pop(0) for _ in range(min(len(waiting), WORKERS - len(running)))]
        if not running:
            break
        # Some jobs take two or three times as long for a step as others.
        for job in [one for one in running if clock % (1 + one % 3) == 0]:
            ran[job] += 1
            stopped = stops(job, values[job, : ran[job]].tolist()) and ran[job] < STEPS
            if stopped or ran[job] == STEPS:
                running.remove(job)
                ended(job, stopped)
    return ran


def ours(values: np.ndarray, options: dict[str, Any]) -> list[int]:
    assessor = build_assessor({"type": "MedianStopAssessor", "start_step": 5, **options})

    def stops(job: int, seen: list[float]) -> bool:
        reports = [{"iteration": step, "value": value, "created": step} for step, value in enumerate(seen)]
        return assessor.assess_job(job, reports) == AssessResult.Bad

    return simulate(values, stops, lambda job, stopped: None if stopped else assessor.job_end(job))


def optunas(values: np.ndarray) -> list[int]:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(direction="maximize", pruner=optuna.pruners.MedianPruner(n_warmup_steps=4))
    trials: dict[int, optuna.Trial] = {}

    def stops(job: int, seen: list[float]) -> bool:
        if job not in trials:
            trials[job] = study.ask()
        trial = trials[job]
        trial.report(seen[-1], len(seen) - 1)
        return trial.should_prune()

    def ended(job: int, stopped: bool) -> None:
        if stopped:
            study.tell(trials[job], state=optuna.trial.TrialState.PRUNED)
        else:
            study.tell(trials[job], float(values[job, -1]))

    return simulate(values, stops, ended)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=60)
    parser.add_argument("--first-seed", type=int, default=1000)
    arguments = parser.parse_args()
    sides: dict[str, Callable[[np.ndarray], list[int]]] = {"Optuna MedianPruner": optunas}
    for options in ({}, {"min_finished": 5}, {"measure": "recent"}, {"min_finished": 5, "measure": "recent"}):
        name = ", ".join(["MedianStopAssessor", *(f"{key} {value}" for key, value in options.items())])
        sides[name] = partial(ours, options=options)
    print("| noise | rule | saved | kept | regret (mean) |\n|---|---|---|---|---|")
    for noise in (0.0, 0.05, 0.2):
        for name, side in sides.items():
            saved, kept, regret = [], 0, []
            for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
                values, worth = curves(seed, noise)
                ran = np.array(side(values))
                saved.append(1 - ran.sum() / (JOBS * STEPS))
                kept += int(ran[worth.argmax()] == STEPS)
                regret.append(worth.max() - worth[ran == STEPS].max())
            print(f"| {noise:g} | {name} | {statistics.mean(saved):.3f} | {kept} of {arguments.seeds} | "
                  f"{statistics.mean(regret):.4f} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
