"""The shape of fires, lines, weather that changes, and the two implementations side by side."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operant.envs.wildfire.physics.spread import Fires, SpreadRates
from operant.errors import UsageError

Array = np.ndarray[Any, Any]


def rates(
    shape: tuple[int, int],
    rate: Any = 10.0,
    *,
    ratio: Any = 1.5,
    heading: Any = 0.0,
    cell_size: float = 10.0,
    changes: tuple[float, ...] = (0.0,),
) -> SpreadRates:
    """Of a map on which ``rate`` and the like are numbers, maps, or maps for each of the ``changes``."""
    full = (len(changes), *shape)
    ratio = np.broadcast_to(np.asarray(ratio, float), full)
    return SpreadRates(
        cell_size=cell_size,
        changes=np.array(changes),
        rate=np.array(np.broadcast_to(np.asarray(rate, float), full)),
        heading=np.array(np.broadcast_to(np.asarray(heading, float), full)),
        eccentricity=np.sqrt(ratio**2 - 1) / ratio,
        intensity=np.full(full, 100.0),
        residence=np.full(shape, 1.0),
    )


def burn(spread: SpreadRates, start: tuple[int, int], until: float = math.inf, jit: bool = True) -> Array:
    fires = Fires(1, spread.rate.shape[1:], jit=jit)
    fires.begin(0, spread, [start])
    fires.advance(until=until)
    return np.array(fires.arrival[0])


def ellipse_errors(size: int, degrees: float, ratio: float) -> tuple[float, dict[str, float]]:
    """Area, and rates at the head, the flanks and the back, as parts by which they differ from the ellipse's."""
    rate, cell = 10.0, 10.0
    e = math.sqrt(ratio**2 - 1) / ratio
    b = rate / (1 + e) / cell  # cells a minute
    north, east = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    reach = max(math.hypot(b * north, b / ratio * east), math.hypot(b * east, b / ratio * north))
    minutes = (size / 2 - 4) / reach
    start = (round(size / 2 + e * b * minutes * north), round(size / 2 - e * b * minutes * east))
    arrival = burn(rates((size, size), rate, ratio=ratio, heading=math.radians(degrees)), start)
    area = (arrival <= minutes).sum() / (math.pi * b * b / ratio * minutes**2) - 1
    errors = {}
    for name, turn, true in (
        ("head", 0.0, rate / cell),
        ("flank", 90.0, rate / cell * (1 - e)),
        ("flank on the left", -90.0, rate / cell * (1 - e)),
        ("back", 180.0, rate / cell * (1 - e) / (1 + e)),
    ):
        angle = math.radians(degrees + turn)
        far = np.linspace(0, true * minutes, 2000)
        times = bilinear(arrival, start[0] - far * math.cos(angle), start[1] + far * math.sin(angle))
        errors[name] = float(far[np.searchsorted(times, 0.9 * minutes)] / (0.9 * minutes) / true - 1)
    return area, errors


def bilinear(grid: Array, row: Array, column: Array) -> Array:
    top, left = np.floor(row).astype(int), np.floor(column).astype(int)
    down, right = row - top, column - left
    upper = grid[top, left] * (1 - right) + grid[top, left + 1] * right
    lower = grid[top + 1, left] * (1 - right) + grid[top + 1, left + 1] * right
    return np.asarray(upper * (1 - down) + lower * down)


@pytest.mark.parametrize("degrees", [0.0, 11.0, 22.5, 45.0])
@pytest.mark.parametrize("ratio", [1.0, 1.38, 2.5, 4.0])
def test_a_point_fire_becomes_an_ellipse_in_any_direction(degrees: float, ratio: float) -> None:
    area, errors = ellipse_errors(300, degrees, ratio)
    assert abs(area) < 0.02
    assert max(map(abs, errors.values())) < 0.01, errors


def test_finer_maps_come_nearer_to_the_ellipse() -> None:
    errors = [abs(ellipse_errors(size, 11.0, 2.5)[1]["head"]) for size in (60, 150, 375)]
    assert errors[0] > errors[1] > errors[2]
    areas = [abs(ellipse_errors(size, 11.0, 2.5)[0]) for size in (60, 150, 375)]
    assert areas[0] > areas[1] > areas[2]


