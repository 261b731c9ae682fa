"""What can go wrong in a training loop, by name."""

from __future__ import annotations


class FrameworkError(RuntimeError):
    """The base of the errors that this package raises on its own account."""


class WorkerDied(FrameworkError):
    """A worker of a parallel run ended with an error, was killed, or hung; the text says which and why."""


class RemoteError(FrameworkError):
    """A function that was called on another worker raised; the text holds its traceback."""


class QueueClosed(FrameworkError):
    """The worker that hosts a queue has left, so the queue can neither give nor take any more."""


class TotalBroken(FrameworkError):
    """A sum over all workers cannot be made: one of them died, or the run ends."""


class Interrupted(FrameworkError):
    """A wait was ended because another middleware of the same pass failed; that failure is what surfaces."""


class AuthenticationError(FrameworkError):
    """A peer could not prove that it knows the shared secret, or did not speak the protocol at all."""


class SharingWarning(UserWarning):
    """Something in ctx is sent at a high price, or cannot be sent to the other workers at all."""
