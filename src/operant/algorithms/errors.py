"""What can go wrong while learning."""

from __future__ import annotations

from operant.errors import OperantError

__all__ = ["DivergedError"]


class DivergedError(OperantError):
    """A gradient was not a number; the weights are still those from before it."""

    def __init__(self) -> None:
        super().__init__(
            "the gradient is not finite (NaN or infinite); the weights are those of the last good step. "
            "A lower learning rate, a limit on the gradient or scaled rewards usually help"
        )
