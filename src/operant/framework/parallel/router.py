"""The router of a worker: everything its task exchanges with the tasks of other workers."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

from operant.framework.context import Context
from operant.framework.errors import FrameworkError, RemoteError, WorkerDied
from operant.framework.parallel.calls import CallServer, find_peer
from operant.framework.parallel.counters import CounterBook
from operant.framework.parallel.dialling import LINK_TIMEOUT, Dialler
from operant.framework.parallel.event_stream import EventStream
from operant.framework.parallel.hub import Hub
from operant.framework.parallel.link import Frame, Kind, Link, Parcel, PeerInfo
from operant.framework.parallel.queues import HostedQueue, LocalQueue, QueueSettings, TaskQueue
from operant.framework.parallel.remote_queues import QueueHost, RemoteQueue
from operant.framework.parallel.requests import Requests
from operant.framework.parallel.snapshots import Publisher, Reader
from operant.framework.parallel.spec import WorkerSpec
from operant.framework.parallel.standalone import LoopSide, Standalone
from operant.framework.parallel.sums import Sums
from operant.framework.parallel.supervised import SupervisorLink
from operant.framework.parallel.topology import neighbours
from operant.framework.parallel.views import ParallelContext
from operant.framework.parallel.wire import WireError


class Router(Standalone):
    """A router with peers."""

    is_active = True

    def __init__(self, spec: WorkerSpec) -> None:
        super().__init__()
        self.spec = spec
        self.node_id: int = spec.node_id
        self.labels = frozenset(spec.labels)
        self.attach_to = tuple(spec.attach_to)
        self._task: LoopSide | None = None
        self._ordinal = 0  # tasks of one worker follow each other; the n-th belongs to the n-th of the peers
        self._finished_ordinals: set[int] = set()
        self._failure: str | None = None
        self._closing = False
        self._peers: dict[int, Link] = {}
        self._left: set[int] = set()
        self._pongs = 0
        self.n_waiting = 0  # threads that wait for others; a loop that waits does not hang by its own fault
        self._hosted: dict[str, LocalQueue] = {}
        self._calls = CallServer(
            spec.node_id, self._exposed, self._answer, super().wait_until, lambda: self._events.is_open
        )

        writer = f"node.{spec.node_id}" + (f"+{spec.incarnation}" if spec.incarnation else "")
        self._counters = CounterBook(writer, self._counters_changed)
        self._sending_counts = threading.Lock()
        info = PeerInfo(spec.node_id, spec.incarnation, os.getpid(), sorted(self.labels))
        self.hub = Hub(info, spec.secret, self._on_frame, self._on_link, self._on_lost)
        self._dialler = Dialler(self.hub, spec, self._peers, lambda: self._closing, self.fail)
        self._publisher = Publisher(self.hub)
        self._reader = Reader(self.hub, self.wait_until, lambda: self._ordinal, lambda: self.ending)
        self._requests = Requests(self.hub, self.notify)
        # Who may die and come back lets the others know what is not in its queues any more.
        tells = spec.recoverable and not spec.here
        tell_left = (lambda link, left: self.hub.send(link, Kind.LEFT, left)) if tells else None
        self._queue_host = QueueHost(self._answer, self._hosted_queue, tell_left)
        self.sums = Sums(self)
        self._events = EventStream(self.hub, self, in_turns=spec.lockstep)
        self.supervisor = SupervisorLink(spec, self)

    # -- joining and leaving -----------------------------------------------------------------------
    def join(self) -> None:
        """Listen, report to the supervisor, and wait until the links of the topology are there."""
        listening = [self.hub.listen(address) for address in self.spec.listen_at]
        directory = self.supervisor.join(self.hub, listening[0])
        self._dialler.dial(directory)
        for address in self.spec.attach_to:
            self.hub.dial(address, LINK_TIMEOUT)
        expected = neighbours(self.spec.topology, self.spec.node_ids, self.node_id)
        if not self.wait_until(
            lambda: all(node in self._peers or node in self._left for node in expected), LINK_TIMEOUT
        ):
            missing = [f"node.{node}" for node in expected if node not in self._peers]
            raise FrameworkError(f"no link to {', '.join(missing)} within {LINK_TIMEOUT:.0f} s")

    def directory_changed(self, directory: dict[int, tuple[str, int]], left: list[int]) -> None:
        """A worker was restarted or has ended (in the hub's thread)."""
        with self.changed:
            self._left.update(left)
            self.changed.notify_all()
        if self.spec.recoverable:
            self._dialler.dial_restarted(directory)

    def close(self) -> None:
        self._closing = True
        for queue in self._hosted.values():
            queue.tell_what_is_left()
        self._events.close()
        self._calls.close()
        self._send_counts()
        self.hub.close()

    def fail(self, text: str) -> None:
        """The run has failed: whoever waits, or waits next, raises."""
        with self.changed:
            self._failure = self._failure or text
            self.changed.notify_all()

    def check(self) -> None:
        super().check()
        if self._failure is not None:
            raise WorkerDied(self._failure)

    # -- life of a task ----------------------------------------------------------------------------
    def attach(self, task: LoopSide) -> None:
        with self.changed:
            if self._task is not None:
                raise FrameworkError(
                    "this worker's router already serves a task; for an inner loop of its own, "
                    "pass Task(router=Standalone())"
                )
            self._task = task
            self._ordinal += 1
            self.finish_raised = self._ordinal in self._finished_ordinals
        if self.finish_raised:
            task.receive_finish()

    def detach(self, task: LoopSide) -> None:
        with self.changed:
            if self._task is task:
                self._task = None

    def restored_state(self) -> dict[str, Any]:
        state = self.spec.state
        if isinstance(state, dict) and state.get("ordinal") == self._ordinal:
            return dict(state["task"])
        return {}

    def before_pass(self, ctx: Context) -> None:
        self.check()
        self._events.open(self._ordinal)

    def after_pass(self, ctx: Context) -> None:
        self.check()
        task = self._task
        if task is None:
            return
        last = bool(ctx["finish"])
        if self._peers:
            everybody = last or self.spec.lockstep
            self._publisher.publish(ctx, self._ordinal, task.shared_names(), everybody)
        self.supervisor.pass_made(ctx["total_step"])
        if self.spec.recoverable and (last or (ctx["total_step"] + 1) % self.spec.recover_every == 0):
            self.supervisor.save_state({"ordinal": self._ordinal, "task": task.recovery_state()})
        if self.spec.lockstep:
            self._flush()
            self.supervisor.turn.pass_on(progressed=True)

    def raise_finish(self) -> None:
        self._spread_finish(self._ordinal, None)

    def _spread_finish(self, ordinal: int, source: Link | None) -> None:
        with self.changed:
            if ordinal in self._finished_ordinals:
                return
            self._finished_ordinals.add(ordinal)
            if ordinal == self._ordinal:
                self.finish_raised = True
                if self._task is not None and source is not None:
                    self._task.receive_finish()
            self.changed.notify_all()
        # Leaves of a star have no link to each other: everybody passes it on, once.
        self._send_to_others(Parcel.pack(Kind.FINISH, ordinal), source)

    @property
    def ending(self) -> bool:
        # Whoever has left said so; a worker that died and may come back is not among them.
        all_left = bool(self._left) and not self._peers and not self.spec.recoverable
        return self.finish_raised or (all_left and self._events.idle)

    # -- waiting -----------------------------------------------------------------------------------
    def wait_until(self, predicate: Callable[[], object], timeout: float | None = None, what: str = "") -> bool:
        if not (self.spec.lockstep and self.supervisor.turn.mine()):
            self._events.open(self._ordinal)
            self.n_waiting += 1
            try:
                return super().wait_until(predicate, timeout, what)
            finally:
                self.n_waiting -= 1
        is_new = True
        while True:
            # What peers answer without their turn is here after a flush; the rest happens in their turns.
            if self._holds(predicate):
                return True
            self._flush()
            if self._holds(predicate):
                return True
            # To have come to a new wait is progress; to be still at the same one is none.
            nobody_can_move = self.supervisor.turn.pass_on(progressed=is_new, waiting_for=what)
            self._events.deliver_waiting()
            if nobody_can_move and timeout is not None:
                return self._holds(predicate)
            is_new = False

    def _holds(self, predicate: Callable[[], object]) -> bool:
        with self.changed:
            self.check()
            return bool(predicate())

    def _flush(self) -> None:
        """Wait until every peer has taken in all that was sent to it, counts that the hub had yet to send included."""
        self._send_counts()
        links = list(self._peers.values())
        with self.changed:
            self._pongs = 0
        n_sent = self.hub.send_all(links, Parcel.pack(Kind.PING, None))
        super().wait_until(lambda: self._pongs >= n_sent or any(link.closed for link in links), None, "flush")

    # -- what crosses ------------------------------------------------------------------------------
    @property
    def peers(self) -> dict[int, frozenset[str]]:
        return {node: frozenset([f"node.{node}", *link.info.labels]) for node, link in list(self._peers.items())}

    @property
    def parallel_ctx(self) -> ParallelContext:
        self.check()
        if self.spec.lockstep:
            self._look_again()
        return ParallelContext(self._reader.snapshots(), self._reader)

    def _look_again(self) -> None:
        """In lockstep a loop that polls would keep its turn for ever: a second look passes it on."""
        newest = max((s.arrival for s in self._reader.snapshots().values()), default=0)
        if self.supervisor.turn.seen_before(newest):
            self._flush()
            self.supervisor.turn.pass_on(progressed=False, waiting_for="parallel_ctx")
            self._events.deliver_waiting()

    def send_event(self, event: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.check()
        self._events.send(list(self._peers.values()), self._ordinal, event, args, kwargs)

    def queue(self, name: str, settings: QueueSettings) -> TaskQueue:
        host = settings.host
        if host is None:
            host = min(self.spec.node_ids + list(self._peers))
            settings = QueueSettings(settings.maxsize, settings.mode, host)
        with self.changed:
            known = self._queues.get(name)
            if known is not None:
                known.settings.require_same(settings, name)
                return known
            if host == self.node_id:
                self._hosted_queue(name, settings)
                queue: TaskQueue = self._hosted[name]
            else:
                if host not in self._peers and host not in self._left:
                    raise FrameworkError(
                        f"queue {name!r} is hosted by node.{host}, to which node.{self.node_id} has no link "
                        f"in a {self.spec.topology} topology; choose another host or topology='mesh'"
                    )
                queue = RemoteQueue(name, settings, host, self, self._requests)
            self._queues[name] = queue
            return queue

    def _remote_queues(self) -> list[RemoteQueue]:
        return [queue for queue in self._queues.values() if isinstance(queue, RemoteQueue)]

    def _hosted_queue(self, name: str, settings: QueueSettings) -> HostedQueue:
        queue = self._hosted.get(name)
        if queue is None:
            queue = self._hosted[name] = LocalQueue(name, settings, self)
        queue.settings.require_same(settings, name)
        return queue.hosted

    def call(
        self,
        peer: int | str,
        name: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        timeout: float | None,
    ) -> Any:
        self.check()
        link = self._peers[find_peer(peer, self.peers)]
        request = self._requests.ask(link, "call", (name, args, dict(kwargs)))
        # The one who is called answers from another thread, so in lockstep the turn stays here.
        if not super().wait_until(lambda: request.over, timeout, f"call {name!r}"):
            raise TimeoutError(f"node.{link.node_id} did not answer the call {name!r} within {timeout} s")
        if request.lost:
            self.check()
            raise WorkerDied(f"node.{link.node_id} ended before it answered the call {name!r}")
        if request.error is not None:
            raise RemoteError(f"{name!r} failed on node.{link.node_id}:\n{request.error}")
        return request.value

    @property
    def in_task(self) -> bool:
        return self._task is not None

    def link_to(self, node_id: int) -> Link | None:
        return self._peers.get(node_id)

    def has_left(self, node_id: int) -> bool:
        return node_id in self._left

    def _counters_changed(self) -> None:
        self.hub.do(self._send_counts)

    def _send_counts(self) -> None:
        with self._sending_counts:  # what one thread has taken is sent before another finds that nothing is left
            unsent = self._counters.take_unsent()
            if unsent:
                self._send_to_others(Parcel.pack(Kind.COUNTS, unsent), None)

    def _send_to_others(self, parcel: Parcel, source: Link | None) -> None:
        self.hub.send_all([link for link in list(self._peers.values()) if link is not source], parcel)

    # -- the hub's side (all in its thread) --------------------------------------------------------
    def _on_link(self, link: Link) -> None:
        if link.info.role == "supervisor":
            return
        other = self._peers.get(link.node_id)
        same_life = other is not None and other.info.incarnation == link.info.incarnation
        if link.node_id == self.node_id or (other is not None and not other.closed and same_life):
            raise WireError(f"two workers call themselves node.{link.node_id}; give them different node_ids")
        with self.changed:
            self._peers[link.node_id] = link
            self._left.discard(link.node_id)
            self._publisher.add_link(link)
            self._reader.add_link(link)
            self._events.add_link(link)
            self.changed.notify_all()
        counts = self._counters.everything()
        if counts:
            self.hub.send(link, Kind.COUNTS, counts)
        for ordinal in self._finished_ordinals:
            self.hub.send(link, Kind.FINISH, ordinal)

    def _on_lost(self, link: Link, why: str) -> None:
        if link.info.role == "supervisor":
            if self.spec.here:
                self.fail("the workers' supervisor has ended")
            elif not self._closing:
                # Nobody is left who could restart this worker or wants its result.
                os._exit(70)
            return
        with self.changed:
            if self._peers.get(link.node_id) is link:
                del self._peers[link.node_id]
                if link.said_bye:
                    self._left.add(link.node_id)
            self._publisher.remove_link(link)
            self._reader.remove_link(link)
            self._requests.remove_link(link)
            self._queue_host.remove_link(link)
            self.sums.link_lost(link)
            for queue in self._remote_queues():
                queue.link_lost(link)
            self._events.remove_link(link)
            self.changed.notify_all()
        ours = link.node_id in self.spec.node_ids
        if ours and self.spec.recoverable and not (link.said_bye or self._closing):
            self._dialler.dial_lost(link, lambda: self.supervisor.directory)
        if not (link.said_bye or ours or self.spec.recoverable or self._closing):
            self.fail(f"node.{link.node_id}, a worker of another machine, is gone: {why}")

    def _on_frame(self, link: Link, frame: Frame) -> None:
        if link.info.role == "supervisor":
            self.supervisor.receive(frame)
        elif frame.kind is Kind.SNAPSHOT:
            self._reader.receive(link, frame)
            self.notify()
        elif frame.kind is Kind.EVENT:
            self._events.receive(link, frame)
        else:
            self._on_small_frame(link, frame.kind, frame.value())

    def _on_small_frame(self, link: Link, kind: Kind, value: Any) -> None:
        if kind is Kind.SNAPSHOT_HERE:
            self._publisher.here(link, value)
        elif kind is Kind.WANT:
            self._publisher.want(link, value)
        elif kind is Kind.EVENTS_DONE:
            self._events.done(link, value)
        elif kind is Kind.FINISH:
            self._spread_finish(value, link)
        elif kind is Kind.COUNTS:
            news = self._counters.merge(value)
            if news:
                self._send_to_others(Parcel.pack(Kind.COUNTS, news), link)
                self.notify()
        elif kind is Kind.REQUEST:
            self._on_request(link, *value)
        elif kind is Kind.RESPONSE:
            request = self._requests.receive(value)
            if request is not None and request.operation == "get":  # whose item goes back if it does not arrive
                self.hub.send(link, Kind.RECEIVED, value[0])
        elif kind is Kind.RECEIVED:
            with self.changed:
                self._queue_host.received(link, value)
        elif kind is Kind.LEFT:
            for queue in self._remote_queues():
                queue.items_left(*value)
        elif kind in (Kind.SUM, Kind.TOTAL):
            with self.changed:
                self.sums.receive(link, kind, value)
                self.changed.notify_all()
        elif kind is Kind.PING:
            self.hub.send(link, Kind.PONG)
        elif kind is Kind.PONG:
            self._pongs += 1
            self.notify()
        else:
            raise WireError(f"node.{link.node_id} sent a {kind.name}, which is not for workers")

    def _on_request(self, link: Link, number: int, operation: str, content: Any) -> None:
        if operation == "call":
            self._calls.serve(link, number, content)
            return
        with self.changed:
            try:
                if operation == "cancel":
                    self._queue_host.cancel(link, number)
                else:
                    self._queue_host.serve(link, number, operation, content)
            except (FrameworkError, ValueError) as error:
                self._answer(link, number, False, str(error))
            self.changed.notify_all()

    def _answer(self, link: Link, number: int, worked: bool, value: Any) -> None:
        self.hub.send(link, Kind.RESPONSE, (number, worked, value))
