"""Middleware that act in environments and hand on what happened."""

from __future__ import annotations

from typing import Any

import numpy as np

from operant.algorithms.returns import advantages
from operant.data import ReplayBuffer, tree_flatten, tree_leaves, tree_map, tree_stack
from operant.envs.vector import VectorEnv
from operant.framework import Context
from operant.training.exploration import get_epsilon_greedy_fn

__all__ = ["episode_collector", "epsilon_schedule", "gae_estimator", "n_step_estimator", "pusher", "step_collector"]

_FIELDS = ("obs", "action", "reward", "terminated", "truncated", "next_obs")


def epsilon_schedule(start: float, end: float, decay: int, type_: str = "exp") -> Any:
    """Set the share of random actions.

    Reads ``ctx.env_step``. Writes ``ctx.epsilon``.
    """
    epsilon = get_epsilon_greedy_fn(start, end, decay, type_)

    def _epsilon_schedule(ctx: Context) -> None:
        ctx.epsilon = epsilon(ctx.get("env_step", 0))

    return _epsilon_schedule


class _Actor:
    """Environments with a policy in them."""

    def __init__(self, policy: Any, env: VectorEnv, seed: int) -> None:
        self.policy = policy
        self.env = env
        self.rng = np.random.default_rng([seed, 5])
        self.obs = env.reset(seed)
        self.env_step = 0

    def step(self, ctx: Context) -> dict[str, Any]:
        epsilon = {} if "epsilon" not in ctx else {"epsilon": ctx.epsilon}
        mask = self.env.action_mask
        if mask is None:
            mask = self.policy.adapter.mask(self.obs, None)
        out = self.policy.act(self.obs, mask=mask, explore=True, rng=self.rng, **epsilon)
        step = self.env.step(out.action)
        adapt = self.policy.adapter.adapt
        happened = {
            "obs": adapt(self.obs),
            "action": out.extras["action"],
            "reward": step.reward.astype(np.float32),
            "terminated": step.terminated,
            "truncated": step.truncated,
            "next_obs": adapt(step.next_obs),
        }
        self.obs = step.obs
        self.env_step += self.env.num_envs
        return happened


def step_collector(policy: Any, env: VectorEnv, steps: int, seed: int = 0) -> Any:
    """Make so many steps in each environment.

    Reads ``ctx.epsilon``, if there. Writes ``ctx.trajectory`` (a list of steps, each a dict of arrays [N, …] with obs,
    action, reward, terminated, truncated, next_obs) and ``ctx.env_step``.
    """
    actor = _Actor(policy, env, seed)

    def _step_collector(ctx: Context) -> None:
        ctx.trajectory = [actor.step(ctx) for _ in range(steps)]
        ctx.env_step = actor.env_step
        ctx.keep("env_step")

    return _step_collector


def episode_collector(policy: Any, env: VectorEnv, episodes: int, seed: int = 0) -> Any:
    """Act until so many episodes have ended since the last time.

    Reads ``ctx.epsilon``, if there. Writes ``ctx.episodes`` (a list of dicts of arrays [L, …]) and ``ctx.env_step``.
    """
    actor = _Actor(policy, env, seed)
    open_steps: list[list[dict[str, Any]]] = [[] for _ in range(env.num_envs)]

    def _episode_collector(ctx: Context) -> None:
        ended: list[dict[str, Any]] = []
        while len(ended) < episodes:
            happened = actor.step(ctx)
            for row, steps in enumerate(open_steps):
                steps.append(tree_map(lambda leaf, row=row: leaf[row], happened))
                if happened["terminated"][row] or happened["truncated"][row]:
                    ended.append(tree_stack(steps))
                    steps.clear()
        ctx.episodes = ended
        ctx.env_step = actor.env_step
        ctx.keep("env_step")

    return _episode_collector


def pusher(buffer: ReplayBuffer) -> Any:
    """Put what was collected into a buffer.

    Reads ``ctx.trajectory``. Writes nothing.
    """

    def _pusher(ctx: Context) -> None:
        for step in ctx.trajectory:
            buffer.add(*(step[key] for key in _FIELDS))

    return _pusher


def gae_estimator(policy: Any, gamma: float, gae_lambda: float) -> Any:
    """Advantages and returns of what was collected, by the policy's own values.

    Reads ``ctx.trajectory``. Writes ``ctx.train_data`` (arrays [T, N, …], with ``value``, ``advantage``, ``return``).
    """

    def _gae_estimator(ctx: Context) -> None:
        data = tree_stack([{key: step[key] for key in _FIELDS} for step in ctx.trajectory])
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
            terminated, truncated = step["terminated"].copy(), step["truncated"].copy()
            for later in given[first + 1 : first + steps]:
                going = ~(terminated | truncated)
                reward[going] += (discount * later["reward"])[going]
                discount[going] *= gamma
                _assign(next_obs, later["next_obs"], going)
                terminated[going] = later["terminated"][going]
                truncated[going] = later["truncated"][going]
            discount[terminated] = 0.0
            changed = {"reward": reward, "next_obs": next_obs, "terminated": terminated, "truncated": truncated}
            result.append({**step, **changed, "discount": discount})
        ctx.trajectory = result

    return _n_step_estimator


def _assign(tree: Any, source: Any, rows: Any) -> None:
    """Take these rows from another tree, in place."""
    for path, leaf in tree_leaves(tree):
        leaf[rows] = tree_flatten(source)[path][rows]
