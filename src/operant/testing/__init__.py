"""Contract tests that every plug-in of a kind must pass; subclass them for your own (needs pytest)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from operant._lazy import load_when_used

if TYPE_CHECKING:
    from operant.testing.algorithms import AlgorithmContract
    from operant.testing.assessors import AssessorContract
    from operant.testing.criteria import FilterCriterionContract, StopCriterionContract
    from operant.testing.environments import EnvironmentContract
    from operant.testing.searchers import SearcherContract
    from operant.testing.sites import SiteContract

# Each needs what its kind needs: algorithms torch, environments gymnasium, searchers nothing of it.
_HOMES = {
    "AlgorithmContract": ".algorithms",
    "AssessorContract": ".assessors",
    "EnvironmentContract": ".environments",
    "FilterCriterionContract": ".criteria",
    "SearcherContract": ".searchers",
    "SiteContract": ".sites",
    "StopCriterionContract": ".criteria",
}

__all__ = [
    "AlgorithmContract",
    "AssessorContract",
    "EnvironmentContract",
    "FilterCriterionContract",
    "SearcherContract",
    "SiteContract",
    "StopCriterionContract",
]

__getattr__ = load_when_used(__name__, _HOMES)
