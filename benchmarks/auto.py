"""What the Lightning way costs: `operant auto launch` against `operant train`, same algorithm and settings.

    python benchmarks/auto.py                       all cases, 5 rounds, alternating
    python benchmarks/auto.py --cases ppo --rounds 9

Both sides train as a preset says for the same number of environment steps, after everything is made: no start-up, one
evaluation of one episode, no film; at the end one checkpoint, and with Lightning two (best and last). A ratio is that
of CPU time for each environment step. Schedules over the whole training go by episodes with Lightning: ε falls later.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from _operant import recorded_training

# Case -> preset, environment steps.
CASES = {"ppo": ("cartpole-ppo", 40_960), "a2c": ("cartpole-a2c", 80_000), "dqn": ("cartpole-dqn", 6_144)}
BAR = 1.3


def plain(preset: str, steps: int, seed: int) -> dict[str, float]:
    """`operant train`, start-up apart."""
    from operant.training import load_config

    changes = [f"seed={seed}", f"total_steps={steps}", "log.every=1000", "checkpoint.every=1000000000"]
    config = load_config(preset, [*changes, "evaluation.every=1000000000", "evaluation.episodes=1"])
    with recorded_training(config) as training:
        wall, cpu = time.perf_counter(), time.process_time()
        result = training.run()
        return {"steps": result.steps, "cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}


def lightning(preset: str, steps: int, seed: int) -> dict[str, float]:
    """`operant auto launch` from the first training step to the last checkpoint."""
    from lightning.pytorch import Callback

    from operant.auto import generate_algorithm_config, generate_env_config, generate_training_config, launch
    from operant.auto.config import config_of_preset

    class Clock(Callback):
        wall = cpu = 0.0

        def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
            self.wall, self.cpu = time.perf_counter(), time.process_time()

        def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
            if pl_module.learner.env_step >= steps:
                trainer.should_stop = True

    given = config_of_preset(preset)
    config = generate_env_config("openai_gym", generate_algorithm_config(given["frame"], given))
    for key in ("train_env_config", "test_env_config"):
        config[key]["render_every_episode"] = None
    config["test_env_config"]["episodes"] = 1
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / ".operant"
        root.mkdir()
        # One epoch of more episodes than there can be: the clock ends it.
        config = generate_training_config(str(Path(folder) / "trial"), steps, steps, config, None)
        result = launch({**config, "gpus": None, "seed": seed}, [clock], root=root, progress=False)
        return {
            "steps": result.steps,
            "cpu": time.process_time() - clock.cpu,
            "wall": time.perf_counter() - clock.wall,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    compare(args.cases, args.rounds)


def compare(cases: list[str], rounds: int) -> None:
    """Print what each round cost on both sides, and a verdict on each case; `benchmarks/train.py` calls it too."""
    sides = {"plain": plain, "lightning": lightning}
    for case in cases:
        preset, steps = CASES[case]
        for side in sides.values():  # what is loaded at its first use is start-up
            side(preset, 1_000, 0)
        figures: dict[str, list[dict[str, float]]] = {"plain": [], "lightning": []}
        for number in range(rounds):
            for name in ("plain", "lightning") if number % 2 else ("lightning", "plain"):
                figures[name].append(sides[name](preset, steps, number))
            load = Path("/proc/loadavg").read_text().split()[0] if Path("/proc/loadavg").exists() else "?"
            print(f"{case} round {number}: {_line(figures, number)}, load {load}", flush=True)
        ratios = sorted(_ratio(figures, number, "cpu") for number in range(rounds))
        verdict = "within" if statistics.median(ratios) <= BAR else "above"
        print(
            f"{case}: CPU time of Lightning's way {statistics.median(ratios):.3f} times that of `operant train` "
            f"(median of {rounds}; {ratios[0]:.3f} … {ratios[-1]:.3f}): {verdict} the bar of {BAR}",
            flush=True,
        )


def _ratio(figures: dict[str, list[dict[str, float]]], number: int, clock: str) -> float:
    mine, its = figures["lightning"][number], figures["plain"][number]
    return (mine[clock] / mine["steps"]) / (its[clock] / its["steps"])


def _line(figures: dict[str, list[dict[str, float]]], number: int) -> str:
    rates = {side: figures[side][number]["steps"] / figures[side][number]["cpu"] for side in figures}
    return (
        f"train {rates['plain']:,.0f} steps per CPU-second, Lightning {rates['lightning']:,.0f}, ratio "
        f"{_ratio(figures, number, 'cpu'):.3f} (wall {_ratio(figures, number, 'wall'):.3f})"
    )


if __name__ == "__main__":
    main()
