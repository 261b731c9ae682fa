"""Fuel models: Anderson's 13, Scott and Burgan's 40, and what does not burn, under LANDFIRE's numbers."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np

from operant.envs.vector import Array
from operant.errors import UsageError, nearest

# LANDFIRE marks cells without data so; they burn as little as water does.
NO_DATA = (-9999, 32767)  # of LANDFIRE's maps


@dataclass(frozen=True)
class FuelTable:
    """One row for each fuel model. Loads in lb/ft², surface-to-volume ratios in 1/ft, depth in ft, heat in Btu/lb."""

    number: Array
    code: tuple[str, ...]
    name: tuple[str, ...]
    dynamic: Array
    load: Array  # [models, 5]: 1 h, 10 h, 100 h, live herbaceous, live woody
    sav: Array  # [models, 5]
    depth: Array
    extinction: Array  # moisture of dead fuel at which it no longer burns, a fraction
    heat: Array

    @property
    def burnable(self) -> Array:
        return np.asarray(self.load.sum(-1) > 0)

    def rows(self, numbers: Array) -> Array:
        """Which row of the table each number of a map is; a number that no model has is an error."""
        numbers = np.asarray(numbers)
        largest = int(self.number.max())
        lookup = np.full(largest + 1, -1)
        lookup[self.number] = np.arange(len(self.number))
        known = np.where(np.isin(numbers, (*NO_DATA, 0)), 98, numbers)
        # What is not finite is no number of a model.
        whole = np.where(np.abs(known) < 2**53, known, -1).astype(np.int64)
        rows = lookup[np.clip(whole, 0, largest)]
        wrong = (rows < 0) | (whole < 0) | (whole > largest)
        if wrong.any():
            unknown = sorted({int(number) for number in whole[wrong]})[:5]
            raise UsageError(
                f"no fuel model has the number {unknown}; known are 1-13, 91-99, 101-109, 121-124, 141-204"
            )
        return np.asarray(rows)


@cache
def fuel_table() -> FuelTable:
    """The 53 models and 7 kinds of ground that do not burn."""
    text = (files(__package__) / "fuel_models.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))

    def column(name: str) -> Array:
        return np.array([float(row[name]) for row in rows])

    classes = ("1h", "10h", "100h", "herb", "woody")
    constant = {"10h": 109.0, "100h": 30.0}
    return FuelTable(
        number=column("number").astype(np.int64),
        code=tuple(row["code"] for row in rows),
        name=tuple(row["name"] for row in rows),
        dynamic=column("dynamic") > 0,
        load=np.stack([column(f"load_{name}") for name in classes], -1),
        sav=np.stack(
            [np.full(len(rows), constant[name]) if name in constant else column(f"sav_{name}") for name in classes], -1
        ),
        depth=column("depth"),
        extinction=column("extinction_dead"),
        heat=column("heat"),
    )


def fuel_number(fuel: int | str) -> int:
    """The number of a model that is given by its number or code: 102 or ``GR2``, 4 or ``FM4``."""
    table = fuel_table()
    if isinstance(fuel, str):
        if fuel.upper() not in table.code:
            raise UsageError(f"there is no fuel model {fuel!r}{nearest(fuel.upper(), table.code)}")
        return int(table.number[table.code.index(fuel.upper())])
    table.rows(np.array(fuel))
    return int(fuel)
