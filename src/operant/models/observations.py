"""Observations as networks take them: rows of float32, pictures as bytes, or a dict of these."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from operant.errors import UsageError
from operant.models.spaces import is_image

if TYPE_CHECKING:
    import torch
    from gymnasium import Space

Array = npt.NDArray[Any]
MASK_KEY = "action_mask"


class ObservationAdapter:
    """Turns batches of raw observations of one space into what networks take.

    Numbers become one row of float32 for each environment, choices become one-hot rows, pictures stay bytes.
    A dict keeps its keys; the key ``action_mask`` is not part of the observation but says which actions are allowed.

    :param as_row: put the entries of a dict side by side where each is a row itself: plain networks take that.
    """

    def __init__(self, space: Space[Any], as_row: bool = False) -> None:
        from gymnasium import spaces

        self.space = space
        self.parts: dict[str, ObservationAdapter] = {}
        self.size = 0
        self.sizes: tuple[int, ...] = ()
        if isinstance(space, spaces.Dict):
            self.kind = "dict"
            self.parts = {key: ObservationAdapter(part, as_row) for key, part in space.items() if key != MASK_KEY}
            if not self.parts:
                raise UsageError(f"{space} has no key besides {MASK_KEY!r} to learn from")
            if as_row and all(part.is_flat for part in self.parts.values()):
                self.kind, self.size = "row", sum(part.size for part in self.parts.values())
        elif is_image(space):
            self.kind = "image"
        elif isinstance(space, spaces.Box):
            self.kind, self.size = "vector", int(np.prod(space.shape))
        elif isinstance(space, spaces.Discrete):
            self.kind, self.size, self.sizes = "choices", int(space.n), (int(space.n),)
        elif isinstance(space, spaces.MultiBinary):
            self.kind, self.size = "vector", int(np.prod(space.shape))
        elif isinstance(space, spaces.MultiDiscrete):
            self.sizes = tuple(int(n) for n in space.nvec.ravel())
            self.kind, self.size = "choices", sum(self.sizes)
        else:
            raise UsageError(
                f"no network can be built for observations of {space}: Box, Discrete, MultiDiscrete, MultiBinary "
                "and Dict of these are known"
            )

    @property
    def is_flat(self) -> bool:
        """Whether an adapted observation is one row of numbers, as plain networks take it."""
        return self.kind in ("vector", "choices", "row")

    def adapt(self, obs: Any) -> Any:
        """A batch of raw observations as arrays for a network."""
        if self.kind == "vector":
            array = np.asarray(obs)
            if array.dtype != np.float32:
                array = array.astype(np.float32)
            return array if array.ndim == 2 else array.reshape(len(array), self.size)
        if self.kind == "image":
            return np.asarray(obs)
        if self.kind == "dict":
            return {key: part.adapt(obs[key]) for key, part in self.parts.items()}
        if self.kind == "row":
            parts = [part.adapt(obs[key]) for key, part in self.parts.items()]
            return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
        choices = np.asarray(obs).reshape(len(obs), -1)
        rows = np.zeros((len(choices), self.size), np.float32)
        offsets = np.concatenate(([0], np.cumsum(self.sizes)[:-1]))
        np.put_along_axis(rows, choices + offsets, 1.0, axis=1)
        return rows

    def adapt_recorded(self, obs: Any) -> Any:
        """As `adapt`, of observations that may be of another environment: a ValueError says what does not fit."""
        if self.parts:
            for key, part in self.parts.items():
                part.adapt_recorded(obs[key])
        elif np.shape(obs)[1:] != self.space.shape:
            raise ValueError(f"observations have the shape {np.shape(obs)[1:]}, not {self.space.shape}")
        return self.adapt(obs)

    def mask(self, obs: Any, info: Any) -> Array | None:
        """Which actions are allowed now, if the environment says so in its observation or its info."""
        if self.kind in ("dict", "row") and MASK_KEY in obs:
            return np.asarray(obs[MASK_KEY], bool)
        if info and MASK_KEY in info:
            return np.asarray(info[MASK_KEY], bool)
        return None


def to_tensors(obs: Any, device: torch.device | None = None) -> Any:
    """Adapted observations, or other trees of arrays, as tensors of a device; on the CPU they share their memory."""
    import torch

    if isinstance(obs, dict):
        return {key: to_tensors(value, device) for key, value in obs.items()}
    if isinstance(obs, np.ndarray) and (device is None or device.type == "cpu"):
        return torch.from_numpy(obs)  # a third of what as_tensor takes
    return torch.as_tensor(obs, device=device)


def to_array(tensor: torch.Tensor) -> Array:
    """The values of a tensor of any device; on the CPU they share its memory."""
    out: Array = (tensor.detach() if tensor.requires_grad else tensor).cpu().numpy()
    return out
