"""What agents save of land on scenarios that no training has seen: IQM over seeds with its bootstrap interval.

    python benchmarks/wildfire_learning.py                     presets, five seeds each, one process at a time
    python benchmarks/wildfire_learning.py --presets wildfire-ppo --seeds 100..104
    python benchmarks/wildfire_learning.py --presets           the agents that learn nothing only

For each seed 100 greedy episodes of the `eval` split with the last weights. `none` stands still, `random` does
anything, `greedy` goes to the place that the fire reaches soonest of those it can reach before it, digging where the
fire comes. All see the same scenarios. The part of the unfought fire's area that was saved is shown.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from operant.envs import make_env
from operant.envs.wildfire import WildfireVector
from operant.tracking import SummaryWriter
from operant.training import TrainConfig, Training
from operant.training.evaluating import Player
from operant.training.statistics import interval
from operant.training.targets import load_config

EPISODES, ROWS = 100, 50
Act = Callable[[WildfireVector, Any], Any]


def saved(env: WildfireVector, act: Act, seed: int) -> float:
    """The mean part of the area that is saved over `EPISODES` scenarios."""
    parts: list[float] = []
    obs = env.reset(seed)
    while len(parts) < EPISODES:
        step = env.step(act(env, obs))
        obs = step.obs
        if step.final_obs is not None:
            parts += [fire["area_saved_part"] for fire in step.info["fires"]]
    return float(np.mean(parts[:EPISODES]))


def stand(env: WildfireVector, obs: Any) -> Any:
    return np.zeros((env.num_envs, *env.single_action_space.shape), np.int64)


def at_random(seed: int) -> Act:
    generator = np.random.default_rng(seed)
    return lambda env, obs: np.stack([generator.integers(env.world.verbs.count, size=env.world.agents)
                                      for _ in range(env.num_envs)]).reshape(stand(env, obs).shape)  # fmt: skip


def greedy(env: WildfireVector, obs: Any) -> Any:
    """One action for each agent: towards the soonest place of the fire's way that it can still be at in time."""
    world = env.world
    actions = np.zeros((world.count, world.agents), np.int64)
    minutes_a_step = world.settings.step_minutes / world.settings.agent_speed
    for n in range(world.count):
        left = world.projection.time[n] - world.fires.clock[n]
        rows, columns = ((world.status[n] == 0) & np.isfinite(left) & (left > 0)).nonzero()
        for agent in range(world.agents):
            row, column = world.position[n, agent]
            away = np.abs(rows - row) + np.abs(columns - column)
            in_time = left[rows, columns] > (away + 1) * minutes_a_step
            if not in_time.any():
                continue
            goal = np.where(in_time, left[rows, columns], np.inf).argmin()
            down, right = rows[goal] - row, columns[goal] - column
            way = "none" if not (down or right) else (
                ("down" if down > 0 else "up") if abs(down) >= abs(right) else ("right" if right > 0 else "left")
            )  # fmt: skip
            digs = np.isfinite(left[row, column]) and left[row, column] > 0
            tool = world.verbs.interactions.index(
                "fireline" if digs or "none" not in world.verbs.interactions else "none"
            )
            actions[n, agent] = world.verbs.movements.index(way) + tool * len(world.verbs.movements)
    return actions.reshape(stand(env, obs).shape)


def make(config: TrainConfig) -> WildfireVector:
    made = make_env(config.env.id, ROWS, seed=0, **{**config.env.arguments, **config.evaluation.arguments})
    assert isinstance(made, WildfireVector)
    return made


def learned(config: TrainConfig, seed: int) -> tuple[float, float]:
    """What the last policy saves, and the CPU-seconds that its training took."""
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder, SummaryWriter("training", root=Path(folder)) as writer:
        training = Training(config, writer)
        training.run()
        took = time.process_time() - began
        env = make(config)
        player = Player(training.algorithm, env, training.normalizer)
        return saved(env, lambda env, obs: player.act(obs, env.action_mask), seed), took


def show(name: str, values: list[float], note: str = "") -> None:
    middle, low, high = interval(values)
    print(f"{name:28} {middle:6.3f} [{low:.3f}, {high:.3f}]  {len(values)} seeds  {note}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", nargs="*", default=["wildfire-ppo", "wildfire-dqn", "wildfire-marl"])
    parser.add_argument("--seeds", default="100..104")
    parser.add_argument("--steps", type=int, help="fewer steps than the presets have")
    chosen = parser.parse_args()
    first, _, last = chosen.seeds.partition("..")
    seeds = range(int(first), int(last or first) + 1)
    for agents in (1, 2):
        reference = load_config("wildfire-ppo" if agents == 1 else "wildfire-marl", [])
        for name, act in (("none", lambda seed: stand), ("random", at_random), ("greedy", lambda seed: greedy)):
            show(f"{name}, {agents} agents", [saved(make(reference), act(seed), seed) for seed in seeds])
    for preset in chosen.presets:
        changes = [] if chosen.steps is None else [f"total_steps={chosen.steps}"]
        results = [learned(load_config(preset, [*changes, f"seed={seed}"]), seed) for seed in seeds]
        show(preset, [part for part, _ in results], f"{np.mean([took for _, took in results]):.0f} CPU-seconds each")


if __name__ == "__main__":
    main()
