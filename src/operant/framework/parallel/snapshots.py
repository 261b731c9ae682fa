"""How the ctx of a worker reaches the others: whole snapshots, the newest wins, nobody waits for a reader.

At the end of a pass the shared values are published to the peers that have read the previous snapshot
and want the next. A peer that reads nothing costs almost nothing: it gets a new snapshot only as often
as that takes up to `_IDLE_SHARE` of the time. The first snapshot that a peer gets holds everything;
after it, large values go only to those who have read them, to others they are only named. A peer has at
most one snapshot under way, so one that is slow, stopped or stuck holds neither the writer up nor its
memory.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from operant.framework.context import Context
from operant.framework.errors import SharingWarning
from operant.framework.parallel.hub import Hub
from operant.framework.parallel.link import Frame, Kind, Link, Parcel
from operant.framework.parallel.views import Snapshot
from operant.framework.parallel.wire import BodyLayout, WireError, decode, encode

LARGE = 1 << 16
WARN_ABOVE = 1 << 20
# How much of the loop's time may go into snapshots that nobody has asked for.
_IDLE_SHARE = 0.05
# A first read of a large value waits for the end of its owner's pass. The limit is for an owner that waits
# for the reader in turn: then the older snapshot, or nothing, is better than a deadlock.
FIRST_READ_TIMEOUT = 10.0


@dataclass
class _Reader:
    """What one peer has asked of this worker."""

    names: set[str] = field(default_factory=set)
    wants: bool = True
    sent: int = 0
    here: int = 0

    @property
    def ready(self) -> bool:
        return self.here >= self.sent


class Publisher:
    """The writing side."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._readers: dict[Link, _Reader] = {}
        self._asked = False
        self._seq = 0
        self._not_before = 0.0
        self._warned: set[str] = set()
        self._large: set[str] = set()
        self.n_published = 0

    def add_link(self, link: Link) -> None:
        self._readers[link] = _Reader()
        self._asked = True

    def remove_link(self, link: Link) -> None:
        self._readers.pop(link, None)

    def want(self, link: Link, names: Iterable[str]) -> None:
        reader = self._readers.get(link)
        if reader is not None:
            reader.names.update(names)
            reader.wants = True
            self._asked = True

    def here(self, link: Link, seq: int) -> None:
        reader = self._readers.get(link)
        if reader is not None:
            reader.here = seq
            if reader.wants:
                self._asked = True

    def publish(self, ctx: Context, ordinal: int, shared: frozenset[str] | None, everybody: bool = False) -> None:
        """Send a snapshot to those who want it, or to all who can take one when that costs little."""
        began = time.perf_counter()
        if not everybody and not self._asked and began < self._not_before:
            return
        self._asked = False
        idle_is_over = everybody or began >= self._not_before
        due = [
            (link, reader)
            for link, reader in list(self._readers.items())
            if not link.closed and reader.ready and (reader.wants or idle_is_over)
        ]
        if not due:
            return
        wanted = set().union(*(reader.names for _, reader in due))
        if any(reader.sent == 0 for _, reader in due):
            # A first snapshot holds everything: a wish for it may be on its way, from a peer for whom this
            # worker will wait next.
            wanted.update(ctx)
        layout = BodyLayout()
        heads, on_demand = self._encode_values(ctx, shared, wanted, layout)
        self._seq += 1
        message = {"seq": self._seq, "ordinal": ordinal, "values": heads, "on_demand": on_demand}
        for _, reader in due:
            reader.wants = False
            reader.sent = self._seq
        self._hub.send_all([link for link, _ in due], Parcel.pack(Kind.SNAPSHOT, message, layout))
        self.n_published += 1
        ended = time.perf_counter()
        self._not_before = ended + (ended - began) / _IDLE_SHARE

    def _encode_values(
        self, ctx: Context, shared: frozenset[str] | None, wanted: set[str], layout: BodyLayout
    ) -> tuple[dict[str, bytes], list[str]]:
        heads: dict[str, bytes] = {}
        on_demand: list[str] = []
        total = 0
        for name in list(ctx) if shared is None else [name for name in shared if name in ctx]:
            if name in self._large and name not in wanted:
                on_demand.append(name)
                continue
            mark = layout.mark()
            before = layout.payload_bytes
            try:
                head = encode(ctx[name], layout)
            except WireError as error:
                layout.rewind(mark)
                self._warn_once(f"cannot {name}", f"ctx.{name} does not reach the other workers: {error}")
                continue
            nbytes = len(head) + layout.payload_bytes - before
            total += nbytes
            if nbytes >= LARGE:
                self._large.add(name)
                if name not in wanted:
                    layout.rewind(mark)
                    on_demand.append(name)
                    continue
            heads[name] = head
        if shared is None and total > WARN_ABOVE:
            self._warn_once(
                "size",
                f"everything in ctx is shared with the other workers, {total / 1e6:.1f} MB in this loop; "
                "name what they need with task.share(...)",
            )
        return heads, on_demand

    def _warn_once(self, key: str, text: str) -> None:
        if key not in self._warned:
            self._warned.add(key)
            warnings.warn(text, SharingWarning, stacklevel=2)


