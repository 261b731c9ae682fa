"""Workers on several machines: each of them joins the one that began, and is told which workers to start.

The machine that began listens at an address that the others know (`OPERANT_SECRET` proves who may join). A worker goes
to the machine with the fewest; when one is lost, its workers are replaced on those that are left.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from operant.framework.errors import FrameworkError
from operant.framework.parallel.addresses import split_address
from operant.framework.parallel.hub import Hub
from operant.framework.parallel.link import Frame, Kind, Link, PeerInfo
from operant.framework.parallel.local_engine import ExitCallback, LocalEngine, WorkerHandle
from operant.framework.parallel.settings import RunnerSettings
from operant.framework.parallel.spec import WorkerSpec

_LOG = logging.getLogger(__name__)

WAIT_FOR_MACHINES = 600.0
"""Seconds that a run waits for machines that are to join before it goes on with those that have."""


class NodesEngine:
    """Starts workers here and on machines that have joined."""

    def __init__(self, settings: RunnerSettings, say: Callable[[str], None] | None = None) -> None:
        assert settings.address is not None
        self._local = LocalEngine()
        self._say = say or (lambda sentence: _LOG.warning("%s", sentence))
        self._expected = settings.n_machines - 1
        self._changed = threading.Condition()
        self._machines: list[Link] = []
        self._running: dict[tuple[int, int], tuple[Link | None, WorkerSpec, ExitCallback]] = {}
        self._closing = False
        _, self._host, _ = split_address(settings.address)
        self._hub = Hub(
            PeerInfo(node_id=-2, role="engine"),
            settings.session_secret(),
            on_frame=self._on_frame,
            on_link=self._on_link,
            on_lost=self._on_lost,
        )
        self.address = self._hub.listen(settings.address)

    # -- what a supervisor asks --------------------------------------------------------------------
    def supervisor_address(self, session: str) -> str:
        return f"tcp://{self._host}:0"

    def listen_at(self, session: str, spec: WorkerSpec, tcp: list[str]) -> list[str]:
        return []  # the machine on which it will be says where

    def start(self, spec: WorkerSpec, on_exit: ExitCallback) -> WorkerHandle:
        with self._changed:
            places: list[Link | None] = [None, *self._machines]
            load = [sum(place is there for there, _, _ in self._running.values()) for place in places]
            place = places[load.index(min(load))]
            self._running[spec.node_id, spec.incarnation] = (place, spec, on_exit)
        if place is None:
            return self._local.start(replace(spec, listen_at=[f"tcp://{self._host}:0"]), self._ended_here)
        # The secret stays at home: whoever has joined knows it.
        self._hub.send(place, Kind.START, replace(spec, secret=b"", listen_at=[]))
        return _FarHandle(self._hub, place, spec)

    def close(self) -> None:
        self._closing = True
        self._hub.close()
        self._local.close()

    # -- machines ----------------------------------------------------------------------------------
    def wait_for_machines(self) -> None:
        """Until all that are expected have joined, or have had their time."""
        deadline = time.monotonic() + WAIT_FOR_MACHINES
        with self._changed:
            while len(self._machines) < self._expected and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)
            if len(self._machines) < self._expected:
                missing = self._expected - len(self._machines)
                self._say(f"{missing} of {self._expected} other machines have not joined: it goes on without them")

    def _on_link(self, link: Link) -> None:
        if link.info.role != "machine":
            return
        with self._changed:
            self._machines.append(link)
            self._changed.notify_all()
        self._say(f"{_name(link)} has joined")

    def _on_lost(self, link: Link, why: str) -> None:
        with self._changed:
            if link in self._machines:
                self._machines.remove(link)
            gone = [key for key, (place, _, _) in self._running.items() if place is link]
            lost = [self._running.pop(key) for key in gone]
        if not self._closing:
            self._say(f"{_name(link)} is lost, with {len(lost)} workers: {why}")
        for _, spec, on_exit in lost:
            on_exit(spec, f"was on {_name(link)}, which is lost")

    def _on_frame(self, link: Link, frame: Frame) -> None:
        if frame.kind is Kind.ENDED:
            node_id, incarnation, text = frame.value()
            self._ended(node_id, incarnation, f"{text}, on {_name(link)}")

    def _ended_here(self, spec: WorkerSpec, text: str) -> None:
        self._ended(spec.node_id, spec.incarnation, text)

    def _ended(self, node_id: int, incarnation: int, text: str) -> None:
        with self._changed:
            found = self._running.pop((node_id, incarnation), None)
        if found is not None:
            found[2](found[1], text)


class _FarHandle:
    def __init__(self, hub: Hub, place: Link, spec: WorkerSpec) -> None:
        self._hub, self._place, self._spec = hub, place, spec

    def has_place(self) -> bool:
        return True

    def ask_to_end(self) -> None:
        self._end(hard=False)

    def kill(self) -> None:
        self._end(hard=True)

    def release(self) -> None: ...

    def _end(self, hard: bool) -> None:
        self._hub.send(self._place, Kind.STOP, (self._spec.node_id, self._spec.incarnation, hard))


def _name(link: Link) -> str:
    return next(iter(link.info.labels), "a machine")


def join(address: str, secret: bytes, timeout: float, say: Callable[[str], None]) -> bool:
    """Be a machine of a run that another one began: start the workers that it asks for, until it is done.

    True when it said goodbye; False when it was lost.
    """
    engine, over = LocalEngine(), threading.Event()
    handles: dict[tuple[int, int], WorkerHandle] = {}
    goodbye: list[bool] = []
    lock = threading.Lock()

    def ended(spec: WorkerSpec, text: str) -> None:
        with lock:
            handle = handles.pop((spec.node_id, spec.incarnation), None)
        if handle is not None:
            handle.release()
            hub.send(link, Kind.ENDED, (spec.node_id, spec.incarnation, text))

    def on_frame(link: Link, frame: Frame) -> None:
        if frame.kind is Kind.START:
            spec = frame.value()
            here = link.sock.getsockname()[0]
            own = replace(spec, secret=secret, listen_at=[f"tcp://{f'[{here}]' if ':' in here else here}:0"])
            with lock:
                handles[spec.node_id, spec.incarnation] = engine.start(own, ended)
            say(f"worker {spec.node_id} is started")
        elif frame.kind is Kind.STOP:
            node_id, incarnation, hard = frame.value()
            with lock:
                handle = handles.get((node_id, incarnation))
            if handle is not None:
                handle.kill() if hard else handle.ask_to_end()

    def on_lost(link: Link, why: str) -> None:
        goodbye.append(link.said_bye)
        over.set()

    info = PeerInfo(node_id=-3, role="machine", labels=[socket.gethostname()])
    hub = Hub(info, secret, on_frame, lambda _: None, on_lost)
    try:
        link = hub.dial(address, timeout)
        say(f"joined the run at {address}")
        over.wait()
    finally:
        with lock:
            left = list(handles.values())
        for handle in left:
            handle.kill()
        hub.close()
    return goodbye[0]


def own_address(port: int) -> str:
    """Where other machines reach this one, as far as it knows by itself."""
    try:
        host = socket.gethostbyname(socket.gethostname())
    except OSError as error:
        raise FrameworkError(f"this machine's own name cannot be looked up ({error}): set OPERANT_ADDRESS") from error
    return f"tcp://{host}:{port}"