@st.composite
def landscapes(draw: st.DrawFn, weathers: int = 1, longest: float = 4.0) -> SpreadRates:
    height, width = draw(st.integers(5, 14)), draw(st.integers(5, 14))
    generator = np.random.default_rng(draw(st.integers(0, 10_000)))
    shape = (weathers, height, width)
    rate = generator.uniform(0.5, 20.0, shape)
    rate[:, generator.random(shape[1:]) < draw(st.sampled_from([0.0, 0.2, 0.5]))] = 0.0
    return rates(
        shape[1:],
        rate,
        ratio=generator.uniform(1.0, draw(st.sampled_from([2.5, longest])), shape),
        heading=generator.uniform(0, 2 * math.pi, shape),
        changes=tuple(np.sort(generator.uniform(1, 20, weathers)) - 1.0),
    )


def starts(spread: SpreadRates, seed: int) -> tuple[int, int]:
    generator = np.random.default_rng(seed)
    return int(generator.integers(spread.rate.shape[1])), int(generator.integers(spread.rate.shape[2]))


@settings(max_examples=25)
@given(landscapes(longest=2.5), st.integers(0, 99))
def test_numba_and_numpy_give_the_same_bits(spread: SpreadRates, seed: int) -> None:
    start = starts(spread, seed)
    assert (burn(spread, start) == burn(spread, start, jit=False)).all()


@settings(max_examples=15)
@given(landscapes(), st.integers(0, 99))
def test_numba_and_numpy_agree_on_narrow_fires(spread: SpreadRates, seed: int) -> None:
    start = starts(spread, seed)
    np.testing.assert_allclose(burn(spread, start), burn(spread, start, jit=False), rtol=1e-12)


@settings(max_examples=25)
@given(landscapes(weathers=3), st.integers(0, 99))
def test_numba_and_numpy_agree_in_changing_weather(spread: SpreadRates, seed: int) -> None:
    start = starts(spread, seed)
    np.testing.assert_allclose(burn(spread, start), burn(spread, start, jit=False), rtol=1e-9)


@pytest.mark.parametrize("jit", [True, False])
@settings(max_examples=12)
@given(
    spread=st.one_of(landscapes(), landscapes(weathers=3)),
    steps=st.lists(st.floats(0.01, 30.0), max_size=12),
    seed=st.integers(0, 99),
)
def test_the_length_of_steps_does_not_matter(jit: bool, spread: SpreadRates, steps: list[float], seed: int) -> None:
    start = starts(spread, seed)
    fires = Fires(1, spread.rate.shape[1:], jit=jit)
    fires.begin(0, spread, [start])
    for minutes in steps:
        fires.advance(minutes)
        assert (fires.arrival[0][fires.burnt[0]] <= fires.clock[0]).all()
    fires.advance(until=math.inf)
    np.testing.assert_allclose(fires.arrival[0], burn(spread, start, jit=jit), rtol=1e-12)
    assert fires.upcoming[0] == math.inf


@settings(max_examples=25)
@given(landscapes(), st.integers(0, 99))
def test_what_cannot_burn_does_not(spread: SpreadRates, seed: int) -> None:
    arrival = burn(spread, starts(spread, seed))
    assert (arrival[spread.rate[0] == 0] == math.inf).all()


@settings(max_examples=25)
@given(st.one_of(landscapes(), landscapes(weathers=3)), st.integers(0, 99), st.floats(0.1, 1.0))
def test_slower_cells_never_make_a_fire_arrive_sooner(spread: SpreadRates, seed: int, least: float) -> None:
    start = starts(spread, seed)
    factor = np.random.default_rng(seed).uniform(least, 1.0, spread.rate.shape[1:])
    slower = replace(spread, rate=spread.rate * factor)
    before, after = burn(spread, start), burn(slower, start)
    assert (after >= before * (1 - 1e-9)).all()


def lines(draw: st.DrawFn, height: int, width: int) -> list[tuple[int, int]]:
    """From the top of the map to its bottom, each cell touching the last one at a side or a corner."""
    column = draw(st.integers(2, width - 3))
    cells = []
    for row in range(height):
        cells.append((row, column))
        column = min(max(column + draw(st.integers(-1, 1)), 2), width - 3)
    return cells


@pytest.mark.parametrize("jit", [True, False])
@settings(max_examples=20)
@given(data=st.data())
def test_no_fire_crosses_a_complete_line(jit: bool, data: st.DataObject) -> None:
    spread = rates((12, 14), 10.0, ratio=3.0, heading=data.draw(st.floats(0, 2 * math.pi)))
    line = lines(data.draw, 12, 14)
    fires = Fires(1, (12, 14), jit=jit)
    fires.begin(0, spread, [(6, 0)])
    fires.slow(0, *zip(*line, strict=True), 0.0)
    fires.advance(until=math.inf)
    beyond = np.zeros((12, 14), bool)
    for row, column in line:
        beyond[row, column:] = True
    assert not (fires.burnt[0] & beyond).any()
    assert fires.burnt[0][6, 0]


