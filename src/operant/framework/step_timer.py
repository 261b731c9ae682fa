"""Where the time of a loop goes."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Mapping
from typing import Any, Protocol

from operant.framework._middleware import Middleware, middleware_name, set_middleware_name
from operant.framework.context import Context


class ScalarWriter(Protocol):
    """What StepTimer needs of a run's writer."""

    def add_scalars(self, values: Mapping[str, float], step: int) -> Any: ...


class _Clock:
    """The times of one middleware: of the pass under way, and of the window."""

    __slots__ = ("current", "name", "window")

    def __init__(self, name: str, window: int) -> None:
        self.name = name
        self.current: float | None = None
        self.window: deque[float] = deque(maxlen=window)

    def add(self, seconds: float) -> None:
        # Forward and backward part of one pass are one measurement.
        self.current = seconds if self.current is None else self.current + seconds


class StepTimer:
    """A step wrapper that times each middleware, prints a table, and writes the means to the run.

    The table comes every `print_per_step` passes and shows the last pass and the mean over the last
    ``print_per_step * smooth_window`` passes, in milliseconds. Two middleware of one name are told apart
    by a number. In `async_mode` the middleware overlap, so their shares may add up to more than the pass.

    Writes to the run: ``time/<middleware>`` and ``time/step``, in milliseconds.
    """

    def __init__(
        self,
        print_per_step: int = 1,
        smooth_window: int = 10,
        *,
        writer: ScalarWriter | None = None,
        show: Callable[[str], Any] | None = print,
    ) -> None:
        if print_per_step < 1 or smooth_window < 1:
            raise ValueError(
                "print_per_step and smooth_window are whole numbers from 1 up; "
                f"got {print_per_step} and {smooth_window}"
            )
        self.print_per_step = print_per_step
        self.smooth_window = smooth_window
        self._writer = writer
        self._show = show
        self._clocks: list[_Clock] = []
        self._step = _Clock("step", print_per_step * smooth_window)
        self._step_began: float | None = None
        self._n_steps = 0

    def __call__(self, fn: Middleware) -> Middleware:
        name = middleware_name(fn)
        clock = _Clock(self._unique(name), self.print_per_step * self.smooth_window)
        self._clocks.append(clock)
        now = time.perf_counter

        def timed(ctx: Context) -> Any:
            began = now()
            if self._step_began is None:
                self._step_began = began
            result = fn(ctx)
            clock.add(now() - began)
            if result is None:  # as most do; to ask whether it is a generator takes longer
                return None
            return _timed_generator(result, clock) if isinstance(result, Generator) else None

        set_middleware_name(timed, name)
        return timed

    def before_step(self, ctx: Context) -> None:
        """The task calls this before each pass."""
        self._step_began = time.perf_counter()

    def after_step(self, ctx: Context) -> None:
        """The task calls this after each pass."""
        if self._step_began is not None:
            self._step.add(time.perf_counter() - self._step_began)
            self._step_began = None
        clocks = (*self._clocks, self._step)
        for clock in clocks:
            if clock.current is not None:
                clock.window.append(clock.current)
        self._n_steps += 1
        if self._n_steps % self.print_per_step == 0:
            self._report(ctx)
        for clock in clocks:
            clock.current = None

    @property
    def records(self) -> dict[str, list[float]]:
        """The times of each middleware over the window, in milliseconds, the latest last, and of the whole step."""
        return {clock.name: [1e3 * seconds for seconds in clock.window] for clock in (*self._clocks, self._step)}

    def means(self) -> dict[str, float]:
        """The mean time of each middleware over the window, in milliseconds, and of the whole step."""
        return {name: sum(times) / len(times) for name, times in self.records.items() if times}

    def table(self, ctx: Context) -> str:
        """The times as a table of text."""
        means = self.means()
        width = max(10, *(len(name) for name in means)) if means else 10
        whole = means.get("step", 0.0)
        lines = [f"step {ctx.get('total_step')}".ljust(width) + "    last ms    mean ms   share"]
        for clock in (*self._clocks, self._step):
            if clock.name not in means:
                continue
            last = "-".rjust(11) if clock.current is None else f"{1e3 * clock.current:11.3f}"
            share = f"{means[clock.name] / whole:8.1%}" if whole else ""
            lines.append(f"{clock.name.ljust(width)}{last}{means[clock.name]:11.3f}{share}")
        return "\n".join(lines)

    def _report(self, ctx: Context) -> None:
        if self._show is not None:
            self._show(self.table(ctx))
        if self._writer is not None:
            scalars = {f"time/{name}": value for name, value in self.means().items()}
            self._writer.add_scalars(scalars, ctx["total_step"])

    def _unique(self, name: str) -> str:
        taken = {clock.name for clock in self._clocks} | {"step"}
        unique, number = name, 1
        while unique in taken:
            number += 1
            unique = f"{name} #{number}"
        return unique


def _timed_generator(generator: Generator[Any, Any, Any], clock: _Clock) -> Generator[Any, Any, Any]:
    now = time.perf_counter
    try:
        while True:
            began = now()
            try:
                item = next(generator)
            except StopIteration:
                return
            finally:
                clock.add(now() - began)
            yield item
    finally:
        generator.close()
