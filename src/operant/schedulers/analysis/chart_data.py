"""A search in pictures, as plain data: for the page, for `operant plot` and for whoever wants to draw it himself.

The functions take a :class:`LiveSearch`, or what one gave, and return lists and dicts that JSON can hold.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from operant.errors import MissingExtraError, UsageError, unknown
from operant.schedulers.analysis.axes import SettingAxis, axes_of, label
from operant.schedulers.engine.records import JobRecord
from operant.schedulers.engine.state import SearchState
from operant.schedulers.views.live import LiveSearch
from operant.status import Status

FEWEST_TRIALS = 8
GRID = 32
MOST_JOBS_DRAWN = 1000
_TREES = 64
_DRAWS = 512


def job_row(search: LiveSearch, job: JobRecord) -> dict[str, Any]:
    """What is known of one job, without what depends on the others."""
    status, reason = search.status_of(job)
    return {
        "id": job.id,
        "number": job.number,
        "name": f"{search.name}-{job.id}",
        "status": status,
        "reward": job.reward,
        "started": job.started,
        "ended": job.ended,
        "seed": job.seed,
        "attempt": job.attempt,
        "reason": reason,
        "error": job.error,
        "is_check": job.is_check,
        **(_place(search.state, job) if search.state.places else {}),
    }


def _place(state: SearchState, job: JobRecord) -> dict[str, Any]:
    """Where a job of a cluster is, or why it waits, and since when it has been there."""
    return {"where": " ".join(state.where(job)) or None, "submitted": state.places.get(job.id, {}).get("submitted")}


def job_columns(search: LiveSearch) -> tuple[dict[str, list[Any]], dict[str, list[Any]], list[int | None]]:
    """Columns of the jobs in the order of proposal, the settings aligned with them, and their proposals' parents."""
    jobs, proposals = search.jobs(), search.state.proposals
    rows = [job_row(search, job) for job in jobs]
    names = job_row(search, JobRecord("", 0, None, {}))
    columns: dict[str, list[Any]] = {name: [row[name] for row in rows] for name in names}
    columns["best_so_far"] = best_so_far(
        [None if row["is_check"] else row["reward"] for row in rows], search.state.maximize
    )
    columns["lane"] = lanes(columns["started"], columns["ended"])
    configs = [proposals[job.number].settings for job in jobs]
    settings = {name: [config.get(name) for config in configs] for name in dict.fromkeys(k for c in configs for k in c)}
    return columns, settings, [proposals[job.number].parent for job in jobs]


def best_so_far(rewards: Iterable[float | None], maximize: bool = True) -> list[float | None]:
    """The best reward up to each place; null until there is one."""
    best: float | None = None
    found = []
    for reward in rewards:
        if reward is not None and not math.isnan(reward):
            better = best is None or (reward > best if maximize else reward < best)
            best = reward if better else best
        found.append(best)
    return found