@dataclass
class _Source:
    """What this worker knows of one peer's ctx."""

    link: Link | None = None
    newest: Snapshot | None = None
    names: set[str] = field(default_factory=set)
    asked_for: int = -1  # the snapshot (its seq) after which a newer one has been asked for


class Reader:
    """The reading side; see `SnapshotSource`."""

    def __init__(
        self,
        hub: Hub,
        wait_until: Callable[..., bool],
        ordinal: Callable[[], int],
        finished: Callable[[], bool],
    ) -> None:
        self._hub = hub
        self._wait_until = wait_until
        self._ordinal = ordinal
        self._finished = finished
        self._sources: dict[int, _Source] = {}
        self._wished: set[str] = set()
        self._arrivals = 0

    def add_link(self, link: Link) -> None:
        source = self._sources.setdefault(link.node_id, _Source())
        # A peer in a new life counts its snapshots from one again and knows nothing of earlier wishes.
        source.link, source.asked_for, source.names = link, -1, set()
        if self._wished:
            self._ask(source)

    def remove_link(self, link: Link) -> None:
        source = self._sources.get(link.node_id)
        if source is not None and source.link is link:
            source.link = None

    def receive(self, link: Link, frame: Frame) -> None:
        message = decode(frame.head, frame.body, allow_pickle=True)
        body = frame.body
        self._arrivals += 1
        encoded = {name: _lazily(head, body) for name, head in message["values"].items()}
        source = self._sources.setdefault(link.node_id, _Source())
        source.newest = Snapshot(
            link.node_id, message["ordinal"], message["seq"], encoded, message["on_demand"], self._arrivals
        )
        self._hub.send(link, Kind.SNAPSHOT_HERE, message["seq"])

    def snapshots(self) -> dict[int, Snapshot]:
        ordinal = self._ordinal()
        return {
            node_id: source.newest
            for node_id, source in list(self._sources.items())
            if source.newest is not None and source.newest.ordinal == ordinal
        }

    # -- SnapshotSource ----------------------------------------------------------------------------
    def mark_read(self, name: str, snapshots: dict[int, Snapshot]) -> None:
        self._wished.add(name)
        for source in list(self._sources.values()):
            newest = 0 if source.newest is None else source.newest.seq
            if source.link is not None and (name not in source.names or source.asked_for < newest):
                self._ask(source)

    def fetch(self, name: str, snapshot: Snapshot) -> Snapshot | None:
        source = self._sources[snapshot.node_id]

        def has_it() -> Snapshot | None:
            newest = source.newest
            return newest if newest is not None and name in newest else None

        self._wait_until(
            lambda: has_it() is not None or source.link is None,
            FIRST_READ_TIMEOUT,
            f"the first read of {name!r} from node.{snapshot.node_id}",
        )
        return has_it()

    def wait_newer(self, arrival: int, timeout: float | None) -> dict[int, Snapshot] | None:
        self.mark_read("total_step", {})

        def newer() -> dict[int, Snapshot] | None:
            snapshots = self.snapshots()
            return snapshots if any(s.arrival > arrival for s in snapshots.values()) else None

        self._wait_until(lambda: newer() is not None or self._finished(), timeout, "a newer snapshot")
        return newer()

    def _ask(self, source: _Source) -> None:
        source.asked_for = 0 if source.newest is None else source.newest.seq
        source.names |= self._wished
        if source.link is not None:
            self._hub.send(source.link, Kind.WANT, sorted(source.names))


def _lazily(head: bytes, body: Any) -> Callable[[], Any]:
    return lambda: decode(head, body, allow_pickle=True)
