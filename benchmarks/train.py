"""Training speed beside SB3, SBX, Tianshou and RLlib: environment steps per CPU-second and by wall, start-up apart.

    python benchmarks/train.py                             all cases, 3 rounds, the libraries take turns
    python benchmarks/train.py --cases ppo dqn --rounds 5 --libraries operant sb3
    python benchmarks/train.py --solve --seeds 5           seconds and steps until CartPole is solved

The same settings in all (RL Baselines3 Zoo's), one thread each. Ours records its run as always; the peers run with
their loggers silent. RLlib has its environments and its learner in the same process, and because it is slow it runs in
the first round only; SBX has compiled before it is timed. Peers live in a virtual environment of their own,
`.venv-peers-rl`, made from peers-rl.txt. At the end `lightning` tells what Lightning's way (`operant auto`) costs
against `operant train`: see auto.py.

CartPole is solved when 20 greedy episodes and then 100 others reach 475 on average, looked at every 2,048 steps; that
looking is not counted. `own` are the settings that Tianshou and RLlib use for CartPole themselves; SB3's own are those
of the Zoo, the same as ours.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _peers_rl import ONE_THREAD, PEERS_PYTHON, ensure_peers
from _sb3 import make_model, sb3_settings

import auto


@dataclass(frozen=True)
class Case:
    """A preset with changes. The peers make fewer steps (they take longer, and rates settle at once); those that learn
    from replay as many as ours, because their rates depend on how much of the run comes before learning starts."""

    preset: str
    our_steps: int
    their_steps: int
    peers: tuple[str, ...]
    changes: tuple[str, ...] = ()


_FROM_REPLAY = ("algorithm.learning_starts=100", "algorithm.buffer=100000")
_LARGE, _SMALL = "model.hidden=[256,256]", "model.hidden=[64,64]"
CASES = {
    "ppo": Case("cartpole-ppo", 40_960, 10_240, ("sb3", "tianshou", "rllib")),
    "ppo-lstm": Case("cartpole-positions-ppo", 8_192, 2_048, ("sb3",)),
    "a2c": Case("cartpole-a2c", 160_000, 16_000, ("sb3",)),
    "dqn": Case("cartpole-dqn", 6_144, 6_144, ("sb3", "tianshou", "rllib")),
    "qrdqn": Case("cartpole-qrdqn", 6_144, 6_144, ("sb3",)),
    "trpo": Case("cartpole-trpo", 20_480, 5_120, ("sb3",)),
    "c51": Case("cartpole-c51", 6_144, 6_144, ("tianshou",)),
    "rainbow": Case("cartpole-rainbow", 6_144, 6_144, ("tianshou",)),
    "ppo-halfcheetah": Case("halfcheetah-ppo", 6_144, 4_096, ("sb3",)),
    "sac": Case("halfcheetah-sac", 1_500, 1_500, ("sb3", "sbx"), (*_FROM_REPLAY, _LARGE)),
    "td3": Case("halfcheetah-td3", 2_000, 2_000, ("sb3", "sbx"), (*_FROM_REPLAY, _LARGE)),
    "sac-small": Case("pendulum-sac", 3_000, 3_000, ("sb3", "sbx"), (*_FROM_REPLAY, _SMALL)),
    # Without a peer: beside `sac-small` it tells what priorities cost.
    "sac-prioritized": Case("pendulum-sac", 3_000, 0, (), (*_FROM_REPLAY, _SMALL, "algorithm.prioritized=true")),
}
LIMIT, EVERY, GOOD = 100_000, 2_048, 475.0

# What the libraries use themselves: Tianshou's test/discrete/test_ppo_discrete.py, RLlib's tuned example cartpole_ppo.
OWN: dict[str, dict[str, Any]] = {
    "tianshou": {
        "num_envs": 20,
        "arguments": {
            "n_steps": 100,
            "batch_size": 64,
            "n_epochs": 10,
            "gamma": 0.99,
            "gae_lambda": 0.95,
            "learning_rate": 3e-4,
            "normalize_advantage": False,
        },
        "model": {"activation": "relu"},
    },
    "rllib": {
        "num_envs": 1,
        "arguments": {
            "n_steps": 4_000,
            "batch_size": 128,
            "n_epochs": 6,
            "gamma": 0.99,
            "gae_lambda": 1.0,
            "learning_rate": 3e-4,
            "clip_range": 0.3,
            "vf_coef": 0.01,
            "vf_clip": 10.0,
            "max_grad_norm": None,
            "kl": True,
        },
        "model": {"hidden": [32], "activation": "linear", "orthogonal": False, "shared": True},
    },
}


def own_settings(library: str, settings: dict[str, Any]) -> dict[str, Any]:
    made = copy.deepcopy(settings)
    made["env"]["num_envs"] = OWN[library]["num_envs"]
    made["arguments"] |= OWN[library]["arguments"]
    made["model"] |= OWN[library]["model"]
    made["falling"] = []
    return made


def time_peer(library: str, settings: dict[str, Any], steps: int, seed: int) -> dict[str, float]:
    """CPU and wall time of so many steps; making everything is not counted."""
    if library in ("sb3", "sbx"):
        model = make_model(settings, seed, library)
        before = 2 * settings["arguments"].get("learning_starts", 0) if library == "sbx" else 0
        if before:
            model.learn(before)
        startup, wall = time.process_time(), time.perf_counter()
        model.learn(steps, reset_num_timesteps=not before)
        made = model.num_timesteps - before
    else:
        trainer = importlib.import_module(f"_{library}").Trainer(settings, seed)
        startup, wall = time.process_time(), time.perf_counter()
        trainer.learn(steps)
        made = trainer.steps
    return {
        "steps": made,
        "cpu": time.process_time() - startup,
        "wall": time.perf_counter() - wall,
        "startup": startup,
    }


def solve_peer(library: str, settings: dict[str, Any], seed: int) -> dict[str, float]:
    """CPU and wall time until 20 greedy episodes, then 100 others, reach the mark; judging is not counted."""
    trainer = importlib.import_module(f"_{library}").Trainer(settings, seed)
    cpu = wall = 0.0
    solved = False
    while not solved and trainer.steps < LIMIT:
        cpu_began, wall_began = time.process_time(), time.perf_counter()
        trainer.learn(trainer.steps + EVERY)
        cpu, wall = cpu + time.process_time() - cpu_began, wall + time.perf_counter() - wall_began
        solved = trainer.judge(20) >= GOOD and trainer.judge(100) >= GOOD
    return {"steps": trainer.steps, "cpu": cpu, "wall": wall, "solved": float(solved)}


def work(what: str, library: str, seed: int, given: dict[str, Any]) -> dict[str, float]:
    if library == "operant":
        import _operant

        if what == "solve":
            return _operant.solve(given["preset"], seed, LIMIT, EVERY, GOOD)
        return _operant.time_training(given["preset"], given["steps"], seed, given["changes"])
    if what == "solve":
        return solve_peer(library, given["settings"], seed)
    return time_peer(library, given["settings"], given["steps"], seed)


def run_apart(what: str, library: str, seed: int, given: dict[str, Any]) -> dict[str, float] | None:
    python = sys.executable if library == "operant" else str(PEERS_PYTHON)
    done = subprocess.run(
        [python, __file__, "--work", what, library, str(seed), json.dumps(given)],
        capture_output=True,
        text=True,
        env={**os.environ, **ONE_THREAD, "TQDM_DISABLE": "1"},
    )
    if done.returncode:
        print(f"  {library} {what} seed {seed} failed: {done.stderr.strip().splitlines()[-1]}", flush=True)
        return None
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def peer_settings(preset: str, changes: tuple[str, ...] = ()) -> dict[str, Any]:
    from operant.training import load_config

    return sb3_settings(load_config(preset, changes).to_mapping())


def compare(cases: list[str], rounds: int, libraries: list[str]) -> None:
    print("| case | library | steps / CPU-s: median (each round) | steps / s by wall | start-up, CPU-s | Operant |")
    print("|---|---|---:|---:|---:|---:|")
    for case in cases:
        about = CASES[case]
        taking_part = [name for name in ("operant", *about.peers) if name in libraries]
        settings = peer_settings(about.preset, about.changes) if about.peers else {}
        found: dict[str, list[dict[str, float]]] = {name: [] for name in taking_part}
        for number in range(rounds):
            for library in taking_part:
                if library == "rllib" and number:
                    continue
                ours = {"preset": about.preset, "steps": about.our_steps, "changes": about.changes}
                theirs = {"settings": settings, "steps": about.their_steps}
                one = run_apart("time", library, number, ours if library == "operant" else theirs)
                if one is not None:
                    found[library].append(one)
        rates = {
            library: statistics.median(one["steps"] / one["cpu"] for one in each)
            for library, each in found.items()
            if each
        }
        for library, rate in rates.items():
            each = found[library]
            every = ", ".join(f"{one['steps'] / one['cpu']:,.0f}" for one in each)
            wall = statistics.median(one["steps"] / one["wall"] for one in each)
            startup = statistics.median(one["startup"] for one in each)
            lead = "" if library == "operant" or "operant" not in rates else f"{rates['operant'] / rate:.1f} ×"
            print(f"| {case} | {library} | {rate:,.0f} ({every}) | {wall:,.0f} | {startup:.1f} | {lead} |", flush=True)
    _say_load()


def compare_solving(first: int, seeds: int, libraries: list[str], keep: Path | None) -> None:
    preset = "cartpole-ppo"
    settings = {**peer_settings(preset), "total_steps": LIMIT}
    sides: list[tuple[str, str, dict[str, Any]]] = [("operant", "same", {"preset": preset})]
    sides += [(name, "same", {"settings": settings}) for name in ("sb3", "tianshou", "rllib")]
    sides += [(name, "own", {"settings": own_settings(name, settings)}) for name in OWN]
    sides = [side for side in sides if side[0] in libraries]
    found: dict[tuple[str, str], list[dict[str, float]]] = {(name, kind): [] for name, kind, _ in sides}
    lines = keep.read_text(encoding="utf-8").splitlines() if keep is not None and keep.exists() else []
    kept = {tuple(key): one for key, one in map(json.loads, lines)}
    for seed in range(first, first + seeds):
        for library, kind, given in sides:
            one = kept.get((library, kind, seed)) or run_apart("solve", library, seed, given)
            if one is None:
                continue
            found[library, kind].append(one)
            if keep is not None and (library, kind, seed) not in kept:
                with keep.open("a", encoding="utf-8") as file:
                    file.write(json.dumps([[library, kind, seed], one]) + "\n")
    print("| library | settings | solved | CPU-s: median (each) | by wall, s: median | steps: mean (each) |")
    print("|---|---|---:|---:|---:|---:|")
    for (library, kind), each in found.items():
        if not each:
            continue
        cpu = ", ".join(f"{one['cpu']:.2f}" for one in each)
        steps = ", ".join(f"{one['steps'] / 1000:.1f}k" + ("" if one["solved"] else " not") for one in each)
        print(
            f"| {library} | {kind} | {sum(one['solved'] for one in each):.0f} of {len(each)} "
            f"| {statistics.median(one['cpu'] for one in each):.2f} ({cpu}) "
            f"| {statistics.median(one['wall'] for one in each):.2f} "
            f"| {statistics.mean(one['steps'] for one in each):,.0f} ({steps}) |",
            flush=True,
        )
    ours, theirs = found.get(("operant", "same")), found.get(("sb3", "same"))
    if ours and theirs:
        from scipy.stats import mannwhitneyu

        test = mannwhitneyu([one["steps"] for one in ours], [one["steps"] for one in theirs], alternative="two-sided")
        print(f"\nsteps to solve, Operant and SB3: Mann-Whitney, two-sided, p = {test.pvalue:.2f}")
    _say_load()


def _say_load() -> None:
    print(f"load of the machine: {' '.join(f'{load:.1f}' for load in os.getloadavg())}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    every = ["operant", "sb3", "sbx", "tianshou", "rllib", "lightning"]
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=sorted(CASES))
    parser.add_argument("--libraries", nargs="*", default=every, choices=every)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--solve", action="store_true")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="a file of what was solved already, to go on from")
    parser.add_argument("--work", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        what, library, seed, given = args.work
        print(json.dumps(work(what, library, int(seed), json.loads(given))), flush=True)
        return
    if set(args.libraries) - {"operant", "lightning"}:
        ensure_peers()
    if args.solve:
        compare_solving(args.first_seed, args.seeds, args.libraries, args.keep)
    else:
        compare(args.cases, args.rounds, args.libraries)
        if "lightning" in args.libraries:  # our own trainings driven by Lightning: what that costs
            auto.compare([case for case in args.cases if case in auto.CASES], args.rounds)


if __name__ == "__main__":
    main()
