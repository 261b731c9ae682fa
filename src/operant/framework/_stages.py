"""The middleware that a task has in use: their names, their order, their wrappers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from operant.framework._concurrent import AsyncForward, Outcome
from operant.framework._middleware import Middleware, middleware_name, set_middleware_name
from operant.framework.context import Context

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
