"""How small networks compute: in one thread, and without denormal numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from operant._threads import one_thread


@contextmanager
def quick_arithmetic() -> Iterator[None]:
    """One thread, and no denormal numbers, while a training runs; the process's own settings come back afterwards.

    For networks of this size more threads only wait for each other: CartPole by PPO, 100,000 steps on two busy
    cores, took 134 s with numpy's default threads and 5 s with one. Denormal numbers slow Adam down threefold once
    units die.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    try:
        with one_thread():  # numpy's BLAS
            yield
    finally:
        torch.set_num_threads(threads)
        torch.set_flush_denormal(False)


def use_one_thread() -> None:
    """The same for a loop of one's own: one thread from here on."""
    torch.set_num_threads(1)
    one_thread()
