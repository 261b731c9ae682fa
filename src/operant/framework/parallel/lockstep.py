"""One worker at a time, in a fixed order: a parallel run that repeats bit by bit."""

from __future__ import annotations

from collections.abc import Callable


class TurnKeeper:
    """Gives the turn from worker to worker; what they do, they do in their turn, so timing cannot matter."""

    def __init__(self, grant: Callable[[int, bool], None]) -> None:
        self._grant = grant
        self._order: list[int] = []
        self._holder: int | None = None
        self._waiting: dict[int, str] = {}
        self._idle_turns = 0  # in a row

    def begin(self, node_ids: list[int]) -> None:
        if not self._order:
            self._order = list(node_ids)
            self._give(self._order[0])

    def over(self, node_id: int, progressed: bool, waiting_for: str) -> str | None:
        """A turn ended. The returned text says why no worker can ever go on, when that is so."""
        if progressed:
            self._idle_turns = 0
            self._waiting.clear()
        else:
            self._idle_turns += 1
            self._waiting[node_id] = waiting_for
        # One round in which all wait lets their time limits run out; a second one is the end.
        if self._idle_turns >= 2 * len(self._order) + 1:
            return "lockstep: every worker waits for another: " + "; ".join(
                f"node.{node} for {text}" for node, text in sorted(self._waiting.items())
            )
        self._give(self._after(node_id))
        return None

    def leave(self, node_id: int) -> None:
        """A worker has ended, which may be what others wait for."""
        following = self._after(node_id)
        self._order.remove(node_id)
        self._waiting.pop(node_id, None)
        self._idle_turns = 0
        if self._order and self._holder == node_id:
            self._give(following)

    def _after(self, node_id: int) -> int:
        return self._order[(self._order.index(node_id) + 1) % len(self._order)]

    def _give(self, node_id: int) -> None:
        self._holder = node_id
        self._grant(node_id, self._idle_turns >= len(self._order))
