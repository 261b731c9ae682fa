"""The process that starts the workers of a run, watches them, and collects what they return."""

from __future__ import annotations

import logging
import os
import queue
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from operant.framework.errors import WorkerDied
from operant.framework.parallel.addresses import split_address
from operant.framework.parallel.hub import Hub
from operant.framework.parallel.link import Frame, Kind, Link, Parcel, PeerInfo
from operant.framework.parallel.local_engine import Engine, WorkerHandle
from operant.framework.parallel.lockstep import TurnKeeper
from operant.framework.parallel.settings import RunnerSettings
from operant.framework.parallel.spec import WorkerSpec
from operant.framework.parallel.wire import BodyLayout

_LOG = logging.getLogger(__name__)

OnRestart = Callable[[int, str], None]
"""Told which worker is replaced, and why."""

# How long the others may take to end by themselves when one has failed, and then after a polite signal.
_GRACE = 5.0
_TERMINATE_GRACE = 2.0
# A link that breaks tells less than the exit of the process, which follows within moments.
_EXIT_FOLLOWS = 0.5
_START_TIMEOUT = 120.0
_MAX_RESTART_PAUSE = 5.0


@dataclass
class _Worker:
    """One place of the run, whoever fills it at the moment."""

    spec: WorkerSpec
    handle: WorkerHandle
    link: Link | None = None
    address: str | None = None
    was_linked: bool = False
    exit_text: str | None = None
    over: bool = False  # it returned or failed; what still comes from it is an echo
    result: Any = None
    returned: bool = False
    n_restarts: int = 0
    restart_at: float | None = None
    lost_at: float | None = None
    started_at: float = field(default_factory=time.monotonic)
    last_beat: float | None = None
    last_pass: float = field(default_factory=time.monotonic)
    n_passes: int = -1
    told: Any = None  # the directory, as it was last sent


