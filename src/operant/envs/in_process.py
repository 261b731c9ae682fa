"""N Gymnasium environments stepped one after the other in this process: for cheap ones the fastest way there is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, iterate

from operant.envs._masks import MASK, MaskReader, final_mask, mask_in_obs
from operant.envs._observations import check, copy_tree, gather, set_row
from operant.envs.saving import load_env, load_random, save_env, save_random, why_inexact
from operant.envs.vector import Array, EpisodeStatistics, Step, Tree, VectorEnv
from operant.errors import UsageError


class InProcessVectorEnv(VectorEnv):
    """Gymnasium environments with the same spaces, as one :class:`VectorEnv`.

    ``Step.info["each"]`` holds the environments' own info dicts (of a finished one: that of its last step). A mask of
    allowed actions is the observation's entry ``action_mask``, the info's entry of that name, or what the environment
    or a wrapper of it has as ``action_masks()`` or ``action_mask``.
    """

    def __init__(self, envs: Sequence[gymnasium.Env[Any, Any]], *, name: str = "", seed: int | None = None) -> None:
        if not envs:
            raise UsageError("there is no environment in the list; at least one is needed")
        self.envs = list(envs)
        self.num_envs = len(envs)
        first = self.envs[0]
        self.single_observation_space = first.observation_space
        self.single_action_space = first.action_space
        for i, env in enumerate(self.envs):
            if env.observation_space != first.observation_space or env.action_space != first.action_space:
                raise UsageError(f"environment {i} has other spaces than environment 0; all must be of one kind")
        self.name = name or (first.spec.id if first.spec is not None else type(first.unwrapped).__name__)
        self.max_episode_steps = first.spec.max_episode_steps if first.spec is not None else None
        self.inexact_reason = why_inexact(first)
        self._seed = seed
        self._begun = False
        self._statistics = EpisodeStatistics(self.num_envs)
        self._masks = MaskReader(self.envs, self.name)
        self._obs: Tree = None
        self._checked = False

    @property
    def action_mask(self) -> Array | None:
        in_obs = mask_in_obs(self._obs)
        if in_obs is not None:
            return in_obs
        return None if self._masks.mask is None else self._masks.mask.copy()

    def reset(self, seed: int | None = None) -> Tree:
        if seed is None and not self._begun:
            seed = self._seed
        self._begun = True
        self._statistics.clear()
        observations, infos = [], []
        for i, env in enumerate(self.envs):
            obs, info = self._reset_one(env, None if seed is None else int(seed) + i)
            check(self.single_observation_space, obs, f"the observation that {self.name} gave at its reset")
            observations.append(obs)
            infos.append(info)
        self._masks.after_reset(infos)
        self._obs = gather(self.single_observation_space, observations)
        return copy_tree(self._obs)

    def _reset_one(self, env: gymnasium.Env[Any, Any], seed: int | None) -> tuple[Any, dict[str, Any]]:
        """Reset one environment; the interface of the old Gym is told by its symptoms."""
        try:
            begun: Any = env.reset(seed=seed)
        except TypeError as error:
            if "unexpected keyword argument 'seed'" not in str(error):
                raise
            raise UsageError(
                f"{self.name} has a reset() without a seed, as the old Gym had: "
                "Gymnasium's is reset(self, *, seed=None, options=None)"
            ) from error
        if not (isinstance(begun, tuple) and len(begun) == 2 and isinstance(begun[1], dict)):
            raise UsageError(
                f"{self.name} has a reset() that gives a {type(begun).__name__} instead of a pair (observation, info); "
                "an observation alone is what the old Gym gave"
            )
        return begun

    def step(self, actions: Any) -> Step:
        if not self._begun:
            raise UsageError(f"{self.name} was stepped before it was reset")
        reward = np.empty(self.num_envs)
        terminated = np.empty(self.num_envs, np.bool_)
        truncated = np.empty(self.num_envs, np.bool_)
        observations: list[Any] = []
        each: list[dict[str, Any]] = []
        masks = self._masks
        try:
            for i, (env, action) in enumerate(zip(self.envs, self._single_actions(actions), strict=True)):
                obs, gained, terminated[i], truncated[i], info = env.step(action)
                if not isfinite(gained):
                    raise self._bad_reward(i, gained)
                reward[i] = gained
                observations.append(obs)
                each.append(info)
                if masks.mask is not None or MASK in info:
                    masks.after_step(i, info, bool(terminated[i] or truncated[i]))
        except ValueError as error:
            if "(expected 5, got 4)" not in str(error):
                raise
            raise UsageError(
                f"{self.name} has a step() that gives four values, as the old Gym had: "
                "Gymnasium's are (observation, reward, terminated, truncated, info)"
            ) from error
        if not self._checked:
            for obs in observations:
                check(self.single_observation_space, obs, f"the observation that {self.name} gave after a step")
            self._checked = True
        obs = gather(self.single_observation_space, observations)
        self._statistics.add(reward)
        infos: dict[str, Any] = {"each": each} if any(each) else {}
        where = np.flatnonzero(terminated | truncated)
        if not where.size:
            self._obs = obs
            return Step(copy_tree(obs), reward, terminated, truncated, None, infos)
        infos["episodes"] = self._statistics.end(where)
        final_obs, obs = obs, copy_tree(obs)
        last = mask_in_obs(final_obs) if masks.mask is None else masks.mask
        last = None if last is None else final_mask(last, terminated)
        for i in where.tolist():
            begun, info = self._reset_one(self.envs[i], None)
            set_row(obs, i, begun)
            if masks.mask is not None:
                masks.after_step(i, info, False)
        self._obs = obs
        return Step(copy_tree(obs), reward, terminated, truncated, final_obs, infos, last)

    def _bad_reward(self, index: int, gained: Any) -> UsageError:
        step = int(self._statistics.lengths[index]) + 1
        return UsageError(
            f"{self.name} gave the reward {gained} in step {step} of an episode of environment {index}: "
            "rewards are finite numbers"
        )

    def _single_actions(self, actions: Any) -> Iterator[Any] | list[Any]:
        space = self.single_action_space
        if isinstance(space, spaces.Dict | spaces.Tuple):
            return iterate(batch_space(space, self.num_envs), actions)
        batch = np.array(actions, space.dtype)  # a copy: environments may keep the action they were given
        if batch.shape != (self.num_envs, *(space.shape or ())):
            raise UsageError(
                f"{self.name} takes actions of shape {(self.num_envs, *(space.shape or ()))}, not {batch.shape}"
            )
        return batch.tolist() if isinstance(space, spaces.Discrete) else list(batch)

    def render_frame(self, index: int = 0) -> Array:
        env = self.envs[index]
        if env.render_mode != "rgb_array":
            raise UsageError(f"{self.name} has no picture: make it with render_mode='rgb_array'")
        return np.asarray(env.render(), dtype=np.uint8)

    def save_state(self) -> dict[str, Any]:
        if not self._begun:
            raise UsageError(f"{self.name} has no state to save before it is reset")
        state: dict[str, Any] = {"kind": "in_process", "num_envs": self.num_envs, "exact": self.exact}
        if not self.exact:
            return state | {"random": {str(i): save_random(env) for i, env in enumerate(self.envs)}}
        state |= {
            "envs": {str(i): save_env(env) for i, env in enumerate(self.envs)},
            "statistics": self._statistics.save_state(),
            "obs": _as_saved(self._obs),
        }
        if self._masks.mask is not None:
            state["masks"] = self._masks.mask.copy()
        return state

    def load_state(self, state: dict[str, Any]) -> Tree:
        expected = {"kind": "in_process", "num_envs": self.num_envs, "exact": self.exact}
        saved = {name: state.get(name) for name in expected}
        if saved != expected:
            raise UsageError(f"the saved state is of other environments ({saved}) than these ({expected})")
        self._begun = True
        if not self.exact:
            for i, env in enumerate(self.envs):
                load_random(env, state["random"][str(i)])
            return self.reset()
        for i, env in enumerate(self.envs):
            load_env(env, state["envs"][str(i)])
        self._statistics.load_state(state["statistics"])
        self._masks.load(state.get("masks"))
        self._obs = _from_saved(self.single_observation_space, state["obs"])
        return copy_tree(self._obs)

    def close(self) -> None:
        for env in self.envs:
            env.close()  # type: ignore[no-untyped-call]


def _as_saved(tree: Tree) -> Any:
    """A tree as nested dicts of arrays: states hold no tuples."""
    if isinstance(tree, tuple):
        return {str(i): _as_saved(part) for i, part in enumerate(tree)}
    if isinstance(tree, dict):
        return {name: _as_saved(part) for name, part in tree.items()}
    return tree.copy()


def _from_saved(space: spaces.Space[Any], saved: Any) -> Tree:
    if isinstance(space, spaces.Tuple):
        return tuple(_from_saved(part, saved[str(i)]) for i, part in enumerate(space.spaces))
    if isinstance(space, spaces.Dict):
        return {name: _from_saved(part, saved[name]) for name, part in space.spaces.items()}
    return saved.copy()
