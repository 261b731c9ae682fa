"""Land, weather and maps in files."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from operant.envs.wildfire import Land, Moisture, Weather, fuel_table, spread_rates
from operant.envs.wildfire.grids import read_grid, write_ascii_grid
from operant.envs.wildfire.land import ASSETS, FUELS, TERRAINS, generate
from operant.envs.wildfire.physics.rothermel import FEET, fire_behaviour, fuel_bed, wind_adjustment
from operant.envs.wildfire.weather import WINDS
from operant.errors import UsageError

SHAPE = (20, 31)


def flat(**kwargs: Any) -> Land:
    return Land(**{"cell_size": 30.0, "elevation": np.zeros(SHAPE), "fuel": np.full(SHAPE, 102), **kwargs})


def steady(speed: float, direction: float, moisture: Moisture | None = None) -> Weather:
    return Weather(np.zeros(1), np.array([speed]), np.array([direction]), (moisture or Moisture(),))


@pytest.mark.parametrize("kind", TERRAINS)
def test_terrain_is_that_of_its_seed_on_any_shape(kind: str) -> None:
    one, same, other = (
        generate(TERRAINS, "terrain", {"type": kind}, SHAPE, 30.0, np.random.default_rng(seed)) for seed in (1, 1, 2)
    )
    assert one.shape == SHAPE and np.isfinite(one).all()
    assert (one == same).all()
    assert (one == other).all() == (kind in ("flat", "gaussian"))


@pytest.mark.parametrize("kind", FUELS)
def test_fuel_burns(kind: str) -> None:
    elevation = generate(TERRAINS, "terrain", {"type": "hills"}, SHAPE, 30.0, np.random.default_rng(0))
    fuel = generate(FUELS, "fuel", {"type": kind}, elevation, np.random.default_rng(0))
    assert flat(fuel=fuel).burnable.all()
    assert (len(np.unique(fuel)) == 1) == (kind == "uniform")


@pytest.mark.parametrize("kind", ASSETS)
def test_assets(kind: str) -> None:
    worth = generate(ASSETS, "assets", {"type": kind}, SHAPE, np.random.default_rng(0))
    assert worth.shape == SHAPE and (worth.sum() > 0) == (kind != "none")


def test_mistakes_in_settings_are_told() -> None:
    arguments = (SHAPE, 30.0, np.random.default_rng(0))
    with pytest.raises(UsageError, match="perlin"):
        generate(TERRAINS, "terrain", {"type": "perlim"}, *arguments)
    with pytest.raises(UsageError, match="heigth"):
        generate(TERRAINS, "terrain", {"type": "hills", "heigth": 3}, *arguments)
    with pytest.raises(UsageError, match="fuel is a map of"):
        flat(fuel=np.zeros((3, 4)))
    with pytest.raises(UsageError, match="wind_direction holds 1 values for 2"):
        Weather(np.array([0.0, 1.0]), np.array([1.0, 2.0]), np.array([0.0]), (Moisture(),))


@pytest.mark.parametrize(("comes_from", "heads_to"), [(270, 90), (0, 180), (225, 45), (90, 270)])
def test_fire_heads_with_the_wind(comes_from: float, heads_to: float) -> None:
    spread = spread_rates(flat(), steady(5.0, comes_from))
    assert np.degrees(spread.heading[0, 3, 3]) == pytest.approx(heads_to)
    table = fuel_table()
    row = table.rows(np.array([102]))
    midflame = 5.0 / 1.15 / FEET * 60 * wind_adjustment(table.depth[row])
    expected = fire_behaviour(fuel_bed(table, Moisture(), rows=row), midflame)
    assert spread.rate[0, 3, 3] == pytest.approx(float(expected.rate[0]) * FEET)
    assert spread.eccentricity[0, 3, 3] == pytest.approx(float(expected.eccentricity[0]))


def test_fire_heads_up_the_slope_and_between_slope_and_wind() -> None:
    row, column = np.mgrid[: SHAPE[0], : SHAPE[1]]
    rises_north, rises_east = -15.0 * row, 15.0 * column  # half a metre for each metre
    north = spread_rates(flat(elevation=rises_north), steady(0.0, 0.0))
    east = spread_rates(flat(elevation=rises_east), steady(0.0, 0.0))
    assert np.degrees(north.heading[0, 5, 5]) == pytest.approx(0.0, abs=1e-9)
    assert np.degrees(east.heading[0, 5, 5]) == pytest.approx(90.0)
    assert north.rate[0, 5, 5] == pytest.approx(east.rate[0, 5, 5])
    both = spread_rates(flat(elevation=rises_north), steady(3.0, 270.0))
    assert 0 < np.degrees(both.heading[0, 5, 5]) < 90
    assert both.rate[0, 5, 5] > max(north.rate[0, 5, 5], spread_rates(flat(), steady(3.0, 270.0)).rate[0, 5, 5])
    with_slope = spread_rates(flat(elevation=rises_east), steady(3.0, 270.0))
    assert (
        with_slope.rate[0, 5, 5]
        > both.rate[0, 5, 5]
        > spread_rates(flat(elevation=rises_east), steady(3.0, 90.0)).rate[0, 5, 5]
    )


def test_wet_fuel_canopy_and_water() -> None:
    dry = spread_rates(flat(), steady(5.0, 0.0))
    wet = spread_rates(flat(), steady(5.0, 0.0, Moisture(dead_1h=0.12)))
    forest = spread_rates(flat(cover=0.7, height=20.0), steady(5.0, 0.0))
    assert (wet.rate < dry.rate).all() and (forest.rate < dry.rate).all()
    lake = np.full(SHAPE, 102)
    lake[4:8] = 98
    assert (spread_rates(flat(fuel=lake), steady(5.0, 0.0)).rate[0, 4:8] == 0).all()
    maps = spread_rates(
        flat(), steady(5.0, 0.0, Moisture(dead_1h=np.linspace(0.03, 0.14, SHAPE[1])[None].repeat(20, 0)))
    )
    assert (np.diff(maps.rate[0], axis=1) < 0).all()


@pytest.mark.parametrize("kind", WINDS)
def test_winds(kind: str) -> None:
    land = flat(elevation=generate(TERRAINS, "terrain", {"type": "hills"}, SHAPE, 30.0, np.random.default_rng(4)))
    table = {"times": [0, 30], "speed": [3, 4], "direction": [0, 90]} if kind == "table" else {"speed": [4.0, 6.0]}
    times, speed, direction = WINDS[kind](land, 60.0, np.random.default_rng(0), **table)
    spread = spread_rates(land, Weather(times, speed, direction, (Moisture(),)))
    assert spread.rate.shape == (len(times), *SHAPE) and (spread.rate > 0).all()
    assert (len(times) > 1) == (kind in ("gusts", "table"))
    if kind == "terrain":
        top = np.unravel_index(land.elevation.argmax(), SHAPE)
        assert speed[0][top] > speed[0].mean()


def test_ascii_grids_go_both_ways(tmp_path: Path) -> None:
    values = np.arange(12.0).reshape(3, 4)
    values[0, 0] = math.inf
    write_ascii_grid(tmp_path / "a.asc", values, cell_size=30.0, west=10.0, south=20.0)
    grid = read_grid(tmp_path / "a.asc")
    assert grid.values[0, 0] == -9999 and (grid.values.ravel()[1:] == np.arange(1.0, 12.0)).all()
    assert (grid.cell_size, grid.west, grid.south) == (30.0, 10.0, 20.0)
    (tmp_path / "b.asc").write_text("ncols 3\nnrows 2\ncellsize 1\n1 2 3\n")
    with pytest.raises(UsageError, match=r"tells of 2 x 3 cells of 1, but it has 1 x 3"):
        read_grid(tmp_path / "b.asc")
    np.save(tmp_path / "c.npy", values)
    assert (read_grid(tmp_path / "c.npy").values == values).all()
    with pytest.raises(UsageError, match="no map"):
        read_grid(tmp_path / "d.asc")


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")  # of rasterio, about itself
def test_geotiff(tmp_path: Path) -> None:
    rasterio = pytest.importorskip("rasterio")
    fuel = np.array([[101, 102], [98, -9999]], np.int32)
    place = rasterio.transform.from_origin(500.0, 900.0, 30.0, 30.0)
    with rasterio.open(
        tmp_path / "fuel.tif", "w", driver="GTiff", height=2, width=2, count=1, dtype="int32", transform=place
    ) as file:
        file.write(fuel, 1)
    grid = read_grid(tmp_path / "fuel.tif")
    assert (grid.values == fuel).all()
    assert (grid.cell_size, grid.west, grid.south) == (30.0, 500.0, 840.0)
    assert (flat(elevation=np.zeros((2, 2)), fuel=grid.values).burnable == [[True, True], [False, False]]).all()
