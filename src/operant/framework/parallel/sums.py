"""Sums over all workers of a run: each gives an array and gets the sum, the same bits for everybody."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

from operant.framework.errors import TotalBroken
from operant.framework.parallel.hub import Hub
from operant.framework.parallel.link import Kind, Link, Parcel
from operant.framework.parallel.spec import WorkerSpec


class _SumRouter(Protocol):
    changed: threading.Condition
    hub: Hub
    spec: WorkerSpec

    def wait_until(self, predicate: Callable[[], object], timeout: float | None = None, what: str = "") -> bool: ...
    def link_to(self, node_id: int) -> Link | None: ...


class Sums:
    """The worker with the lowest number adds up, in the order of the workers, and sends the sum to the others.

    A life is a stretch in which nobody died. When one does, `total` raises `TotalBroken` everywhere; the workers agree
    on where to go on, `begin` the next life, and count their calls anew.
    """

    def __init__(self, router: _SumRouter) -> None:
        self._router = router
        self.life = 0
        self._number = 0
        self._broken = -1  # the newest life that somebody's death has ended
        self._given: dict[tuple[int, int], dict[int, Any]] = {}
        self._totals: dict[tuple[int, int], Any] = {}

    @property
    def _others(self) -> list[int]:
        return [node for node in self._router.spec.node_ids if node != self._router.spec.node_id]

    @property
    def _is_centre(self) -> bool:
        return self._router.spec.node_id == min(self._router.spec.node_ids)

    @property
    def is_over(self) -> bool:
        """Whether there will be no more sums in this life."""
        return self._broken >= self.life

    def begin(self, life: int) -> None:
        """Forget what was under way: calls count from here."""
        with self._router.changed:
            self.life, self._number = life, 0
            for kept in (self._given, self._totals):
                for at in [at for at in kept if at[0] < life]:
                    del kept[at]

    def total(self, values: Any) -> Any:
        """The sum over all workers; every one of them makes the same calls in the same order."""
        at = (self.life, self._number)
        self._number += 1
        return self._add_up(at, values) if self._is_centre else self._ask(at, values)

    def _add_up(self, at: tuple[int, int], values: Any) -> Any:
        router, others = self._router, self._others
        router.wait_until(lambda: self._is_broken(at) or len(self._given.get(at, ())) == len(others), None, "a sum")
        self._check(at)
        given = self._given.pop(at, {})
        result = values.copy()
        for node in others:
            result += given[node]
        router.hub.send_all(self._links(), Parcel.pack(Kind.TOTAL, (*at, result)))
        return result

    def _ask(self, at: tuple[int, int], values: Any) -> Any:
        router, centre = self._router, min(self._router.spec.node_ids)
        link = router.link_to(centre)
        self._check(at)
        if link is None or not router.hub.send(link, Kind.SUM, (*at, values)):
            raise TotalBroken(f"node.{centre}, which adds up, is gone")
        router.wait_until(lambda: self._is_broken(at) or at in self._totals, None, "a sum")
        if at not in self._totals:
            self._check(at)
        return self._totals.pop(at)

    def _links(self) -> list[Link]:
        found = [self._router.link_to(node) for node in self._others]
        return [link for link in found if link is not None]

    def _is_broken(self, at: tuple[int, int]) -> bool:
        return self._broken >= at[0]

    def _check(self, at: tuple[int, int]) -> None:
        if self._is_broken(at):
            raise TotalBroken("a worker died, or the run ends, in the middle of a sum")

    def break_off(self) -> None:
        """Nobody needs to wait for a sum of this life any more."""
        with self._router.changed:
            self._broken = max(self._broken, self.life)
            self._router.changed.notify_all()
        if self._is_centre:
            self._router.hub.send_all(self._links(), Parcel.pack(Kind.TOTAL, (self.life, -1, None)))

    # -- in the hub's thread, with the router's condition held ------------------------------------
    def link_lost(self, link: Link) -> None:
        if link.node_id in self._router.spec.node_ids and (self._is_centre or link.node_id == min(self._others)):
            self._broken = max(self._broken, self.life)
            if self._is_centre and self._number:
                self._router.hub.send_all(self._links(), Parcel.pack(Kind.TOTAL, (self.life, -1, None)))

    def receive(self, link: Link, kind: Kind, message: tuple[int, int, Any]) -> None:
        life, number, values = message
        if kind is Kind.SUM and life <= self._broken:
            self._router.hub.send(link, Kind.TOTAL, (life, -1, None))  # it has not heard of the death yet
        elif kind is Kind.SUM:
            self._given.setdefault((life, number), {})[link.node_id] = values
        elif number < 0:
            self._broken = max(self._broken, life)
        else:
            self._totals[life, number] = values
