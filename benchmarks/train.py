"""Training speed beside Stable-Baselines3: environment steps per CPU-second and by wall, start-up apart.

    python benchmarks/train.py                   all cases, 3 rounds, interleaved
    python benchmarks/train.py --cases ppo dqn --rounds 5
    python benchmarks/train.py --solve --seeds 5 CPU-seconds and steps until CartPole is solved

The same settings in both (RL Baselines3 Zoo's for CartPole), one thread each. Ours records its run as always; SB3 runs
with its logger silent. Peers live in a virtual environment of their own, `.venv-peers-rl`, made from peers-rl.txt.
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

from _sb3 import make_model, make_vector_env

HERE = Path(__file__).resolve().parent
PEERS = HERE.parent / ".venv-peers-rl"

# Case -> our preset, our steps, SB3's steps (fewer: it takes longer, and rates settle at once; DQN's depend on how
# much of the run comes before learning starts, so there both make the same number).
CASES: dict[str, tuple[str, int, int]] = {
    "ppo": ("cartpole-ppo", 40_960, 5_120),
    "a2c": ("cartpole-a2c", 160_000, 8_000),
    "dqn": ("cartpole-dqn", 6_144, 6_144),
    "ppo-halfcheetah": ("halfcheetah-ppo", 6_144, 4_096),
}


def work(library: str, case: str, seed: int, config_json: str) -> dict[str, float]:
    """One training in this process; making everything is not counted."""
    preset, our_steps, their_steps = CASES[case]
    if library == "sb3":
        model = make_model(json.loads(config_json), seed)
        wall, cpu = time.perf_counter(), time.process_time()
        model.learn(their_steps)
        return {
            "steps": model.num_timesteps,
            "cpu": time.process_time() - cpu,
            "wall": time.perf_counter() - wall,
        }
    from operant.tracking import SummaryWriter
    from operant.training import Training, load_config

    # Points and checkpoints come as often as in the whole training; one evaluation, of one episode, comes at the end.
    whole = load_config(preset).total_steps
    changes = [f"seed={seed}", f"total_steps={our_steps}", f"log.every={whole // 200}"]
    changes += [f"checkpoint.every={whole // 10}", "evaluation.every=1000000000", "evaluation.episodes=1"]
    config = load_config(preset, changes)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / ".operant"
        root.mkdir()
        with SummaryWriter(config.name, root=root) as writer:
            training = Training(config, writer)
            training.begin()
            wall, cpu = time.perf_counter(), time.process_time()
            result = training.run()
            return {
                "steps": result.steps,
                "cpu": time.process_time() - cpu,
                "wall": time.perf_counter() - wall,
            }


def solve(library: str, seed: int, config_json: str, limit: int = 100_000, every: int = 2048) -> dict[str, float]:
    """CPU-seconds of training (evaluation apart) until greedy episodes reach 475: 20 of them, then 100 to confirm."""
    cpu = 0.0
    if library == "sb3":
        import numpy as np
        from stable_baselines3.common.evaluation import evaluate_policy

        config = json.loads(config_json)
        model = make_model(config, seed)
        judge = make_vector_env(config, 20, 1_000_000 + seed, training=False)

        def score(episodes: int) -> float:
            return float(np.mean(evaluate_policy(model, judge, episodes, return_episode_rewards=True)[0]))

        while model.num_timesteps < limit:
            began = time.process_time()
            _learn_part(model, every, limit)
            cpu += time.process_time() - began
            if score(20) >= 475 and score(100) >= 475:
                return {"steps": model.num_timesteps, "cpu": cpu, "solved": 1}
        return {"steps": model.num_timesteps, "cpu": cpu, "solved": 0}
    from operant.tracking import SummaryWriter
    from operant.training import TrainConfig, Training, load_config

    spent = {"evaluation": 0.0}

    def watch(training: Any) -> Any:
        last = [0]

        def _watch(ctx: Any) -> None:
            if training.env_step - last[0] < every or training.done:
                return
            last[0] = training.env_step
            began = time.process_time()
            good = training.evaluation(20).mean >= 475 and training.evaluation(100).mean >= 475
            spent["evaluation"] += time.process_time() - began
            if good:
                training.done = True
                ctx.finish = True

        return _watch

    config = load_config(
        "cartpole-ppo", [f"seed={seed}", f"total_steps={limit}", "evaluation.every=1000000000"]
    ).to_mapping()
    config["callbacks"] = [watch]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / ".operant"
        root.mkdir()
        with SummaryWriter("solve", root=root) as writer:
            training = Training(TrainConfig.from_mapping(config), writer)
            training.begin()
            began = time.process_time()
            training.run()
            cpu = time.process_time() - began - spent["evaluation"]
            return {"steps": training.env_step, "cpu": cpu, "solved": float(training.done)}


def _learn_part(model: Any, steps: int, total: int) -> None:
    """Part of a longer SB3 training: `learn` would measure its schedules by the part."""
    target = model.num_timesteps + steps
    if model._last_obs is None:
        _, model._bench_callback = model._setup_learn(total, None, True, "run", False)
    while model.num_timesteps < target:
        model.collect_rollouts(model.env, model._bench_callback, model.rollout_buffer, n_rollout_steps=model.n_steps)
        model._update_current_progress_remaining(model.num_timesteps, total)
        model.train()


def preset_json(name: str) -> str:
    from operant.training import load_config

    return json.dumps(load_config(name).to_mapping())


def run_apart(library: str, arguments: list[str]) -> dict[str, float] | None:
    python = PEERS / "bin" / "python" if library != "operant" else Path(sys.executable)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [str(python), __file__, "--work", library, *arguments], capture_output=True, text=True, env=environment
    )
    if done.returncode:
        print(f"  {library} {' '.join(arguments[:2])} failed: {done.stderr.strip().splitlines()[-1]}")
        return None
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def compare(cases: list[str], rounds: int) -> None:
    print(f"{'case':<18}{'library':<10}{'steps/CPU-s: best':>18}{'median':>10}{'steps/s by wall: best':>24}")
    for case in cases:
        found: dict[str, list[dict[str, float]]] = {"operant": [], "sb3": []}
        for number in range(rounds):
            for library, results in found.items():
                one = run_apart(library, [case, str(number), preset_json(CASES[case][0])])
                if one is not None:
                    results.append(one)
        best: dict[str, float] = {}
        for library, results in found.items():
            if not results:
                continue
            rates = [one["steps"] / one["cpu"] for one in results]
            walls = [one["steps"] / one["wall"] for one in results]
            best[library] = statistics.median(rates)
            print(f"{case:<18}{library:<10}{max(rates):>18,.0f}{statistics.median(rates):>10,.0f}{max(walls):>24,.0f}")
        if len(best) == 2:
            print(f"{case:<18}ratio of medians {best['operant'] / best['sb3']:.1f}", flush=True)


def compare_solving(seeds: int) -> None:
    for library in ("operant", "sb3"):
        config = preset_json("cartpole-ppo")
        found = [run_apart(library, ["solve", str(seed), config]) for seed in range(seeds)]
        good = [one for one in found if one is not None]
        if good:
            steps = ", ".join(f"{one['steps']:,.0f}" + ("" if one["solved"] else " (not)") for one in good)
            cpu = [one["cpu"] for one in good]
            print(
                f"{library:<10} {sum(one['solved'] for one in good):.0f} of {len(good)} solved; CPU-seconds median "
                f"{statistics.median(cpu):.2f}, mean {statistics.mean(cpu):.2f}; "
                f"mean steps {statistics.mean([one['steps'] for one in good]):,.0f} ({steps})",
                flush=True,
            )


def ensure_peers() -> None:
    if (PEERS / "bin" / "python").exists():
        return
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([str(uv), "venv", "--quiet", "--python", sys.executable, str(PEERS)], check=True)
    install = [str(uv), "pip", "install", "--quiet", "--python", str(PEERS / "bin" / "python")]
    subprocess.run([*install, "-r", str(HERE / "peers-rl.txt")], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="*", default=["ppo", "a2c", "dqn"], choices=sorted(CASES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--solve", action="store_true")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--work", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        library, case, seed, *rest = args.work
        made = solve(library, int(seed), rest[0]) if case == "solve" else work(library, case, int(seed), rest[0])
        print(json.dumps(made))
        return
    ensure_peers()
    if args.solve:
        compare_solving(args.seeds)
    else:
        compare(args.cases, args.rounds)


if __name__ == "__main__":
    main()
