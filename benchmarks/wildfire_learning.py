"""What agents save of land on scenarios that no training has seen: IQM over seeds with its bootstrap interval.

    python benchmarks/wildfire_learning.py                     every row; what its .jsonl has is not done again
    python benchmarks/wildfire_learning.py --presets wildfire-ppo --seeds 1000..1004
    python benchmarks/wildfire_learning.py --presets           the agents that learn nothing only
    python benchmarks/wildfire_learning.py --table             runs nothing, shows what is kept
    python benchmarks/wildfire_learning.py --gif fire.gif      a film of the first preset beside the unfought fire

For each seed `EPISODES` greedy episodes of the `eval` split with the last weights, on scenarios of the seed's own that
are the same for all agents; every environment plays as many. `none` does nothing, `random` anything, `greedy` digs
ahead of the predicted head: it goes to the place that the fire reaches soonest of those where it can be before it, and
digs wherever the fire comes. It sees the whole map and when the fire will be where. The part of the unfought fire's
area that was saved is shown. What one agent has learned is also tried by two, each of which follows it on its own, on
the same scenarios. One training at a time; each is one line of the file, found again by the settings of its
preset and its seed, so that a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from operant.envs import make_env
from operant.envs.wildfire import WildfireVector
from operant.envs.wildfire.rendering import save_gif
from operant.settings import to_mapping
from operant.tracking import SummaryWriter
from operant.training import TrainConfig, Training
from operant.training.evaluating import Player, film
from operant.training.statistics import LEVEL_SEEDS, difference, interval
from operant.training.targets import load_config

EPISODES, ROWS = 200, 50
RESULTS = Path(__file__).with_name("wildfire_learning.jsonl")
PRESETS = ("wildfire-ppo", "wildfire-dqn", "wildfire-marl")
RULES = ("none", "random", "greedy")
UNWATCHED = ("evaluation.frames=0", "evaluation.every=1000000000")  # they are judged here
Act = Callable[[WildfireVector, Any], Any]
Result = dict[str, float]
Work = Callable[[TrainConfig, int], Result]


def saved(env: WildfireVector, act: Act, seed: int) -> float:
    """The mean part of the area that is saved. Whichever end first would be mostly those that are put out."""
    left = np.full(env.num_envs, EPISODES // env.num_envs)
    parts: list[float] = []
    obs = env.reset(1000 * seed)
    while left.any():
        step = env.step(act(env, obs))
        obs = step.obs
        if step.final_obs is not None:
            for row, fire in zip(step.done.nonzero()[0], step.info["fires"], strict=True):
                if left[row]:
                    left[row] -= 1
                    parts.append(fire["area_saved_part"])
    return float(np.mean(parts))


# Agents that learn nothing.


def do_nothing(env: WildfireVector, obs: Any) -> Any:
    return np.zeros((env.num_envs, *(env.single_action_space.shape or ())), np.int64)


def at_random(seed: int) -> Act:
    generator = np.random.default_rng(seed)
    return lambda env, obs: generator.integers(env.world.verbs.count, size=do_nothing(env, obs).shape)


def greedy(env: WildfireVector, obs: Any) -> Any:
    """One action for each agent: towards the soonest place of the fire's way that it can still be at in time."""
    world = env.world
    actions = np.zeros((world.count, world.agents), np.int64)
    minutes_a_step = world.settings.step_minutes / world.settings.agent_speed
    for n in range(world.count):
        left = world.projection.time[n] - world.fires.clock[n]
        comes = (world.status[n] == 0) & np.isfinite(left) & (left > 0)
        digs = [bool(comes[row, column]) for row, column in world.position[n]]
        comes[world.position[n, :, 0], world.position[n, :, 1]] = False  # what is dug now
        for agent, place in enumerate(world.position[n]):
            goals = np.argwhere(comes)
            soon = left[goals[:, 0], goals[:, 1]]
            soon[soon <= (_steps(world, goals - place) + 1) * minutes_a_step] = np.inf
            if not np.isfinite(soon).any():
                continue
            goal = goals[soon.argmin()]
            comes[tuple(goal)] = False  # the next agent goes elsewhere
            way = goal - (place + world.delta[n])
            movement = int((_steps(world, way) + 1e-3 * np.hypot(*way.T)).argmin())
            tool = "fireline" if digs[agent] or "none" not in world.verbs.interactions else "none"
            actions[n, agent] = movement + world.verbs.interactions.index(tool) * len(world.verbs.movements)
    return actions.reshape(do_nothing(env, obs).shape)


def _steps(world: Any, way: Any) -> Any:
    """How many an agent needs for ways of so many rows and columns."""
    far = np.abs(way)
    return far.max(-1) if "up_left" in world.verbs.movements else far.sum(-1)


def make(config: TrainConfig, rows: int = ROWS, **changes: Any) -> WildfireVector:
    made = make_env(config.env.id, rows, seed=0, **{**config.env.arguments, **config.evaluation.arguments, **changes})
    assert isinstance(made, WildfireVector)
    return made


def by_rule(rule: str, config: TrainConfig, seed: int) -> Result:
    if rule == "none":
        return {"saved": saved(make(config, interactions=["none"]), do_nothing, seed)}
    return {"saved": saved(make(config), greedy if rule == "greedy" else at_random(seed), seed)}


# Agents that learn.


