"""What a task sees of other processes; this one has none.

`Standalone` is also the base of the router that does have peers: a task calls both in the same way.
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from operant.framework.context import Context
from operant.framework.errors import FrameworkError, Interrupted
from operant.framework.parallel.counters import Counter, CounterBook
from operant.framework.parallel.queues import LocalQueue, QueueSettings, TaskQueue
from operant.framework.parallel.views import ParallelContext


class LoopSide(Protocol):
    """What a router needs of the task that it serves."""

    def receive_event(self, event: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None: ...
    def receive_finish(self) -> None: ...
    def shared_names(self) -> frozenset[str] | None: ...
    def recovery_state(self) -> dict[str, Any]: ...


class Standalone:
    """A router without peers: queues, counters and calls stay inside the process."""

    is_active = False
    node_id: int | None = None

    def __init__(self) -> None:
        self.labels: frozenset[str] = frozenset()
        self.attach_to: tuple[str, ...] = ()
        self.finish_raised = False
        self._interrupted = False
        # Every wait of a task happens on this one condition, so that finish and failure can end each of them.
        self.changed = threading.Condition()
        self._exposed: dict[str, Callable[..., Any]] = {}
        self._queues: dict[str, TaskQueue] = {}
        self._counters = CounterBook(writer="local")

    # -- life of a task ----------------------------------------------------------------------------
    def attach(self, task: LoopSide) -> None:
        """A task begins to use this router."""

    def detach(self, task: LoopSide) -> None:
        """The task has ended."""

    def restored_state(self) -> dict[str, Any]:
        """What an earlier life of this worker had registered; empty in a first life."""
        return {}

    def before_pass(self, ctx: Context) -> None:
        """A pass begins."""

    def after_pass(self, ctx: Context) -> None:
        """A pass is complete."""

    def raise_finish(self) -> None:
        """Ask every loop of the run to end."""
        self.finish_raised = True
        self.notify()

    @property
    def ending(self) -> bool:
        """Whether it makes no sense to wait for what others may still send."""
        return self.finish_raised

    # -- waiting -----------------------------------------------------------------------------------
    def check(self) -> None:
        """Raise when the run has failed elsewhere, or another middleware of this pass."""
        if self._interrupted:
            raise Interrupted("another middleware of this pass has failed")

    def interrupt(self, on: bool) -> None:
        """End every wait of the task by `Interrupted`, or (False) let it wait again."""
        self._interrupted = on
        if on:
            self.notify()

    def notify(self) -> None:
        """Something changed: whoever waits looks again."""
        with self.changed:
            self.changed.notify_all()

    def wait_until(self, predicate: Callable[[], object], timeout: float | None = None, what: str = "") -> bool:
        """Wait for a condition, without polling; False when the time ran out first."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self.changed:
            while True:
                self.check()
                if predicate():
                    return True
                remaining = None if deadline is None else deadline - time.monotonic()
                if remaining is not None and remaining <= 0:
                    return False
                self.changed.wait(remaining)

    @property
    def peers(self) -> dict[int, frozenset[str]]:
        """The linked workers and their labels."""
        return {}

    # -- what crosses ------------------------------------------------------------------------------
    @property
    def parallel_ctx(self) -> ParallelContext:
        return ParallelContext({}, None)

    def send_event(self, event: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Tell the peers."""

    def queue(self, name: str, settings: QueueSettings) -> TaskQueue:
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = LocalQueue(name, settings, self)
        queue.settings.require_same(settings, name)
        return queue

    def counter(self, name: str) -> Counter:
        return self._counters.counter(name)

    def expose(self, name: str, fn: Callable[..., Any]) -> None:
        self._exposed[name] = fn
        self.notify()

    def call(
        self,
        peer: int | str,
        name: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        timeout: float | None,
    ) -> Any:
        raise FrameworkError(
            f"task.call({peer!r}, {name!r}): this task runs alone, there is no other worker to call; "
            "start it with Parallel.runner(...)"
        )


current_router: contextvars.ContextVar[Standalone | None] = contextvars.ContextVar("operant_router", default=None)
