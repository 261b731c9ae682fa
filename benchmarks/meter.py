"""Wall time and CPU time of a stretch of code, with its threads and the child processes that ended in it."""

from __future__ import annotations

import resource
import time


class Meter:
    """``with Meter() as meter: ...``, then ``meter.wall`` and ``meter.cpu`` in seconds."""

    wall = 0.0
    cpu = 0.0

    def __enter__(self) -> Meter:
        self._cpu, self._wall = cpu_seconds(), time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall = time.perf_counter() - self._wall
        self.cpu = cpu_seconds() - self._cpu


def cpu_seconds() -> float:
    """User and system time of this process, all its threads, and every child that has been waited for."""
    # Not os.times(), which counts in hundredths of a second.
    both = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(used.ru_utime + used.ru_stime for used in both)


def wait_until_idle(limit: float = 10.0) -> None:
    """Return once the threads of this process have come to rest, or after ``limit`` seconds."""
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        with Meter() as meter:
            time.sleep(0.1)
        if meter.cpu < 0.005:
            return
