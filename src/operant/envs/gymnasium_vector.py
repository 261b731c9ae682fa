"""Gymnasium's own vector environments, in each of their autoreset modes, brought to ours (see ``Step``)."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.vector import VectorEnv as GymnasiumVectorEnv

from operant.envs._masks import MASK, MASK_ATTRIBUTES, final_mask, mask_in_obs, mask_size
from operant.envs._observations import copy_tree, row_of, set_row
from operant.envs.in_process import InProcessVectorEnv
from operant.envs.vector import Array, EpisodeStatistics, Step, Tree, VectorEnv
from operant.errors import UsageError


def adapt(env: GymnasiumVectorEnv[Any, Any, Any], *, seed: int | None = None) -> VectorEnv:
    """A Gymnasium vector environment as ours. A plain ``SyncVectorEnv`` is taken apart: its members can be saved."""
    if type(env) is SyncVectorEnv:
        return InProcessVectorEnv(env.envs, seed=seed)
    return GymnasiumVectorAdapter(env, seed=seed)


class GymnasiumVectorAdapter(VectorEnv):
    """Same-step autoreset on top of any of Gymnasium's three modes.

    * ``SAME_STEP``: the last observations are in ``infos["final_obs"]``.
    * ``DISABLED``: finished environments are reset here, with the option ``reset_mask``.
    * ``NEXT_STEP`` would spend one step on each reset, with an action that is ignored and a reward of zero: a
      transition that never happened. Those resets too are done at once, with ``reset_mask``.
    """

    inexact_reason = "a Gymnasium vector environment does not show the state of its members"

    def __init__(self, env: GymnasiumVectorEnv[Any, Any, Any], *, seed: int | None = None) -> None:
        self.env = env
        self.num_envs = env.num_envs
        self.single_observation_space = env.single_observation_space
        self.single_action_space = env.single_action_space
        self.name = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
        mode = (env.metadata or {}).get("autoreset_mode")
        if mode is None:
            raise UsageError(
                f"{self.name} does not say how it resets itself: set metadata['autoreset_mode'] to a member of "
                "gymnasium.vector.AutoresetMode"
            )
        self.autoreset_mode = AutoresetMode(mode)
        self._seed = seed
        self._begun = False
        self._statistics = EpisodeStatistics(self.num_envs)
        self._mask: Array | None = None
        self._mask_attribute: str | None = None

    def reset(self, seed: int | None = None) -> Tree:
        if seed is None and not self._begun:
            seed = self._seed
        self._statistics.clear()
        obs, infos = self.env.reset(seed=seed)
        if not self._begun and mask_size(self.single_action_space):
            self._mask_attribute = self._find_mask_attribute()
        self._begun = True
        self._mask = self._read_mask(obs, infos)
        return copy_tree(obs)

    @property
    def action_mask(self) -> Array | None:
        return None if self._mask is None else self._mask.copy()

    def _read_mask(self, obs: Tree, infos: dict[str, Any]) -> Array | None:
        """From the observation, the infos, or the members' or the whole's ``action_masks()`` or ``action_mask``."""
        found = mask_in_obs(obs)
        size = mask_size(self.single_action_space)
        if found is not None or not size:
            return found
        given: Any = infos.get(MASK)
        if given is None and self._mask_attribute is not None:
            given = self._call(self._mask_attribute)
        if given is None or all(row is None for row in given):
            return None
        nothing = np.zeros(size, np.bool_)
        mask = np.array([nothing if row is None else np.asarray(row, np.bool_).reshape(-1) for row in given])
        if mask.shape != (self.num_envs, size):
            raise UsageError(f"{self.name}: masks have the shape {mask.shape}, not {(self.num_envs, size)}")
        return mask

    def _find_mask_attribute(self) -> str | None:
        members = isinstance(self.env.unwrapped, AsyncVectorEnv)
        for name in MASK_ATTRIBUTES:
            if all(self._call("has_wrapper_attr", name)) if members else hasattr(self.env, name):
                return name
        return None

    def _call(self, name: str, *arguments: Any) -> Any:
        """What an attribute or method gives: of each member in its process, or of the whole."""
        if isinstance(self.env.unwrapped, AsyncVectorEnv):
            return self.env.unwrapped.call(name, *arguments)
        value = getattr(self.env, name)
        return value(*arguments) if callable(value) else value

    def step(self, actions: Any) -> Step:
        if not self._begun:
            raise UsageError(f"{self.name} was stepped before it was reset")
        obs, reward, terminated, truncated, infos = self.env.step(actions)
        obs = copy_tree(obs)  # some vector environments write the next step into the same arrays
        reward = np.array(reward, np.float64)
        terminated, truncated = np.array(terminated, np.bool_), np.array(truncated, np.bool_)
        self._statistics.add(reward)
        info: dict[str, Any] = {"vector": infos} if infos else {}
        self._mask = self._read_mask(obs, infos)
        done = terminated | truncated
        if not done.any():
            return Step(obs, reward, terminated, truncated, None, info)
        where = np.flatnonzero(done)
        info["episodes"] = self._statistics.end(where)
        if self.autoreset_mode == AutoresetMode.SAME_STEP:
            final_obs = self._final_obs(obs, where, infos)
            last = self._final_mask(final_obs, where, infos)
        else:
            final_obs, last = obs, self._mask
            obs = self._reset_where(obs, done)
        last = None if last is None else final_mask(last, terminated)
        return Step(obs, reward, terminated, truncated, final_obs, info, last)

    def _final_mask(self, final_obs: Tree, where: Array, infos: dict[str, Any]) -> Array | None:
        """Masks of the last observations; an attribute tells those of the next episode already, so it allows all."""
        if self._mask is None or (isinstance(final_obs, dict) and MASK in final_obs):
            return mask_in_obs(final_obs)
        last = self._mask.copy()
        given = infos.get("final_info", {}).get(MASK)
        for i in where.tolist():
            last[i] = True if given is None or given[i] is None else np.asarray(given[i], np.bool_).reshape(-1)
        return last

    def _final_obs(self, obs: Tree, where: Array, infos: dict[str, Any]) -> Tree:
        if "final_obs" not in infos:
            raise UsageError(
                f"{self.name} resets in the same step but gives no infos['final_obs'], "
                "so what a truncated episode was worth cannot be known"
            )
        last = infos["final_obs"]
        final = copy_tree(obs)
        for i in where.tolist():
            # One object for each environment (Gymnasium's own), or one batched tree.
            set_row(final, i, last[i] if isinstance(last, np.ndarray) else row_of(last, i))
        return final

    def _reset_where(self, obs: Tree, done: Array) -> Tree:
        begun, infos = self.env.reset(options={"reset_mask": done.copy()})
        begun = copy_tree(begun)
        if self._mask is not None:
            fresh = self._read_mask(begun, infos)
            # Infos tell of the environments that were reset only.
            self._mask = fresh if fresh is None else np.where(done[:, None], fresh, self._mask)
        if not _rows_equal(begun, obs, ~done):
            raise UsageError(
                f"{self.name} ({self.autoreset_mode.value}) ignored 'reset_mask' and began every episode anew; "
                "make it with autoreset_mode=AutoresetMode.SAME_STEP"
            )
        return begun

    def render_frame(self, index: int = 0) -> Array:
        frames: Any = self.env.render()
        if frames is None:
            raise UsageError(f"{self.name} has no picture: make it with render_mode='rgb_array'")
        return np.asarray(frames[index], dtype=np.uint8)

    def save_state(self) -> dict[str, Any]:
        return {"kind": "gymnasium_vector", "num_envs": self.num_envs}

    def load_state(self, state: dict[str, Any]) -> Tree:
        if state.get("kind") != "gymnasium_vector" or state.get("num_envs") != self.num_envs:
            raise UsageError(f"the saved state is not of a Gymnasium vector environment of {self.num_envs}")
        return self.reset()

    def close(self) -> None:
        self.env.close()


def _rows_equal(a: Tree, b: Tree, where: Array) -> bool:
    if isinstance(a, dict):
        return all(_rows_equal(a[name], b[name], where) for name in a)
    if isinstance(a, tuple):
        return all(_rows_equal(x, y, where) for x, y in zip(a, b, strict=True))
    return np.array_equal(a[where], b[where])
