"""What goes between a searcher and whoever runs its proposals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from operant import status

USABLE, UNDER_WAY = status.USABLE, status.OPEN
FAILED = status.FAILED | {status.Status.FILTERED}
FINAL = USABLE | FAILED


# Not frozen, though nobody changes one: setting the fields of a frozen one takes three times as long, and there are
# two for each trial.
@dataclass(slots=True)
class Proposal:
    """One configuration that a searcher wants tried. Everything in it is JSON, so a journal can keep it."""

    number: int
    config: dict[str, Any]
    budget: float | None = None
    parent: int | None = None
    # What the searcher wants to be given back by `restore`: its own bookkeeping, and why this was proposed.
    notes: dict[str, Any] | None = None

    @property
    def extras(self) -> dict[str, Any]:
        """What there is beside the number and the configuration."""
        if self.budget is None and self.parent is None and self.notes is None:
            return {}
        found = {"budget": self.budget, "parent": self.parent, "notes": self.notes}
        return {key: value for key, value in found.items() if value is not None}


@dataclass(slots=True)
class Observation:
    """What came of a proposal, by scalar name; `seed` is None for a result over all seeds."""

    number: int
    seed: int | None = None
    attempt: int = 1
    status: str = status.Status.FINISHED
    values: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Trial:
    """A proposal with what is known about it. `score` is the reward turned so that higher is better."""

    number: int
    config: dict[str, Any]
    parent: int | None = None
    notes: dict[str, Any] | None = None
    # "pending", "finished" (there is a score) or "failed" (there will be none).
    state: str = "pending"
    score: float = math.nan
    # Scores by seed, where there are several.
    by_seed: dict[int | None, float] | None = None
