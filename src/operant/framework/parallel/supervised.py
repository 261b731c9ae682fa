"""A worker's side of its link to the supervisor: reporting, saved state, turns."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from operant.framework.errors import FrameworkError
from operant.framework.parallel.hub import Hub
from operant.framework.parallel.link import Frame, Kind, Link, Parcel
from operant.framework.parallel.spec import WorkerSpec
from operant.framework.parallel.standalone import Standalone
from operant.framework.parallel.wire import BodyLayout, WireError, decode, encode

if TYPE_CHECKING:
    from operant.framework.parallel.router import Router

Directory = dict[int, tuple[str, int]]

_DIAL_TIMEOUT = 10.0
_JOIN_TIMEOUT = 120.0
# A worker goes on when its state was not taken in time; the supervisor then has an older one.
_SAVE_TIMEOUT = 10.0


class Turn:
    """In lockstep one worker runs at a time; this is the permission to be that one."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._granted = False
        self._owner: int | None = None
        self._nobody_can_move = False
        self._seen: int | None = None

    def mine(self) -> bool:
        """Whether this thread is the one that runs in turns."""
        return self._owner == threading.get_ident()

    def take(self) -> None:
        """Wait for the turn."""
        self._owner = threading.get_ident()
        Standalone.wait_until(self._router, lambda: self._granted)
        self._granted = False
        self._seen = None

    def grant(self, nobody_can_move: bool) -> None:
        self._nobody_can_move = nobody_can_move
        self._granted = True
        self._router.notify()

    def pass_on(self, progressed: bool, waiting_for: str = "") -> bool:
        """Let the others run and wait for the next turn; True when nobody could do anything meanwhile."""
        self._router.supervisor.send(Kind.TURN_OVER, (progressed, waiting_for))
        self.take()
        return self._nobody_can_move

    def seen_before(self, arrival: int) -> bool:
        """Whether the same was looked at before in this turn."""
        seen, self._seen = self._seen, arrival
        return seen == arrival


class SupervisorLink:
    """What a worker and its supervisor say to each other."""

    def __init__(self, spec: WorkerSpec, router: Router) -> None:
        self._spec = spec
        self._router = router
        self._hub: Hub | None = None
        self._link: Link | None = None
        self.directory: Directory | None = None
        """Where the workers of this one's links listen, as it was last told."""
        self._saved = 0
        self._saves = 0
        self._n_passes = 0
        self._stop_beating = threading.Event()
        self.turn = Turn(router)

    def join(self, hub: Hub, address: str) -> Directory:
        """Report where this worker listens; returns where the others do, when all are there."""
        self._hub = hub
        self._link = hub.dial(self._spec.supervisor, _DIAL_TIMEOUT)
        self.send(Kind.READY, address)
        if self._spec.heartbeat is not None:
            threading.Thread(target=self._beat, name="operant-heartbeat", daemon=True).start()
        if not self._router.wait_until(lambda: self.directory is not None, _JOIN_TIMEOUT):
            raise FrameworkError(f"the other workers were not ready within {_JOIN_TIMEOUT:.0f} s")
        assert self.directory is not None
        return self.directory

    def send(self, kind: Kind, value: Any = None) -> bool:
        return self._hub is not None and self._link is not None and self._hub.send(self._link, kind, value)

    def pass_made(self, total_step: int) -> None:
        self._n_passes += 1

    def _beat(self) -> None:
        # A thread beats even while the loop hangs; the number of passes is what tells.
        while not self._stop_beating.wait(self._spec.heartbeat):
            self.send(Kind.HEARTBEAT, (self._n_passes, self._router.in_task and not self._router.n_waiting))

    def save_state(self, state: Any) -> None:
        """Give the state away, and wait until it is in safe hands."""
        self._saves += 1
        number = self._saves
        layout = BodyLayout()
        # The state is a message within the message: the supervisor keeps it without looking into it.
        message = (number, encode(state, layout))
        if self._hub is not None and self._link is not None:
            self._hub.send_all([self._link], Parcel.pack(Kind.STATE, message, layout))
            # The plain wait: a save is no point at which others may take a turn.
            with self._router.changed:
                self._router.changed.wait_for(lambda: self._saved >= number, _SAVE_TIMEOUT)

    def receive(self, frame: Frame) -> None:
        """A message of the supervisor (in the hub's thread)."""
        value = frame.value()
        if frame.kind is Kind.DIRECTORY:
            nodes, left = value
            first, self.directory = self.directory is None, nodes
            if first:
                self._router._left.update(left)
                self._router.notify()
            else:
                self._router.directory_changed(nodes, left)
        elif frame.kind is Kind.ABORT:
            self._router.fail(value)
        elif frame.kind is Kind.STATE_SAVED:
            self._saved = value
            self._router.notify()
        elif frame.kind is Kind.STATE:
            self._spec.state = decode(value[1], frame.body, allow_pickle=True)
        elif frame.kind is Kind.TURN:
            self.turn.grant(value)
        else:
            raise WireError(f"the supervisor sent a {frame.kind.name}, which is not for workers")

    def leave(self) -> None:
        self._stop_beating.set()
