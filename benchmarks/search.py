"""The search engine beside its peers, all in one run.

    OMP_NUM_THREADS=1 python benchmarks/search.py [--parts a,b,c,d] [--rounds 3]

(a) Trials that are function calls in this process: 16 parameters and one report each, everything journaled, beside
    Optuna's three storages, one and 16 trials at a time. Bars: 5x Optuna in memory, 300x SQLite.
(b) Jobs that are processes, two at a time: the same program by a bare Popen, and by Ray Tune.
    Bars: at most 1.3x the time of Popen, a tenth of Ray Tune's.
(c) The time of one proposal, as benchmarks/proposals.py measures it. Bars: 1 ms for Random, Grid, Evolution and
    CMA-ES, 20x Optuna's TPE after 10,000 trials, 5x its GP sampler after 500.
(d) `search-ctl show` of 10,000 jobs (bar: half a second, Python's own start included) and the resume of a search of
    100,000 jobs (bar: seconds).

Rounds alternate between the sides, so that a busy machine is busy for all of them; figures are medians.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from operant.schedulers import NaiveScheduler
from operant.sites import report

BATCHES = (1, 16)  # trials asked for at a time
DIMENSIONS = 16
PROGRAM = "import json, sys\njson.dump({'acc': float(sys.argv[1])}, open('result.json', 'w'))\n"


@contextlib.contextmanager
def timed(into: list[float]) -> Iterator[None]:
    began = time.perf_counter()
    yield
    into.append(time.perf_counter() - began)


def spread(ratios: list[float]) -> str:
    """The median of the rounds' ratios, and the least and the greatest of them."""
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def verdict(good: bool) -> str:
    return "meets its bar" if good else "MISSES ITS BAR"


# -- (a) ----------------------------------------------------------------------------------------------------------


def function_config(trials: int, batch: int = 1) -> dict[str, Any]:
    return {
        "task": {"search_args": [{"type": "Real", "name": f"x{i}", "data": [-1.0, 1.0]} for i in range(DIMENSIONS)]},
        "searcher": {"type": "RandomSearcher", "reward_attribute": "acc"},
        "scheduler": {"parallel_size": batch, "stop_criterion": {"max_tries": trials}},
    }


def value_of(config: dict[str, Any]) -> float:
    return sum(value * value for value in config.values())


def objective(config: dict[str, Any]) -> float:
    value = value_of(config)
    report(0, value)
    return value


class Rate(NamedTuple):
    by_clock: float
    """Trials a second."""
    processor: float
    """Microseconds of processor time for a trial."""


@contextlib.contextmanager
def rated(trials: int, into: list[Rate]) -> Iterator[None]:
    began, processor = time.perf_counter(), time.process_time()
    yield
    into.append(Rate(trials / (time.perf_counter() - began), (time.process_time() - processor) / trials * 1e6))


def operant_trials(folder: Path, trials: int, batch: int, into: list[Rate]) -> None:
    scheduler = NaiveScheduler(folder, function_config(trials, batch), function=objective)
    with rated(trials, into):
        outcome = scheduler.run()
    assert outcome.tries == trials


def optuna_trials(storage: Any, trials: int, batch: int, into: list[Rate]) -> None:
    import optuna

    space = {f"x{i}": optuna.distributions.FloatDistribution(-1.0, 1.0) for i in range(DIMENSIONS)}
    study = optuna.create_study(storage=storage, sampler=optuna.samplers.RandomSampler(seed=0), direction="maximize")
    with rated(trials, into):
        for _ in range(0, trials, batch):
            for trial in [study.ask(space) for _ in range(batch)]:
                value = value_of(trial.params)
                trial.report(value, 0)
                study.tell(trial, value)


def part_a(folder: Path, rounds: int) -> None:
    for batch in BATCHES:
        _function_trials(folder, rounds, batch)


