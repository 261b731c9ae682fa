"""Rates of spread against published values and against those of the Behave core."""

from __future__ import annotations

import csv
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from operant.envs.wildfire.physics.fuels import fuel_number, fuel_table
from operant.envs.wildfire.physics.rothermel import (
    FEET,
    MILES_PER_HOUR,
    Bed,
    Behaviour,
    Moisture,
    fire_behaviour,
    flame_length,
    fuel_bed,
    wind_adjustment,
)
from operant.errors import UsageError

DATA = Path(__file__).parent / "data"
CHAINS_PER_HOUR = 60 / 66  # of one ft/min


def rows(name: str) -> list[dict[str, str]]:
    with (DATA / name).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def bed_of(fuel: str, percents: list[float]) -> Bed:
    table = fuel_table()
    one = table.rows(np.array([fuel_number(fuel)]))
    return fuel_bed(table, Moisture(*(value / 100 for value in percents)), rows=one)


CORE = rows("check_vectors_behave_core.csv")


def test_behave_core() -> None:
    """All rows in one call: 53 models, several moistures, winds and slopes."""
    table = fuel_table()
    columns = {name: np.array([float(row[name]) for row in CORE]) for name in CORE[0] if name not in _WORDS}
    moisture = Moisture(*(columns[f"m{name}_pct"] / 100 for name in ("1h", "10h", "100h", "herb", "woody")))
    bed = fuel_bed(table, moisture, rows=table.rows(columns["fuel_number"]))
    wind, slope = columns["midflame_wind_mph_upslope"] * MILES_PER_HOUR, columns["slope_pct"] / 100
    limited = fire_behaviour(bed, wind, slope, wind_limit=True)
    free = fire_behaviour(bed, wind, slope)
    computed = {
        "ros_ft_min_with_wind_limit": limited.rate,
        "ros_m_min_with_wind_limit": limited.rate * FEET,
        "reaction_intensity_btu_ft2_min": bed.reaction_intensity,
        "fireline_intensity_btu_ft_s": limited.fireline_intensity,
        "flame_length_ft": flame_length(limited.fireline_intensity),
        "ros_ft_min_without_wind_limit_ref": free.rate,
        "length_width_anderson1983_ref": limited.length_to_width,
        "ros_nowind_noslope_ft_min_ref": bed.rate,
        "char_sav_ft-1_ref": bed.sav,
        "packing_ratio_ref": bed.packing_ratio,
        "mx_live_pct_ref": bed.live_extinction * 100,
    }
    assert len(CORE) == 318
    for name, values in computed.items():
        for row, value in zip(CORE, values, strict=True):
            digits = len(row[name].partition(".")[2])
            expected = float(row[name])
            assert abs(value - expected) <= max(1e-6 * abs(expected), 0.51 * 10**-digits), (name, row)
    assert ((free.rate > limited.rate * (1 + 1e-12)) == (columns["wind_limit_active"] > 0)).all()


_WORDS = ("fuel_code", "moisture_scenario")


@pytest.mark.parametrize("row", rows("check_vectors_published.csv"), ids=lambda row: row["source"].split(":")[-1][:14])
def test_published(row: dict[str, str]) -> None:
    value = _published(row["quantity"], row["unit"], row["inputs"])
    assert value == pytest.approx(float(row["published_value"]), abs=float(row["suggested_abs_tol"]), rel=0)


def _published(quantity: str, unit: str, inputs: str) -> float:
    fuel = "GR2" if inputs.startswith("GR2") else "FM4" if inputs.startswith("FM4") else "GS4"
    slashed = re.search(r"m (\d+)/(\d+)/(\d+)/(\d+)/(\d+)", inputs)
    percents = [float(text) for text in slashed.groups()] if slashed else [3.0, 4.0, 5.0, 30.0, 60.0]
    bed = bed_of(fuel, percents)
    midflame = _midflame(inputs, fuel)
    slope = re.search(r"slope (\d+) ?(%|deg)?", inputs)
    assert slope is not None
    steep = math.tan(math.radians(float(slope[1]))) if slope[2] == "deg" else float(slope[1]) / 100
    north = re.search(r"wind(?: dir)? (\d+), aspect (\d+)", inputs)
    degrees = int(north[1]) - int(north[2]) if north else 90 if "cross-slope" in inputs else 0
    head = fire_behaviour(bed, midflame, steep, math.radians(degrees))
    return float(np.squeeze(_quantity(quantity, unit, bed, head, midflame)))


def _midflame(inputs: str, fuel: str) -> float:
    direct = re.search(r"midflame (\d+) mph", inputs)
    if direct:
        return float(direct[1]) * MILES_PER_HOUR
    high = re.search(r"20-ft wind (\d+) mph", inputs)
    cover = re.search(r"canopy cover (\d+) %", inputs)
    assert high is not None
    table = fuel_table()
    depth = table.depth[table.code.index(fuel)]
    factor = wind_adjustment(depth, cover=float(cover[1]) / 100 if cover else 0.0, height=30.0, crown_ratio=0.5)
    return float(factor) * float(high[1]) * MILES_PER_HOUR


def _quantity(quantity: str, unit: str, bed: Bed, head: Behaviour, midflame: float) -> Any:
    minutes = 3.5869124  # the time after which the published ellipses are measured
    b = (head.rate + head.backing_rate) / 2
    match quantity:
        case "head_ros":
            return head.rate if unit == "ft/min" else head.rate * CHAINS_PER_HOUR
        case "backing_ros":
            return head.backing_rate * CHAINS_PER_HOUR
        case "flanking_ros":
            return head.flanking_rate * CHAINS_PER_HOUR
        case "fireline_intensity":
            return head.fireline_intensity * (3.46414 if unit == "kW/m" else 1)
        case "live_mx":
            return bed.live_extinction * 100
        case "char_sav":
            return bed.sav
        case "length_width":
            return head.length_to_width
        case "head_to_back_ratio":
            return head.rate / head.backing_rate
        case "ellipse_b":
            return b * minutes / 66
        case "ellipse_a":
            return head.flanking_rate * minutes / 66
        case "ellipse_c":
            return (b - head.backing_rate) * minutes / 66
        case "ellipse_area":
            return math.pi * head.flanking_rate * b * 60**2 / 43560
        case "midflame_wind":
            return midflame / MILES_PER_HOUR
    raise AssertionError(quantity)


def test_what_does_not_burn_has_no_rate() -> None:
    table = fuel_table()
    bed = fuel_bed(table, Moisture())
    assert (bed.rate[~table.burnable] == 0).all()
    assert (bed.rate[table.burnable] > 0).all()
    assert len(table.number) == 60 and table.burnable.sum() == 53
    assert all(np.isfinite(value).all() for value in vars(fire_behaviour(bed, 500.0, 0.3)).values())


def test_numbers_and_codes() -> None:
    assert fuel_number("gr2") == 102
    assert fuel_number(4) == 4
    with pytest.raises(UsageError, match="GR2"):
        fuel_number("GRR2")
    with pytest.raises(UsageError, match="100"):
        fuel_table().rows(np.array([[1, 100]]))
    assert (fuel_table().rows(np.array([-9999])) == fuel_table().rows(np.array([98]))).all()
