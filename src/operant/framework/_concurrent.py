"""Middleware that run at the same time, in the order their data demands."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from operant.framework._middleware import (
    Middleware,
    Suspended,
    close_all,
    middleware_name,
    rest_of,
    run_forward,
    set_middleware_name,
)
from operant.framework.context import Context
from operant.framework.errors import Interrupted

Outcome = Generator[Any, Any, Any] | None


class AsyncForward:
    """Starts middleware on a pool, each when those it comes after are done, and joins them in one place.

    `interrupt` is called with True when one fails, so that others which wait for something end too, and with False
    when all are done.
    """

    def __init__(self, n_workers: int, interrupt: Callable[[bool], None]) -> None:
        self._interrupt = interrupt
        self._pool = ThreadPoolExecutor(n_workers, thread_name_prefix="operant-async")
        self._started: list[tuple[str, Future[Outcome]]] = []

    def start(self, name: str, fn: Middleware, ctx: Context, after: Sequence[Future[Outcome]] = ()) -> Future[Outcome]:
        future: Future[Outcome] = Future()
        self._started.append((name, future))
        missing = len(after)
        lock = threading.Lock()

        def run() -> None:
            try:
                future.set_result(run_forward(name, fn, ctx))
            except BaseException as error:
                future.set_exception(error)
                self._interrupt(True)

        # A waiting middleware holds no thread of the pool: the last one that it waits for starts it.
        def one_is_done(done: Future[Outcome]) -> None:
            nonlocal missing
            with lock:
                missing -= 1
                ready = missing == 0
            if not ready:
                return
            if any(other.exception() is not None for other in after):
                future.set_exception(Interrupted(f"{name} was not run: one that it comes after failed"))
            else:
                self._pool.submit(run)

        if after:
            for other in after:
                other.add_done_callback(one_is_done)
        else:
            self._pool.submit(run)
        return future

    def join(self) -> list[Suspended]:
        """Wait for all; the suspended ones in the order they were started, or the first error."""
        started, self._started = self._started, []
        suspended: list[Suspended] = []
        errors: list[BaseException] = []
        for name, future in started:
            error = future.exception()
            if error is None:
                generator = future.result()
                if generator is not None:
                    suspended.append((name, generator))
            elif not isinstance(error, Interrupted):
                errors.append(error)
        if errors:
            self._interrupt(False)
            close_all(suspended)
            first, *others = errors
            for other in others:
                first.add_note(f"in the same pass another middleware failed too: {other!r}")
            raise first
        return suspended

    def close(self) -> None:
        self._pool.shutdown(wait=True)


class ParallelMiddleware:
    """One middleware that runs several at the same time and is done when all are."""

    def __init__(self, fns: Iterable[Middleware], interrupt: Callable[[bool], None]) -> None:
        self._named = [(middleware_name(fn), fn) for fn in fns]
        # Threads of its own: on a shared pool it could wait for children that wait for its thread.
        self._forward = AsyncForward(max(1, len(self._named)), interrupt)
        set_middleware_name(self, "parallel(" + ", ".join(name for name, _ in self._named) + ")")

    def __call__(self, ctx: Context) -> Outcome:
        for name, fn in self._named:
            self._forward.start(name, fn, ctx)
        suspended = self._forward.join()
        return rest_of(suspended, ctx) if suspended else None

    def close(self) -> None:
        self._forward.close()
