"""How one middleware is named, run forward and resumed backward, and all that a task has in use, in their order."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from operant.framework.context import Context

if TYPE_CHECKING:
    from operant.framework._concurrent import AsyncForward, Outcome

Middleware = Callable[[Context], Any]
Suspended = tuple[str, Generator[Any, Any, Any]]


def middleware_name(fn: Middleware) -> str:
    """What people call it: ``evaluate`` for the ``_evaluate`` that ``evaluate(...)`` returned."""
    given = getattr(fn, "__middleware_name__", None)
    if isinstance(given, str):
        return given
    if isinstance(fn, functools.partial):
        return middleware_name(fn.func)
    name = getattr(fn, "__name__", None)
    if not isinstance(name, str):
        return type(fn).__name__
    maker, _, _ = getattr(fn, "__qualname__", name).rpartition(".<locals>.")
    if maker and name.startswith("_"):
        return maker.rpartition(".")[2]
    return name


def set_middleware_name(fn: Middleware, name: str) -> None:
    """Make a wrapper answer to the name of what it wraps; objects that allow no attribute keep their own."""
    try:
        fn.__middleware_name__ = name  # type: ignore[attr-defined]
    except AttributeError:
        pass


def add_place(error: BaseException, name: str, ctx: Context, part: str) -> None:
    """Say in the error itself which middleware raised it, and in which pass."""
    note = f"in middleware {name!r}, {part}, at total_step {ctx.get('total_step')}"
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)


def run_forward(name: str, fn: Middleware, ctx: Context) -> Generator[Any, Any, Any] | None:
    """Run a middleware, or its part before `yield`; a generator that has more to do is returned."""
    try:
        result = fn(ctx)
        if result is not None and isinstance(result, Generator):
            try:
                next(result)
            except StopIteration:
                return None
            return result
    except BaseException as error:
        add_place(error, name, ctx, "forward")
        raise
    return None


def run_backward(suspended: list[Suspended], ctx: Context) -> None:
    """Resume what was suspended, the latest first, and empty the list."""
    while suspended:
        name, generator = suspended.pop()
        try:
            next(generator)
        except StopIteration:
            continue
        except BaseException as error:
            add_place(error, name, ctx, "after its yield")
            close_all(suspended)
            raise
        generator.close()
        close_all(suspended)
        twice = RuntimeError("a middleware may yield once: what comes before runs forward, the rest backward")
        add_place(twice, name, ctx, "after its yield")
        raise twice


def close_all(suspended: list[Suspended]) -> None:
    """Let the suspended middleware of a failed pass run their `finally` blocks, the latest first."""
    while suspended:
        suspended.pop()[1].close()


def serial(fns: Iterable[Middleware]) -> Middleware:
    """One middleware that runs these in order, and their parts after `yield` in reverse order."""
    named = [(middleware_name(fn), fn) for fn in fns]

    def run_in_order(ctx: Context) -> Generator[None, None, None] | None:
        suspended: list[Suspended] = []
        try:
            for name, fn in named:
                generator = run_forward(name, fn, ctx)
                if generator is not None:
                    suspended.append((name, generator))
        except BaseException:
            close_all(suspended)
            raise
        return rest_of(suspended, ctx) if suspended else None

    set_middleware_name(run_in_order, "serial(" + ", ".join(name for name, _ in named) + ")")
    return run_in_order


def rest_of(suspended: list[Suspended], ctx: Context) -> Generator[None, None, None]:
    """What several middleware do after their ``yield``, as one generator."""
    try:
        yield
        run_backward(suspended, ctx)
    finally:
        close_all(suspended)


Wrapper = Callable[[Middleware], Middleware]
After = Middleware | str | Sequence[Middleware | str] | None


@dataclass
class Stage:
    """One middleware in use."""

    original: Middleware
    name: str
    after: tuple[int, ...]
    run: Middleware


class Stages:
    """All of them, in the order of their use."""

    def __init__(self) -> None:
        self.in_use: list[Stage] = []
        self.wrappers: list[Wrapper] = []
        self._elsewhere: list[Middleware] = []

    def add(self, fn: Middleware, after: After) -> None:
        name = self._unique_name(middleware_name(fn))
        self.in_use.append(Stage(fn, name, self._find(after, name), self.wrap(fn, name)))

    def add_elsewhere(self, fn: Middleware) -> None:
        """Another worker runs this one; whoever comes after it need not wait here."""
        self._elsewhere.append(fn)

    def add_wrapper(self, wrapper: Wrapper) -> None:
        self.wrappers.append(wrapper)
        for stage in self.in_use:
            stage.run = _wrap_once(wrapper, stage.run, stage.name)

    def wrap(self, fn: Middleware, name: str) -> Middleware:
        for wrapper in self.wrappers:
            fn = _wrap_once(wrapper, fn, name)
        return fn

    def start_all(self, runner: AsyncForward, ctx: Context) -> None:
        """Start all at once, each after those whose data it needs."""
        futures: list[Future[Outcome]] = []
        for stage in self.in_use:
            futures.append(runner.start(stage.name, stage.run, ctx, [futures[index] for index in stage.after]))

    def before_step(self, ctx: Context) -> None:
        for wrapper in self.wrappers:
            if hasattr(wrapper, "before_step"):
                wrapper.before_step(ctx)

    def after_step(self, ctx: Context) -> None:
        for wrapper in self.wrappers:
            if hasattr(wrapper, "after_step"):
                wrapper.after_step(ctx)

    def _unique_name(self, name: str) -> str:
        taken = {stage.name for stage in self.in_use}
        unique, number = name, 1
        while unique in taken:
            number += 1
            unique = f"{name} #{number}"
        return unique

    def _find(self, after: After, name: str) -> tuple[int, ...]:
        if after is None:
            return ()
        found: list[int] = []
        for one in after if isinstance(after, (list, tuple)) else [after]:
            matches = [i for i, stage in enumerate(self.in_use) if one is stage.original or one == stage.name]
            if not matches and not any(one is fn or one == middleware_name(fn) for fn in self._elsewhere):
                known = ", ".join(stage.name for stage in self.in_use) or "none"
                raise ValueError(f"{name!r} comes after {one!r}, which is not in use yet (in use: {known})")
            found += matches
        return tuple(found)


def _wrap_once(wrapper: Wrapper, fn: Middleware, name: str) -> Middleware:
    wrapped = wrapper(fn)
    if wrapped is not fn:
        set_middleware_name(wrapped, name)
    return wrapped
