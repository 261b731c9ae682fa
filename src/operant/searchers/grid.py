"""GridSearcher: every combination, in order, without ever listing them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from operant.searchers.base_searcher import BaseSearcher, Proposal
from operant.searchers.builder import SEARCHERS
from operant.space import Container


@SEARCHERS.register_module()
class GridSearcher(BaseSearcher):
    """Proposal n is combination n; the argument that is written last varies fastest."""

    looks_at_results = False

    def __init__(
        self,
        search_space: Container | Sequence[Mapping[str, Any]],
        reward_attribute: str = "acc",
        optimize_mode: str = "maximize",
        seed: int = 0,
        lag: int | None = None,
    ) -> None:
        super().__init__(search_space, reward_attribute, optimize_mode, seed, lag)
        self._grid = self.space.data

    def __len__(self) -> int:
        """How many combinations are left."""
        return max(int(self.space.size) - self._next_number, 0)

    def _propose(self, number: int) -> Proposal | None:
        return Proposal(number, self._grid[number]) if number < self.space.size else None
