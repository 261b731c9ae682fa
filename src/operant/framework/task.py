"""A training loop made of middleware."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Protocol

from operant.framework._concurrent import AsyncForward, ParallelMiddleware
from operant.framework._middleware import (
    After,
    Middleware,
    Stages,
    Suspended,
    Wrapper,
    close_all,
    middleware_name,
    run_backward,
    run_forward,
    serial,
)
from operant.framework.context import Context
from operant.framework.errors import FrameworkError
from operant.framework.events import Arguments, EventBook, Listener
from operant.framework.labels import as_label_set, match_labels, process_labels
from operant.framework.parallel.counters import Counter
from operant.framework.parallel.queues import QueueMode, QueueSettings, TaskQueue
from operant.framework.parallel.standalone import Standalone, current_router
from operant.framework.parallel.views import ParallelContext

ATTACH_TIMEOUT = 30.0


class Stateful(Protocol):
    """Something that can be saved and restored."""

    def state_dict(self) -> Any: ...
    def load_state_dict(self, state: Any) -> Any: ...


class Task:
    """Runs middleware over and over, passing them a `ctx`, until finish is raised.

    A middleware is any callable with `ctx` as its argument; of a generator the part after `yield` runs when
    all others have run forward, in reverse order. The last pass of every loop begins with ``ctx.finish`` set,
    so a middleware that saves on finish does save.

    Inside `Parallel.runner` a task is linked to the tasks of the other workers; `router` says to which
    (default: what the runner set for this thread of execution).
    """

    def __init__(
        self,
        async_mode: bool = False,
        n_async_workers: int = 3,
        labels: str | Iterable[str] | None = None,
        router: Standalone | None = None,
        attach_callback: Callable[[ParallelContext], Any] | None = None,
    ) -> None:
        self.router: Standalone = router or current_router.get() or Standalone()
        self.async_mode = async_mode
        self._attach_callback = attach_callback
        self.labels = process_labels(
            node_id=self.router.node_id,
            async_mode=async_mode,
            extra=(self.router.labels | as_label_set(labels)),
        )
        self.ctx = Context()
        self.ctx._watch_finish(self._finish_set_here)
        self._finish_raised = False
        self._passed = False
        self._closed = False

        self._stages = Stages()
        self._suspended: list[Suspended] = []
        self._async = AsyncForward(n_async_workers, self.router.interrupt) if async_mode else None
        self._composites: list[ParallelMiddleware] = []
        self._events = EventBook()
        self._late_errors: list[BaseException] = []
        self._registered: dict[str, Stateful] = {}
        self._shared: set[str] | None = None

        self.router.attach(self)
        self._restored = self.router.restored_state()
        self._resume_ctx()

    # -- building ----------------------------------------------------------------------------------
    def use(
        self,
        fn: Middleware,
        filter_labels: str | Iterable[str] | None = None,
        *,
        after: After = None,
    ) -> Task:
        """Append a middleware; with `filter_labels` only where a label of this process matches a glob.

        `after` names the middleware whose data this one needs (the callable or its name). It matters in
        `async_mode`, where all others run at the same time; otherwise the order of `use` is the order.
        """
        if not callable(fn):
            raise TypeError(f"a middleware is a callable with ctx as its argument, not {fn!r}")
        if filter_labels is not None and not match_labels(self.labels, filter_labels):
            self._stages.add_elsewhere(fn)
        else:
            self._stages.add(fn, after)
        return self

    def use_step_wrapper(self, fn: Wrapper) -> Task:
        """Wrap every middleware, those already in use and those to come, such as with `StepTimer`.

        A wrapper that has `before_step(ctx)` or `after_step(ctx)` is told of the ends of each pass.
        """
        self._stages.add_wrapper(fn)
        return self

    def match_labels(self, globs: str | Iterable[str]) -> bool:
        """Whether a label of this process matches any of the globs."""
        return match_labels(self.labels, globs)

    @staticmethod
    def serial(*fns: Middleware) -> Middleware:
        """One middleware that runs these in order, also in `async_mode`."""
        return serial(fns)

    def parallel(self, *fns: Middleware) -> Middleware:
        """One middleware that runs these at the same time and ends when all have."""
        composite = ParallelMiddleware(fns, self.router.interrupt)
        self._composites.append(composite)
        return composite

    def register(self, name: str, stateful: Stateful) -> None:
        """Count this object's `state_dict` to the state of the task, for checkpoints and restarts.

        In a worker that was restarted (`auto_recover`) the state of its earlier life is loaded at once.
        """
        if name in self._registered:
            raise ValueError(f"{name!r} is registered already; each name stands for one object")
        self._registered[name] = stateful
        states = self._restored.get("registered", {})
        if name in states:
            stateful.load_state_dict(states[name])

    def state_dict(self) -> dict[str, Any]:
        """What is registered, and what of ctx outlives a pass."""
        kept = {name: self.ctx[name] for name in self.ctx.kept if name in self.ctx}
        return {
            "registered": {name: stateful.state_dict() for name, stateful in self._registered.items()},
            "ctx": kept,
            "total_step": self.ctx["total_step"],
            "passed": self._passed,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken; objects that are registered later get theirs then."""
        self._restored = state
        for name, stateful in self._registered.items():
            if name in state["registered"]:
                stateful.load_state_dict(state["registered"][name])
        self._resume_ctx()

    # -- running -----------------------------------------------------------------------------------
    def run(self, max_step: int | float = math.inf, *, end_others: bool = True) -> Context:
        """Make passes until finish, at most `max_step`, and return the last ctx.

        Each loop ends after one full pass that began with finish set; when `max_step` is reached, finish is
        set in the ctx of the last pass. Afterwards finish is raised in the other workers as well, unless
        `end_others` is False. A loop that was restarted or restored counts the passes it had made before.
        """
        steps_before = self._steps_made() if self._restored else 0
        self._restored = {}
        left = max_step - steps_before
        while left > 0:
            ctx = self._begin_pass()
            if left <= 1:
                dict.__setitem__(ctx, "finish", True)
            ending = ctx["finish"]
            self._pass(ctx)
            left -= 1
            if ending:
                break
        if end_others:
            self.router.raise_finish()
        return self.ctx

    def step(self) -> Context:
        """Make one pass and return its ctx: for loops that are driven by somebody else."""
        ctx = self._begin_pass()
        self._pass(ctx)
        return ctx

    def forward(self, fn: Middleware, ctx: Context | None = None) -> Task:
        """Run one middleware up to its `yield`; in `async_mode` start it and let `sync` wait for it."""
        ctx = self.ctx if ctx is None else ctx
        name = middleware_name(fn)
        if self._async is not None:
            self._async.start(name, self._stages.wrap(fn, name), ctx)
            return self
        generator = run_forward(name, self._stages.wrap(fn, name), ctx)
        if generator is not None:
            self._suspended.append((name, generator))
        return self

    def backward(self) -> Task:
        """Run what comes after the `yield` of the middleware that were run forward, the latest first."""
        self.sync()
        run_backward(self._suspended, self.ctx)
        return self

    def sync(self) -> Task:
        """Wait for the middleware under way; what failed since the last sync is raised here."""
        if self._async is not None:
            self._suspended += self._async.join()
        if self._late_errors:
            raise self._late_errors.pop(0)
        return self

    def renew(self) -> Task:
        """Begin a new ctx, with only what is kept."""
        ctx = self.ctx = self.ctx.renew()
        # A finish from another thread may have gone to the old ctx while it was being renewed. Whoever
        # raises it sets the flag first and the ctx second, so one of the two is always seen.
        if self._finish_raised:
            dict.__setitem__(ctx, "finish", True)
        return self

    def stop(self) -> None:
        """End: wait for what is under way, release threads and the router."""
        if self._closed:
            return
        self._closed = True
        try:
            self.sync()
        finally:
            close_all(self._suspended)
            if self._async is not None:
                self._async.close()
            for composite in self._composites:
                composite.close()
            self.router.detach(self)

    def __enter__(self) -> Task:
        if self._attach_callback is not None and self.router.attach_to:
            view = self.router.parallel_ctx
            if not view.peers:
                newer = view.wait_newer(ATTACH_TIMEOUT)
                if newer is None:
                    raise TimeoutError(
                        f"no ctx came from {', '.join(self.router.attach_to)} within {ATTACH_TIMEOUT:.0f} s"
                    )
                view = newer
            self._attach_callback(view)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.stop()
            return
        # The error that is under way says more than what a half-finished pass may still report.
        try:
            self.stop()
        except Exception as second:
            assert error is not None
            error.add_note(f"while the task was being stopped: {second!r}")

    @property
    def finish(self) -> bool:
        """Whether the run has been asked to end; set it to ask."""
        return bool(self.ctx["finish"])

    @finish.setter
    def finish(self, value: bool) -> None:
        self.ctx["finish"] = value

    # -- events ------------------------------------------------------------------------------------
    def on(self, event: str, fn: Listener) -> None:
        """Call `fn` at each such event, from here or from a peer."""
        self._events.on(event, fn)

    def once(self, event: str, fn: Listener) -> None:
        """Call `fn` at the next such event only."""
        self._events.on(event, fn, once=True)

    def off(self, event: str, fn: Listener | None = None) -> None:
        """No longer call `fn`, or any listener of the event."""
        self._events.off(event, fn)

    def emit(self, event: str, *args: Any, only_remote: bool = False, only_local: bool = False, **kwargs: Any) -> None:
        """Tell the listeners here (at once, in this thread) and those of the peers."""
        if only_remote and only_local:
            raise ValueError("an event that is only_remote and only_local reaches nobody; choose one")
        if not only_local:
            self.router.send_event(event, args, kwargs)
        if not only_remote:
            self._events.emit(event, args, kwargs)

    def wait_for(
        self,
        event: str,
        timeout: float | None = None,
        ignore_timeout_exception: bool = True,
        *,
        until_finish: bool = True,
    ) -> Arguments | None:
        """Wait for an event and return its ``(args, kwargs)``.

        None when the time runs out (or TimeoutError, if that is not ignored), and when finish is raised
        or every other worker has left, unless `until_finish` is False.
        """
        received: list[Arguments] = []

        def deliver(*args: Any, **kwargs: Any) -> None:
            received.append((args, kwargs))
            self.router.notify()

        if timeout is not None and math.isinf(timeout):
            timeout = None
        self._events.on(event, deliver, once=True)
        try:
            in_time = self.router.wait_until(
                lambda: received or (until_finish and self.router.ending), timeout, f"wait_for {event!r}"
            )
        finally:
            self._events.off(event, deliver)
        if not in_time and not ignore_timeout_exception:
            raise TimeoutError(f"the event {event!r} did not come within {timeout} s")
        return received[0] if received else None

    # -- other workers -----------------------------------------------------------------------------
    @property
    def parallel_ctx(self) -> ParallelContext:
        """The newest whole ctx of the peers."""
        return self.router.parallel_ctx

    def share(self, *names: str) -> None:
        """Send only these values of ctx to the peers; without it everything goes that can be sent."""
        self._shared = (self._shared or set()) | set(names)

    def queue(self, name: str, maxsize: int = 64, mode: QueueMode = "block", *, host: int | None = None) -> TaskQueue:
        """A bounded queue between workers; a full one blocks or drops its oldest item, and counts it."""
        return self.router.queue(name, QueueSettings(maxsize, mode, host))

    def counter(self, name: str) -> Counter:
        """A counter that every worker may raise; its value is the sum."""
        return self.router.counter(name)

    def expose(self, name: str, fn: Callable[..., Any]) -> None:
        """Let other workers run this function by `call`."""
        self.router.expose(name, fn)

    def call(self, peer: int | str, name: str, *args: Any, timeout: float | None = None, **kwargs: Any) -> Any:
        """Run a function that another worker exposes, and return what it returns."""
        return self.router.call(peer, name, args, kwargs, timeout)

    # -- what the router calls ---------------------------------------------------------------------
    def receive_event(self, event: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """An event of a peer; what a listener raises surfaces at the next sync."""
        try:
            self._events.receive(event, args, kwargs)
        except Exception as error:
            error.add_note(f"in a listener of the event {event!r} from another worker")
            self._late_errors.append(error)

    def receive_finish(self) -> None:
        """Finish was raised elsewhere."""
        self._finish_raised = True
        dict.__setitem__(self.ctx, "finish", True)

    def shared_names(self) -> frozenset[str] | None:
        """The names given to `share`; None when there was none, so everything is meant."""
        return None if self._shared is None else frozenset(self._shared)

    def recovery_state(self) -> dict[str, Any]:
        return self.state_dict()

    # -- inside ------------------------------------------------------------------------------------
    def _begin_pass(self) -> Context:
        if self._closed:
            raise FrameworkError("this task was stopped; make a new one")
        if self._passed:
            self.renew()
        self._passed = True
        return self.ctx

    def _pass(self, ctx: Context) -> None:
        router = self.router
        if router.is_active:
            router.before_pass(ctx)
            if self._events.keeps_unheard:
                self._events.forget_unheard()
        stages = self._stages
        if stages.wrappers:
            stages.before_step(ctx)
        suspended = self._suspended
        try:
            if self._async is not None:
                stages.start_all(self._async, ctx)
                self.sync()
            else:
                for stage in stages.in_use:
                    generator = run_forward(stage.name, stage.run, ctx)
                    if generator is not None:
                        suspended.append((stage.name, generator))
                if self._late_errors:
                    self.sync()
            if suspended:
                run_backward(suspended, ctx)
        except BaseException:
            close_all(suspended)
            raise
        if stages.wrappers:
            stages.after_step(ctx)
        if router.is_active:
            router.after_pass(ctx)

    def _finish_set_here(self) -> None:
        if not self._finish_raised:
            self._finish_raised = True
            dict.__setitem__(self.ctx, "finish", True)
            self.router.raise_finish()

    def _steps_made(self) -> int:
        return int(self.ctx["total_step"]) + (1 if self._passed else 0)

    def _resume_ctx(self) -> None:
        if not self._restored:
            return
        for name, value in self._restored["ctx"].items():
            dict.__setitem__(self.ctx, name, value)
        self.ctx.keep(*self._restored["ctx"])
        dict.__setitem__(self.ctx, "total_step", self._restored["total_step"])
        self._passed = bool(self._restored["passed"])
