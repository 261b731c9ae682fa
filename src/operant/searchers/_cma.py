"""The `cmaes` library behind one small interface, points of the unit cube in and out, and one run of it to its end."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from operant.searchers._extras import require
from operant.searchers._regions import Region
from operant.searchers._screening import LocalModel
from operant.space import Layout

# An ordered argument with more values than this is as good as continuous.
_MOST_ORDERED = 64
_RESAMPLINGS = 10
# The library multiplies scores to punish what lies outside the range: beyond this the product could not be computed.
_HUGE = 1e150
# How many generations a result may be late and still be learnt from.
_LATEST = 3
# Draws for one proposal inside a region, or of which a model chooses.
_DRAWS = 30
# Rounds of draws in which a proposal is looked for that is new.
_ATTEMPTS = 20
# The newest results, of which the model of the draws learns from the nearest.
_MOST_KNOWN = 5000


class Strategy(Protocol):
    """What CmaEsSearcher needs. `raw` is the point as the strategy drew it, which `tell` wants back."""

    @property
    def generation(self) -> int: ...

    @property
    def population_size(self) -> int: ...

    def ask(self, seed: tuple[int, ...]) -> tuple[list[float], list[float]]: ...

    def tell(self, results: Sequence[tuple[list[float], float]]) -> None: ...

    def converged(self) -> bool: ...

    def mean(self) -> tuple[list[float], list[float]] | None:
        """The middle of the distribution, raw and as a point; None where categories have no middle."""

    def spread(self) -> float:
        """The largest standard deviation of a coordinate."""

    def whiten(self, points: np.ndarray) -> np.ndarray | None:
        """Points in coordinates in which the distribution is standard normal; None where there are categories."""


def make_strategy(
    layout: Layout,
    *,
    sigma: float,
    population_size: int | None,
    mean: np.ndarray | None = None,
    clip: bool = False,
) -> Strategy:
    """A new run around `mean` (default: the middle); `clip` puts draws outside onto the border.

    Otherwise they are drawn again, which keeps the distribution away from borders.
    """
    count = population_size or default_population(layout)
    varying = [i for i, a in enumerate(layout.arguments) if a.leaf.size > 1]
    mixed = any(a.categorical or a.leaf.size <= _MOST_ORDERED for a in (layout.arguments[i] for i in varying))
    strategy = _Mixed if mixed or not varying else _Continuous
    start = np.full(len(layout.arguments), 0.5) if mean is None else mean
    return strategy(layout, varying, sigma, max(count, 4), start, clip)


def default_population(layout: Layout) -> int:
    return 4 + math.floor(3 * math.log(max(len(layout.arguments), 1)))


def _library_seed(seed: tuple[int, ...]) -> int:
    """One 32-bit number, which is all that the library's generator takes."""
    return int(np.random.SeedSequence(list(seed)).generate_state(1)[0])


class _Continuous:
    def __init__(
        self,
        layout: Layout,
        varying: list[int],
        sigma: float,
        population_size: int,
        mean: np.ndarray,
        clip: bool,
    ) -> None:
        self._size = len(layout.arguments)
        self._varying = varying
        self._clip = clip
        self._cma: Any = require("cmaes").CMA(
            mean=mean[varying],
            sigma=sigma,
            bounds=None if clip else np.tile([0.0, 1.0], (len(varying), 1)),
            n_max_resampling=_RESAMPLINGS,
            population_size=population_size,
        )

    @property
    def generation(self) -> int:
        return int(self._cma.generation)

    @property
    def population_size(self) -> int:
        return int(self._cma.population_size)

    def ask(self, seed: tuple[int, ...]) -> tuple[list[float], list[float]]:
        self._cma.reseed_rng(_library_seed(seed))
        drawn = self._cma.ask()
        return self._placed(drawn.clip(0.0, 1.0) if self._clip else drawn)

    def mean(self) -> tuple[list[float], list[float]] | None:
        return self._placed(self._cma.mean.clip(0.0, 1.0))

    def spread(self) -> float:
        return float(self._cma._sigma * np.sqrt(np.diag(self._cma._C).max()))

    def whiten(self, points: np.ndarray) -> np.ndarray | None:
        variances, axes = np.linalg.eigh(self._cma._C)
        scales = self._cma._sigma * np.sqrt(np.maximum(variances, 1e-20))
        whitened: np.ndarray = (points[:, self._varying] - self._cma.mean) @ (axes / scales)
        return whitened

    def _placed(self, values: np.ndarray) -> tuple[list[float], list[float]]:
        raw = values.tolist()
        point = [0.5] * self._size
        for i, value in zip(self._varying, raw, strict=True):
            point[i] = value
        return raw, point

    def tell(self, results: Sequence[tuple[list[float], float]]) -> None:
        self._cma.tell([(np.array(raw), value) for raw, value in results])

    def converged(self) -> bool:
        return bool(self._cma.should_stop())