def _function_trials(folder: Path, rounds: int, batch: int) -> None:
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", module="optuna")
    found: dict[str, list[Rate]] = {}
    for number in range(rounds):
        here = folder / f"a{batch}-{number}"
        here.mkdir()
        operant_trials(here / "ours", 3200, batch, found.setdefault("Operant, journaled", []))
        optuna_trials(None, 1600, batch, found.setdefault("Optuna in memory", []))
        journal = JournalStorage(JournalFileBackend(str(here / "journal")))
        optuna_trials(journal, 160, batch, found.setdefault("Optuna, journal file", []))
        optuna_trials(f"sqlite:///{here}/db", 32, batch, found.setdefault("Optuna, SQLite", []))
    ours = found["Operant, journaled"]
    bars = {"Optuna in memory": 5.0, "Optuna, SQLite": 300.0}
    print(f"(a) function trials, {DIMENSIONS} parameters and one report each, {batch} at a time")
    for name, rates in found.items():
        times = [mine.by_clock / theirs.by_clock for mine, theirs in zip(ours, rates, strict=True)]
        processor = [theirs.processor / mine.processor for mine, theirs in zip(ours, rates, strict=True)]
        told = f"  {verdict(statistics.median(times) >= bars[name])}: {bars[name]:g}x" if name in bars else ""
        shown = f"  ours {spread(times)} times, {spread(processor)} in CPU time{told}" if rates is not ours else ""
        rate, cost = (statistics.median(one[which] for one in rates) for which in (0, 1))
        print(f"    {name:<24}{rate:>10,.1f} trials/s{cost:>10,.0f} µs of CPU{shown}")


# -- (b) ----------------------------------------------------------------------------------------------------------


def popen_jobs(folder: Path, jobs: int, parallel: int) -> None:
    running: list[subprocess.Popen[bytes]] = []
    for number in range(jobs):
        if len(running) >= parallel:
            _wait_for_one(running)
        work = folder / str(number)
        work.mkdir(parents=True)
        command = [sys.executable, str(folder.parent / "program" / "program.py"), str(number)]
        running.append(subprocess.Popen(command, cwd=work, stdout=subprocess.DEVNULL))
    while running:
        _wait_for_one(running)


def _wait_for_one(running: list[subprocess.Popen[bytes]]) -> None:
    pid, status = os.wait()
    for one in running:
        if one.pid == pid:
            one.returncode = os.waitstatus_to_exitcode(status)
            running.remove(one)
            return


def operant_jobs(folder: Path, jobs: int, parallel: int) -> None:
    config = {
        "task": {
            "template": f"{sys.executable} program.py {{x}}",
            "search_args": [{"type": "Int", "name": "x", "data": [0, jobs - 1]}],
        },
        "searcher": {"type": "GridSearcher", "reward_attribute": "acc"},
        "scheduler": {"parallel_size": parallel},
    }
    outcome = NaiveScheduler(folder, config, source=folder.parent / "program").run()
    assert (outcome.tries, outcome.reward) == (jobs, jobs - 1)


def ray_jobs(folder: Path, jobs: int, parallel: int) -> None:
    from ray import tune

    program = str(folder.parent / "program" / "program.py")

    def trainable(config: dict[str, Any]) -> dict[str, float]:
        subprocess.run([sys.executable, program, str(config["x"])], check=True, stdout=subprocess.DEVNULL)
        return {"acc": float(config["x"])}

    tuner = tune.Tuner(
        tune.with_resources(trainable, {"cpu": 1}),
        param_space={"x": tune.grid_search(list(range(jobs)))},
        tune_config=tune.TuneConfig(metric="acc", mode="max", max_concurrent_trials=parallel),
        run_config=tune.RunConfig(storage_path=str(folder), verbose=0),
    )
    assert len(tuner.fit()) == jobs