def train(config: TrainConfig, folder: str) -> Training:
    with SummaryWriter("training", root=Path(folder)) as writer:
        training = Training(config, writer)
        training.begin()
        training.run()
    return training


def learned(config: TrainConfig, seed: int) -> Result:
    """What the last policy saves, and what its training took."""
    load, began, clock = os.getloadavg()[0], time.process_time(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        training = train(config, folder)
        took = {"cpu_seconds": time.process_time() - began, "seconds": time.monotonic() - clock, "load": load}
        env = make(config)
        player = Player(training.algorithm, env, training.normalizer)
        result = {"saved": saved(env, lambda env, obs: player.act(obs, env.action_mask), seed), **took}
        if env.world.agents == 1:
            result["saved_by_two"] = saved(make(config, num_agents=2), each(player), seed)
        return result


def each(player: Player) -> Act:
    """Every agent does what the policy of one would do in its place."""

    def act(env: WildfireVector, obs: Any) -> Any:
        return np.asarray(player.act(obs.reshape(-1, *obs.shape[2:]), None)).reshape(env.num_envs, -1)

    return act


def write_film(config: TrainConfig, file: Path, seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        training = train(config, folder)
        env = make(config, 1, render_benchmark=True)
        save_gif(film(training.algorithm, env, 1000 * seed, 200, normalizer=training.normalizer), file, fps=8)


# What is kept and shown.


class Kept:
    """Figures of seeds in a file of JSON lines, so that a long comparison can be done in parts."""

    def __init__(self, file: Path, *, only_look: bool) -> None:
        self._file, self._only_look = file, only_look
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        self._results: dict[str, Result] = {}
        for line in lines:
            row = json.loads(line)
            self._results[row.pop("key")] = row

    def get(self, name: str, config: TrainConfig, seed: int, work: Work) -> Result | None:
        settings: dict[str, Any] = {"asked": [EPISODES, ROWS, config.evaluation.arguments]}
        if name in RULES:
            settings["env"] = config.env.arguments
        else:
            apart = ("name", "seed", "evaluation", "checkpoint", "log")  # what makes no other policy
            settings |= {key: value for key, value in to_mapping(config).items() if key not in apart}
        print_ = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()[:12]
        key = f"{name}, {print_}, seed {seed}"
        if key not in self._results and not self._only_look:
            self._results[key] = {name: round(value, 4) for name, value in work(config, seed).items()}
            with self._file.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"key": key, **self._results[key]}) + "\n")
            print(f"  {key}: {self._results[key]}", flush=True)
        return self._results.get(key)


def show(name: str, results: list[Result], rival: list[Result], figure: str = "saved", whom: str = "greedy") -> None:
    results = [result for result in results if figure in result]
    if not results:
        return
    values = [result[figure] for result in results]
    middle, low, high = interval(values)
    line = f"{name:24} {middle:6.3f} [{low:.3f}, {high:.3f}]  {len(values)} seeds"
    if rival and len(values) < LEVEL_SEEDS:
        line += f"  (over {whom}: undecided before {LEVEL_SEEDS} seeds)"
    elif rival:
        line += f"  over {whom} {{:+.3f}} [{{:+.3f}}, {{:+.3f}}]".format(
            *difference(values, [one["saved"] for one in rival])
        )
    if figure == "saved" and "cpu_seconds" in results[0]:
        cpu, load = ([result[name] for result in results] for name in ("cpu_seconds", "load"))
        line += (
            f"  {np.mean(cpu):.0f} CPU-seconds each, at most {max(cpu):.0f} (load {min(load):.0f} to {max(load):.0f})"
        )
    print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", nargs="*", default=PRESETS)
    parser.add_argument("--seeds", default="1000..1004")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="settings other than the presets'")
    parser.add_argument("--kept", type=Path, default=RESULTS, help="the file of figures to go on from")
    parser.add_argument("--table", action="store_true", help="only show what is kept")
    parser.add_argument("--gif", type=Path, help="train the first preset and write a film of an episode")
    chosen = parser.parse_args()
    first, _, last = chosen.seeds.partition("..")
    seeds, kept = range(int(first), int(last or first) + 1), Kept(chosen.kept, only_look=chosen.table)
    if chosen.gif:
        write_film(load_config(chosen.presets[0], [*chosen.set, f"seed={seeds[0]}", *UNWATCHED]), chosen.gif, seeds[0])
        return

    def rows(name: str, config: TrainConfig, work: Work) -> list[Result]:
        return [found for seed in seeds if (found := kept.get(name, config, seed, work)) is not None]

    rivals: dict[int, list[Result]] = {}
    for preset in ("wildfire-ppo", "wildfire-marl"):
        config = load_config(preset, chosen.set)
        agents = config.env.arguments.get("num_agents", 1)
        for rule in RULES:
            rivals[agents] = rows(rule, config, lambda config, seed, rule=rule: by_rule(rule, config, seed))
            show(f"{rule}, {agents} agents", rivals[agents], [])
    for preset in chosen.presets:
        config = load_config(preset, chosen.set)

        def work(config: TrainConfig, seed: int, preset: str = preset) -> Result:
            return learned(load_config(preset, [*chosen.set, f"seed={seed}", *UNWATCHED]), seed)

        results = rows(preset, config, work)
        show(preset, results, rivals[config.env.arguments.get("num_agents", 1)])
        show(f"{preset}, two of them", results, results, "saved_by_two", "one")


if __name__ == "__main__":
    main()
