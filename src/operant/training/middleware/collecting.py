"""Middleware that act in environments and hand on what happened."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from operant.algorithms.contracts import Algorithm, ValueAlgorithm
from operant.algorithms.on_policy import advantages
from operant.data import ReplayBuffer, tree_flatten, tree_leaves, tree_map, tree_stack
from operant.data.batches import add_step
from operant.envs.vector import VectorEnv
from operant.errors import UsageError
from operant.framework import Context
from operant.training.collecting import Collector
from operant.training.sources import Source, make_source


def get_epsilon_greedy_fn(start: float, end: float, decay: int, type_: str = "exp") -> Callable[[int], float]:
    """The share of random actions after so many environment steps.

    ``exp`` falls as exp(−steps/decay) from start towards end; ``linear`` reaches end after `decay` steps.
    """
    if type_ not in ("exp", "linear"):
        raise UsageError(f"an epsilon schedule is exp or linear, not {type_!r}")
    if decay <= 0:
        raise UsageError(f"decay is {decay}; it must be above 0")

    def epsilon(steps: int) -> float:
        if steps <= 0:
            return start
        if type_ == "exp":
            return end + (start - end) * math.exp(-steps / decay)
        return start + (end - start) * min(1.0, steps / decay)

    return epsilon


def epsilon_schedule(start: float, end: float, decay: int, type_: str = "exp") -> Any:
    """Set the share of random actions.

    Reads ``ctx.env_step``. Writes ``ctx.epsilon``.
    """
    epsilon = get_epsilon_greedy_fn(start, end, decay, type_)

    def _epsilon_schedule(ctx: Context) -> None:
        ctx.epsilon = epsilon(ctx.get("env_step", 0))

    return _epsilon_schedule


def _collector_of(policy: Algorithm, env: VectorEnv, seed: int) -> Collector:
    collector = Collector(env, policy, rng=np.random.default_rng([seed, 5]))
    collector.reset(seed)
    return collector


def _count_steps(ctx: Context, collector: Collector) -> None:
    ctx.env_step = collector.env_step
    ctx.keep("env_step")


def source_of(algorithm: Algorithm, env: VectorEnv, *, buffer: ReplayBuffer | None = None, seed: int = 0) -> Source:
    """What `collector` collects and `learner` learns from, in the rhythm that the algorithm's ``data`` says."""
    return make_source(algorithm, _collector_of(algorithm, env, seed), np.random.default_rng([seed, 6]), buffer)


def collector(source: Source, total_steps: int) -> Any:
    """Collect what an algorithm learns from next, whichever it is; `learner` with the same source comes behind it.

    Reads nothing. Writes ``ctx.train_data`` where data are fresh, and ``ctx.env_step``.
    """

    def _collector(ctx: Context) -> None:
        batch = source.collect(total_steps)
        if batch is not None:
            ctx.train_data = batch
        _count_steps(ctx, source.collector)

    return _collector


def step_collector(policy: Algorithm, env: VectorEnv, steps: int, seed: int = 0) -> Any:
    """Make so many steps in each environment.

    Reads ``ctx.epsilon``, if there. Writes ``ctx.trajectory`` (a list of steps, each a dict of arrays [N, …] with obs,
    action, reward, terminated, truncated, next_obs, and mask and next_mask where actions are masked) and
    ``ctx.env_step``.
    """
    made = _collector_of(policy, env, seed)

    def _step_collector(ctx: Context) -> None:
        ctx.trajectory = made.trajectory(steps, epsilon=ctx.get("epsilon"))
        _count_steps(ctx, made)

    return _step_collector


def episode_collector(policy: Algorithm, env: VectorEnv, episodes: int, seed: int = 0) -> Any:
    """Play so many episodes from their beginning, each environment its share.

    Reads ``ctx.epsilon``, if there. Writes ``ctx.episodes`` (a list of dicts of arrays [L, …]) and ``ctx.env_step``.
    """
    made = _collector_of(policy, env, seed)

    def _episode_collector(ctx: Context) -> None:
        ctx.episodes = made.whole_episodes(episodes, epsilon=ctx.get("epsilon"))
        _count_steps(ctx, made)

    return _episode_collector


def pusher(buffer: ReplayBuffer) -> Any:
    """Put what was collected into a buffer.

    Reads ``ctx.trajectory``. Writes nothing.
    """

    def _pusher(ctx: Context) -> None:
        for step in ctx.trajectory:
            add_step(buffer, step)

    return _pusher


def gae_estimator(policy: ValueAlgorithm, gamma: float, gae_lambda: float) -> Any:
    """Advantages and returns of what was collected, by the policy's own values.

    Reads ``ctx.trajectory``. Writes ``ctx.train_data`` (arrays [T, N, …], with ``value``, ``advantage``, ``return``),
    from which PPO and A2C learn.
    """

    def _gae_estimator(ctx: Context) -> None:
        data = tree_stack(ctx.trajectory)
        value, next_value = (
            np.stack([policy.values(step[key]) for step in ctx.trajectory]) for key in ("obs", "next_obs")
        )
        data["value"] = value
        data["advantage"] = advantages(
            data["reward"], data["terminated"], data["truncated"], value, next_value, gamma=gamma, lam=gae_lambda
        )
        data["return"] = data["advantage"] + value
        ctx.train_data = data

    return _gae_estimator


def n_step_estimator(gamma: float, steps: int) -> Any:
    """Turn steps into n-step ones: rewards summed, next_obs further on, not beyond the end of an episode.

    Reads and writes ``ctx.trajectory``; adds ``discount`` (what the value of next_obs counts, 0 after termination).
    """

    def _n_step_estimator(ctx: Context) -> None:
        given = ctx.trajectory
        result = []
        for first, step in enumerate(given):
            reward = step["reward"].copy()
            discount = np.full(len(reward), gamma, np.float32)
            next_obs = tree_map(np.copy, step["next_obs"])
            next_mask = np.copy(step["next_mask"]) if "next_mask" in step else None
            terminated, truncated = step["terminated"].copy(), step["truncated"].copy()
            for later in given[first + 1 : first + steps]:
                going = ~(terminated | truncated)
                reward[going] += (discount * later["reward"])[going]
                discount[going] *= gamma
                _assign(next_obs, later["next_obs"], going)
                if next_mask is not None:
                    next_mask[going] = later["next_mask"][going]
                terminated[going] = later["terminated"][going]
                truncated[going] = later["truncated"][going]
            discount[terminated] = 0.0
            changed = {"reward": reward, "next_obs": next_obs, "terminated": terminated, "truncated": truncated}
            if next_mask is not None:
                changed["next_mask"] = next_mask
            result.append({**step, **changed, "discount": discount})
        ctx.trajectory = result

    return _n_step_estimator


def _assign(tree: Any, source: Any, rows: Any) -> None:
    """Take these rows from another tree, in place."""
    for path, leaf in tree_leaves(tree):
        leaf[rows] = tree_flatten(source)[path][rows]