@pytest.mark.parametrize("jit", [True, False])
@settings(max_examples=12)
@given(
    spread=st.one_of(landscapes(), landscapes(weathers=3)),
    seed=st.integers(0, 99),
    factor=st.sampled_from([0.0, 0.2, 0.7]),
)
def test_a_line_laid_before_the_fire_comes_is_as_slow_fuel(
    jit: bool, spread: SpreadRates, seed: int, factor: float
) -> None:
    shape = spread.rate.shape[1:]
    start = starts(spread, seed)
    chosen = np.random.default_rng(seed).random(shape) < 0.2
    chosen[start] = False
    expected = burn(replace(spread, rate=spread.rate * np.where(chosen, factor, 1.0)), start, jit=jit)
    fires = Fires(1, shape, jit=jit)
    fires.begin(0, spread, [start])
    laid = fires.slow(0, *chosen.nonzero(), factor)
    fires.advance(until=math.inf)
    assert laid.all()
    np.testing.assert_allclose(fires.arrival[0], expected, rtol=1e-9)


@settings(max_examples=25)
@given(landscapes(), st.integers(0, 99), st.floats(0.5, 30.0))
def test_lines_in_the_fires_way_only_delay_it(spread: SpreadRates, seed: int, minutes: float) -> None:
    shape = spread.rate.shape[1:]
    start = starts(spread, seed)
    before = burn(spread, start)
    fires = [Fires(1, shape, jit=jit) for jit in (True, False)]
    for one in fires:
        one.begin(0, spread, [start])
        one.advance(minutes)
        burnt = one.burnt[0].copy()
        rows, columns = (np.random.default_rng(seed).random(shape) < 0.3).nonzero()
        laid = one.slow(0, rows, columns, 0.0)
        assert (laid == ~burnt[rows, columns]).all()
        one.advance(until=math.inf)
        assert (one.arrival[0] >= before * (1 - 1e-9)).all()
        np.testing.assert_allclose(one.arrival[0][burnt], before[burnt], rtol=1e-12)
    np.testing.assert_allclose(fires[0].arrival, fires[1].arrival, rtol=1e-12)


@pytest.mark.parametrize("jit", [True, False])
def test_fires_go_on_exactly_from_a_saved_state(jit: bool) -> None:
    generator = np.random.default_rng(3)
    maps = [rates((20, 30), generator.uniform(2, 20, (20, 30)), heading=n, changes=(0.0,)) for n in range(3)]

    def begun() -> Fires:
        fires = Fires(3, (20, 30), jit=jit)
        for n, spread in enumerate(maps):
            fires.begin(n, spread, [(5 + n, 7)])
        fires.advance(4.0)
        fires.slow(1, [8, 8, 8], [9, 10, 11], 0.0)
        fires.slow(1, [9, 9], [9, 10], 0.5)
        fires.slow(1, [9, 9], [9, 10], 0.3)
        fires.advance(3.0)
        return fires

    fires = begun()
    state = fires.save_state()
    other = Fires(3, (20, 30), jit=jit)
    other.load_state(state, maps)
    for one in (fires, other):
        one.slow(2, [15], [20], 0.1)
        one.advance(6.0)
    assert (fires.time == other.time).all()
    assert (fires.upcoming == other.upcoming).all()
    with pytest.raises(UsageError, match="saved fires"):
        Fires(2, (20, 30)).load_state(state, maps[:2])


@pytest.mark.parametrize("jit", [True, False])
def test_many_fires_burn_as_each_alone(jit: bool) -> None:
    generator = np.random.default_rng(1)
    maps = [
        rates((18, 23), generator.uniform(0, 20, (k, 18, 23)), heading=n, changes=tuple(range(0, 9 * k, 9)))
        for n, k in enumerate((1, 3, 2))
    ]
    fires = Fires(3, (18, 23), jit=jit)
    for n, spread in enumerate(maps):
        fires.begin(n, spread, [(3 * n, 4)])
    for minutes in (0.5, 2.0, 7.0, 30.0):
        fires.advance(minutes)
    for n, spread in enumerate(maps):
        np.testing.assert_allclose(fires.arrival[n], burn(spread, (3 * n, 4), 39.5, jit=jit), rtol=1e-12)


