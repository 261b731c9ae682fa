"""What is known of one job and of one proposal of a search."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from operant.status import USABLE, Status

if TYPE_CHECKING:
    from operant.searchers import Observation, Proposal

_PENDING = Status.PENDING
_NO_VALUES: Mapping[str, float] = {}


class JobRecord:
    """One job, from the moment it is queued; attempts overwrite each other. Only its search's state changes it."""

    __slots__ = (
        "arg_dict", "attempt", "code", "ended", "error", "id", "is_check", "iteration", "number", "reason", "reward",
        "search", "seed", "snapshot", "started", "status", "token",
    )  # fmt: skip

    def __init__(self, name: str, number: int, seed: int | None, arg_dict: Mapping[str, Any], search: str = "") -> None:
        self.id = name
        self.is_check = name.startswith("check-")
        """Whether it belongs to the final check, not to the search itself."""
        self.number = number
        self.seed = seed
        self.arg_dict = arg_dict
        self.search = search
        self.status: str = _PENDING
        self.attempt = 0
        self.token = ""
        self.reward: float | None = None
        self.started: float | None = None
        self.ended: float | None = None
        self.reason: str | None = None
        self.error: str | None = None
        self.code: int | None = None
        self.iteration: int | None = None
        self.snapshot: str | None = None
        """The user's code that its last attempt ran with: a folder below ``code/``."""

    @property
    def name(self) -> str:
        return f"{self.search}-{self.id}"

    def __repr__(self) -> str:
        return f"JobRecord({self.id!r}, {self.status})"


class ProposalRecord:
    """One proposal and, once all its jobs are done, what came of it."""

    __slots__ = (
        "budget", "config", "filtered", "notes", "number", "parent", "raced_out", "reward", "shown", "status", "values",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        config: dict[str, Any],
        budget: float | None = None,
        parent: int | None = None,
        notes: dict[str, Any] | None = None,
    ) -> None:
        self.number = number
        self.config = config
        self.budget = budget
        self.parent = parent
        self.notes = notes
        self.shown: dict[str, Any] | None = None
        self.filtered = False
        self.raced_out = False
        self.status: str | None = None
        self.values = _NO_VALUES
        self.reward: float | None = None

    def as_proposal(self) -> Proposal:
        """As its searcher made it."""
        from operant.searchers import Proposal  # and numpy with it: whoever only looks on needs neither

        return Proposal(self.number, self.config, self.budget, self.parent, self.notes)

    def as_observation(self) -> Observation:
        """What its searcher heard of it last."""
        from operant.searchers import Observation

        status = Status.FILTERED if self.filtered else str(self.status)
        return Observation(self.number, None, 1, status, self.values)

    @property
    def settings(self) -> dict[str, Any]:
        """The configuration as its jobs got it: 64 where ``2 ** randint(4, 6)`` was searched as 6."""
        return self.config if self.shown is None else {**self.config, **self.shown}

    @property
    def counts(self) -> bool:
        """Whether its reward is one over all its seeds."""
        reward = self.reward
        return reward is not None and reward == reward and not self.raced_out and self.status in USABLE
