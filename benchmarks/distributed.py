"""Environment steps a second with workers that collect, beside one process, RLlib and Sample Factory.

    python benchmarks/distributed.py                       every case once: about half an hour
    python benchmarks/distributed.py --rounds 3            three times each, one round after the other
    python benchmarks/distributed.py --only cartpole       cases whose name has this in it
    python benchmarks/distributed.py --quick               what the ratios need, 4 s of each: about five minutes
    python benchmarks/distributed.py --table               runs nothing, shows what is known
    python benchmarks/distributed.py --anew                forgets what is known of the cases first

Each case runs in a process of its own with one thread for arithmetic, one after the other. The step size is so small
that policies stay as they began: what a step of LunarLander costs depends on how it is flown. A rate is counted by the
wall from a tenth of the time on, so that the start of workers and of Ray is not in it. Each is kept in the file that
`--results` names, with the load of the machine, so that a run that was stopped goes on; of several rounds the median
counts.
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
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from _peers_rl import ensure_peers, peers_python

HERE = Path(__file__).resolve().parent
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "MKL", "OPENBLAS")}
_ENVS = {"cartpole": ("CartPole-v1", 16), "lunarlander": ("LunarLander-v3", 16)}
STEP_SIZE = 1e-12
_SLOW = {"id": "_slow_env:Slow", "num_envs": 3}
_ALGORITHMS = {
    "impala": {"rollout": 64},
    "appo": {"rollout": 64, "minibatch": 256, "epochs": 2},
    "ppo": {"rollout": 64, "minibatch": 256, "epochs": 2},
}


def cases() -> dict[str, dict[str, Any]]:
    """Name -> what runs; the same rollouts, minibatches and networks on both sides."""
    found: dict[str, dict[str, Any]] = {}
    for task, (env, rows) in _ENVS.items():
        found[f"{task} ppo, one process"] = _ours("ppo", {"id": env, "num_envs": rows}, 0)
        for name in ("impala", "appo"):
            for workers in (1, 2, 3):
                found[f"{task} {name}, {workers} workers"] = _ours(name, {"id": env, "num_envs": rows}, workers)
            for workers in (1, 2, 3):
                found[f"{task} {name}, RLlib, {workers} env runners"] = {
                    "library": "rllib", "env": env, "rows": rows // workers, "workers": workers, "algorithm": name,
                }  # fmt: skip
        for workers in (1, 2, 3):
            found[f"{task} appo, Sample Factory, {workers} workers"] = {
                "library": "sample-factory", "env": env, "rows": rows // workers, "workers": workers,
            }  # fmt: skip
    for kind, work in (("waits 1 ms", False), ("computes 1 ms", True)):
        env_settings = {**_SLOW, "arguments": {"work": work}}
        for workers in (0, 1, 2, 3):
            found[f"{kind} impala, {workers} workers"] = _ours("impala", env_settings, workers, rollout=32)
    for workers in (0, 1, 2, 3):
        ars = {"name": "ars", "directions": 24}
        found[f"ars swimmer, {workers} workers"] = _ours(ars, {"id": "Swimmer-v5", "num_envs": 6}, workers)
    return found


_QUICK = (
    "cartpole ppo, one process", "cartpole impala, 2 workers", "cartpole appo, 2 workers",
    "cartpole impala, RLlib, 2 env runners", "cartpole appo, RLlib, 2 env runners",
    "lunarlander ppo, one process", "lunarlander impala, 2 workers", "lunarlander appo, 2 workers",
    "lunarlander impala, RLlib, 2 env runners",
    "waits 1 ms impala, 1 workers", "waits 1 ms impala, 3 workers",
    "computes 1 ms impala, 1 workers", "computes 1 ms impala, 2 workers",
    "ars swimmer, 1 workers", "ars swimmer, 2 workers",
)  # fmt: skip


def ratios(results: Results, known: Iterable[str]) -> list[str]:
    """What the figures are for: each pair that was measured, and what it should come to (by the wall)."""
    found, names = [], set(known)

    def compare(text: str, one: str, other: str, aim: float) -> None:
        if one in names and other in names:
            ratio, by_cpu = (results.rate(one, by) / results.rate(other, by) for by in ("rate", "by_cpu"))
            judged = f"  aim {aim:g}{'' if ratio >= aim else '  MISSED'}" if aim else ""
            found.append(f"{text:<56} {ratio:>6.2f}  ({by_cpu:.2f} by CPU time){judged}")

    for task in _ENVS:
        for name in ("impala", "appo"):
            for workers in (1, 2, 3):
                ours, theirs = f"{task} {name}, {workers} workers", f"{task} {name}, RLlib, {workers} env runners"
                compare(f"{task} {name}, {workers} workers, to RLlib's", ours, theirs, 10.0)
                if name == "appo":
                    theirs = f"{task} appo, Sample Factory, {workers} workers"
                    compare(f"{task} appo, {workers} workers, to Sample Factory's", ours, theirs, 0.0)
            ours, alone = f"{task} {name}, 2 workers", f"{task} ppo, one process"
            aim = 1.6 if task == "lunarlander" else 0.0  # CartPole's step costs less than a message: none there
            compare(f"{task} {name}, 2 workers, to PPO in one process", ours, alone, aim)
    for kind, workers, aim in (("waits", 3, 2.7), ("computes", 2, 1.7), ("computes", 3, 1.7)):
        one, many = (f"{kind} 1 ms impala, {count} workers" for count in (1, workers))
        compare(f"an environment that {kind} 1 ms, {workers} workers to 1", many, one, aim)
    for workers in (2, 3):
        compare(
            f"ARS, rollouts of {workers} workers to 1, by core",
            f"ars swimmer, {workers} workers",
            "ars swimmer, 1 workers",
            0.9 * min(workers, os.cpu_count() or 1),
        )
    return found


def _ours(algorithm: Any, env: dict[str, Any], workers: int, **changed: Any) -> dict[str, Any]:
    if isinstance(algorithm, str):
        algorithm = {"name": algorithm, "learning_rate": STEP_SIZE, **_ALGORITHMS[algorithm], **changed}
    return {"library": "operant", "env": env, "workers": workers, "algorithm": algorithm}


class Clock:
    """Looks on at a training: counts its steps from a tenth of the time on, and ends it when the time is over."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.began: float | None = None
        self.first: tuple[float, int, float] | None = None
        self.last: tuple[float, int, float] = (0.0, 0, 0.0)

    def see(self, step: int) -> bool:
        """Whether the time is over."""
        now = time.perf_counter()
        self.began = now if self.began is None else self.began
        over = now - self.began >= self.seconds
        if self.first is None and now - self.began >= self.seconds / 10:
            self.first = (now, step, _cpu_of_all())
        elif over:
            self.last = (now, step, _cpu_of_all())
        return over and self.last[1] > 0

    def figures(self, lag: float = 0.0) -> dict[str, float]:
        """Steps by the wall, and by the CPU time of all processes, which says more on a machine that others use too."""
        assert self.first is not None
        wall, steps, cpu = (last - first for last, first in zip(self.last, self.first, strict=True))
        return {"rate": steps / max(1e-9, wall), "by_cpu": steps / max(1e-9, cpu), "lag": lag}