def part_b(folder: Path, rounds: int) -> None:
    import ray

    jobs, ray_count, parallel = 100, 8, 2
    (folder / "program").mkdir()
    (folder / "program" / "program.py").write_text(PROGRAM)
    found: dict[str, list[float]] = {"bare Popen": [], "Operant": [], "Ray Tune": []}
    for number in range(rounds):
        with timed(found["bare Popen"]):
            popen_jobs(folder / f"popen{number}", jobs, parallel)
        with timed(found["Operant"]):
            operant_jobs(folder / f"operant{number}", jobs, parallel)
    with contextlib.redirect_stderr(io.StringIO()):
        ray.init(num_cpus=parallel, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            ray_jobs(folder / "warm", parallel, parallel)  # its start is not what is measured
            with timed(found["Ray Tune"]):
                ray_jobs(folder / "ray", ray_count, parallel)
    finally:
        ray.shutdown()
    counts = {"bare Popen": jobs, "Operant": jobs, "Ray Tune": ray_count}
    each = {name: statistics.median(values) / counts[name] * 1000 for name, values in found.items()}
    print(f"(b) jobs that are processes, {parallel} at a time: time for each")
    print(f"    {'bare Popen':<24}{each['bare Popen']:>10.1f} ms")
    ratios = [mine / bare for mine, bare in zip(found["Operant"], found["bare Popen"], strict=True)]
    told = f"{verdict(statistics.median(ratios) <= 1.3)}: 1.3x"
    print(f"    {'Operant':<24}{each['Operant']:>10.1f} ms  {spread(ratios)} times Popen  {told}")
    gain = each["Ray Tune"] / each["Operant"]
    print(f"    {'Ray Tune':<24}{each['Ray Tune']:>10.1f} ms  {gain:.1f}x ours  {verdict(gain >= 10)}: 10x")


# -- (d) ----------------------------------------------------------------------------------------------------------


def part_d(folder: Path, rounds: int) -> None:
    root = folder / ".operant"
    for name, trials in (("ten", 10_000), ("hundred", 100_000)):
        NaiveScheduler(root / "searches" / name, function_config(trials), function=objective).run()
    shown: list[float] = []
    before = os.times()
    env = {**os.environ, "OPERANT_DIR": str(root)}
    command = [sys.executable, "-m", "operant.cli.search_scripts", "ctl", "show", "--task", "ten"]
    for _ in range(rounds):
        with timed(shown):
            lines = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(lines) > 10_000
    after = os.times()
    processor = (after.children_user + after.children_system - before.children_user - before.children_system) / rounds
    resumed: list[float] = []
    config = function_config(100_001)
    with timed(resumed):
        outcome = NaiveScheduler(
            root / "searches" / "hundred", config, function=objective, resume=True, force=True
        ).run()
    assert outcome.tries == 100_001
    print("(d) large searches")
    show = statistics.median(shown)
    print(
        f"    search-ctl show of 10,000 jobs {show:>7.2f} s  {verdict(show <= 0.5)}: 0.5 s ({processor:.2f} s of CPU)"
    )
    print(f"    resume of 100,000 jobs {resumed[0]:>15.2f} s  {verdict(resumed[0] <= 30)}: seconds")


# -- (c) ----------------------------------------------------------------------------------------------------------


def part_c(folder: Path, rounds: int) -> None:
    import proposals

    print("(c) time of one proposal, medians of CPU time", flush=True)
    found = {(row.searcher, row.count): row for row in proposals.measure(repeats=5 * rounds)}
    for searcher in ("RandomSearcher", "GridSearcher", "EvolutionSearcher", "CmaEsSearcher"):
        slowest = max(row.ours for (name, _), row in found.items() if name == searcher) * 1e3
        print(f"    {searcher:<24}{slowest:>10.3f} ms at most  {verdict(slowest < 1)}: 1 ms")
    for searcher, count, bar in (("TpeSearcher", 10_000, 20), ("GpSearcher", 500, 5), ("SkoptSearcher", 500, 5)):
        row = found[searcher, count]
        assert row.theirs is not None
        gain = row.theirs / row.ours
        print(f"    {searcher} at {count:,}: {gain:.1f}x Optuna's {row.peer}  {verdict(gain >= bar)}: {bar}x")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="a,b,c,d")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    with tempfile.TemporaryDirectory(prefix="operant-bench-") as scratch:
        folder = Path(scratch)
        for part in options.parts.split(","):
            {"a": part_a, "b": part_b, "c": part_c, "d": part_d}[part](folder, options.rounds)
            sys.stdout.flush()


if __name__ == "__main__":
    main()
