"""One tree, trained by Operant's own algorithms and by RLlib: environment steps by the CPU and by the clock.

    python benchmarks/harness.py                what the trees `ppo` and `dqn` come to on CartPole
    python benchmarks/harness.py --startup      what `operant harness` takes more than `operant train` to begin

Each training has a process of its own. Counted is from the end of the first iteration to the end of the last, in the
process that learns; what Ray's other processes take is not, which is in RLlib's favour.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

STEPS = {("ppo", "operant"): 61_440, ("ppo", "rllib"): 6_144, ("dqn", "operant"): 20_000, ("dqn", "rllib"): 3_000}
WANTED = {"ppo": 12.0, "dqn": 18.0}


def work(name: str, library: str) -> None:
    """Train in this process, and print what was counted."""
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    from operant.harness.application import run_tree
    from operant.harness.tree import CONF

    overrides = [f"algo.library={library}", f"stop_conditions.timesteps_total={STEPS[name, library]}"]
    overrides += ["stop_conditions.episode_reward_mean=1e9", "evaluation.evaluation_interval=null"]
    overrides += ["checkpoint.checkpoint_frequency=0", "cli.mode=train", "runtime.local_dir=."]
    with initialize_config_dir(str(CONF), version_base=None):
        tree: Any = OmegaConf.to_container(compose(name, overrides), resolve=True)
    seen: list[tuple[float, float, float]] = []
    run_tree(
        tree,
        root=Path.cwd() / ".operant",
        heard=lambda result: seen.append(
            (result["num_env_steps_sampled_lifetime"], time.process_time(), time.perf_counter())
        ),
    )
    steps, cpu, wall = (last - first for first, last in zip(seen[0], seen[-1], strict=True))
    print(json.dumps({"steps": steps, "per_cpu": steps / cpu, "per_wall": steps / wall}))


def compare(rounds: int) -> None:
    print(f"load {os.getloadavg()[0]:.1f}; the best of {rounds} rounds")
    print(f"{'':6}{'':10}{'steps/CPU s':>14}{'steps/s':>12}")
    for name, wanted in WANTED.items():
        best: dict[str, dict[str, float]] = {}
        for library in ("operant", "rllib"):
            found = [_measure(name, library) for _ in range(rounds)]
            best[library] = {key: max(one[key] for one in found) for key in ("per_cpu", "per_wall")}
            print(f"{name:6}{library:10}{best[library]['per_cpu']:>14,.0f}{best[library]['per_wall']:>12,.0f}")
        cpu, wall = (best["operant"][key] / best["rllib"][key] for key in ("per_cpu", "per_wall"))
        print(f"{name:6}{'ratio':10}{cpu:>13.1f}x{wall:>11.1f}x   (wanted: {wanted:g}x)")


def _measure(name: str, library: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as place:
        words = [sys.executable, "-W", "ignore", str(Path(__file__).resolve()), "--work", name, library]
        done = subprocess.run(words, capture_output=True, text=True, cwd=place, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def startup(rounds: int) -> None:
    operant = str(Path(sys.executable).with_name("operant"))
    ways = {
        "operant train": ["train", "cartpole-ppo", "total_steps=2048", "evaluation.episodes=1"],
        "operant harness": ["harness", "-cn", "ppo", "cli.mode=train", "stop_conditions.training_iteration=1"],
    }
    ways["operant harness"] += ["evaluation.evaluation_duration=1"]
    taken = {}
    for name, words in ways.items():
        taken[name] = min(_cpu([operant, *words]) for _ in range(rounds))
        print(f"{name:16}{taken[name]:>8.2f} s CPU")
    print(f"{'more':16}{taken['operant harness'] - taken['operant train']:>8.2f} s CPU   (wanted: 1.50 at most)")


def _cpu(words: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / ".operant").mkdir()
        subprocess.run(words, check=True, cwd=place, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--startup", action="store_true")
    parser.add_argument("--work", nargs=2, metavar=("EXPERIMENT", "LIBRARY"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.work:
        work(*asked.work)
    elif asked.startup:
        startup(asked.rounds)
    else:
        compare(asked.rounds)


if __name__ == "__main__":
    main()