def spark_of(search: LiveSearch, most: int = 24) -> list[float]:
    """How the best reward came about, in a few values: for a small picture beside the search's name."""
    rewards = [search.state.proposals[number].reward for number in search.state.observed]
    curve = [one for one in best_so_far(rewards, search.state.maximize) if one is not None]
    if len(curve) <= most:
        return curve
    return [curve[place * (len(curve) - 1) // (most - 1)] for place in range(most)]


def lanes(started: Sequence[float | None], ended: Sequence[float | None]) -> list[int | None]:
    """A row for each job such that no two jobs of one row overlap: the lowest that was free when it started."""
    found: list[int | None] = [None] * len(started)
    busy: list[tuple[float, int]] = []
    free: list[int] = []
    count = 0
    order = sorted((at, place) for place, at in enumerate(started) if at is not None)
    for at, place in order:
        while busy and busy[0][0] <= at:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            lane = heapq.heappop(free)
        else:
            lane, count = count, count + 1
        end = ended[place]
        heapq.heappush(busy, (math.inf if end is None else end, lane))
        found[place] = lane
    return found


def slices(search: LiveSearch) -> list[dict[str, Any]]:
    """For each setting: its axis, and value, reward and id of every job that has a reward."""
    jobs = [job for job in search.jobs() if job.reward is not None and not job.is_check]
    proposals = search.state.proposals
    found = []
    for axis in axes_of(search.state):
        having = [job for job in jobs if axis.name in proposals[job.number].settings]
        found.append(
            {
                "axis": axis.as_dict(),
                "values": [proposals[job.number].settings[axis.name] for job in having],
                "rewards": [job.reward for job in having],
                "ids": [job.id for job in having],
            }
        )
    return found


def intermediate(
    search: LiveSearch,
    tag: str,
    curve: Callable[[str], tuple[list[float], list[float]] | None],
) -> list[dict[str, Any]]:
    """The curve of every job that has one; ``curve`` gives steps and values of a job by its id.

    Reports of functions are in the journal: those need no run. Of a very large search the newest jobs are shown.
    """
    found = []
    reports = search.state.reports if tag == search.state.opened.get("reward") else {}
    for job in search.jobs()[-MOST_JOBS_DRAWN:]:
        points: tuple[list[float], list[float]] | None
        if job.id in reports:
            points = [float(step) for step, _, _ in reports[job.id]], [value for _, value, _ in reports[job.id]]
        else:
            points = curve(job.id)
        if points is None:
            continue
        status, _ = search.status_of(job)
        stopped = status == Status.STOPPED
        found.append({"id": job.id, "status": status, "stopped": stopped, "steps": points[0], "values": points[1]})
    return found


class Trials(NamedTuple):
    """What importance is reckoned from."""

    axes: list[SettingAxis]
    configs: list[dict[str, Any]]
    rewards: list[float]


def trials_of(search: LiveSearch) -> Trials:
    """The proposals that have a reward, and the settings that vary among them."""
    done = [one for one in search.state.proposals.values() if one.reward is not None and math.isfinite(one.reward)]
    axes = [axis for axis in axes_of(search.state) if len({label(one.settings.get(axis.name)) for one in done}) > 1]
    return Trials(axes, [one.settings for one in done], [float(one.reward or 0.0) for one in done])


def importance(trials: Trials) -> dict[str, Any]:
    """How much each setting matters for the reward, as shares that add up to 1, the greatest first.

    A random forest learns the rank of a trial's reward from its settings; the share of a setting is its total
    effect on what the forest predicts over the whole space (Sobol' index by Jansen's estimator, 1999), so
    settings that matter only together count too, and one absurd reward does not drown the rest.
    """
    names, count = [axis.name for axis in trials.axes], len(trials.rewards)
    note = None
    if count < FEWEST_TRIALS:
        note = f"importance needs at least {FEWEST_TRIALS} trials with a reward; there are {count}"
    elif not names:
        note = "no setting varies among the trials that have a reward"
    elif len(set(trials.rewards)) < 2:
        note = "all trials have the same reward"
    if note is not None:
        return {"names": names, "importance": [], "trials": count, "note": note}
    shares = _total_effects(*trials)
    order = sorted(range(len(names)), key=lambda at: -shares[at])
    if count < 4 * len(names):
        note = f"{count} trials are few for {len(names)} settings: take the order with care"
    return {
        "names": [names[at] for at in order],
        "importance": [shares[at] for at in order],
        "trials": count,
        "note": note,
    }


def _total_effects(axes: list[SettingAxis], configs: list[dict[str, Any]], rewards: list[float]) -> list[float]:
    try:
        from sklearn.ensemble import RandomForestRegressor  # type: ignore[import-untyped]
    except ImportError:
        raise MissingExtraError("the importance of settings", "search") from None
    import numpy as np

    def column(axis: SettingAxis) -> Any:
        places = [axis.place(config[axis.name]) if axis.name in config else None for config in configs]
        return np.array([-1.0 if place is None else place for place in places])

    def features(table: Any) -> Any:
        parts = []
        for at, axis in enumerate(axes):
            if axis.is_numeric:
                parts.append(table[:, at : at + 1])
            else:
                parts.append((table[:, at : at + 1] == np.arange(-1, len(axis.choices or ()))).astype(float))
        return np.hstack(parts)

    rng = np.random.default_rng(0)
    table = np.stack([column(axis) for axis in axes], axis=1)
    ranks = np.argsort(np.argsort(rewards, kind="stable"), kind="stable") / (len(rewards) - 1)
    _, ties = np.unique(rewards, return_inverse=True)
    ranks = (np.bincount(ties, ranks) / np.bincount(ties))[ties]
    forest = RandomForestRegressor(_TREES, min_samples_leaf=2, random_state=0, n_jobs=1).fit(features(table), ranks)

    def draws() -> Any:
        """Points of the space: numbers evenly over their range, choices and inactive settings as they were tried."""
        taken = table[rng.integers(0, len(table), (_DRAWS, len(axes))), np.arange(len(axes))]
        for at, axis in enumerate(axes):
            if axis.is_numeric:
                taken[:, at] = np.where(taken[:, at] < 0, taken[:, at], rng.random(_DRAWS))
        return taken

    one, other = draws(), draws()
    base = forest.predict(features(one))
    effects = []
    for at in range(len(axes)):
        mixed = one.copy()
        mixed[:, at] = other[:, at]
        effects.append(float(np.mean((base - forest.predict(features(mixed))) ** 2) / 2))
    total = sum(effects)
    return [effect / total for effect in effects] if total > 0 else [1 / len(effects)] * len(effects)


def contour(search: LiveSearch, x: str, y: str) -> dict[str, Any]:
    """The reward over two settings: a grid smoothed from the trials, null where there are none near, and the trials.

    Each cell is the mean of the trials weighted by a normal kernel of their distance (Nadaraya 1964, Watson 1964);
    choices of a categorical axis do not mix.
    """
    import numpy as np

    known = {axis.name: axis for axis in axes_of(search.state)}
    for name in (x, y):
        if name not in known:
            raise UsageError(unknown("setting", name, known))
    across, up = known[x], known[y]
    jobs = [job for job in search.jobs() if job.reward is not None and math.isfinite(job.reward) and not job.is_check]
    rows = []
    for job in jobs:
        config = search.state.proposals[job.number].settings
        if x in config and y in config:
            rows.append((across.place(config[x]), up.place(config[y]), job, config[x], config[y]))
    rows = [row for row in rows if row[0] is not None and row[1] is not None]
    ticks_x, ticks_y = across.ticks(GRID), up.ticks(GRID)
    grid: list[list[float | None]] = [[None] * len(ticks_x) for _ in ticks_y]
    if rows:
        at_x, at_y = (np.array([row[side] for row in rows], float) for side in (0, 1))
        rewards = np.array([row[2].reward for row in rows], float)
        cells_x, cells_y = (
            np.array([axis.place(v) for v in t], float) for axis, t in ((across, ticks_x), (up, ticks_y))
        )
        width = min(0.25, max(0.05, 0.6 / math.sqrt(len(rows))))
        weights = (
            _closeness(cells_x, at_x, across, width)[None, :, :] * _closeness(cells_y, at_y, up, width)[:, None, :]
        )
        total = weights.sum(axis=2)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = weights @ rewards / total
        near = math.exp(-0.5 * 2.0**2)  # within two widths of a trial
        grid = [
            [float(value) if seen else None for value, seen in zip(*line, strict=True)]
            for line in zip(mean, total >= near, strict=True)
        ]
    return {
        "x": _grid_axis(across, ticks_x),
        "y": _grid_axis(up, ticks_y),
        "z": grid,
        "points": {
            "x": [row[3] if across.is_numeric else row[0] for row in rows],
            "y": [row[4] if up.is_numeric else row[1] for row in rows],
            "reward": [row[2].reward for row in rows],
            "id": [row[2].id for row in rows],
        },
    }


def _closeness(cells: Any, points: Any, axis: SettingAxis, width: float) -> Any:
    import numpy as np

    distance = cells[:, None] - points[None, :]
    return np.exp(-0.5 * (distance / width) ** 2) if axis.is_numeric else (distance == 0).astype(float)


def _grid_axis(axis: SettingAxis, ticks: list[Any]) -> dict[str, Any]:
    """A categorical axis has a place for each label: 0, 1, 2, …"""
    if axis.is_numeric:
        return {"name": axis.name, "log": axis.log, "values": ticks, "labels": None}
    return {
        "name": axis.name,
        "log": False,
        "values": list(range(len(ticks))),
        "labels": [label(one) for one in ticks],
    }
