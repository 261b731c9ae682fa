"""From environments to data: one loop makes every transition, and what it is called with keeps them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from operant.algorithms.contracts import Actor, Array, Policy, PopulationAlgorithm, RecurrentPolicy
from operant.data import tree_map
from operant.data.batches import finals, replace_rows, split_episodes, take_rows
from operant.envs.vector import Step, VectorEnv
from operant.errors import UsageError
from operant.models.observations import MASK_KEY
from operant.training.normalizing import Normalizer

Keep = Callable[[int, Any, Any, Array, Array, Step, Any, Any, dict[str, Any]], None]
"""Called for each step with its number, obs, mask, action, reward, the step as the environment gave it, the observation
to act on next with its mask, and further fields."""


class EpisodeLog:
    """Returns and lengths of finished episodes: the latest, and those since the last point of the log."""

    def __init__(self, window: int) -> None:
        self.returns: deque[float] = deque(maxlen=window)
        self.lengths: deque[int] = deque(maxlen=window)
        self.count = 0

    def add(self, step: Step) -> None:
        ended = step.info.get("episodes")
        if ended is not None:
            self.returns.extend(ended.returns.tolist())
            self.lengths.extend(ended.lengths.tolist())
            self.count += len(ended.returns)

    @property
    def mean_return(self) -> float:
        return float(np.mean(self.returns)) if self.returns else float("nan")

    @property
    def mean_length(self) -> float:
        return float(np.mean(self.lengths)) if self.lengths else float("nan")

    def state_dict(self) -> dict[str, Any]:
        return {"returns": list(self.returns), "lengths": list(self.lengths), "count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.returns.clear()
        self.returns.extend(state["returns"])
        self.lengths.clear()
        self.lengths.extend(state["lengths"])
        self.count = int(state["count"])


def allowed_actions(env: VectorEnv, policy: Policy, obs: Any) -> Array | None:
    """Which actions may be taken now [N, A], by the environment or its observation; None: all."""
    mask = env.action_mask
    return mask if mask is not None else policy.adapter.mask(obs, None)


def initial_state(policy: Policy, rows: int) -> Any:
    """The state of a policy with memory at the beginning of an episode."""
    return cast(RecurrentPolicy, policy).initial_state(rows)


class Collector:
    """Environments with a policy in them: where they are, what their observations are scaled by, random numbers."""

    def __init__(
        self,
        env: VectorEnv,
        policy: Policy,
        *,
        normalizer: Normalizer | None = None,
        rng: np.random.Generator,
        window: int = 100,
    ) -> None:
        self.env = env
        self.policy = policy
        self.normalizer = normalizer
        self.rng = rng
        self.episodes = EpisodeLog(window)
        self.env_step = 0
        self._obs: Any = None
        self._raw: Any = None
        self._remembers = "state" in policy.data.fields
        self._state: Any = initial_state(policy, env.num_envs) if self._remembers else None
        # Asked once: whether this kind of environment ever says which actions are allowed.
        own_mask = type(env).action_mask is not VectorEnv.action_mask
        self._masks = own_mask or MASK_KEY in getattr(env.single_observation_space, "spaces", {})

    def reset(self, seed: int | None = None) -> None:
        """Begin an episode in every environment; without a seed their random numbers go on."""
        self._raw = self.env.reset(seed)
        self._obs = self._adapted(self._raw)
        if self._remembers:
            self._state = initial_state(self.policy, self.env.num_envs)

    def run(
        self,
        steps: int,
        keep: Keep,
        *,
        total_steps: int | None = None,
        epsilon: float | None = None,
        act: Actor | None = None,
    ) -> Any:
        """Make so many steps in each environment and hand each transition to `keep`; returns the last observation.

        With `total_steps` the policy is told its progress before each step: for policies whose exploration
        falls, and which do not wait for a rollout.
        """
        env, policy, normalizer, rows = self.env, self.policy, self.normalizer, self.env.num_envs
        advance, masked, remembers = env.step, self._masks, self._remembers
        adapted = policy.adapter.adapt if normalizer is None else self._adapted
        act = act or policy.actor(self.rng, steps, rows, epsilon=epsilon)
        obs, state, raw = self._obs, self._state, self._raw
        mask = allowed_actions(env, policy, self._raw) if masked else None
        next_mask = None
        for t in range(steps):
            if total_steps is not None:
                policy.set_progress(self.env_step + t * rows, total_steps)
            for_env, action, extras = act(obs, mask, state)
            step = advance(for_env)
            reward = step.reward if normalizer is None else normalizer.reward(step.reward, step.done)
            raw = step.obs
            following = adapted(raw)
            if masked:
                next_mask = allowed_actions(env, policy, raw)
            if remembers:
                extras, state = {**extras, "state": state}, extras["state"]
                if step.final_obs is not None:
                    state = replace_rows(state, initial_state(policy, rows), step.done)
            keep(t, obs, mask, action, reward, step, following, next_mask, extras)
            if step.final_obs is not None:
                self.episodes.add(step)
            obs, mask = following, next_mask
        self._obs, self._state, self._raw = obs, state, raw
        self.env_step += steps * rows
        return obs

    def _adapted(self, raw: Any, learn: bool = True) -> Any:
        adapted = self.policy.adapter.adapt(raw)
        return adapted if self.normalizer is None else self.normalizer.observe(adapted, learn)

    def last_obs(self, step: Step, rows: Array) -> Any:
        """The last observations of the episodes that ended in these environments, as networks take them."""
        return self._adapted(take_rows(step.final_obs, rows), learn=False)

    def next_obs(self, step: Step, following: Any) -> Any:
        """What truly followed a step in every environment, as networks take it."""
        return following if step.final_obs is None else self._adapted(step.final_obs, learn=False)

    def next_mask(self, step: Step, following: Array | None) -> Array | None:
        """Which actions the state that truly followed allows: where an episode ended, that of its last observation."""
        if following is None or step.final_obs is None:
            return following
        last = step.final_mask
        if last is None:
            last = self.policy.adapter.mask(step.final_obs, None)
        # Where the last state says nothing of it, everything counts as allowed: the next episode's would be wrong.
        return np.where(step.done[:, None], True if last is None else last, following)

    # -- what is collected -------------------------------------------------------------------------------------------
    def trajectory(self, steps: int, *, epsilon: float | None = None) -> list[dict[str, Any]]:
        """Steps as dicts of arrays [N, …]: see `operant.data.batches`."""
        kept: list[dict[str, Any]] = []
        self.run(steps, self.each_step(kept.append), epsilon=epsilon)
        return kept

    def whole_episodes(self, count: int, *, epsilon: float | None = None) -> list[dict[str, Any]]:
        """`count` episodes from their beginning, each environment its share: the first to end would be short ones."""
        if self.env_step:
            self.reset()
        quota = np.full(self.env.num_envs, count // self.env.num_envs)
        quota[: count % self.env.num_envs] += 1
        kept: list[dict[str, Any]] = []
        keep = self.each_step(kept.append)
        left = quota.copy()
        while (left > 0).any():
            self.run(1, keep, epsilon=epsilon)
            left -= kept[-1]["terminated"] | kept[-1]["truncated"]
        return split_episodes(kept, quota)

    def candidate_returns(self, candidates: Array) -> tuple[Array, Array]:
        """Return and length of one episode of each candidate; an environment whose episode has ended takes the next."""
        if self.env_step:
            self.reset()
        rows, count = self.env.num_envs, len(candidates)
        returns, lengths = np.zeros(count), np.zeros(count, np.int64)
        playing = np.arange(rows)  # beyond the last candidate: the environment has nothing to do any more
        upcoming, left = rows, count
        make_actor = cast(PopulationAlgorithm, self.policy).candidate_actor
        act: Actor | None = None

        def keep(_t: int, _obs: Any, _mask: Any, _action: Any, _reward: Any, step: Step, *_rest: Any) -> None:
            nonlocal act, upcoming, left
            if step.episodes is None:
                return
            act = None
            ended = step.episodes
            for row, value, length in zip(ended.env, ended.returns, ended.lengths, strict=True):
                if playing[row] < count:
                    returns[playing[row]], lengths[playing[row]] = value, length
                    left -= 1
                playing[row] = upcoming
                upcoming += 1

        while left:
            act = act or make_actor(candidates[np.minimum(playing, count - 1)])
            self.run(1, keep, act=act)
        return returns, lengths

    def each_step(self, consume: Callable[[dict[str, Any]], None]) -> Keep:
        """What `run` takes to hand on each step as a dict of arrays [N, …]."""
        own = set(self.policy.data.fields)

        def keep(
            _t: int,
            obs: Any,
            mask: Any,
            action: Array,
            reward: Array,
            step: Step,
            following: Any,
            next_mask: Any,
            extras: dict[str, Any],
        ) -> None:
            happened = {
                "obs": obs,
                "action": action,
                "reward": reward.astype(np.float32),
                "terminated": step.terminated,
                "truncated": step.truncated,
                "next_obs": self.next_obs(step, following),
            }
            if mask is not None:
                happened |= {"mask": mask, "next_mask": self.next_mask(step, next_mask)}
            if extras:
                happened |= {name: value for name, value in extras.items() if name in own}
            consume(happened)

        return keep

    # -- saving ------------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        state = {
            "env": self.env.save_state(),
            "rng": self.rng.bit_generator.state,
            "episodes": self.episodes.state_dict(),
            "env_step": self.env_step,
            "normalizer": None if self.normalizer is None else self.normalizer.state_dict(),
            "obs": tree_map(np.array, self._obs),
        }
        return {**state, "state": self._state} if self._remembers else state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._raw = self.env.load_state(state["env"])
        self.rng.bit_generator.state = state["rng"]
        self.episodes.load_state_dict(state["episodes"])
        self.env_step = int(state["env_step"])
        if self.normalizer is not None:
            self.normalizer.load_state_dict(state["normalizer"])
        # As it was scaled then, not anew; an environment that begins new episodes has a new observation.
        exact = self.env.exact
        self._obs = state["obs"] if exact else self._adapted(self._raw, learn=False)
        if self._remembers and exact:
            self._state = state["state"]


def only(batch: dict[str, Any], fields: tuple[str, ...]) -> dict[str, Any]:
    """The fields of a batch that an algorithm asks for."""
    try:
        return {name: batch[name] for name in fields}
    except KeyError as error:
        raise UsageError(f"the algorithm's DataSpec asks for {error}, which its actor does not give") from None


class Rollout:
    """Arrays [T, N, …] that one rollout after the other fills; their keys are the fields the algorithm asks for."""

    def __init__(self, collector: Collector, steps: int) -> None:
        self.collector = collector
        self.steps = steps
        self._fields = collector.policy.data.fields
        self._rows = rows = collector.env.num_envs
        self._reward = np.zeros((steps, rows), np.float32)
        self._terminated = np.zeros((steps, rows), bool)
        self._truncated = np.zeros((steps, rows), bool)
        # Made with the first step, which tells their shapes.
        self._obs: Any = None
        self._action: Any = None
        self._extras: dict[str, Any] = {}
        self._final_obs: list[Any] = []
        self._final_at: list[Array] = []
        self._masks: list[Array] = []

    def collect(self) -> dict[str, Any]:
        """One rollout with the policy as it is; the arrays are the same each time."""
        self._final_obs, self._final_at, self._masks = [], [], []
        last = self.collector.run(self.steps, self._keep)
        _put(self._obs, self.steps, last)
        batch = {
            "obs": self._obs,
            "action": self._action,
            "reward": self._reward,
            "terminated": self._terminated,
            "truncated": self._truncated,
            "mask": np.stack(self._masks) if self._masks else None,
            **finals(self._final_obs, self._final_at),
            **self._extras,
        }
        return only(batch, self._fields)

    def _keep(
        self,
        t: int,
        obs: Any,
        mask: Any,
        action: Array,
        reward: Array,
        step: Step,
        _following: Any,
        _next_mask: Any,
        extras: dict[str, Any],
    ) -> None:
        if self._action is None:
            self._obs = _room_for(obs, self.steps + 1)
            self._action = _room_for(action, self.steps)
            self._extras = {name: _room_for(extras[name], self.steps) for name in extras if name in self._fields}
        _put(self._obs, t, obs)
        self._action[t] = action
        self._reward[t] = reward
        self._terminated[t] = step.terminated
        self._truncated[t] = step.truncated
        if mask is not None:
            self._masks.append(mask)
        if extras:
            for name, arrays in self._extras.items():
                _put(arrays, t, extras[name])
        if step.final_obs is not None:
            # Where both flags are set termination counts, and nothing is bootstrapped.
            cut = np.flatnonzero(step.truncated & ~step.terminated)
            if cut.size:
                self._final_obs.append(self.collector.last_obs(step, cut))
                self._final_at.append(t * self._rows + cut)


def _room_for(value: Any, steps: int) -> Any:
    return tree_map(lambda part: np.zeros((steps, *part.shape), part.dtype), value)


def _put(arrays: Any, t: int, value: Any) -> None:
    if isinstance(arrays, dict):
        for key, part in value.items():
            _put(arrays[key], t, part)
    else:
        arrays[t] = value