def _cpu_of_all() -> float:
    import psutil

    total = 0.0
    for process in (here := psutil.Process(), *here.children(recursive=True)):
        try:
            times = process.cpu_times()
            total += times.user + times.system
        except psutil.Error:
            continue
    return total


def run_ours(case: dict[str, Any], seconds: float) -> dict[str, Any]:
    from operant.tracking import SummaryWriter
    from operant.training import TrainConfig, Training

    clock = Clock(seconds)
    config = TrainConfig.from_mapping(
        {
            "total_steps": 10**9,
            "workers": case["workers"],
            "env": case["env"],
            "algorithm": case["algorithm"],
            "evaluation": {"every": 10**9, "episodes": 1},
            "checkpoint": {"every": 10**9},
            "log": {"every": 10**5},
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / ".operant").mkdir()
        with SummaryWriter("speed", root=Path(folder) / ".operant") as writer:
            training = Training(config, writer)
            lags: list[float] = []

            def look(ctx: Any) -> None:
                if training.env_step and clock.see(training.env_step):
                    lags.append(training.source.figures().get("workers/lag", 0.0))
                    training.done = True
                    ctx.finish = True

            collect = training.collect

            def collect_and_look(ctx: Any) -> None:
                collect(ctx)
                if not training.done:
                    look(ctx)

            training.collect = collect_and_look  # type: ignore[method-assign]
            training.begin()
            training.run()
    return clock.figures(lags[-1] if lags else 0.0)


def run_rllib(case: dict[str, Any], seconds: float) -> dict[str, Any]:
    import logging
    import warnings

    warnings.filterwarnings("ignore")
    os.environ |= {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_AUTH_MODE": "token"}
    os.environ |= {"RAY_raylet_start_wait_time_s": "180", "RAY_agent_register_timeout_ms": "180000"}
    import ray
    import torch
    from ray.rllib.algorithms.appo import APPOConfig
    from ray.rllib.algorithms.impala import IMPALAConfig
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

    torch.set_num_threads(1)
    ray.init(num_cpus=case["workers"] + 1, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    config: Any = (APPOConfig() if case["algorithm"] == "appo" else IMPALAConfig()).environment(case["env"])
    config = (
        config.env_runners(
            num_env_runners=case["workers"], num_envs_per_env_runner=case["rows"], rollout_fragment_length=64
        )
        .learners(num_learners=0)
        .training(train_batch_size_per_learner=64 * case["rows"] * case["workers"], lr=STEP_SIZE)
        .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[64, 64], fcnet_activation="tanh"))
        .debugging(seed=0, log_level="ERROR")
        .reporting(min_time_s_per_iteration=1, min_sample_timesteps_per_iteration=0)
    )
    if case["algorithm"] == "appo":
        config = config.training(num_epochs=2)
    algorithm = config.build_algo()
    clock = Clock(seconds)
    while True:
        result = algorithm.train()
        steps = int(result.get("env_runners", {}).get("num_env_steps_sampled_lifetime", 0))
        if steps and clock.see(steps):
            break
    algorithm.stop()
    ray.shutdown()
    return clock.figures()


def run_sample_factory(case: dict[str, Any], seconds: float) -> dict[str, Any]:
    from _sample_factory import run  # only its own environment can import it

    return run(case, Clock(seconds), STEP_SIZE)


_RUN = {"operant": run_ours, "rllib": run_rllib, "sample-factory": run_sample_factory}


class Results:
    """Every round of every case, in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rounds: dict[str, list[dict[str, float]]] = json.loads(path.read_text()) if path.exists() else {}

    def add(self, name: str, found: dict[str, float]) -> None:
        self.rounds.setdefault(name, []).append(found)
        self._write()

    def forget(self, names: Iterable[str]) -> None:
        for name in names:
            self.rounds.pop(name, None)
        self._write()

    def rate(self, name: str, by: str = "rate") -> float:
        return statistics.median(one[by] for one in self.rounds[name])

    def line(self, name: str) -> str:
        known = self.rounds[name]
        loads = [one["load"] for one in known]
        rates = ", ".join(f"{one['rate']:,.0f}" for one in known) if len(known) > 1 else ""
        return (
            f"{name:<40} {self.rate(name):>9,.0f} steps/s, {self.rate(name, 'by_cpu'):>9,.0f} a CPU-second  "
            f"lag {known[-1]['lag']:.1f}  load {min(loads):.0f} to {max(loads):.0f}  {rates}"
        )

    def _write(self) -> None:
        lines = [f" {json.dumps(name)}: {json.dumps(known)}" for name, known in sorted(self.rounds.items())]
        self.path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def run_apart(case: dict[str, Any], seconds: float) -> dict[str, float] | str:
    """What a case came to in a process of its own, or the last words of one that failed."""
    python = sys.executable
    if case["library"] == "sample-factory":
        ensure_peers("sample-factory")
        python = str(peers_python("sample-factory"))
    words = [python, __file__, "--seconds", str(seconds), "--case", json.dumps(case)]
    env = {**os.environ, **ONE_THREAD, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])}
    load = os.getloadavg()[0]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    try:
        found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return {name: round(value, 2) for name, value in {**found, "load": load}.items()}
    except (IndexError, json.JSONDecodeError):
        return (done.stderr.strip().splitlines() or ["it said nothing"])[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each case, after its start")
    parser.add_argument("--rounds", type=int, default=1, help="of each case, with those that are known")
    parser.add_argument("--quick", action="store_true", help="only what the ratios need, 4 s of each case")
    parser.add_argument("--table", action="store_true", help="run nothing, show what is known")
    parser.add_argument("--anew", action="store_true", help="forget what is known of these cases first")
    parser.add_argument("--results", type=Path, default=HERE / "distributed.json")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.case:
        case = json.loads(args.case)
        print(json.dumps(_RUN[case["library"]](case, args.seconds)))
        return
    seconds = min(args.seconds, 4.0) if args.quick else args.seconds
    chosen = {name: case for name, case in cases().items() if args.only in name and (name in _QUICK or not args.quick)}
    results = Results(args.results)
    if args.anew:
        results.forget(chosen)
    for number in range(0 if args.table else args.rounds):
        for name, case in chosen.items():
            if len(results.rounds.get(name, ())) > number:
                continue
            found = run_apart(case, seconds)
            if isinstance(found, str):
                print(f"{name:<44} failed: {found}", flush=True)
                continue
            results.add(name, found)
            print(results.line(name), flush=True)
    known = [name for name in chosen if name in results.rounds]
    print(f"\n{os.cpu_count()} cores", *map(results.line, known), "", *ratios(results, known), sep="\n")


if __name__ == "__main__":
    main()
