"""What a network must know of the spaces it stands between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from operant.errors import UsageError

if TYPE_CHECKING:
    from gymnasium import Space


@dataclass(frozen=True)
class ActionSpec:
    """The actions of one environment, as the output of a network sees them."""

    kind: str
    """``discrete`` (one or several choices) or ``continuous``."""
    sizes: tuple[int, ...]
    """The number of options of each choice, or the number of continuous dimensions."""
    shape: tuple[int, ...]
    """The shape of one action."""
    low: np.ndarray[Any, Any] | None = None
    high: np.ndarray[Any, Any] | None = None

    @property
    def outputs(self) -> int:
        """How many numbers a policy network gives for one observation: logits, or means."""
        return sum(self.sizes)

    @property
    def discrete(self) -> bool:
        return self.kind == "discrete"

    @property
    def one_choice(self) -> bool:
        """Whether an action is one of n."""
        return self.discrete and self.shape == ()

    @property
    def bounded(self) -> bool:
        """Whether actions are continuous and lie between finite bounds, whose distance is a number too."""
        if self.low is None or self.high is None:
            return False
        with np.errstate(over="ignore", invalid="ignore"):
            return bool(np.isfinite(self.high - self.low).all())

    def to_env(self, action: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Actions [N, …] as the environment takes them: continuous ones inside the bounds and in the space's shape."""
        if self.low is None or self.high is None:
            return action
        flat = np.clip(action.reshape(len(action), -1), self.low.reshape(-1), self.high.reshape(-1))
        return np.asarray(flat.reshape(len(action), *self.shape))


def action_spec(space: Space[Any]) -> ActionSpec:
    """Read an action space; one that no head fits is an error."""
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        if int(space.start) != 0:
            raise UsageError(f"{space} does not start at 0: map its actions to 0…{int(space.n) - 1} in the environment")
        return ActionSpec("discrete", (int(space.n),), ())
    if isinstance(space, spaces.MultiDiscrete):
        if space.nvec.ndim != 1:
            raise UsageError(f"{space} has {space.nvec.ndim} dimensions; choices come as one row")
        return ActionSpec("discrete", tuple(int(n) for n in space.nvec), (len(space.nvec),))
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype or np.float32, np.floating):
        size = int(np.prod(space.shape))
        return ActionSpec("continuous", (size,), tuple(space.shape), space.low, space.high)
    raise UsageError(f"no policy head fits the action space {space}: Discrete, MultiDiscrete and Box of floats do")


def is_image(space: Space[Any]) -> bool:
    """Whether observations are pictures: bytes of shape (height, width, channels) or (channels, height, width)."""
    from gymnasium import spaces

    return isinstance(space, spaces.Box) and len(space.shape) == 3 and space.dtype == np.uint8
