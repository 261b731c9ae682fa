"""BatchSearcher: the rows of a `Nested`, one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from operant.errors import ArgumentError
from operant.searchers.base_searcher import BaseSearcher, Proposal
from operant.searchers.builder import SEARCHERS
from operant.space import Container, Nested


@SEARCHERS.register_module()
class BatchSearcher(BaseSearcher):
    """Tries the rows in the order in which they are written; several `Nested` give all combinations."""

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
        for name, leaf in self.space.kwspaces.items():
            if not isinstance(leaf, Nested):
                raise ArgumentError(
                    f"BatchSearcher takes only Nested arguments, but {name!r} is {type(leaf).__name__}; "
                    f"GridSearcher takes all that are finite",
                    (name, "type"),
                )
            for row in leaf.data:
                for key, value in row.items():
                    if value is not None and not isinstance(value, (bool, int, float, str)):
                        raise ArgumentError(
                            f"BatchSearcher takes only plain values (numbers, texts, true, false), "
                            f"but {key!r} is {value!r}",
                            (name, "data"),
                        )

    def _propose(self, number: int) -> Proposal | None:
        return Proposal(number, self.space.data[number]) if number < self.space.size else None
