"""N Gymnasium environments stepped one after the other in this process: for cheap ones the fastest way there is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, iterate

from operant.envs._observations import copy_tree, gather, set_row
from operant.envs.saving import load_env, load_random, save_env, save_random, why_inexact
from operant.envs.vector import Array, EpisodeStatistics, Step, Tree, VectorEnv
from operant.errors import UsageError

__all__ = ["InProcessVectorEnv"]


class InProcessVectorEnv(VectorEnv):
    """Gymnasium environments with the same spaces, as one :class:`VectorEnv`.

    ``Step.info["each"]`` holds the environments' own info dicts (of a finished one: that of its last step). A mask of
    allowed actions is taken from the info key ``action_mask`` or from the observation's entry of that name.
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
        self._masks: list[Any] = [None] * self.num_envs
        self._obs: Tree = None

    @property
    def action_mask(self) -> Array | None:
        if isinstance(self._obs, dict) and "action_mask" in self._obs:
            return np.asarray(self._obs["action_mask"], dtype=np.bool_)
        if self._masks[0] is None:
            return None
        return np.array(self._masks, np.bool_)

    def reset(self, seed: int | None = None) -> Tree:
        if seed is None and not self._begun:
            seed = self._seed
        self._begun = True
        self._statistics.clear()
        observations = []
        for i, env in enumerate(self.envs):
            obs, info = env.reset(seed=None if seed is None else int(seed) + i)
            self._masks[i] = info.get("action_mask")
            observations.append(obs)
        self._obs = gather(self.single_observation_space, observations)
        return copy_tree(self._obs)

    def step(self, actions: Any) -> Step:
        if not self._begun:
            raise UsageError(f"{self.name} was stepped before it was reset")
        reward = np.empty(self.num_envs)
        terminated = np.empty(self.num_envs, np.bool_)
        truncated = np.empty(self.num_envs, np.bool_)
        observations: list[Any] = []
        each: list[dict[str, Any]] = []
        for i, (env, action) in enumerate(zip(self.envs, self._single_actions(actions), strict=True)):
            obs, reward[i], terminated[i], truncated[i], info = env.step(action)
            observations.append(obs)
            each.append(info)
            self._masks[i] = info.get("action_mask")
        obs = gather(self.single_observation_space, observations)
        self._statistics.add(reward)
        infos: dict[str, Any] = {"each": each} if any(each) else {}
        where = np.flatnonzero(terminated | truncated)
        final_obs = None
        if where.size:
            infos["episodes"] = self._statistics.end(where)
            final_obs, obs = obs, copy_tree(obs)
            for i in where.tolist():
                begun, info = self.envs[i].reset()
                self._masks[i] = info.get("action_mask")
                set_row(obs, i, begun)
        self._obs = obs
        return Step(copy_tree(obs), reward, terminated, truncated, final_obs, infos)

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
        if self._masks[0] is not None:
            state["masks"] = np.array(self._masks)
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
        self._masks = list(state["masks"]) if "masks" in state else [None] * self.num_envs
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
