"""Operant's parallel runs against their peers, side by side in one run.

    python benchmarks/parallel.py            # about 8 minutes
    python benchmarks/parallel.py --quick    # one round of turns instead of three

Peers: DI-engine's way (real pynng Bus0 sockets and pickle, in an environment of its own), Ray, and
torch.multiprocessing. Each contender moves the same values in processes of its own. They take turns, several
times, and of each figure the best counts, for all alike: what else the machine does at the moment hits all.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PEERS = HERE / "parallel_peers"
VENV = HERE.parent / ".venv-peers-parallel"
REQUIREMENTS = HERE / "peers-parallel.txt"

# (contender, row, how many times faster Operant must be)
BARS = [
    ("nng + pickle", "publish 50 MB to 1", 10.0),
    ("nng + pickle", "publish 50 MB to 3", 10.0),
    ("Ray", "publish 50 MB to 1", 3.0),
    ("Ray", "publish 50 MB to 3", 3.0),
]
MAX_OVERHEAD_US = 5.0


def nng_python() -> str:
    """The interpreter of the environment that has pynng; made when it is missing or outdated."""
    python = VENV / "bin" / "python"
    stamp = VENV / ".ready"
    if not stamp.exists() or stamp.read_text() != REQUIREMENTS.read_text():
        print(f"== set-up: {VENV.name}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)], check=True)
        uv = shutil.which("uv") or str(Path(sys.executable).parent / "uv")
        if Path(uv).exists():
            install = [uv, "pip", "install", "--quiet", "--python", str(python)]
        else:
            install = [str(python), "-m", "pip", "install", "--quiet"]
        environment = dict(os.environ)
        if environment.get("PIP_FIND_LINKS"):
            environment.setdefault("UV_FIND_LINKS", environment["PIP_FIND_LINKS"])
        subprocess.run([*install, "-r", str(REQUIREMENTS)], check=True, env=environment)
        stamp.write_text(REQUIREMENTS.read_text())
    return str(python)


def contend(python: str, script: str, work: list[Any]) -> dict[str, Any]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if python == sys.executable:
        environment["PYTHONPATH"] = os.pathsep.join([str(HERE.parent / "src"), *sys.path])
    else:
        environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        [python, str(PEERS / script), json.dumps(work)],
        env=environment,
        capture_output=True,
        text=True,
    )
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            result: dict[str, Any] = json.loads(line.removeprefix("RESULT "))
            return result
    raise SystemExit(f"{script} gave no result (exit code {done.returncode}):\n{done.stdout}{done.stderr}")


def loop_overhead_us(n_steps: int = 100_000) -> float:
    """What a task with three middleware costs for each step, over calling the three functions."""
    from operant.framework import Context, Task

    def collect(ctx: Context) -> None:
        ctx.data = 1

    def train(ctx: Context) -> None:
        ctx.loss = ctx.data + 1

    def evaluate(ctx: Context) -> None:
        ctx.value = ctx.loss

    def bare() -> float:
        ctx = Context()
        began = time.perf_counter()
        for _ in range(n_steps):
            collect(ctx)
            train(ctx)
            evaluate(ctx)
        return time.perf_counter() - began

    def in_task() -> float:
        with Task() as task:
            task.use(collect).use(train).use(evaluate)
            began = time.perf_counter()
            task.run(max_step=n_steps)
            return time.perf_counter() - began

    rounds = [(bare(), in_task()) for _ in range(5)]
    return (min(task for _, task in rounds) - min(bare for bare, _ in rounds)) / n_steps * 1e6


def train_and_evaluate(n_steps: int, train_ms: float, evaluate_ms: float) -> float:
    """Seconds for `n_steps` of training when every state is to be evaluated as far as time allows."""
    import numpy as np

    from operant.framework import Context, Task

    def spend(milliseconds: float) -> None:
        until = time.perf_counter() + milliseconds / 1e3
        matrix = np.eye(64)
        while time.perf_counter() < until:
            matrix = matrix @ matrix

    with Task() as task:

        def train(ctx: Context) -> None:
            spend(train_ms)
            ctx.train_iter = ctx.total_step
            ctx.state_dict = np.full(100_000, ctx.total_step)

        def evaluate(ctx: Context) -> None:
            if task.router.is_active:
                view = task.parallel_ctx.wait_newer(1.0)
                if view is None or view.get("state_dict") is None:
                    return
            spend(evaluate_ms)

        task.use(train, filter_labels=["standalone", "node.0"])
        task.use(evaluate, filter_labels=["standalone", "node.1"])
        began = time.perf_counter()
        task.run(max_step=n_steps if task.match_labels(["standalone", "node.0"]) else float("inf"))
        return time.perf_counter() - began


def best(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Of each figure the round with the best: the lowest median, the most events."""
    chosen: dict[str, Any] = {}
    for row, value in results[0].items():
        if isinstance(value, dict):
            chosen[row] = min((result[row] for result in results), key=lambda one: one["p50_ms"])
        else:
            chosen[row] = max(result[row] for result in results)
    return chosen


