"""Jobs through a real Slurm of this machine: Operant's site beside submitit and bare `sbatch`, in one run.

    python benchmarks/sites.py                # 500 jobs each, about five minutes
    python benchmarks/sites.py --jobs 100

The jobs do nothing. Bare `sbatch` submits one array and looks at the queue until it is empty; the others also start
their own program in each job, keep what came of it and tell whoever waits. `search` is a whole search: 500 proposals, a
work folder for each, a result read from it, the searcher told. All take turns, and the best turn counts.
Needs Debian's packages slurm-wlm and munge, and root. Two nodes of eight processors stand on whatever there is.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
VENV = HERE.parent / ".venv-peers-sites"
PINS = "submitit==1.5.4"
PROGRAM = [sys.executable, "-I", "-S", "-c", "pass"]
MOST_OF_SUBMITIT, MOST_SECONDS = 1 / 3, 1.0

SUBMITIT = """
import sys, time
import submitit
executor = submitit.AutoExecutor(folder=sys.argv[1])
executor.update_parameters(slurm_array_parallelism=1000, timeout_min=60)
began = time.monotonic()
jobs = executor.map_array(abs, range(int(sys.argv[2])))
for job in jobs:
    job.result()
print(time.monotonic() - began)
"""


def peers_python() -> str:
    python = VENV / "bin" / "python"
    if not (VENV / ".ready").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", PINS], check=True)
        (VENV / ".ready").touch()
    return str(python)


def bare(folder: Path, count: int) -> float:
    began = time.monotonic()
    script = "#!/bin/sh\nexec " + " ".join(PROGRAM) + "\n"
    argv = ["sbatch", "--parsable", f"--array=0-{count - 1}", "--output=/dev/null"]
    job = subprocess.run(argv, input=script, capture_output=True, text=True, check=True).stdout.strip()
    while subprocess.run(["squeue", "-h", "-j", job], capture_output=True, text=True, check=True).stdout.strip():
        time.sleep(0.2)
    return time.monotonic() - began


def submitit(folder: Path, count: int) -> float:
    argv = [peers_python(), "-c", SUBMITIT, str(folder / "submitit"), str(count)]
    return float(subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()[-1])


def operant(folder: Path, count: int) -> float:
    from operant.sites import Event, Submission
    from operant.sites.base import SystemClock
    from operant.sites.slurm import SlurmSite

    clock = SystemClock()
    site = SlurmSite(folder, array_size=1000)
    jobs = []
    for number in range(count):
        place = folder / "jobs" / str(number)
        place.mkdir(parents=True)
        jobs.append(Submission(f"{number}/1/x", str(number), 1, PROGRAM, place, place))
    began = time.monotonic()
    site.start(clock.put)
    site.submit(jobs)
    left = count
    while left:
        for event in clock.wait(10.0):
            if isinstance(event, Event) and event.kind in ("ended", "lost"):
                left -= 1
    seconds = time.monotonic() - began
    site.close()
    return seconds


def search(folder: Path, count: int, delays: list[float]) -> float:
    """A whole search; ``delays`` gets the seconds from the end of each job to what its searcher hears of it."""
    from operant.schedulers import NaiveScheduler

    (folder / "code").mkdir()
    (folder / "code" / "job.py").write_text(
        "import sys\nopen('result.json', 'w').write('{\"acc\": %s}' % sys.argv[1])\n"
    )
    config = {
        "site": {"type": "slurm", "array_size": 1000},
        "task": {
            "template": f"{sys.executable} -I -S job.py {{x}}",
            "search_args": [{"type": "Int", "name": "x", "data": [0, count - 1]}],
        },
        "searcher": {"type": "GridSearcher", "reward_attribute": "acc"},
        "scheduler": {"parallel_size": count},
    }
    work = folder / "searches" / "bench"
    scheduler = NaiveScheduler(work, config, source=folder / "code")
    heard: dict[int, float] = {}
    observe = scheduler.plan.searcher.observe

    def hear(observation: Any) -> None:
        heard[observation.number] = time.time()
        observe(observation)

    scheduler.plan.searcher.observe = hear  # type: ignore[method-assign]
    began = time.monotonic()
    scheduler.run()
    seconds = time.monotonic() - began
    for number, wall in heard.items():
        delays.append(wall - json.loads((work / "jobs" / str(number) / "exit-1.json").read_text())["ended"])
    assert len(heard) == count
    return seconds


def main() -> int:
    from tests.system.slurm import running_slurm

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=2)
    args = parser.parse_args()
    peers_python()
    took: dict[str, list[float]] = {"sbatch": [], "operant": [], "search": [], "submitit": []}
    delays: list[float] = []
    os.environ["OMP_NUM_THREADS"] = "1"
    with running_slurm():
        for _ in range(args.rounds):
            for name in took:
                with tempfile.TemporaryDirectory(prefix="operant-bench-") as place:
                    folder = Path(place)
                    if name == "sbatch":
                        seconds = bare(folder, args.jobs)
                    elif name == "operant":
                        seconds = operant(folder, args.jobs)
                    elif name == "search":
                        seconds = search(folder, args.jobs, delays)
                    else:
                        seconds = submitit(folder, args.jobs)
                took[name].append(seconds)
                print(f"{name:<9} {seconds:7.2f} s", flush=True)
    best = {name: min(seconds) for name, seconds in took.items()}
    over = {name: (best[name] - best["sbatch"]) / args.jobs * 1000 for name in ("operant", "search", "submitit")}
    delay = statistics.quantiles(delays, n=100)[98]
    print("over bare sbatch, for each job: " + ", ".join(f"{name} {ms:.1f} ms" for name, ms in over.items()))
    print(
        f"from a job's end to the searcher's observation: median {statistics.median(delays):.2f} s, 99 % {delay:.2f} s"
    )
    print(json.dumps({"took": best, "over_ms": over, "delay_99": delay}))
    return int(over["operant"] > MOST_OF_SUBMITIT * over["submitit"] or delay > MOST_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
