"""`cli.mode: view`: a trained policy plays the evaluation's episodes; a GIF of them, a table, and a run of both."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from operant._util.dotted import plain_flat
from operant.errors import UsageError
from operant.harness.objects import made
from operant.harness.tree import Plan, environment_name, flag, given, whole
from operant.tracking import SummaryWriter
from operant.training.playback import load_policy, write_gif

MOST_FRAMES = 2000
Frame = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Played:
    """One episode."""

    seed: int
    total: float
    length: int


@dataclass(frozen=True)
class Viewed:
    """What was played, and where it can be seen."""

    run_id: str
    gif: Path
    table: Path
    episodes: tuple[Played, ...]
    frames: int

    @property
    def returns(self) -> tuple[float, ...]:
        return tuple(one.total for one in self.episodes)


def view(plan: Plan, root: str | Path | None = None) -> Viewed:
    """Play ``evaluation.evaluation_duration`` episodes from starts that depend on ``debugging.seed`` alone."""
    target = given(plan, "algo").get("checkpoint_path")
    if target is None:
        raise UsageError(
            "cli.mode is view: whose policy? algo.checkpoint_path is a run of ours, or a checkpoint of RLlib's"
        )
    count, seed = whole(plan, "evaluation.evaluation_duration", 1, least=1), whole(plan, "debugging.seed", 0)
    folder = Path(given(plan, "runtime").get("local_dir", "."))
    play = _rllibs(plan, str(target)) if plan.library == "rllib" else _own(plan, str(target), root)
    frames: list[Frame] = []
    played = tuple(_play(play, seed + number, frames) for number in range(count))
    write_gif(frames, folder / "view.gif")
    _write_table(played, folder / "view.csv")
    name = given(plan, "runtime").get("name") or "view"
    with SummaryWriter(str(name), config=plain_flat(plan.tree), root=root, tags=["harness", "view"]) as writer:
        writer.add_video("view", folder / "view.gif", 0)
        writer.add_file(folder / "view.csv")
        for number, one in enumerate(played):
            writer.add_scalars({"view/return": one.total, "view/length": one.length}, number)
        return Viewed(writer.run_id, folder / "view.gif", folder / "view.csv", played, len(frames))


Episode = Callable[[int], Iterator[tuple[Frame, float]]]
"""Plays from a seed: frames, each with the reward of the step that led to it."""


def _play(episode: Episode, seed: int, frames: list[Frame]) -> Played:
    total, length = 0.0, -1  # the first frame is before the first step
    for frame, reward in episode(seed):
        total, length = total + reward, length + 1
        if len(frames) < MOST_FRAMES:
            frames.append(frame)
    return Played(seed, total, length)


def _write_table(played: tuple[Played, ...], path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["episode", "seed", "return", "length"])
        rows.writerows([number, one.seed, one.total, one.length] for number, one in enumerate(played))


def _own(plan: Plan, target: str, root: str | Path | None) -> Episode:
    policy = load_policy(target, root, trust=flag(plan, "algo", "trust"))

    def episode(seed: int) -> Iterator[tuple[Frame, float]]:
        obs, over = policy.env.reset(seed), False
        yield policy.env.render_frame(), 0.0
        while not over:
            step = policy.play(obs)
            obs, over = step.obs, bool(step.episodes)
            yield policy.env.render_frame(), float(step.reward[0])

    return episode


def _rllibs(plan: Plan, target: str) -> Episode:
    from operant.envs.making import environment_maker
    from operant.harness.rllib_checkpoints import find_checkpoint, greedy

    act = greedy(find_checkpoint(target, trust=flag(plan, "algo", "trust")))
    environment, judged = given(plan, "environment"), given(plan, "evaluation").get("evaluation_config") or {}
    arguments = {**(environment.get("env_config") or {}), **(judged.get("env_config") or {})}
    make = environment_maker(environment_name(plan))
    env = make(render_mode="rgb_array", **made(arguments, "environment.env_config"))
    if hasattr(env, "possible_agents"):
        return lambda seed: _agents(plan, env, act, seed)

    def episode(seed: int) -> Iterator[tuple[Frame, float]]:
        obs, _ = env.reset(seed=seed)
        yield env.render(), 0.0
        over = False
        while not over:
            obs, reward, terminated, truncated, _ = env.step(act(obs, env.action_space, "default_policy"))
            over = terminated or truncated
            yield env.render(), float(reward)

    return episode


def _agents(plan: Plan, env: Any, act: Callable[[Any, Any, str], Any], seed: int) -> Iterator[tuple[Frame, float]]:
    """All agents of a parallel environment; the reward is that of all together."""
    from operant.harness.rllib import policy_mapping

    policy_of = policy_mapping(given(plan, "multi_agent").get("policy_mapping_fn", "default_policy"))
    obs: Mapping[str, Any] = env.reset(seed=seed)[0]
    yield env.render(), 0.0
    while env.agents:
        actions = {agent: act(seen, env.action_space(agent), policy_of(agent, None)) for agent, seen in obs.items()}
        obs, rewards, *_ = env.step(actions)
        yield env.render(), float(sum(rewards.values()))
