"""Counters that every worker may raise: each writes its own part, the value is the sum."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

# (name, writer, amount): the whole amount of one writer, never an increment, so a repeated or late
# message cannot count twice.
Part = tuple[str, str, int | float]


class Counter:
    """One named counter; `add` here, `value` sums what all writers are known to have added."""

    __slots__ = ("_book", "name")

    def __init__(self, name: str, book: CounterBook) -> None:
        self.name = name
        self._book = book

    def add(self, amount: int | float = 1) -> None:
        if amount < 0:
            raise ValueError(f"counter {self.name!r} only goes up; {amount} was added")
        self._book.add(self.name, amount)

    @property
    def value(self) -> int | float:
        return sum(self._book.parts(self.name).values())

    @property
    def own(self) -> int | float:
        """What this process has added."""
        return self._book.parts(self.name).get(self._book.writer, 0)

    def per_writer(self) -> dict[str, int | float]:
        """The parts, by writer: ``node.1`` in its first life, ``node.1+1`` after one restart."""
        return dict(self._book.parts(self.name))


class CounterBook:
    """All counters of a process."""

    def __init__(self, writer: str, on_change: Callable[[], None] | None = None) -> None:
        self.writer = writer
        self._on_change = on_change
        self._lock = threading.Lock()
        self._parts: dict[str, dict[str, int | float]] = {}
        self._unsent: dict[tuple[str, str], int | float] = {}

    def counter(self, name: str) -> Counter:
        return Counter(name, self)

    def parts(self, name: str) -> dict[str, int | float]:
        with self._lock:
            return dict(self._parts.get(name, {}))

    def add(self, name: str, amount: int | float) -> None:
        with self._lock:
            parts = self._parts.setdefault(name, {})
            parts[self.writer] = parts.get(self.writer, 0) + amount
            was_clean = not self._unsent
            self._unsent[name, self.writer] = parts[self.writer]
        if was_clean and self._on_change is not None:
            self._on_change()

    def merge(self, parts: Iterable[Part]) -> list[Part]:
        """Take over what is news; returned for passing it on."""
        news = []
        with self._lock:
            for name, writer, amount in parts:
                known = self._parts.setdefault(name, {})
                if amount > known.get(writer, 0):
                    known[writer] = amount
                    news.append((name, writer, amount))
        return news

    def take_unsent(self) -> list[Part]:
        """The own parts that changed since the last call; many `add` calls become one message."""
        with self._lock:
            unsent, self._unsent = self._unsent, {}
        return [(name, writer, amount) for (name, writer), amount in unsent.items()]

    def everything(self) -> list[Part]:
        with self._lock:
            return [(name, writer, amount) for name, parts in self._parts.items() for writer, amount in parts.items()]
