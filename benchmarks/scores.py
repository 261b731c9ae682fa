"""What presets reach, beside Stable-Baselines3 with the same settings: IQM over seeds with its bootstrap interval.

    python benchmarks/scores.py                              CartPole by PPO, DQN and A2C, 5 seeds, both libraries
    python benchmarks/scores.py --presets pendulum-ppo --seeds 10
    python benchmarks/scores.py --presets acrobot-ppo --scale 0.2 --without-peers

Both are judged alike: 20 evaluations over the training, of 20 greedy episodes each. `best` is the best of them (how DQN
is to be judged: its last checkpoint is often not its best), `last` the last.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from _sb3 import make_model, make_vector_env

HERE = Path(__file__).resolve().parent
PEERS = HERE.parent / ".venv-peers-rl"


def train_ours(config: dict[str, object], seed: int) -> dict[str, float]:
    from operant.training import train

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / ".operant"
        root.mkdir()
        result = train({**config, "seed": seed}, root=root)
        return {"best": result.best_return, "last": result.final_return, "steps": result.steps}


def train_sb3(config: dict[str, object], seed: int) -> dict[str, float]:
    import numpy as np
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import sync_envs_normalization

    total = int(config["total_steps"])  # type: ignore[call-overload]
    model = make_model(config, seed)
    judge = make_vector_env(config, 20, 1_000_000 + seed, training=False)
    means: list[float] = []

    class Judge(BaseCallback):
        def _judge(self) -> None:
            if hasattr(judge, "obs_rms"):
                sync_envs_normalization(self.training_env, judge)
            rewards, _ = evaluate_policy(self.model, judge, 20, return_episode_rewards=True, warn=False)
            means.append(float(np.mean(rewards)))

        def _on_step(self) -> bool:
            if self.num_timesteps // (total // 20) > len(means):
                self._judge()
            return True

    model.learn(total, callback=Judge())
    return {"best": max(means), "last": means[-1], "steps": model.num_timesteps}


def run_apart(library: str, config: dict[str, object], seed: int) -> dict[str, float] | None:
    python = PEERS / "bin" / "python" if library == "sb3" else Path(sys.executable)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [str(python), __file__, "--work", library, str(seed), json.dumps(config)],
        capture_output=True,
        text=True,
        env=environment,
    )
    if done.returncode:
        print(f"  {library} seed {seed} failed: {done.stderr.strip().splitlines()[-1]}", flush=True)
        return None
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", nargs="*", default=["cartpole-ppo", "cartpole-dqn", "cartpole-a2c"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="part of the preset's steps")
    parser.add_argument("--without-peers", action="store_true")
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        library, seed, text = args.work
        work = train_sb3 if library == "sb3" else train_ours
        print(json.dumps(work(json.loads(text), int(seed))))
        return
    from operant.training import load_config
    from operant.training.statistics import interval

    if not args.without_peers:
        from train import ensure_peers

        ensure_peers()
    for preset in args.presets:
        config = load_config(preset).to_mapping()
        config["total_steps"] = int(config["total_steps"] * args.scale)
        for library in ["operant"] if args.without_peers else ["operant", "sb3"]:
            found = [run_apart(library, config, seed) for seed in range(args.seeds)]
            good = [one for one in found if one is not None]
            if not good:
                continue
            figures = []
            for name in ("best", "last"):
                middle, low, high = interval([one[name] for one in good])
                each = " ".join(f"{one[name]:.0f}" for one in good)
                figures.append(f"{name} {middle:8.1f} [{low:8.1f}, {high:8.1f}] ({each})")
            print(f"{preset:<17}{library:<9}{config['total_steps']:>9,}  {'   '.join(figures)}", flush=True)


if __name__ == "__main__":
    main()
