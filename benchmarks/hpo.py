"""What a fluent search costs by itself: an empty function, journaled, beside Optuna's `study.optimize` in memory.

    OMP_NUM_THREADS=1 python benchmarks/hpo.py [--trials 1000] [--rounds 5]

Both sides propose, call, and take the result, one trial after the other, with the same kind of searcher and the same
two floats and one choice. Rounds alternate between the two, so that both meet the same machine; the figures are medians
over rounds of the time (and of the processor time) for one trial, and of the ratio. `optimize` means TPE, Optuna's
default. The start and the end of a search are in the time of its trials.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import tempfile
import time
from collections.abc import Callable

import optuna

from operant.hpo import R, choice, hpo, uniform

BAR = 5.0
PAIRS = ("tpe", "random", "grid")
MOST_FOR_GRID = 300  # Optuna's grid takes longer for each trial the more there are


def empty(config: object) -> float:
    return 0.0


def ours(kind: str, trials: int) -> None:
    search = getattr(hpo(empty), kind)(silent=True).max_steps(trials).max_workers(1).maximize(R)
    search.spaces({"x": uniform(0, 1), "y": uniform(0, 1), "k": choice(["a", "b", "c"])}).run()


def objective(trial: optuna.Trial) -> float:
    trial.suggest_float("x", 0, 1)
    trial.suggest_float("y", 0, 1)
    trial.suggest_categorical("k", ["a", "b", "c"])
    return 0.0


def theirs(kind: str, trials: int) -> None:
    side = int((trials / 3) ** 0.5)
    steps = [i / (side - 1) for i in range(side)]
    samplers: dict[str, Callable[[], optuna.samplers.BaseSampler]] = {
        "tpe": optuna.samplers.TPESampler,
        "random": optuna.samplers.RandomSampler,
        "grid": lambda: optuna.samplers.GridSampler({"x": steps, "y": steps, "k": ["a", "b", "c"]}),
    }
    optuna.create_study(direction="maximize", sampler=samplers[kind]()).optimize(objective, n_trials=trials)


def measure(run: Callable[[str, int], None], kind: str, trials: int) -> tuple[float, float]:
    gc.collect()  # nobody pays for what the other has left behind
    wall, processor = time.perf_counter(), time.process_time()
    run(kind, trials)
    return (time.perf_counter() - wall) / trials * 1e6, (time.process_time() - processor) / trials * 1e6


def row(pairs: list[tuple[tuple[float, float], tuple[float, float]]], which: int) -> tuple[str, float]:
    """Both medians, the median of the rounds' ratios, and the least and the greatest of them."""
    ratios = [theirs[which] / mine[which] for mine, theirs in pairs]
    mine, theirs = (statistics.median(pair[side][which] for pair in pairs) for side in (0, 1))
    ratio = statistics.median(ratios)
    spread = f"({min(ratios):.1f} to {max(ratios):.1f})"
    return f"{mine:>9.0f}{theirs:>9.0f}{ratio:>7.1f}x {spread:<16}", ratio


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    load = f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    print(f"optuna {optuna.__version__}; {args.trials} trials, {args.rounds} rounds; microseconds for a trial; {load}")
    head = f"{'operant':>9}{'optuna':>9}{'ratio':>8} {'(rounds)':<16}"
    print(f"{'searcher':<9}by the clock:{head}processor time:{head}")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["OPERANT_DIR"] = folder
        for kind in PAIRS:
            measure(ours, kind, 20)
            measure(theirs, kind, 20)
            trials = min(args.trials, MOST_FOR_GRID) if kind == "grid" else args.trials
            pairs = [(measure(ours, kind, trials), measure(theirs, kind, trials)) for _ in range(args.rounds)]
            (wall, by_wall), (processor, by_processor) = row(pairs, 0), row(pairs, 1)
            least = min(by_wall, by_processor)
            told = "bar met" if least >= BAR else f"below the bar of {BAR:g}x"
            print(f"{kind:<9}{'':>13}{wall}{'':>15}{processor}{told}", flush=True)


if __name__ == "__main__":
    main()