class Supervisor:
    """Runs one parallel run from start to end."""

    def __init__(
        self,
        settings: RunnerSettings,
        engine: Engine,
        main: bytes,
        sys_path: list[str],
        on_restart: OnRestart | None = None,
    ) -> None:
        self._settings = settings
        self._on_restart = on_restart
        self._stopped = False
        self._engine = engine
        self._main = main
        self._sys_path = sys_path
        self._session = secrets.token_hex(8)
        self._secret = settings.session_secret()
        self._inbox: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        self._workers: dict[int, _Worker] = {}
        self._states: dict[int, Frame] = {}
        self._directory_sent = False
        self._turns = TurnKeeper(self._grant) if settings.schedule == "lockstep" else None
        self._hub = Hub(
            PeerInfo(node_id=-1, pid=os.getpid(), role="supervisor"),
            self._secret,
            on_frame=lambda link, frame: self._inbox.put(("frame", link, frame)),
            on_link=lambda link: self._inbox.put(("link", link)),
            on_lost=lambda link, why: self._inbox.put(("lost", link, why)),
        )

    def run(self) -> list[Any]:
        """The return values of main, in the order of the workers."""
        try:
            self._address = self._hub.listen(self._engine.supervisor_address(self._session))
            for index, node_id in enumerate(self._settings.nodes()):
                self._workers[node_id] = self._start(self._first_spec(index, node_id))
            while not (self._stopped or all(worker.returned for worker in self._workers.values())):
                self._handle_next()
            return [self._workers[node_id].result for node_id in self._settings.nodes()]
        finally:
            self._end_all()
            self._hub.close()
            self._engine.close()

    def stop(self) -> None:
        """End the run without waiting for what workers return; from any thread."""
        self._inbox.put(("stop",))

    # -- starting ----------------------------------------------------------------------------------
    def _first_spec(self, index: int, node_id: int) -> WorkerSpec:
        settings = self._settings
        spec = WorkerSpec(
            node_id=node_id,
            node_ids=settings.nodes(),
            secret=self._secret,
            supervisor=self._address,
            topology=settings.topology,
            labels=settings.labels_of(node_id),
            attach_to=list(settings.attach_to),
            recoverable=settings.auto_recover,
            recover_every=settings.recover_every,
            lockstep=settings.schedule == "lockstep",
            heartbeat=None if settings.stall_timeout is None else settings.stall_timeout / 4,
            main=self._main,
            sys_path=self._sys_path,
        )
        spec.listen_at = self._engine.listen_at(self._session, spec, settings.tcp_addresses()[index : index + 1])
        return spec

    def _start(self, spec: WorkerSpec) -> _Worker:
        def on_exit(ended: WorkerSpec, text: str) -> None:
            self._inbox.put(("exit", ended.node_id, ended.incarnation, text))

        return _Worker(spec, self._engine.start(spec, on_exit))

    def _restart(self, worker: _Worker) -> None:
        worker.handle.kill()
        spec = replace(worker.spec, incarnation=worker.spec.incarnation + 1)
        tcp = [address for address in spec.listen_at if address.startswith("tcp://")]
        spec.listen_at = self._engine.listen_at(self._session, spec, tcp)
        fresh = self._start(spec)
        fresh.n_restarts = worker.n_restarts + 1
        self._workers[spec.node_id] = fresh

    # -- the loop ----------------------------------------------------------------------------------
    def _handle_next(self) -> None:
        try:
            message = self._inbox.get(timeout=self._time_to_next_check())
        except queue.Empty:
            self._check_times()
            return
        what, *content = message
        if what == "link":
            self._on_link(*content)
        elif what == "frame":
            self._on_frame(*content)
        elif what == "lost":
            self._on_lost(*content)
        elif what == "stop":
            self._stopped = True
        else:
            self._on_exit(*content)
        if self._settings.stall_timeout is not None:
            self._check_times()

    def _on_link(self, link: Link) -> None:
        worker = self._workers.get(link.node_id)
        if worker is not None and worker.spec.incarnation == link.info.incarnation:
            worker.link = link
            worker.was_linked = True

    def _worker_of(self, link: Link) -> _Worker | None:
        worker = self._workers.get(link.node_id)
        return worker if worker is not None and worker.link is link else None

    def _on_frame(self, link: Link, frame: Frame) -> None:
        worker = self._worker_of(link)
        if worker is None or worker.over:
            return
        if frame.kind is Kind.READY:
            worker.address = frame.value()
            self._on_ready(worker)
        elif frame.kind is Kind.STATE:
            # Kept as it came: its memory stays mapped here, whatever happens to the worker.
            self._states[link.node_id] = frame
            self._hub.send(link, Kind.STATE_SAVED, frame.value()[0])
        elif frame.kind is Kind.HEARTBEAT:
            self._on_heartbeat(worker, *frame.value())
        elif frame.kind is Kind.RESULT:
            worker.result = frame.value()
            worker.over = worker.returned = True
            self._left_the_run(worker)
        elif frame.kind is Kind.FAILURE:
            self._on_failure(worker, f"raised:\n{frame.value()}")
        elif frame.kind is Kind.TURN_OVER and self._turns is not None:
            stuck = self._turns.over(link.node_id, *frame.value())
            if stuck is not None:
                self._fail(stuck)
        else:
            _LOG.warning("node.%d sent a %s, which is not for supervisors", link.node_id, frame.kind.name)

    def _on_ready(self, worker: _Worker) -> None:
        state = self._states.get(worker.spec.node_id)
        if state is not None and worker.link is not None:
            self._hub.send_all([worker.link], _as_it_came(state))
        if self._directory_sent or all(other.address for other in self._workers.values()):
            self._directory_sent = True
            self._send_directory()
            for one in self._workers.values():
                if one.last_beat is None and one.address is not None:
                    one.last_beat = one.last_pass = time.monotonic()
            if self._turns is not None:
                self._turns.begin(sorted(self._workers))

    def _send_directory(self) -> None:
        running = {
            node_id: (worker.address, worker.spec.incarnation)
            for node_id, worker in self._workers.items()
            if worker.address is not None and not worker.over
        }
        left = [node_id for node_id, worker in self._workers.items() if worker.returned]
        if self._settings.topology == "mesh":
            self._tell(list(self._workers.values()), (running, left))
            return
        # In a star the others need to know of its centre alone: one of a thousand that ends is no news to the rest.
        first = min(self._workers)
        self._tell([self._workers[first]], (running, left))
        centre = {first: running[first]} if first in running else {}
        others = [worker for node_id, worker in self._workers.items() if node_id != first]
        self._tell(others, (centre, [first] if first in left else []))

    def _tell(self, workers: list[_Worker], directory: tuple[Any, list[int]]) -> None:
        news = [
            worker
            for worker in workers
            if worker.link is not None and worker.address is not None and worker.told != directory
        ]
        for worker in news:
            worker.told = directory
        self._hub.send_all([worker.link for worker in news if worker.link], Parcel.pack(Kind.DIRECTORY, directory))

    def _left_the_run(self, worker: _Worker) -> None:
        # Nobody must wait for it any more, not even one whose link to it broke before it said goodbye.
        self._send_directory()
        if self._turns is not None:
            self._turns.leave(worker.spec.node_id)

    def _grant(self, node_id: int, nobody_can_move: bool) -> None:
        link = self._workers[node_id].link
        if link is not None:
            self._hub.send(link, Kind.TURN, nobody_can_move)

    # -- ends --------------------------------------------------------------------------------------
    def _on_lost(self, link: Link, why: str) -> None:
        worker = self._worker_of(link)
        if worker is None:
            return
        worker.link = None
        if not worker.over:
            worker.lost_at = time.monotonic()
            self._judge(worker)

    def _on_exit(self, node_id: int, incarnation: int, text: str) -> None:
        worker = self._workers[node_id]
        if worker.spec.incarnation != incarnation or worker.exit_text is not None:
            return
        worker.exit_text = text
        self._judge(worker)

    def _judge(self, worker: _Worker) -> None:
        """A worker is dead when its process is gone and all that it sent has been read."""
        if worker.over or worker.link is not None:
            return
        if worker.exit_text is not None:
            text = worker.exit_text
            if not worker.was_linked and "exit code" in text:
                text += " before it could join the run; its own output says more"
            self._on_failure(worker, text)
        elif worker.lost_at is not None and time.monotonic() - worker.lost_at >= _EXIT_FOLLOWS:
            self._on_failure(worker, f"lost its connection{_to_machine(worker.address)}")

    def _on_failure(self, worker: _Worker, text: str) -> None:
        worker.over = True
        node_id = worker.spec.node_id
        description = f"node.{node_id} {text}"
        if self._settings.auto_recover and worker.n_restarts < self._settings.max_retries:
            pause = 0.0 if worker.n_restarts == 0 else min(0.1 * 2**worker.n_restarts, _MAX_RESTART_PAUSE)
            if self._on_restart is None:
                _LOG.warning("%s\nnode.%d is restarted", description.rstrip(), node_id)
            else:
                self._on_restart(node_id, description.rstrip())
            worker.restart_at = time.monotonic() + pause
            self._check_times()
            return
        retries = f" (after {worker.n_restarts} restarts)" if worker.n_restarts else ""
        self._fail(description + retries)

    def _fail(self, description: str) -> None:
        for worker in self._workers.values():
            if worker.link is not None and not worker.over:
                self._hub.send(worker.link, Kind.ABORT, description)
        self._wait_for_ends(_GRACE)
        raise WorkerDied(description)

    # -- what is not told but has to be looked for -------------------------------------------------
    def _time_to_next_check(self) -> float | None:
        times = [worker.restart_at for worker in self._workers.values() if worker.restart_at is not None]
        times += [w.lost_at + _EXIT_FOLLOWS for w in self._workers.values() if w.lost_at and not w.over]
        if not self._directory_sent:
            times += [w.started_at + _START_TIMEOUT for w in self._workers.values() if w.address is None]
        now = time.monotonic()
        if self._settings.stall_timeout is not None:
            times.append(now + self._settings.stall_timeout / 4)
        return max(0.0, min(times) - now) if times else None

    def _check_times(self) -> None:
        now = time.monotonic()
        for worker in list(self._workers.values()):
            if worker.restart_at is not None and worker.restart_at <= now:
                self._restart(worker)
            elif worker.lost_at is not None and not worker.over:
                self._judge(worker)
            elif worker.address is None and not worker.over and now - worker.started_at > _START_TIMEOUT:
                if worker.handle.has_place():
                    self._on_failure(worker, f"did not join within {_START_TIMEOUT:.0f} s")
                else:
                    worker.started_at = now
            elif self._settings.stall_timeout is not None and not worker.over:
                self._check_stall(worker, self._settings.stall_timeout, now)

    def _on_heartbeat(self, worker: _Worker, n_passes: int, must_move: bool) -> None:
        worker.last_beat = time.monotonic()
        if n_passes != worker.n_passes or not must_move:
            worker.n_passes = n_passes
            worker.last_pass = worker.last_beat

    def _check_stall(self, worker: _Worker, limit: float, now: float) -> None:
        if worker.last_beat is None or worker.spec.heartbeat is None:
            return
        if now - worker.last_pass > limit or now - worker.last_beat > limit:
            worker.handle.kill()
            self._on_failure(worker, f"made no pass for {limit} s (stall_timeout) and was killed")

    def _wait_for_ends(self, seconds: float) -> None:
        """Read on until all workers have ended or the time is over."""
        deadline = time.monotonic() + seconds
        while any(worker.exit_text is None for worker in self._workers.values()):
            try:
                message = self._inbox.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                return
            if message[0] == "exit" and self._workers[message[1]].spec.incarnation == message[2]:
                self._workers[message[1]].exit_text = message[3]

    def _end_all(self) -> None:
        finished = bool(self._workers) and all(worker.returned for worker in self._workers.values())
        if finished:
            self._wait_for_ends(_GRACE)
        for end, grace in ((_ask, _TERMINATE_GRACE), (_kill, _TERMINATE_GRACE)):
            running = [worker for worker in self._workers.values() if worker.exit_text is None]
            if not running:
                break
            for worker in running:
                end(worker.handle)
            self._wait_for_ends(grace)
        for worker in self._workers.values():
            worker.handle.release()


def _ask(handle: WorkerHandle) -> None:
    handle.ask_to_end()


def _kill(handle: WorkerHandle) -> None:
    handle.kill()


def _to_machine(address: str | None) -> str:
    """Of a worker that may be on another machine."""
    protocol, host, _ = split_address(address) if address else ("", "", 0)
    return f" to {host}" if protocol == "tcp" else ""


def _as_it_came(frame: Frame) -> Parcel:
    layout = BodyLayout()
    if frame.body is not None:
        layout.add(memoryview(frame.body))
    return Parcel(frame.kind, frame.head, layout)
