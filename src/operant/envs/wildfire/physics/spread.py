"""N fires that spread over maps of one shape, each at its own place, in its own weather, with its own lines."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from types import ModuleType
from typing import Any

import numpy as np

from operant.envs.vector import Array
from operant.envs.wildfire.physics import _spread_numpy
from operant.envs.wildfire.physics._stencil import Stencil, make_stencil
from operant.errors import UsageError

# Chosen by measurement (docs/wildfire.md): 8 + 24 neighbours and the straight front between those that stand side by
# side. Rings 1 and 2 cost three quarters and lose 12 % of the area in strong wind; rings 1, 2, 4 cost twice as much
# and serve fires that become narrow: more than three times as long as they are wide.
RINGS, RINGS_OF_NARROW_FIRES = (1, 3), (1, 2, 4)
NARROW = (1 - 1 / 9) ** 0.5  # their eccentricity
_TINY = float(np.finfo(np.float64).tiny)  # trainings flush smaller numbers to 0, such as the one after 0
SLOWEST = 1e-3  # m/min: what is slower does not spread; a day brings it 1.4 m


@dataclass(frozen=True)
class SpreadRates:
    """How fire spreads in each cell of a map [H, W], from each of the times ``changes`` [K] on."""

    cell_size: float  # m
    changes: Array  # [K] minutes, rising; the first holds from the beginning
    rate: Array  # [K, H, W] m/min, of the head
    heading: Array  # [K, H, W] radians clockwise from north, where the head goes
    eccentricity: Array  # [K, H, W] of the ellipse that a fire would become
    intensity: Array  # [K, H, W] kW/m, of the head
    residence: Array  # [H, W] minutes that flames stand in one place
    embers: Array | None = None  # [K, H, W] row * W + column of the cell that an ember of this cell lights, or -1
    ember_delay: float = 1.0  # minutes from the ignition of one to that of the other

    @cached_property
    def slowness(self) -> Array:
        """[K, H, W, 3]: a way of x rows and y columns takes s |(x, y)| - (u x + v y) minutes; s, u and v are these.

        The ellipse with its ignition in a focus makes it so simple: at the angle a from the head the rate is
        R (1 - e) / (1 - e cos a) (Anderson 1983), so the time is a length plus a term that is linear in the way.
        """
        burns = self.rate >= SLOWEST
        slowness = np.full((*self.rate.shape, 3), np.inf)
        slowness[burns, 0] = self.cell_size / (self.rate[burns] * (1.0 - self.eccentricity[burns]))
        slowness[..., 1:] = 0.0
        drift = slowness[burns, 0] * self.eccentricity[burns]
        slowness[burns, 1] = -drift * np.cos(self.heading[burns])
        slowness[burns, 2] = drift * np.sin(self.heading[burns])
        return slowness

    @cached_property
    def duration(self) -> Array:
        """[H, W] minutes that a cell burns: the front crosses it, and flames stand for their residence time."""
        crossing = self.cell_size / np.maximum(self.rate[0], SLOWEST)
        return np.where(self.rate[0] >= SLOWEST, self.residence + crossing, self.residence)

    @cached_property
    def _least(self) -> dict[int, Array]:
        return {}

    def least_minutes(self, stencil: Stencil) -> Array:
        """[D]: less than fire takes to any cell from its neighbour i, or from the front on either side of that.

        Between two neighbours no way is shorter than the shorter of theirs, nor the drift along it more than the larger
        of theirs. That is linear in slowness and drift, so a mean along a way is no less than that of its best cell.
        """
        count = stencil.offset.size
        if count not in self._least:
            shorter = np.minimum(stencil.length, stencil.length[stencil.following])
            ways = [
                np.stack([shorter, -stencil.rows[end], -stencil.columns[end]])
                for end in (range(count), stencil.following)
            ]
            takes, burning = np.full(2 * count, np.inf), self.slowness[self.rate >= SLOWEST]
            for first in range(0, len(burning), 1 << 14):
                takes = np.minimum(takes, (burning[first : first + (1 << 14)] @ np.concatenate(ways, 1)).min(0))
            facet = takes.reshape(2, count).min(0)
            fastest = self.cell_size / max(float(self.rate.max()), SLOWEST)  # a cell, whichever way
            best = np.maximum(np.minimum(facet, facet[stencil.preceding]), stencil.ring * fastest)
            self._least[count] = (1.0 - 1e-9) * best
        return self._least[count]


class Fires:
    """Arrival times of N fires, computed as far as the clock of each has gone.

    A cell burns when fire reaches its centre. Nothing depends on the length of the steps: they only say how far to go.
    Lines may be laid at any time in cells that do not burn yet.

    :param jit: compile with numba; None: where it is installed. Arrival times are the same.
    :param rings: of neighbours; None: 32, and 56 for fires that become narrow.
    """

    def __init__(
        self, count: int, shape: tuple[int, int], *, jit: bool | None = None, rings: Sequence[int] | None = None
    ) -> None:
        self.count, self.shape = count, shape
        both = (RINGS, RINGS_OF_NARROW_FIRES) if rings is None else (rings, rings)
        self._margin = max(map(max, both))
        height, self._width = shape[0] + 2 * self._margin, shape[1] + 2 * self._margin
        self._stencils = [make_stencil(self._width, tuple(one)) for one in both]
        self._compiled = _compiled() if jit is not False else None
        if jit and self._compiled is None:
            raise UsageError("jit=True needs numba: pip install 'operant[jit]'")
        self._packed = [stencil.packed() for stencil in self._stencils]
        cells = height * self._width
        self._scratch = (np.empty(cells, np.int64), np.full(cells, -1, np.int64))
        self._time = np.full((count, cells), np.inf)
        self._fields = np.full((count, 1, cells, 3), np.inf)
        self._changes = np.zeros((count, 1))
        self._box = np.zeros((count, 4), np.int64)  # for numpy
        self._front, self._flames = np.empty((count, cells), np.int32), np.empty((count, cells), np.int32)  # for numba
        self._sizes = np.zeros((count, 2), np.int64)  # of the two
        self._factor = np.ones((count, *shape))
        self._ignitions: list[dict[int, float]] = [{} for _ in range(count)]
        self._rates: list[SpreadRates | None] = [None] * count
        self._upcoming = np.full(count, np.inf)
        self._narrow = np.zeros(count, np.int64)  # which of the stencils
        self._kinds: list[int] = [0]  # those that are in use
        self._least = np.zeros((count, max(stencil.offset.size for stencil in self._stencils)))
        self._throwing: list[int] = []  # fires with embers
        self.duration = np.zeros((count, *shape))
        self.clock = np.zeros(count)

    # The margin around each map does not burn, so no way leads out of it and no index has to be checked.

    def _inner(self, padded: Array) -> Array:
        maps = padded.reshape(*padded.shape[:1], -1, self._width)
        return maps[:, self._margin : -self._margin, self._margin : -self._margin]

    def _flat(self, row: Any, column: Any) -> Array:
        return np.asarray((np.asarray(row) + self._margin) * self._width + np.asarray(column) + self._margin)

    @property
    def jit(self) -> bool:
        """Whether it is compiled."""
        return self._compiled is not None

    @property
    def time(self) -> Array:
        """[N, H, W] minutes: when each cell burns, as far as that is known; true for good up to the clock."""
        return self._inner(self._time)

    @property
    def arrival(self) -> Array:
        """[N, H, W] minutes: when each cell began to burn; infinite where it does not burn yet."""
        return np.where(self.time <= self.clock[:, None, None], self.time, np.inf)

    @property
    def burnt(self) -> Array:
        """[N, H, W] bool: burning or burned."""
        return np.asarray((self.time <= self.clock[:, None, None]) & (self.time < np.inf))

    @property
    def burning(self) -> Array:
        """[N, H, W] bool: where flames are."""
        clock = self.clock[:, None, None]
        return np.asarray((self.time <= clock) & (self.time + self.duration > clock))

    @property
    def upcoming(self) -> Array:
        """[N] minutes: when the next cell will burn; infinite for a fire that has come to its end."""
        return self._upcoming

    @property
    def factor(self) -> Array:
        """[N, H, W]: what lines leave of the rate of spread."""
        return self._factor

    def begin(self, n: int, rates: SpreadRates, ignitions: Sequence[tuple[int, int]], at: float = 0.0) -> None:
        """Fire n begins anew ``at`` the cells (row, column) ``ignitions``."""
        self._load_rates(n, rates)
        self._time[n] = np.inf
        self._factor[n] = 1.0
        self._ignitions[n] = {}
        self._upcoming[n] = np.inf
        self.clock[n] = min(np.nextafter(at, -np.inf), at - _TINY)
        self._box[n] = self._sizes[n] = 0
        self.ignite(n, ignitions, at)

    def _load_rates(self, n: int, rates: SpreadRates) -> None:
        if rates.rate.shape[1:] != self.shape:
            raise UsageError(f"the map is {rates.rate.shape[1:]}, but these fires burn on maps of {self.shape}")
        self._rates[n], weathers = rates, len(rates.changes)
        if weathers > self._changes.shape[1]:
            grown = np.full((self.count, weathers, *self._fields.shape[2:]), np.inf)
            grown[:, : self._fields.shape[1]] = self._fields
            self._fields = grown
            changes = np.full((self.count, weathers), np.inf)
            changes[:, : self._changes.shape[1]] = self._changes
            self._changes = changes
        self._changes[n] = np.inf
        self._changes[n, :weathers] = rates.changes
        inner = self._fields[n].reshape(self._fields.shape[1], -1, self._width, 3)
        self._fields[n, ..., 0], self._fields[n, ..., 1:] = np.inf, 0.0
        margin = slice(self._margin, -self._margin)
        inner[:weathers, margin, margin] = rates.slowness
        self.duration[n] = rates.duration
        self._narrow[n] = bool((rates.eccentricity > NARROW).any())
        self._kinds = np.unique(self._narrow).tolist()
        least = rates.least_minutes(self._stencils[self._narrow[n]])
        self._least[n, : least.size] = least
        self._throwing = [n for n, rates in enumerate(self._rates) if rates is not None and rates.embers is not None]

    def ignite(self, n: int, cells: Sequence[tuple[int, int]], at: float | None = None) -> None:
        """Set cells of fire n on fire, now or ``at`` a time to come; cells that cannot burn or have burned do not."""
        when = self.clock[n] if at is None else at
        if when <= self.clock[n]:
            when = max(np.nextafter(self.clock[n], np.inf), self.clock[n] + _TINY)
        for row, column in cells:
            if not (0 <= row < self.shape[0] and 0 <= column < self.shape[1]):
                raise UsageError(f"ignition at row {row}, column {column} is off the map of {self.shape}")
            flat = int(self._flat(row, column))
            if self._fields[n, 0, flat, 0] == np.inf or self._time[n, flat] <= self.clock[n]:
                continue
            self._ignitions[n][flat] = min(self._ignitions[n].get(flat, np.inf), when)
            if flat not in self._front[n, : self._sizes[n, 0]]:
                self._front[n, self._sizes[n, 0]] = flat
                self._sizes[n, 0] += 1
            self._time[n, flat] = min(self._time[n, flat], when)
            box, r, c = self._box[n], row + self._margin, column + self._margin
            if box[0] == box[1]:
                box[:] = (r, r + 1, c, c + 1)
            box[:] = (min(box[0], r), max(box[1], r + 1), min(box[2], c), max(box[3], c + 1))
            self._upcoming[n] = min(self._upcoming[n], when)

    def slow(self, n: Any, rows: Any, columns: Any, factor: Any) -> Array:
        """Lay lines: in these cells fire n keeps ``factor`` of its rate, none at 0. Returns which were still unburnt.

        ``n`` and ``factor`` are one for all, or one for each cell. A line counts from now on, in the whole cell; it
        never makes a cell faster than it already is.
        """
        rows, columns = np.atleast_1d(rows), np.atleast_1d(columns)
        n, factor = np.full(rows.shape, n), np.full(rows.shape, factor, np.float64)
        fires = (self._time, self._fields, self._changes, self._width)
        if self._compiled is not None:
            unburnt = np.empty(rows.shape, np.bool_)
            which = (self._margin, self.clock, self._factor, self._narrow, n, rows, columns, factor, unburnt)
            left = self._compiled.slow(*fires, *which, *self._packed[0], *self._packed[1])
        else:
            unburnt = self._time[n, self._flat(rows, columns)] > self.clock[n]
            left = rows.size
        slower = unburnt & (factor < self._factor[n, rows, columns]) if left else unburnt
        if left and slower.any():
            self._set_factor(n[slower], rows[slower], columns[slower], factor[slower])
            cells = self._flat(rows, columns)
            for kind in self._kinds:
                here = slower & (self._narrow[n] == kind)
                if self._compiled is None:
                    _spread_numpy.revise(*fires, self.clock, n[here], cells[here], self._stencils[kind])
                else:
                    self._compiled.revise(*fires, self.clock, n[here], cells[here], *self._packed[kind])
        self._keep_ignitions(n)
        return np.asarray(unburnt)

    def _set_factor(self, n: Array, rows: Array, columns: Array, factor: Array) -> None:
        self._factor[n, rows, columns] = factor
        flat = self._flat(rows, columns)
        for fire in np.unique(n):
            rates, here = self._rates[fire], n == fire
            assert rates is not None
            still, part = rates.slowness[:, rows[here], columns[here]].swapaxes(0, 1), factor[here, None, None]
            slower = np.where(part > 0, still * (1.0 / np.where(part > 0, part, 1.0)), (np.inf, 0.0, 0.0))
            self._fields[fire, : len(rates.changes), flat[here]] = slower

    def _keep_ignitions(self, fires: Array) -> None:
        """What is to be set on fire does not depend on its neighbours."""
        for n in set(fires.tolist()):
            for cell, when in self._ignitions[n].items():
                if when > self.clock[n] and self._fields[n, 0, cell, 0] != np.inf:
                    self._time[n, cell] = min(self._time[n, cell], when)

    def survey(self, status: Array, assets: Array) -> tuple[Array, Array, Array]:
        """Write 1 into ``status`` [N, H, W] where it burns and 2 where it has; other cells keep what is there.

        Returns, for each fire, how many cells burn, how many have begun to since the last survey, and the sum of
        ``assets`` [N, H, W] there.
        """
        counts, lost = np.empty((self.count, 2), np.int64), np.empty(self.count)
        fires: Any = (self._time, self.duration, assets, self.clock)
        seen: Any = (self._width, self._margin, status, counts, lost)
        if self._compiled is None:
            _spread_numpy.survey(*fires, *seen)
        else:
            self._compiled.survey(*fires, self._flames, self._sizes, *seen)
        return counts[:, 0], counts[:, 1], lost

    def advance(self, minutes: Any = 1.0, *, until: Any = None) -> None:
        """Let all fires burn on, for ``minutes`` (one number, or one for each) or ``until`` a time."""
        goal = np.empty(self.count)
        goal[:] = self.clock + minutes if until is None else until
        if (goal < self.clock).any():
            raise UsageError(f"fires cannot burn backwards, from minute {self.clock.max():g} to {goal.min():g}")
        while self._throwing and (self.clock < goal).any():
            # No ember of a cell that burns before this time lands before it.
            lag = 0.5 * min(rates.ember_delay for n in self._throwing if (rates := self._rates[n]) is not None)
            since = self.clock
            self._burn(np.minimum(goal, np.maximum(since, self._upcoming) + lag))
            for n in self._throwing:
                self._throw_embers(n, since[n])
        self._burn(goal)

    def _burn(self, until: Array) -> None:
        fires = (self._time, self._fields, self._changes)
        for kind in self._kinds:
            goal = until if len(self._kinds) == 1 else np.where(self._narrow == kind, until, self.clock)
            times = (self.clock, goal, self._upcoming)
            if self._compiled is None:
                _spread_numpy.advance(*fires, self._box, self._width, *times, self._stencils[kind])
            else:
                known = (self._front, self._flames, self._sizes)
                self._compiled.advance(*fires, *times, self._least, *known, *self._scratch, *self._packed[kind])
        self.clock = until

    def _throw_embers(self, n: int, since: float) -> None:
        """Set on fire, after the delay, what embers of the cells of fire n reach that have begun to burn ``since``."""
        rates, time = self._rates[n], self.time[n]
        assert rates is not None and rates.embers is not None
        rows, columns = ((time > since) & (time <= self.clock[n]) & (time < np.inf)).nonzero()
        weather = np.maximum(np.searchsorted(rates.changes, time[rows, columns], side="right") - 1, 0)
        for when, lit in zip(time[rows, columns], rates.embers[weather, rows, columns], strict=True):
            if lit >= 0:
                self.ignite(n, [divmod(int(lit), self.shape[1])], float(when) + rates.ember_delay)

    def look_ahead(self, other: Fires, which: Array, until: float) -> None:
        """Be what the fires ``which`` [N] bool of another will be at minute ``until`` if no further line is laid."""
        if self._changes.shape != other._changes.shape:
            self._fields, self._changes = other._fields.copy(), other._changes.copy()
        self._rates, self._kinds, self._throwing = other._rates, other._kinds, other._throwing
        for name in ("_time", "_fields", "_changes", "_box", "_sizes", "_upcoming", "_narrow", "_least", "clock"):
            getattr(self, name)[which] = getattr(other, name)[which]
        longest = self._sizes[:, 0].max()
        self._front[which, :longest] = other._front[which, :longest]
        self._sizes[:, 1] = 0  # nobody asks where it burns
        self.advance(until=np.where(which, np.maximum(until, self.clock), self.clock))

    def save_state(self) -> dict[str, Any]:
        """What changes as fires burn. Their rates are not in it: ``load_state`` wants them again."""
        return {
            "time": self._time.copy(),
            "clock": self.clock.copy(),
            "factor": self._factor.copy(),
            "upcoming": self._upcoming.copy(),
            "ignitions": np.array(
                [(n, cell, when) for n, cells in enumerate(self._ignitions) for cell, when in cells.items()]
            ).reshape(-1, 3),
        }

    def load_state(self, state: dict[str, Any], rates: Sequence[SpreadRates]) -> None:
        """Go on exactly where ``save_state`` was called; ``rates`` of each fire are those it began with."""
        if state["time"].shape != self._time.shape:
            raise UsageError(f"the saved fires are {state['factor'].shape}, these {self._factor.shape}")
        for n, its_rates in enumerate(rates):
            self._load_rates(n, its_rates)
            rows, columns = (state["factor"][n] < 1).nonzero()
            self._set_factor(np.full(rows.shape, n), rows, columns, state["factor"][n, rows, columns])
        self._time[...], self._factor[...], self._upcoming[...] = state["time"], state["factor"], state["upcoming"]
        self.clock = state["clock"].copy()
        for n in range(self.count):
            self._find_cells(n)
        self._ignitions = [{} for _ in range(self.count)]
        for n, cell, when in state["ignitions"].tolist():
            self._ignitions[int(n)][int(cell)] = when

    def _find_cells(self, n: int) -> None:
        """What follows from the times: where anything is known to burn, which cells will, and which have begun to."""
        (known,) = (self._time[n] < np.inf).nonzero()
        rows, columns = np.divmod(known, self._width)
        self._box[n] = (rows.min(), rows.max() + 1, columns.min(), columns.max() + 1) if known.size else 0
        later = self._time[n, known] > self.clock[n]
        for kind, (cells, chosen) in enumerate(((self._front, later), (self._flames, ~later))):
            self._sizes[n, kind] = chosen.sum()
            cells[n, : self._sizes[n, kind]] = known[chosen]


@cache
def _compiled() -> ModuleType | None:
    """The compiled spread, or None without a numba that works: it takes a second to import, so it is asked for once."""
    if importlib.util.find_spec("numba") is None:
        return None
    try:
        return importlib.import_module("operant.envs.wildfire.physics._spread_numba")
    except ImportError:  # each numba works with some versions of numpy
        return None