def show(results: dict[str, dict[str, Any]]) -> None:
    rows = list(next(iter(results.values())))
    width = max(map(len, rows)) + 2
    print("\n" + "".ljust(width) + "".join(name.rjust(22) for name in results))
    for row in rows:
        cells = []
        for result in results.values():
            value = result[row]
            if isinstance(value, dict):
                cells.append(f"{value['p50_ms']:.2f} / {value['p99_ms']:.2f} ms")
            else:
                cells.append(f"{value:,.0f}")
        print(row.ljust(width) + "".join(cell.rjust(22) for cell in cells))
    print("(p50 / p99; publish: from before the publish until the slowest reader holds the value)\n")


def main() -> int:
    parser = argparse.ArgumentParser(description="Operant's parallel runs against their peers.")
    parser.add_argument("--quick", action="store_true", help="one round instead of three")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    args = parser.parse_args()
    sys.path.insert(0, str(HERE.parent / "src"))
    from operant.framework import Parallel

    work = [{"1 MB": (1_000_000, 50), "50 MB": (50_000_000, 13)}, 3_000, 300]
    contenders = {
        "Operant": (sys.executable, "with_operant.py"),
        "nng + pickle": (nng_python(), "with_nng.py"),
        "Ray": (sys.executable, "with_ray.py"),
        "torch.multiprocessing": (sys.executable, "with_torch.py"),
    }
    rounds: list[dict[str, dict[str, Any]]] = []
    for number in range(1, (1 if args.quick else 3) + 1):
        rounds.append({})
        for name, (python, script) in contenders.items():
            print(f"== round {number}: {name}", flush=True)
            rounds[-1][name] = contend(python, script, work)
    results = {name: best([one[name] for one in rounds]) for name in contenders}
    show(results)

    failed = []
    for name, row, bar in BARS:
        ratio = results[name][row]["p50_ms"] / results["Operant"][row]["p50_ms"]
        print(f"{row}: {ratio:.1f} times faster than {name} (bar: {bar:g})")
        if ratio < bar:
            failed.append(row)
    overhead = loop_overhead_us()
    print(f"loop overhead of three middleware: {overhead:.2f} µs a step (bar: {MAX_OVERHEAD_US:g})")
    if overhead > MAX_OVERHEAD_US:
        failed.append("loop overhead")
    single = train_and_evaluate(100, 5.0, 20.0)
    split = Parallel.runner(2, topology="star")(train_and_evaluate, 100, 5.0, 20.0)[0]
    print(f"100 steps with a slow evaluate: {single:.2f} s in one loop, {split:.2f} s with evaluate split off")
    if split >= single:
        failed.append("slow evaluate")
    if args.json is not None:
        figures = {**results, "loop overhead us": overhead, "single loop s": single, "split loop s": split}
        args.json.write_text(json.dumps(figures, indent=1) + "\n")
    if failed:
        print("below the bar: " + ", ".join(failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
