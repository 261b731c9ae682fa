"""RandomSearcher: points that do not depend on results - independent, or spread evenly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from operant._util.checks import one_of, whole_number
from operant.searchers.base_searcher import MOST_AT_ONCE, BaseSearcher, Proposal
from operant.searchers.builder import SEARCHERS
from operant.space import Config, Container

_SAMPLINGS = ("uniform", "sobol", "lhs")
_AT_ONCE = 64
_CONFIGS_AT_ONCE = 256


@SEARCHERS.register_module()
class RandomSearcher(BaseSearcher):
    """Random configurations.

    Args:
        sampling: `uniform`; `sobol` (scrambled Sobol sequence: the first 2^k points are evenly spread); or
            `lhs` (Latin hypercube: of each `block` points every one lies in another slice of each argument).
        block: points in one Latin hypercube.
    """

    looks_at_results = False

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
        self.block = whole_number(block, "block", least=2, most=MOST_AT_ONCE)
        self._configs: list[Config] = []

    def configure(
        self,
        reward_attribute: str | None = None,
        optimize_mode: str | None = None,
        seed: int | None = None,
        lag: int | None = None,
    ) -> None:
        super().configure(reward_attribute, optimize_mode, seed, lag)
        self._design: Design | None = None
        self._block_at = -1

    def _propose(self, number: int) -> Proposal | None:
        if self.exhausted:
            return None
        config = self._config(number)
        if self.is_new(config):
            return Proposal(number, config)
        other = self.fresh(self.rng(number))
        return None if other is None else Proposal(number, other)

    def _config(self, number: int) -> Config:
        """What the design has at this place; many are made at once, since that takes hardly longer than one."""
        block, place = divmod(number, _CONFIGS_AT_ONCE)
        if block != self._block_at:
            if self._design is None:
                self._design = Design(self.sampling, self.space.dimensions, self.seed, self.block)
            points = self._design.points(block * _CONFIGS_AT_ONCE, _CONFIGS_AT_ONCE)
            self._configs, self._block_at = self.space.decode_many(points), block
        return self._configs[place]


class Design:
    """Point n of a design in the unit cube, whichever point was asked for before.

    `block` is the size of a Latin hypercube; of the other designs, which have no blocks, 64 points are made at once.
    """

    def __init__(self, sampling: str, dimensions: int, seed: int, block: int = 64) -> None:
        self._make = {"uniform": self._uniform, "sobol": self._sobol, "lhs": self._latin_hypercube}[sampling]
        self._dimensions = dimensions
        self._seed = seed
        self._block_size = block if sampling == "lhs" else _AT_ONCE
        self._block_number = -1
        self._block: np.ndarray | None = None

    def point(self, number: int) -> np.ndarray:
        wanted, place = divmod(number, self._block_size)
        if self._block is None or wanted != self._block_number:
            self._block_number, self._block = wanted, self._make(wanted)
        point: np.ndarray = self._block[place]
        return point

    def points(self, first: int, count: int) -> np.ndarray:
        """Point `first` and those that follow it, one a row."""
        if self._make == self._uniform:
            return self._uniform_points(first, count)
        size = self._block_size
        blocks = range(first // size, (first + count - 1) // size + 1)
        rows = np.concatenate([self._make(block) for block in blocks])
        return rows[first - blocks[0] * size :][:count]

    def _uniform(self, block: int) -> np.ndarray:
        return self._uniform_points(block * self._block_size, self._block_size)

    def _uniform_points(self, first: int, count: int) -> np.ndarray:
        # A generator whose state is a counter: the numbers of any point can be had without those before it.
        # Each step of the counter gives four of them.
        steps = -(-self._dimensions // 4)
        key = np.random.SeedSequence([self._seed, 0x0F1A]).generate_state(2, np.uint64)
        bits = np.random.Philox(key=key, counter=first * steps)
        rows = np.random.Generator(bits).random((count, steps * 4))
        return rows[:, : self._dimensions]

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
