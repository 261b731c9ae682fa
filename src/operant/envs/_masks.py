"""Which actions are allowed, wherever an environment says so: one row of booleans for each environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from operant.envs.vector import Array, Tree
from operant.errors import UsageError

MASK = "action_mask"
MASK_ATTRIBUTES = ("action_masks", MASK)  # the first is SB3-contrib's; each may be a method or a value


def mask_size(action_space: spaces.Space[Any]) -> int:
    """How many options a mask of this space tells of: those of several choices lie side by side. 0: none can be."""
    if isinstance(action_space, spaces.Discrete):
        return int(action_space.n)
    if isinstance(action_space, spaces.MultiDiscrete):
        return int(action_space.nvec.sum())
    return 0


def mask_in_obs(obs: Tree) -> Array | None:
    """The observation's own entry, or None."""
    if isinstance(obs, dict) and MASK in obs:
        return np.array(obs[MASK], np.bool_)
    return None


def final_mask(mask: Array, terminated: Array) -> Array:
    """Masks of last observations as a target may use them: where nothing is allowed any more, nothing is forbidden."""
    final = mask.copy()
    final[terminated | ~mask.any(axis=1)] = True
    return final


class MaskReader:
    """Masks of single environments: their info's entry ``action_mask``, their ``action_masks()`` or ``action_mask``.

    Whether there are any shows at the reset, and then holds for every step.
    """

    def __init__(self, envs: Sequence[gymnasium.Env[Any, Any]], name: str) -> None:
        self._envs, self._name = envs, name
        self._size = mask_size(envs[0].action_space)
        if MASK in getattr(envs[0].observation_space, "spaces", {}):
            self._size = 0  # the observation's own entry counts
        self._attribute: str | None = None
        self.mask: Array | None = None

    def after_reset(self, infos: Sequence[dict[str, Any]]) -> None:
        """Look where masks are given, and take the first ones."""
        self.mask = None
        if not self._size:
            return
        self._find_attribute()
        given = [self._given(i, info) for i, info in enumerate(infos)]
        missing = [i for i, one in enumerate(given) if one is None]
        if len(missing) == len(given):
            return
        if missing:
            raise UsageError(f"{self._name}: environment {missing[0]} gave no {MASK} at its reset, though others did")
        self.mask = np.stack([self._fit(i, one) for i, one in enumerate(given)])

    def after_step(self, index: int, info: dict[str, Any], done: bool) -> None:
        """Take one environment's mask; at the end of an episode it may give none, which allows everything."""
        if not self._size:
            return
        if self.mask is None:
            raise UsageError(f"{self._name} gave an {MASK} in its info after a step, but none at the reset")
        given = self._given(index, info)
        if given is not None:
            self.mask[index] = self._fit(index, given, done)
        elif done:
            self.mask[index] = True
        else:
            raise UsageError(f"{self._name}: environment {index} gave an {MASK} at its reset, but none after a step")

    def load(self, mask: Array | None) -> None:
        """Go on with a saved mask."""
        self.mask = None if mask is None else np.array(mask, np.bool_)
        self._find_attribute()

    def _find_attribute(self) -> None:
        have = (name for name in MASK_ATTRIBUTES if all(env.has_wrapper_attr(name) for env in self._envs))
        self._attribute = next(have, None)

    def _given(self, index: int, info: dict[str, Any]) -> Any:
        given = info.get(MASK)
        if given is not None or self._attribute is None:
            return given
        given = self._envs[index].get_wrapper_attr(self._attribute)
        return given() if callable(given) else given

    def _fit(self, index: int, given: Any, done: bool = False) -> Array:
        row = np.asarray(given, np.bool_).reshape(-1)
        if len(row) != self._size:
            raise UsageError(
                f"{self._name}: the {MASK} of environment {index} has {len(row)} entries, "
                f"and its actions are {self._size} ({self._envs[index].action_space})"
            )
        if not done and not row.any():
            raise UsageError(f"{self._name}: the {MASK} of environment {index} allows no action at all")
        return row