@pytest.mark.parametrize("jit", [True, False])
def test_embers_cross_a_line_and_light_a_cell_after_their_delay(jit: bool) -> None:
    embers = np.full((1, 9, 30), -1)
    embers[0, 4, 10] = 4 * 30 + 20  # over the line at column 15
    embers[0, 4, 11] = 4 * 30 + 15  # onto it: nothing to light
    spread = replace(rates((9, 30)), embers=embers, ember_delay=3.0)

    def begun() -> Fires:
        fires = Fires(1, (9, 30), jit=jit)
        fires.begin(0, spread, [(4, 5)])
        fires.slow(0, np.arange(9), np.full(9, 15), 0.0)
        return fires

    whole, steps = begun(), begun()
    whole.advance(until=math.inf)
    arrival = whole.arrival[0]
    assert arrival[4, 20] == arrival[4, 10] + 3.0
    assert np.isinf(arrival[:, 15]).all() and np.isfinite(arrival[:, 16:]).all()
    assert np.nanmin(arrival[:, 16:]) == arrival[4, 20]
    while steps.clock[0] < arrival[np.isfinite(arrival)].max():
        steps.advance(0.7)
        other = begun()
        other.load_state(steps.save_state(), [spread])
        steps = other
    assert (steps.arrival[0] == arrival).all()


def test_wind_that_turns_turns_the_fire() -> None:
    east_then_north = rates(
        (60, 60), 10.0, ratio=3.0, heading=np.array([math.pi / 2, 0.0])[:, None, None], changes=(0.0, 20.0)
    )
    arrival = burn(east_then_north, (40, 10), 40.0)
    # 20 minutes bring the head 20 cells to the east, the next 20 as many to the north of any point that burned.
    assert np.isfinite(arrival[40, 29]) and not np.isfinite(arrival[40, 36])
    assert arrival[21:, 29].min() <= 40 and np.isfinite(arrival[22, 20:30]).any()
    steady = burn(rates((60, 60), 10.0, ratio=3.0, heading=math.pi / 2), (40, 10), 20.0)
    early = arrival <= 20
    np.testing.assert_allclose(arrival[early], steady[early], rtol=0.02)


def test_a_fire_waits_for_drier_weather() -> None:
    first_wet = rates((9, 9), np.array([0.0, 10.0])[:, None, None], ratio=1.0, changes=(0.0, 30.0))
    fires = Fires(1, (9, 9))
    fires.begin(0, rates((9, 9), 10.0, ratio=1.0), [(4, 4)])
    fires.begin(0, replace(first_wet, rate=np.maximum(first_wet.rate, 1e-3)), [(4, 4)])
    fires.advance(until=math.inf)
    assert fires.arrival[0, 4, 5] == pytest.approx(31.0, abs=0.1)


def test_flames_last_while_the_front_crosses_and_burns_out() -> None:
    fires = Fires(1, (9, 9))
    fires.begin(0, rates((9, 9), 5.0, ratio=1.0), [(4, 4)])
    fires.advance(2.5)
    assert fires.burning[0].sum() == 5 and fires.burnt[0].sum() == 5  # two minutes to a neighbour, three in each cell
    fires.advance(1.0)
    assert not fires.burning[0, 4, 4] and fires.burnt[0, 4, 4]


@pytest.mark.parametrize("jit", [False, True])
def test_a_fire_burns_alike_where_small_numbers_are_flushed_to_zero(jit: bool) -> None:
    torch = pytest.importorskip("torch")

    def both() -> Array:
        fires = Fires(1, (20, 20), jit=jit)
        fires.begin(0, rates((20, 20)), [(10, 10)])
        fires.advance(until=0.0)
        fires.ignite(0, [(2, 2)])
        fires.advance(10.0)
        return np.array(fires.arrival)

    plain = both()
    torch.set_flush_denormal(True)  # as a training does
    try:
        flushed = both()
    finally:
        torch.set_flush_denormal(False)
    assert np.isfinite(plain).sum() > 50
    np.testing.assert_array_equal(flushed, plain)


def test_mistakes_are_told() -> None:
    fires = Fires(1, (9, 9))
    fires.begin(0, rates((9, 9)), [(4, 4)])
    with pytest.raises(UsageError, match="off the map"):
        fires.ignite(0, [(9, 0)])
    with pytest.raises(UsageError, match="backwards"):
        fires.advance(-1.0)
    with pytest.raises(UsageError, match=r"\(9, 10\)"):
        fires.begin(0, rates((9, 10)), [(4, 4)])
