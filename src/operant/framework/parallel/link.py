"""One authenticated connection to another process: frames out, frames in, never blocking."""

from __future__ import annotations

import enum
import logging
import os
import socket
import struct
import threading
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from operant.framework.parallel.segments import Segment, SegmentPlace, SegmentPool, map_segment
from operant.framework.parallel.wire import BodyLayout, WireError, decode, encode

_LOG = logging.getLogger(__name__)


class Kind(enum.IntEnum):
    """What a frame is about."""

    BYE = 3
    SEGMENT_MAPPED = 4
    PING = 5
    PONG = 6
    EVENT = 10
    EVENTS_DONE = 11
    FINISH = 12
    SNAPSHOT = 13
    SNAPSHOT_HERE = 14
    WANT = 15
    COUNTS = 16
    REQUEST = 17
    RESPONSE = 18
    RECEIVED = 19
    LEFT = 20
    SUM = 21
    TOTAL = 22
    # Between a worker and its supervisor.
    READY = 30
    DIRECTORY = 31
    RESULT = 32
    FAILURE = 33
    ABORT = 34
    STATE = 35
    STATE_SAVED = 36
    HEARTBEAT = 37
    TURN = 38
    TURN_OVER = 39
    # Between the machine that began a run and those that have joined it.
    START = 40
    ENDED = 41
    STOP = 42


# Magic, kind, flags, bytes of the head, bytes of the body.
_FRAME = struct.Struct("<2sBBIQ")
_MAGIC = b"OP"
_IN_SEGMENT = 1
_PLACE = struct.Struct("<IQQ")
_MAX_HEAD = 1 << 30
_MAX_BODY = 1 << 40
_CHUNK = 1 << 18
# Bodies from here up go through shared memory where the peer can reach it.
SEGMENT_FROM = 1 << 16


@dataclass
class Parcel:
    """A message that is ready to go to any number of links."""

    kind: Kind
    head: bytes
    layout: BodyLayout
    segment: Segment | None = None
    place: SegmentPlace | None = None
    _inline: bytearray | None = None

    @classmethod
    def pack(cls, kind: Kind, value: Any, layout: BodyLayout | None = None) -> Parcel:
        layout = BodyLayout() if layout is None else layout
        return cls(kind, encode(value, layout), layout)

    def inline_body(self) -> bytearray:
        if self._inline is None:
            self._inline = self.layout.to_bytes()
        return self._inline


@dataclass
class PeerInfo:
    """What a peer says of itself."""

    node_id: int
    incarnation: int = 0
    pid: int = 0
    labels: list[str] = field(default_factory=list)
    role: str = "worker"


@dataclass
class Frame:
    """One message that came in. The body is memory of this process alone."""

    kind: Kind
    head: bytes
    body: Any

    def value(self) -> Any:
        return decode(self.head, self.body, allow_pickle=True)


class LinkClosed(ConnectionError):
    """The other end is gone."""


