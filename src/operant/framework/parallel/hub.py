"""The thread that moves bytes: all connections of one process."""

from __future__ import annotations

import errno
import logging
import math
import resource
import selectors
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from operant.framework.errors import AuthenticationError
from operant.framework.parallel.addresses import connect, listen, local_address
from operant.framework.parallel.auth import (
    HANDSHAKE_TIMEOUT,
    HungUp,
    greet_as_dialer,
    greet_as_listener,
    receive_exactly,
)
from operant.framework.parallel.link import (
    SEGMENT_FROM,
    Frame,
    Kind,
    Link,
    LinkClosed,
    Parcel,
    PeerInfo,
    process_place,
)
from operant.framework.parallel.segments import (
    SegmentPlace,
    SegmentPool,
    map_segment,
    shared_memory_works,
)
from operant.framework.parallel.wire import BodyLayout, WireError, decode, encode

_LOG = logging.getLogger(__name__)

# Before a peer has introduced itself nothing longer than this is read from it.
_MAX_HELLO = 1 << 16
_MAX_HANDSHAKES = 64
_LINKS_AT_ONCE = 16
_OUT_OF_FILES = 0.1  # seconds until the next try
_MOST_FILES = 1 << 16

FrameHandler = Callable[[Link, Frame], None]


class Hub:
    """Listens, dials, reads and writes for one process. Handlers run in its thread and must not wait."""

    def __init__(
        self,
        info: PeerInfo,
        secret: bytes,
        on_frame: FrameHandler,
        on_link: Callable[[Link], None],
        on_lost: Callable[[Link, str], None],
    ) -> None:
        self.info = info
        self.pool = SegmentPool()
        self._secret = secret
        self._on_frame = on_frame
        self._on_link = on_link
        self._on_lost = on_lost
        self._selector = selectors.DefaultSelector()
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        # What must not wait for a round of all links: with a thousand busy ones that takes a second, and whoever joins
        # needs several.
        self._urgent = selectors.DefaultSelector()
        for selector in (self._selector, self._urgent):
            selector.register(self._wake_in, selectors.EVENT_READ)
        self._listeners: list[socket.socket] = []
        self._todo: list[Callable[[], None]] = []
        self._todo_lock = threading.Lock()
        # Connections that have not proved the secret yet, oldest first, and the host each came from.
        self._handshakes: dict[socket.socket, str] = {}
        self._handshakes_lock = threading.Lock()
        self._refused = 0
        self._told_refused = -math.inf
        self.links: list[Link] = []
        self._closing = False
        self._probe: tuple[int, int, int] | None = None
        self._place = process_place()
        if shared_memory_works():
            layout = BodyLayout()
            layout.add(memoryview(b"probe"))
            # In flight for ever: it is written once and never used for anything else.
            self._probe = self.pool.write(layout, n_readers=1)[1]
        self._thread = threading.Thread(target=self._run, name="operant-hub", daemon=True)
        self._thread.start()

    # -- connections -------------------------------------------------------------------------------
    def listen(self, address: str) -> str:
        """Accept connections at an address; returns it with what was left open (port 0) filled in."""
        listener = listen(address)
        self._listeners.append(listener)
        self.do(lambda: self._watch(listener))
        return local_address(listener, address)

    def dial(self, address: str, timeout: float) -> Link:
        """Connect, trying again while nobody listens there yet or the listener is crowded."""
        deadline = time.monotonic() + timeout
        pause = 0.01
        while True:
            try:
                return self._dial_once(address)
            except HungUp as error:
                # It never got as far as our proof, so the secret is not the reason.
                reason = f"{address} hung up during the handshake: other connections crowd it, or it is ending"
                failure: OSError = error
            except OSError as error:
                reason, failure = f"nobody answers at {address} ({error})", error
            if time.monotonic() + pause > deadline:
                raise ConnectionError(f"{reason}; tried for {timeout:.0f} s") from failure
            time.sleep(pause)
            pause = min(2 * pause, 0.5)

    def _dial_once(self, address: str) -> Link:
        sock = connect(address, HANDSHAKE_TIMEOUT)
        try:
            deadline = time.monotonic() + HANDSHAKE_TIMEOUT
            try:
                greet_as_dialer(sock, self._secret, deadline)
            except ConnectionError as error:
                raise HungUp(str(error)) from error
            try:
                return self._introduce(sock, deadline)
            except HungUp as error:
                raise WireError("the peer hung up during its introduction") from error
        except BaseException:
            sock.close()
            raise

    def _accept(self, listener: socket.socket) -> None:
        try:
            sock, peer = listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._tell_refused(error)
                time.sleep(_OUT_OF_FILES)  # it stays ready to be accepted: trying at once would only heat the core
            return
        _allow_files_beyond(sock.fileno())
        self._make_room(sock, peer[0] if isinstance(peer, tuple) else "")
        # A peer that says nothing must not hold up the others: each introduction has its own thread.
        threading.Thread(target=self._welcome, args=(sock,), name="operant-welcome", daemon=True).start()

    def _make_room(self, sock: socket.socket, host: str) -> None:
        """Enter a connection that has yet to prove itself; of too many, the oldest of the busiest host goes.

        A handshake takes milliseconds: those that have stood longest are strangers who mean to stand there.
        """
        with self._handshakes_lock:
            if len(self._handshakes) >= _MAX_HANDSHAKES:
                busiest = Counter(self._handshakes.values()).most_common(1)[0][0]
                oldest = next(one for one, place in self._handshakes.items() if place == busiest)
                del self._handshakes[oldest]
                try:
                    oldest.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads from it
                except OSError:
                    pass
            self._handshakes[sock] = host

    def _welcome(self, sock: socket.socket) -> None:
        deadline = time.monotonic() + HANDSHAKE_TIMEOUT
        try:
            greet_as_listener(sock, self._secret, deadline)
            with self._handshakes_lock:
                self._handshakes.pop(sock, None)
            self._introduce(sock, deadline)
        except (AuthenticationError, WireError, OSError) as error:
            sock.close()
            self._tell_refused(error)
        finally:
            with self._handshakes_lock:
                self._handshakes.pop(sock, None)

    def _tell_refused(self, error: Exception) -> None:
        """At most once a minute: strangers must not fill the log either."""
        with self._handshakes_lock:
            self._refused += 1
            if time.monotonic() - self._told_refused < 60.0:
                return
            count, self._refused, self._told_refused = self._refused, 0, time.monotonic()
        _LOG.warning("refused a connection: %s%s", error, f" ({count - 1} more since the last word)" * (count > 1))

    def _introduce(self, sock: socket.socket, deadline: float) -> Link:
        """Both know the secret now: say who is who, and find out whether memory can be shared."""
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _notice_dead_machines(sock)
        else:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        own: dict[str, Any] = {
            "node_id": self.info.node_id,
            "incarnation": self.info.incarnation,
            "labels": sorted(self.info.labels),
            "role": self.info.role,
            "probe": self._probe,
            **self._place,
        }
        _send_small(sock, own)
        theirs = _receive_small(sock, deadline)
        try:
            info = PeerInfo(
                node_id=int(theirs["node_id"]),
                incarnation=int(theirs["incarnation"]),
                pid=int(theirs["pid"]),
                labels=[str(label) for label in theirs["labels"]],
                role=str(theirs["role"]),
            )
            probe = theirs["probe"]
        except (KeyError, TypeError, ValueError) as error:
            raise WireError(f"the peer did not introduce itself properly: {error!r}") from error
        same_machine = bool(self._place["machine"]) and theirs.get("machine") == self._place["machine"]
        _send_small(sock, same_machine and _can_read(info.pid, probe))
        link = Link(sock, info, bool(_receive_small(sock, deadline)), self.pool)
        registered = threading.Event()
        refusals: list[WireError] = []

        def register() -> None:
            try:
                self._on_link(link)
                self.links.append(link)
                self._selector.register(sock, selectors.EVENT_READ, link)
            except WireError as error:
                refusals.append(error)
                link.close()
            registered.set()

        self.do(register)
        if not registered.wait(HANDSHAKE_TIMEOUT):
            raise LinkClosed("this process is ending")
        if refusals:
            raise refusals[0]
        return link

    # -- sending -----------------------------------------------------------------------------------
    def send(self, link: Link, kind: Kind, value: Any = None) -> bool:
        """Send one message to one peer; False when it is gone."""
        return self.send_all([link], Parcel.pack(kind, value)) == 1

    def send_all(self, links: list[Link], parcel: Parcel) -> int:
        """Send one message to several peers, large contents through one piece of shared memory."""
        readers = sum(link.peer_can_read for link in links)
        if readers and parcel.layout.nbytes >= SEGMENT_FROM:
            parcel.segment, parcel.place = self.pool.write(parcel.layout, readers)
        n_sent = 0
        for link in links:
            try:
                if link.post(parcel):
                    self.do(lambda link=link: self._watch_writable(link))  # type: ignore[misc]
                n_sent += 1
            except LinkClosed:
                if parcel.segment is not None and link.peer_can_read:
                    self.pool.arrived(parcel.segment)
        return n_sent

    # -- the thread --------------------------------------------------------------------------------
    def do(self, action: Callable[[], None]) -> None:
        """Run something in the hub's thread, soon."""
        with self._todo_lock:
            first = not self._todo
            self._todo.append(action)
        if first:
            try:
                self._wake_out.send(b"!")
            except (BlockingIOError, OSError):
                pass

    def _run(self) -> None:
        while not self._closing:
            served = 0
            for key, events in self._selector.select():
                if isinstance(key.data, Link):
                    self._serve(key.data, events)
                    served += 1
                    if served % _LINKS_AT_ONCE == 0:
                        self._see_to_urgent()
            self._see_to_urgent()

    def _see_to_urgent(self) -> None:
        for key, _ in self._urgent.select(0):
            if key.fileobj is self._wake_in:
                self._do_all()
            elif isinstance(key.fileobj, socket.socket):
                self._accept(key.fileobj)

    def _do_all(self) -> None:
        try:
            self._wake_in.recv(4096)
        except BlockingIOError:
            pass
        with self._todo_lock:
            todo, self._todo = self._todo, []
        for action in todo:
            try:
                action()
            except Exception:
                _LOG.exception("an action of the hub failed")

    def _serve(self, link: Link, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE and link.flush_outbox():
                self._selector.modify(link.sock, selectors.EVENT_READ, link)
            if events & selectors.EVENT_READ:
                for frame in link.receive():
                    self._handle(link, frame)
        except (WireError, OSError) as error:
            self._lose(link, str(error))
        except Exception as error:
            # This thread serves all links; what one of them sends must not end it.
            _LOG.exception("a message of node.%d could not be handled", link.node_id)
            self._lose(link, f"one of its messages could not be handled: {error!r}")

    def _handle(self, link: Link, frame: Frame) -> None:
        if frame.kind is Kind.SEGMENT_MAPPED:
            link.segment_mapped()
        elif frame.kind is Kind.BYE:
            link.said_bye = True
        else:
            self._on_frame(link, frame)

    def _watch(self, listener: socket.socket) -> None:
        for selector in (self._selector, self._urgent):
            selector.register(listener, selectors.EVENT_READ)

    def _watch_writable(self, link: Link) -> None:
        if not link.closed:
            self._selector.modify(link.sock, selectors.EVENT_READ | selectors.EVENT_WRITE, link)

    def _lose(self, link: Link, why: str) -> None:
        if link.closed:
            return
        self._selector.unregister(link.sock)
        link.close()
        if link in self.links:
            self.links.remove(link)
        self._on_lost(link, why)

    def drain(self, timeout: float) -> bool:
        """Wait until everything that was sent has left this process, shared memory included."""
        deadline = time.monotonic() + timeout
        while any(link.outbox or link.in_flight for link in list(self.links) if not link.closed):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.001)
        return True

    def close(self) -> None:
        """Say goodbye and end the thread."""
        for link in list(self.links):
            self.send(link, Kind.BYE)
        self.drain(5.0)
        self._closing = True
        self.do(lambda: None)
        if threading.current_thread() is not self._thread:
            self._thread.join()
        for link in list(self.links):
            link.close()
        for listener in self._listeners:
            listener.close()
        self._selector.close()
        self._urgent.close()
        self._wake_in.close()
        self._wake_out.close()
        self.pool.close()


def _allow_files_beyond(newest: int) -> None:
    """Each link is a file; of the usual limit of 1,024, which the system lets a process raise, half is kept free."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < min(2 * newest, wanted):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _can_read(pid: int, probe: Any) -> bool:
    try:
        place: SegmentPlace = (int(probe[0]), int(probe[1]), int(probe[2]))
        return bytes(map_segment(pid, place)[:5]) == b"probe"
    except (OSError, TypeError, ValueError, IndexError):
        return False


def _send_small(sock: socket.socket, value: Any) -> None:
    head = encode(value, BodyLayout())
    sock.sendall(len(head).to_bytes(4, "little") + head)


def _receive_small(sock: socket.socket, deadline: float) -> Any:
    length = int.from_bytes(receive_exactly(sock, 4, deadline), "little")
    if length > _MAX_HELLO:
        raise WireError(f"the peer introduced itself with {length} bytes, more than the {_MAX_HELLO} allowed")
    return decode(receive_exactly(sock, length, deadline), allow_pickle=False)


def _notice_dead_machines(sock: socket.socket) -> None:
    """A machine that lost power closes no connection: probes find out within half a minute, a shorter cut heals."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000)
