"""What a worker sees of the ctx of the others: the newest whole snapshot of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol


class Snapshot:
    """The shared values of one worker as they were at the end of one of its passes; never changes.

    Large values that nobody has read yet are only named (`on_demand`).
    """

    __slots__ = ("_decoded", "_encoded", "arrival", "node_id", "on_demand", "ordinal", "seq")

    def __init__(
        self,
        node_id: int,
        ordinal: int,
        seq: int,
        encoded: dict[str, Callable[[], Any]],
        on_demand: Iterable[str],
        arrival: int,
    ) -> None:
        self.node_id = node_id
        self.ordinal = ordinal
        self.seq = seq
        self.arrival = arrival
        self.on_demand = frozenset(on_demand)
        self._encoded = encoded
        self._decoded: dict[str, Any] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._encoded

    def names(self) -> set[str]:
        return set(self._encoded) | self.on_demand

    def value(self, name: str) -> Any:
        """The value; arrays in it are private to this process, writing to them changes nothing elsewhere."""
        if name not in self._decoded:
            self._decoded[name] = self._encoded[name]()
        return self._decoded[name]


class SnapshotSource(Protocol):
    """Where views come from."""

    def mark_read(self, name: str, snapshots: dict[int, Snapshot]) -> None: ...
    def fetch(self, name: str, snapshot: Snapshot) -> Snapshot | None: ...
    def wait_newer(self, arrival: int, timeout: float | None) -> dict[int, Snapshot] | None: ...


class ParallelContext:
    """The newest snapshots of the peers as one mapping; attribute and key are the same.

    A key that several peers share is taken from the one whose snapshot came last; ``peer(1)`` looks at one
    alone. The view stays as it is while you hold it, so values read from it belong together; take
    ``task.parallel_ctx`` anew, or `wait_newer`, to see later ones. The first read of a large value asks its
    owner to publish it, and moves the view on to the snapshot that has it.
    """

    __slots__ = ("_snapshots", "_source")

    def __init__(self, snapshots: dict[int, Snapshot], source: SnapshotSource | None) -> None:
        self._snapshots = snapshots
        self._source = source

    def get(self, name: str, default: Any = None) -> Any:
        if self._source is not None:
            self._source.mark_read(name, self._snapshots)
        newest_first = sorted(self._snapshots.values(), key=lambda snapshot: -snapshot.arrival)
        for snapshot in newest_first:
            if name in snapshot:
                return snapshot.value(name)
        if self._source is not None:
            for snapshot in newest_first:
                if name in snapshot.on_demand:
                    fetched = self._source.fetch(name, snapshot)
                    if fetched is not None:
                        self._snapshots = {**self._snapshots, snapshot.node_id: fetched}
                        return fetched.value(name)
        return default

    def __getitem__(self, name: str) -> Any:
        value = self.get(name, _MISSING)
        if value is _MISSING:
            raise KeyError(name)
        return value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = self.get(name, _MISSING)
        if value is _MISSING:
            known = ", ".join(sorted(self.keys())) or "nothing yet"
            raise AttributeError(f"no peer has shared {name!r}; shared so far: {known}")
        return value

    def keys(self) -> set[str]:
        """Every name that a peer shares, read or not."""
        return set().union(*(snapshot.names() for snapshot in self._snapshots.values()))

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self.keys()))

    def __contains__(self, name: object) -> bool:
        return name in self.keys()

    def __len__(self) -> int:
        return len(self.keys())

    @property
    def peers(self) -> list[int]:
        """The workers whose ctx has been seen."""
        return sorted(self._snapshots)

    def peer(self, node_id: int) -> ParallelContext:
        """The view of one worker alone; empty while it has shared nothing."""
        return ParallelContext({k: s for k, s in self._snapshots.items() if k == node_id}, self._source)

    def wait_newer(self, timeout: float | None = None) -> ParallelContext | None:
        """A view with a newer snapshot; None when the time ran out or finish was raised."""
        if self._source is None:
            return None
        arrival = max((snapshot.arrival for snapshot in self._snapshots.values()), default=0)
        snapshots = self._source.wait_newer(arrival, timeout)
        return None if snapshots is None else ParallelContext(snapshots, self._source)

    def __repr__(self) -> str:
        return f"ParallelContext(peers={self.peers}, keys={sorted(self.keys())})"


_MISSING = object()
