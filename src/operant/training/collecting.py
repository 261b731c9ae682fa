"""From environments to data: rollouts for on-policy algorithms, transitions for replay."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from operant.data import PrioritizedReplayBuffer, ReplayBuffer, tree_map
from operant.envs.vector import Step, VectorEnv
from operant.models.observations import MASK_KEY
from operant.training.normalizing import Normalizer

__all__ = ["EpisodeLog", "RolloutCollector", "TransitionCollector", "unmasked"]


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


class _Collector:
    """What both kinds share: the environments, where they stand, and the random numbers of exploration."""

    def __init__(
        self, env: VectorEnv, algorithm: Any, normalizer: Normalizer | None, rng: np.random.Generator, window: int
    ) -> None:
        self.env = env
        self.algorithm = algorithm
        self.normalizer = normalizer
        self.rng = rng
        self.episodes = EpisodeLog(window)
        self.env_step = 0
        self._obs: Any = None
        self._raw: Any = None
        # Asked once: whether this kind of environment ever says which actions are allowed.
        own_mask = type(env).action_mask is not VectorEnv.action_mask
        self._masks = own_mask or MASK_KEY in getattr(env.single_observation_space, "spaces", {})

    def reset(self, seed: int) -> None:
        self._stand(self.env.reset(seed))

    def _stand(self, raw: Any) -> None:
        self._raw = raw
        self._obs = self._adapted(raw)

    def _adapted(self, raw: Any, learn: bool = True) -> Any:
        adapted = self.algorithm.adapter.adapt(raw)
        return adapted if self.normalizer is None else self.normalizer.observe(adapted, learn)

    def _mask(self) -> Any:
        if not self._masks:
            return None
        mask = self.env.action_mask
        return mask if mask is not None else self.algorithm.adapter.mask(self._raw, None)

    def state_dict(self) -> dict[str, Any]:
        return {
            "env": self.env.save_state(),
            "rng": self.rng.bit_generator.state,
            "episodes": self.episodes.state_dict(),
            "env_step": self.env_step,
            "normalizer": None if self.normalizer is None else self.normalizer.state_dict(),
            "obs": tree_map(np.array, self._obs),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._raw = self.env.load_state(state["env"])
        self.rng.bit_generator.state = state["rng"]
        self.episodes.load_state_dict(state["episodes"])
        self.env_step = int(state["env_step"])
        if self.normalizer is not None:
            self.normalizer.load_state_dict(state["normalizer"])
        # As it was scaled then, not anew; an environment that begins new episodes has a new observation.
        self._obs = state["obs"] if self.env.exact else self._adapted(self._raw, learn=False)


class RolloutCollector(_Collector):
    """Fills [T, N] arrays that are used again for the next rollout."""

    def __init__(
        self,
        env: VectorEnv,
        algorithm: Any,
        steps: int,
        *,
        normalizer: Normalizer | None = None,
        rng: np.random.Generator,
        window: int = 100,
    ) -> None:
        super().__init__(env, algorithm, normalizer, rng, window)
        self.steps = steps
        rows = env.num_envs
        self._reward = np.zeros((steps, rows), np.float32)
        self._terminated = np.zeros((steps, rows), bool)
        self._truncated = np.zeros((steps, rows), bool)
        self._all_obs: Any = None
        self._action: Any = None

    def collect(self) -> dict[str, Any]:
        """One rollout with the policy as it is; see `OnPolicy` for its keys."""
        env, algorithm, steps, rows = self.env, self.algorithm, self.steps, self.env.num_envs
        obs = self._obs
        if self._all_obs is None:
            self._all_obs = tree_map(lambda part: np.zeros((steps + 1, *part.shape), part.dtype), obs)
        noise = algorithm.head.noise(self.rng, steps, rows)
        final_obs: list[Any] = []
        final_at: list[Any] = []
        masks: list[Any] = []
        whole = not isinstance(obs, dict)
        draw, advance, adapted, masked, normalizer = (
            algorithm.draw,
            env.step,
            self._adapted,
            self._masks,
            self.normalizer,
        )
        rewards, terminated, truncated = self._reward, self._terminated, self._truncated
        mask = None
        for t in range(steps):
            self._store(t, obs, whole)
            if masked:
                mask = self._mask()
                if mask is not None:
                    masks.append(mask)
            for_env, action = draw(obs, noise[t], mask)
            if self._action is None:
                self._action = np.zeros((steps, *action.shape), action.dtype)
            self._action[t] = action
            step = advance(for_env)
            terminated[t] = step.terminated
            truncated[t] = step.truncated
            rewards[t] = step.reward if normalizer is None else normalizer.reward(step.reward, step.done)
            self._raw = step.obs
            obs = adapted(step.obs)
            if step.final_obs is not None:
                self.episodes.add(step)
                # Where both flags are set termination counts, and nothing is bootstrapped.
                cut = np.flatnonzero(step.truncated & ~step.terminated)
                if cut.size:
                    final_obs.append(self._adapted(_rows(step.final_obs, cut), learn=False))
                    final_at.append(t * rows + cut)
        self._obs = obs
        self._store(steps, obs, whole)
        self.env_step += steps * rows
        return {
            "obs": self._all_obs,
            "action": self._action,
            "reward": self._reward,
            "terminated": self._terminated,
            "truncated": self._truncated,
            "final_obs": _concatenate(final_obs),
            "final_at": np.concatenate(final_at) if final_at else np.zeros(0, np.int64),
            "mask": np.stack(masks) if masks else None,
        }

    def _store(self, t: int, obs: Any, whole: bool) -> None:
        if whole:
            self._all_obs[t] = obs
        else:
            for key, part in obs.items():
                self._all_obs[key][t] = part


class TransitionCollector(_Collector):
    """Acts with exploration and puts every step into a replay buffer."""

    def __init__(
        self,
        env: VectorEnv,
        algorithm: Any,
        buffer: ReplayBuffer | PrioritizedReplayBuffer,
        *,
        normalizer: Normalizer | None = None,
        rng: np.random.Generator,
        window: int = 100,
    ) -> None:
        super().__init__(env, algorithm, normalizer, rng, window)
        self.buffer = buffer

    def collect(self, steps: int, total_steps: int) -> int:
        """At least so many environment steps; returns how many."""
        env, algorithm, buffer, rows = self.env, self.algorithm, self.buffer, self.env.num_envs
        passes = max(1, -(-steps // rows))
        for _ in range(passes):
            algorithm.set_progress(self.env_step, total_steps)
            mask = self._mask()
            action = algorithm.draw(self._obs, self.rng, mask)
            step = env.step(action)
            reward = step.reward if self.normalizer is None else self.normalizer.reward(step.reward, step.done)
            stored = _with_mask(self._obs, mask)
            following = self._move_on(step, mask)
            buffer.add(stored, action, reward, step.terminated, step.truncated, following)
            if step.final_obs is not None:
                self.episodes.add(step)
            self.env_step += rows
        return passes * rows

    def _move_on(self, step: Step, mask: Any) -> Any:
        """Stand at the new observation; returns what truly followed, which differs where an episode ended."""
        self._raw = step.obs
        self._obs = self._adapted(step.obs)
        next_mask = None if mask is None else self._mask()
        if step.final_obs is None:
            return _with_mask(self._obs, next_mask)
        return _with_mask(self._adapted(step.final_obs, learn=False), next_mask)


def _rows(tree: Any, index: Any) -> Any:
    return tree_map(lambda part: part[index], tree)


def _with_mask(obs: Any, mask: Any) -> Any:
    return obs if mask is None else {"obs": obs, "mask": mask}


def unmasked(batch: dict[str, Any]) -> dict[str, Any]:
    """A batch of replay as DQN takes it: masks beside the observations, not inside."""
    if isinstance(batch["obs"], dict) and set(batch["obs"]) == {"obs", "mask"}:
        batch = dict(batch)
        batch["next_mask"] = batch["next_obs"]["mask"]
        batch["next_obs"] = batch["next_obs"]["obs"]
        batch["obs"] = batch["obs"]["obs"]
    return batch


def _concatenate(parts: list[Any]) -> Any:
    if not parts:
        return np.zeros((0, 0), np.float32)
    if isinstance(parts[0], dict):
        return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    return np.concatenate(parts)
