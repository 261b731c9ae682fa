"""RandomSearcher: points that do not depend on results - independent, or spread evenly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from operant.searchers._options import one_of, whole_number
from operant.searchers._records import Proposal
from operant.searchers.base_searcher import BaseSearcher
from operant.searchers.builder import SEARCHERS
from operant.space import Config, Container

_SAMPLINGS = ("uniform", "sobol", "lhs")


@SEARCHERS.register_module()
class RandomSearcher(BaseSearcher):
    """Random configurations.

    Args:
        sampling: `uniform`; `sobol` (scrambled Sobol sequence: the first 2^k points are evenly spread); or
            `lhs` (Latin hypercube: of each `block` points every one lies in another slice of each argument).
        block: points in one Latin hypercube.
    """

    def __init__(
        self,
        search_space: Container | Sequence[Mapping[str, Any]],
        reward_attribute: str = "acc",
        optimize_mode: str = "maximize",
        seed: int = 0,
        lag: int | None = None,
        *,
        sampling: str = "uniform",
        block: int = 64,
    ) -> None:
        super().__init__(search_space, reward_attribute, optimize_mode, seed, lag)
        self.sampling = one_of(sampling, "sampling", _SAMPLINGS)
        self.block = whole_number(block, "block", least=2)
        # A Sobol sequence has no blocks; 64 points are only what is computed at once.
        self._design = Design(sampling, self.space.dimensions, self.seed, 64 if sampling == "sobol" else block)

    def _propose(self, number: int) -> Proposal | None:
        if self.exhausted:
            return None
        rng = self.rng(number)
        if self.sampling != "uniform":
            config: Config | None = self.space.decode(self._design.point(number))
            if config is not None and self.is_new(config):
                return Proposal(number, config)
        config = self.fresh(rng)
        return None if config is None else Proposal(number, config)


class Design:
    """Point n of a design in the unit cube, whichever point was asked for before."""

    def __init__(self, sampling: str, dimensions: int, seed: int, block: int = 64) -> None:
        self._sampling = sampling
        self._dimensions = dimensions
        self._seed = seed
        self._block_size = block
        self._block_number = -1
        self._block: np.ndarray | None = None

    def point(self, number: int) -> np.ndarray:
        wanted, place = divmod(number, self._block_size)
        if self._block is None or wanted != self._block_number:
            make = self._sobol if self._sampling == "sobol" else self._latin_hypercube
            self._block_number, self._block = wanted, make(wanted)
        point: np.ndarray = self._block[place]
        return point

    def _sobol(self, block: int) -> np.ndarray:
        from operant.searchers._extras import scipy_qmc

        engine = scipy_qmc().Sobol(self._dimensions, scramble=True, rng=np.random.default_rng([self._seed]))
        if block:
            engine.fast_forward(block * self._block_size)
        points: np.ndarray = engine.random(self._block_size)
        return points

    def _latin_hypercube(self, block: int) -> np.ndarray:
        rng = np.random.default_rng([self._seed, 0x1A71, block])
        n = self._block_size
        slices = rng.permuted(np.tile(np.arange(n), (self._dimensions, 1)), axis=1).T
        return (slices + rng.random((n, self._dimensions))) / n