class _Mixed:
    """Three kinds of arguments: continuous, ordered with few values, and without order (also those with
    two).
    """

    def __init__(
        self,
        layout: Layout,
        varying: list[int],
        sigma: float,
        population_size: int,
        mean: np.ndarray,
        clip: bool,
    ) -> None:
        self._size = len(layout.arguments)
        sizes = {i: layout.arguments[i].leaf.size for i in varying}
        self._categories = [i for i in varying if layout.arguments[i].categorical or sizes[i] == 2]
        self._ordered = [i for i in varying if i not in self._categories and sizes[i] <= _MOST_ORDERED]
        self._continuous = [i for i in varying if i not in self._categories and i not in self._ordered]
        self._category_sizes = [int(sizes[i]) for i in self._categories]
        levels = [sorted(map(float, _levels(layout, i))) for i in self._ordered]
        options: dict[str, Any] = {"population_size": population_size}
        if self._continuous:
            options["x_space"] = [[0.0, 1.0]] * len(self._continuous)
        if self._ordered:
            options["z_space"] = levels
        if self._categories:
            options["c_space"] = self._category_sizes
        numbers = len(self._continuous) + len(self._ordered)
        if numbers:
            options["mean"] = mean[self._continuous + self._ordered]
            options["cov"] = np.eye(numbers) * sigma**2
            options["sigma"] = 1.0
        library = require("cmaes")
        self._solution: Any = library.CatCMAwM.Solution
        self._cma: Any = library.CatCMAwM(**options) if numbers or self._categories else None
        self._fixed_size = population_size

    @property
    def generation(self) -> int:
        return 0 if self._cma is None else int(self._cma.generation)

    @property
    def population_size(self) -> int:
        return self._fixed_size if self._cma is None else int(self._cma.population_size)

    def ask(self, seed: tuple[int, ...]) -> tuple[list[float], list[float]]:
        point = [0.5] * self._size
        if self._cma is None:
            return [], point
        self._cma.reseed_rng(_library_seed(seed))
        asked = self._cma.ask()
        raw: list[float] = [] if asked._v_raw is None else asked._v_raw.tolist()
        for kind, values in ((self._continuous, asked.x), (self._ordered, asked.z)):
            if values is not None:
                for i, value in zip(kind, values.tolist(), strict=True):
                    point[i] = value
        for place, (i, size) in enumerate(zip(self._categories, self._category_sizes, strict=True)):
            choice = int(np.argmax(asked.c[place]))
            point[i] = (choice + 0.5) / size
            raw.append(float(choice))
        return raw, point

    def tell(self, results: Sequence[tuple[list[float], float]]) -> None:
        if self._cma is None:
            return
        scores = np.array([value for _, value in results])
        values = scores.clip(-_HUGE, _HUGE)
        low, high = np.percentile(values, [25, 75], method="nearest")
        if low == high:
            # The library scales its penalty for leaving the range by this difference and cannot do without.
            values = scores.argsort(kind="stable").argsort().astype(float)
        self._cma.tell([(self._rebuild(raw), value) for (raw, _), value in zip(results, values, strict=True)])

    def mean(self) -> tuple[list[float], list[float]] | None:
        return None

    def spread(self) -> float:
        if not (self._continuous or self._ordered):
            return math.inf
        return float(self._cma._sigma * np.sqrt(np.diag(self._cma._C).max()))

    def whiten(self, points: np.ndarray) -> np.ndarray | None:
        return None

    def _rebuild(self, raw: list[float]) -> Any:
        numbers = len(self._continuous) + len(self._ordered)
        choices = None
        if self._categories:
            choices = np.zeros((len(self._categories), max(self._category_sizes)), dtype=bool)
            for place, choice in enumerate(raw[numbers:]):
                choices[place, int(choice)] = True
        return self._solution(c=choices, _v_raw=np.array(raw[:numbers]) if numbers else None)

    def converged(self) -> bool:
        # The library can tell this only of numbers.
        has_numbers = bool(self._continuous or self._ordered)
        return has_numbers and bool(self._cma.should_stop())


def _levels(layout: Layout, column: int) -> np.ndarray:
    leaf = layout.arguments[column].leaf
    return leaf.encode_many(list(leaf.data))


