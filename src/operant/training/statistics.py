"""Figures over seeds that one lucky seed does not carry (Agarwal et al. 2021, arXiv 2108.13264).

A group of results is either the scores of its seeds, or such scores for each of several tasks. The bootstrap draws
seeds anew within each task (stratified), so that each task keeps its weight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from operant._util.statistics import iqm

Array = NDArray[np.float64]
Scores = Sequence[float] | Sequence[Sequence[float]]
Interval = tuple[float, float, float]

_CONFIDENCE, _DRAWS = 0.95, 2000
LEVEL_SHARE, LEVEL_SEEDS = 0.1, 5


def interval(scores: Scores, confidence: float = _CONFIDENCE, draws: int = _DRAWS, seed: int = 0) -> Interval:
    """The interquartile mean and its bootstrap interval (percentiles)."""
    tasks = _tasks(scores)
    found = _iqm_rows(np.concatenate(_resampled(tasks, draws, np.random.default_rng(seed)), axis=1))
    return _with_bounds(iqm(np.concatenate(tasks).tolist()), found, confidence)


def difference(
    ours: Scores, theirs: Scores, confidence: float = _CONFIDENCE, draws: int = _DRAWS, seed: int = 0
) -> Interval:
    """IQM of ours minus IQM of theirs, with its bootstrap interval; both sides are drawn anew."""

    def statistic(a: list[Array], b: list[Array]) -> Array:
        return _iqm_rows(np.concatenate(a, axis=1)) - _iqm_rows(np.concatenate(b, axis=1))

    return _compared(statistic, ours, theirs, confidence, draws, seed)


def improvement(
    ours: Scores, theirs: Scores, confidence: float = _CONFIDENCE, draws: int = _DRAWS, seed: int = 0
) -> Interval:
    """The probability that a run of ours is better than one of theirs on the same task, mean over tasks."""

    def statistic(a: list[Array], b: list[Array]) -> Array:
        return np.mean([_share_above(mine, other) for mine, other in zip(a, b, strict=True)], axis=0)  # type: ignore[no-any-return]

    return _compared(statistic, ours, theirs, confidence, draws, seed)


def profile(
    scores: Scores, marks: Sequence[float], confidence: float = _CONFIDENCE, draws: int = _DRAWS, seed: int = 0
) -> tuple[Array, Array, Array]:
    """The share of runs above each mark, mean over tasks, and the ends of its bootstrap interval (pointwise)."""
    tasks, places = _tasks(scores), np.asarray(marks, float)
    drawn = _resampled(tasks, draws, np.random.default_rng(seed))

    def shares(each: list[Array]) -> Array:
        above = [np.mean(task[..., None] > places, axis=-2) for task in each]
        return np.mean(above, axis=0)  # type: ignore[no-any-return]

    low, high = np.quantile(shares(drawn), _ends(confidence), axis=0)
    return shares(tasks), low, high


def verdict(ours: Sequence[float], theirs: Sequence[float], chance: float) -> str:
    """Whether results are *level* with a peer's: not worse by a tenth of the way from chance to the peer.

    *level*: the lower end of the 95 % interval of the difference of IQMs lies above that; *below*: it does not, and the
    upper end lies under 0; *undecided*: neither, or fewer than five seeds on a side.

    :param chance: what random actions reach.
    """
    if min(len(ours), len(theirs)) < LEVEL_SEEDS:
        return "undecided"
    _, low, high = difference(ours, theirs)
    if low > -LEVEL_SHARE * abs(iqm(theirs) - chance):
        return "level"
    return "below" if high < 0.0 else "undecided"


def _tasks(scores: Scores) -> list[Array]:
    """The scores of each task."""
    nested = len(scores) > 0 and not np.isscalar(scores[0])
    tasks = [np.asarray(task, float) for task in (scores if nested else [scores])]
    if not tasks or any(task.ndim != 1 or not len(task) for task in tasks):
        raise ValueError("scores are numbers, at least one for each task")
    return tasks


def _resampled(tasks: list[Array], draws: int, rng: np.random.Generator) -> list[Array]:
    """Each task's seeds drawn with replacement [draws, seeds]."""
    return [task[rng.integers(len(task), size=(draws, len(task)))] for task in tasks]


def _compared(
    statistic: Callable[[list[Array], list[Array]], Array],
    ours: Scores,
    theirs: Scores,
    confidence: float,
    draws: int,
    seed: int,
) -> Interval:
    a, b = _tasks(ours), _tasks(theirs)
    rng = np.random.default_rng(seed)
    found = statistic(_resampled(a, draws, rng), _resampled(b, draws, rng))
    middle = statistic([task[None] for task in a], [task[None] for task in b])
    return _with_bounds(float(middle[0]), found, confidence)


def _share_above(mine: Array, other: Array) -> Array:
    """P(mine > other) + ½ P(mine = other) of each row [draws]."""
    by = mine[:, :, None] - other[:, None, :]
    return np.mean((by > 0) + 0.5 * (by == 0), axis=(1, 2))  # type: ignore[no-any-return]


def _iqm_rows(rows: Array) -> Array:
    """`iqm` of each row."""
    count = rows.shape[1]
    places = np.arange(count)
    weights = np.maximum(0.0, np.minimum(places + 1, 0.75 * count) - np.maximum(places, 0.25 * count))
    return np.sort(rows, axis=1) @ (weights / weights.sum())  # type: ignore[no-any-return]


def _ends(confidence: float) -> list[float]:
    return [(1 - confidence) / 2, (1 + confidence) / 2]


def _with_bounds(middle: float, found: Array, confidence: float) -> Interval:
    low, high = np.quantile(found, _ends(confidence))
    return middle, float(low), float(high)