class Link:
    """A connection. Any thread may send; only the hub's thread reads."""

    def __init__(self, sock: socket.socket, info: PeerInfo, peer_can_read: bool, pool: SegmentPool) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.info = info
        self.pool = pool
        # Whether the peer can map segments of this process.
        self.peer_can_read = peer_can_read
        self.closed = False
        self.said_bye = False
        self.lock = threading.Lock()
        self.outbox: deque[memoryview] = deque()
        self.in_flight: deque[Segment] = deque()
        self._received = bytearray()
        self._big: _BigFrame | None = None

    @property
    def node_id(self) -> int:
        return self.info.node_id

    # -- out ---------------------------------------------------------------------------------------
    def post(self, parcel: Parcel) -> bool:
        """Send or queue a message; True when the hub must help because not all of it fitted."""
        parts: list[Any]
        if parcel.place is not None and self.peer_can_read:
            parts = [
                _FRAME.pack(_MAGIC, parcel.kind, _IN_SEGMENT, len(parcel.head) + _PLACE.size, 0),
                _PLACE.pack(*parcel.place),
                parcel.head,
            ]
        else:
            nbytes = parcel.layout.nbytes
            parts = [_FRAME.pack(_MAGIC, parcel.kind, 0, len(parcel.head), nbytes), parcel.head]
            if nbytes:
                parts.append(parcel.inline_body())
        with self.lock:
            if self.closed:
                raise LinkClosed(f"node.{self.node_id} is gone")
            if parcel.segment is not None and self.peer_can_read:
                self.in_flight.append(parcel.segment)
            if self.outbox:
                self.outbox.extend(memoryview(part) for part in parts)
                return False
            rest = self._send_now(parts)
            self.outbox.extend(rest)
            return bool(rest)

    def _send_now(self, parts: list[Any]) -> list[memoryview]:
        """What did not fit. An error is left for the reading side to find, which sees it as well."""
        views = [memoryview(part) for part in parts if len(part)]
        while views:
            try:
                sent = self.sock.sendmsg(views)
            except (BlockingIOError, InterruptedError):
                return views
            except OSError:
                return []
            while views and sent >= views[0].nbytes:
                sent -= views.pop(0).nbytes
            if sent:
                views[0] = views[0][sent:]
        return []

    def flush_outbox(self) -> bool:
        """Called by the hub when the socket has room; True when all is sent."""
        with self.lock:
            while self.outbox:
                batch = [self.outbox.popleft() for _ in range(min(64, len(self.outbox)))]
                rest = self._send_now(batch)
                if rest:
                    self.outbox.extendleft(reversed(rest))
                    return False
            return True

    # -- in ----------------------------------------------------------------------------------------
    def receive(self) -> list[Frame]:
        """The frames that are complete. ConnectionError at the end of the stream, WireError for garbage."""
        if self._big is not None:
            frame = self._big.fill(self.sock)
            if frame is None:
                return []
            self._big = None
            return [frame]
        try:
            data = self.sock.recv(_CHUNK)
        except (BlockingIOError, InterruptedError):
            return []
        if not data:
            raise LinkClosed(f"node.{self.node_id} closed the connection")
        self._received += data
        return self._cut_frames()

    def _cut_frames(self) -> list[Frame]:
        frames: list[Frame] = []
        received = self._received
        start = 0
        while len(received) - start >= _FRAME.size:
            magic, kind, flags, head_bytes, body_bytes = _FRAME.unpack_from(received, start)
            if magic != _MAGIC or head_bytes > _MAX_HEAD or body_bytes > _MAX_BODY:
                raise WireError(f"node.{self.node_id} sent bytes that are no frame")
            try:
                known_kind = Kind(kind)
            except ValueError:
                raise WireError(f"node.{self.node_id} sent a frame of the unknown kind {kind}") from None
            head_end = start + _FRAME.size + head_bytes
            end = head_end + body_bytes
            if len(received) < end:
                if body_bytes > _CHUNK and len(received) >= head_end:
                    head = bytes(received[start + _FRAME.size : head_end])
                    self._big = _BigFrame(known_kind, head, body_bytes, received[head_end:])
                    start = len(received)
                break
            head = bytes(received[start + _FRAME.size : head_end])
            body: Any = received[head_end:end] if body_bytes else None
            if flags & _IN_SEGMENT:
                start = end
                try:
                    body = map_segment(self.info.pid, _PLACE.unpack_from(head))
                except OSError as error:
                    # The sender is gone, and its memory with it; what else it had sent still counts.
                    _LOG.warning("a %s of node.%d came too late: %s", known_kind.name, self.node_id, error)
                    continue
                head = head[_PLACE.size :]
                self.post(Parcel.pack(Kind.SEGMENT_MAPPED, None))
            frames.append(Frame(known_kind, head, body))
            start = end
        del received[:start]
        return frames

    def segment_mapped(self) -> None:
        """The peer has mapped the oldest segment that it was told of; it does so in order."""
        with self.lock:
            segment = self.in_flight.popleft() if self.in_flight else None
        if segment is not None:
            self.pool.arrived(segment)

    def close(self) -> None:
        with self.lock:
            self.closed = True
            segments, self.in_flight = list(self.in_flight), deque()
            self.outbox.clear()
        for segment in segments:
            self.pool.arrived(segment)
        self.sock.close()


class _BigFrame:
    """A frame whose body is received straight to where it will stay."""

    def __init__(self, kind: Kind, head: bytes, body_bytes: int, begun: bytearray) -> None:
        self._kind = kind
        self._head = head
        self._body = bytearray(body_bytes)
        self._body[: len(begun)] = begun
        self._filled = len(begun)

    def fill(self, sock: socket.socket) -> Frame | None:
        view = memoryview(self._body)
        while self._filled < len(self._body):
            try:
                n = sock.recv_into(view[self._filled :])
            except (BlockingIOError, InterruptedError):
                return None
            if n == 0:
                raise LinkClosed("the connection ended in the middle of a message")
            self._filled += n
        return Frame(self._kind, self._head, self._body)


def process_place() -> dict[str, Any]:
    """What tells two processes whether they can share memory; a guess that a probe then confirms."""
    try:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        boot_id = namespace = ""
    return {"pid": os.getpid(), "machine": boot_id + namespace}