class Known(Protocol):
    """The results of a search that a run may learn from beside its own."""

    def __len__(self) -> int: ...

    def first(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """The points and scores of the first results; NaN for failures."""


class CmaRun:
    """What CmaEsSearcher restarts and LA-MCTS starts in its regions.

    A generation ends when as many results are there as the population is large; more may be asked for. With
    `known`, of several draws the one is asked for that a model of these results expects most of.
    """

    def __init__(
        self,
        layout: Layout,
        *,
        sigma: float,
        population_size: int | None,
        mean: np.ndarray | None = None,
        clip: bool = False,
        look_at_mean: bool = False,
        known: Known | None = None,
    ) -> None:
        self._strategy = make_strategy(layout, sigma=sigma, population_size=population_size, mean=mean, clip=clip)
        # Only where there are numbers alone can a model learn from them.
        self._known = known if isinstance(self._strategy, _Continuous) else None
        # The generation whose draws the model is for, and how many results it learns from.
        self._screened = (-1, 0)
        self._model: LocalModel | None = None
        self._look_at_mean = look_at_mean
        self._mean_looked_at = 0
        # Results of this generation that wait for the others: the point that was drawn, its score.
        self._waiting: list[tuple[list[float], float]] = []
        self.generations: list[list[float]] = []
        """The scores of each generation that has ended; NaN for failures."""

    @property
    def generation(self) -> int:
        return self._strategy.generation

    @property
    def population_size(self) -> int:
        return self._strategy.population_size

    def ask(self, seed: tuple[int, ...], region: Region | None = None) -> Iterator[tuple[dict[str, Any], list[float]]]:
        """What `tell` wants back, and points, the best first; inside the region if a draw of the distribution is.

        Otherwise draws that are on the right side of the most boundaries from the root on: a distribution that
        has left its region goes on and is not stuck.
        """
        for attempt in range(_ATTEMPTS):
            if self._look_at_mean and self.generation > self._mean_looked_at:
                middle = self._strategy.mean()
                self._mean_looked_at = self.generation
                if middle is not None:
                    yield {"generation": self.generation, "middle": True}, middle[1]
                    continue
            yield from self._draws((*seed, attempt), region)

    def _draws(self, seed: tuple[int, ...], region: Region | None) -> Iterator[tuple[dict[str, Any], list[float]]]:
        model, inside = self._screen(), region is not None and bool(region.path)
        notes = self.notes()
        draws, chosen = [self._strategy.ask(seed)], np.array([0])
        if model is not None or inside:
            draws += [self._strategy.ask((*seed, 1 + n)) for n in range(_DRAWS - 1)]
            points = np.array([point for _, point in draws])
            depths = region.depth_of(points) if region is not None and inside else np.zeros(len(draws))
            chosen = np.flatnonzero(depths == depths.max())
            if model is None:
                chosen = chosen[:1]
            else:
                whitened = self._strategy.whiten(points[chosen])
                assert whitened is not None
                chosen = chosen[np.argsort(-model.expected(whitened), kind="stable")]
        for i in chosen:
            raw, point = draws[i]
            yield notes | {"raw": raw}, point

    def notes(self) -> dict[str, Any]:
        """By which a restored run is in the same generation and learns from as many results, few as they may be."""
        known = {} if self._known is None else {"known": self._screened[1]}
        return {"generation": self.generation, **known}

    def _screen(self) -> LocalModel | None:
        """The model of this generation's draws; it learns from what was known at the first of them."""
        if self._known is None:
            return None
        if self._screened[0] < self.generation:
            self._screened, self._model = (self.generation, len(self._known)), None
        if self._model is None:
            points, scores = self._known.first(self._screened[1])
            enough = np.isfinite(scores).sum() >= 2 * self.population_size
            whitened = self._strategy.whiten(points[-_MOST_KNOWN:]) if enough else None
            if whitened is not None:
                self._model = LocalModel(whitened, scores[-_MOST_KNOWN:])
        return self._model

    def middle(self) -> np.ndarray | None:
        """The middle of the distribution as a point."""
        found = self._strategy.mean()
        return None if found is None else np.array(found[1])

    def spread(self) -> float:
        return self._strategy.spread()

    def remember(self, notes: Mapping[str, Any]) -> None:
        """Take over that a proposal of a recorded search was made."""
        if "middle" in notes:
            self._mean_looked_at = max(self._mean_looked_at, notes["generation"])
        if "known" in notes and notes["generation"] > self._screened[0]:
            self._screened = (notes["generation"], notes["known"])

    def tell(self, notes: Mapping[str, Any], score: float, worst: float) -> bool:
        """Learn a score (NaN: a failure, which counts as `worst`); whether it ended a generation."""
        if "middle" in notes or notes["generation"] < self.generation - _LATEST:
            return False
        self._waiting.append((notes["raw"], score))
        if len(self._waiting) < self.population_size:
            return False
        # A failed trial counts as the worst result so far: the strategy moves away from where it was.
        told = [(raw, -(worst if math.isnan(score) else score)) for raw, score in self._waiting]
        self.generations.append([score for _, score in self._waiting])
        self._waiting = []
        self._strategy.tell(told)
        return True

    def correct(self, notes: Mapping[str, Any], score: float) -> None:
        """A trial was run again and came to another score, which counts while its generation goes on."""
        self._model = None
        self._waiting = [(raw, score if raw is notes.get("raw") else told) for raw, told in self._waiting]

    def converged(self) -> bool:
        return self._strategy.converged()
