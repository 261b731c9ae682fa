"""The ground: elevation, fuel, canopy, and what is worth protecting. Generated from settings, or given as arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from inspect import signature
from typing import Any

import numpy as np

from operant._util.checks import is_whole
from operant.envs.vector import Array
from operant.envs.wildfire.physics.fuels import fuel_number, fuel_table
from operant.errors import UsageError, nearest

Shape = tuple[int, int]


@dataclass(frozen=True)
class Land:
    """Maps of one shape [rows, columns]. Row 0 is the north, column 0 the west.

    :param fuel: numbers of fuel models, as in LANDFIRE's layers of the 13 and the 40.
    :param cover: fraction of the sky that the canopy covers; where it is 0 wind reaches the fuel unhindered.
    :param height: of the canopy in m.
    :param assets: what each cell is worth.
    """

    cell_size: float  # m
    elevation: Array  # m
    fuel: Array
    cover: Array | float = 0.0
    height: Array | float = 10.0
    crown_ratio: Array | float = 0.5
    assets: Array = field(default_factory=lambda: np.zeros((0, 0)))

    def __post_init__(self) -> None:
        if self.cell_size <= 0:
            raise UsageError(f"cell_size is {self.cell_size}; it must be a length in metres")
        if not len(self.assets):
            object.__setattr__(self, "assets", np.zeros(self.shape))
        for name in ("fuel", "cover", "height", "crown_ratio", "assets"):
            given = np.shape(getattr(self, name))
            if given not in ((), self.shape):
                raise UsageError(f"{name} is a map of {given}, but elevation is one of {self.shape}")
        for name in ("cover", "crown_ratio"):
            value = np.asarray(getattr(self, name))
            if not ((value >= 0) & (value <= 1)).all():
                raise UsageError(f"{name} reaches {np.max(value):g}; it is a part between 0 and 1, and not in percent")
        if not np.isfinite(self.elevation).all():
            raise UsageError("elevation is not everywhere a number")
        object.__setattr__(self, "rows", fuel_table().rows(self.fuel))

    rows: Array = field(init=False, repr=False)  # of the fuel table

    @property
    def shape(self) -> Shape:
        height, width = self.elevation.shape
        return height, width

    @cached_property
    def burnable(self) -> Array:
        return np.asarray(fuel_table().burnable[self.rows])

    @cached_property
    def gradient(self) -> tuple[Array, Array]:
        """Rise to the north and to the east, m/m."""
        if min(self.shape) < 2:
            return np.zeros(self.shape), np.zeros(self.shape)
        south, east = np.gradient(self.elevation.astype(np.float64), self.cell_size)
        return np.asarray(-south), np.asarray(east)

    @cached_property
    def slope(self) -> Array:
        """The tangent of the steepest angle."""
        return np.hypot(*self.gradient)

    @cached_property
    def upslope(self) -> Array:
        """Where it rises most, in radians clockwise from north: the aspect turned round."""
        north, east = self.gradient
        return np.arctan2(east, north)


MOST_FORMS = 10_000  # hills, patches, houses


def generate(
    kinds: Mapping[str, Callable[..., Array]], what: str, settings: Mapping[str, Any], *arguments: Any
) -> Array:
    """Call the generator that ``settings["type"]`` names with the other settings."""
    own = dict(settings)
    kind = str(own.pop("type", next(iter(kinds))))
    if kind not in kinds:
        raise UsageError(f"there is no {what} of type {kind!r}{nearest(kind, kinds)}; known: {', '.join(kinds)}")
    for key in ("count", "octaves", "patches"):
        if key in own and not (is_whole(own[key], 0) and own[key] <= MOST_FORMS):
            raise UsageError(f"{what}.{key} is {own[key]!r:.40}; it is a whole number up to {MOST_FORMS:,}")
    check_names(kinds[kind], f"{what} of type {kind!r}", own)
    return np.asarray(kinds[kind](*arguments, **own))


def check_names(function: Callable[..., Any], what: str, own: Mapping[str, Any]) -> None:
    """Refuse settings that a generator does not have, and tell of one that it needs."""
    known = {name: one for name, one in signature(function).parameters.items() if one.kind is one.KEYWORD_ONLY}
    for name in own:
        if name not in known:
            raise UsageError(
                f"{what} has no setting {name!r}{nearest(name, known)}; known: {', '.join(known) or 'none'}"
            )
    missing = [name for name, one in known.items() if one.default is one.empty and name not in own]
    if missing:
        raise UsageError(f"{what} needs {' and '.join(missing)}")


# Terrain: (shape, cell_size, generator) and settings -> elevation in m.


def _flat(shape: Shape, cell_size: float, generator: np.random.Generator, *, elevation: float = 0.0) -> Array:
    return np.full(shape, float(elevation))


def _hills(
    shape: Shape, cell_size: float, generator: np.random.Generator, *, count: int = 6, height: float = 200.0
) -> Array:
    """Round hills of different height and width in random places."""
    row, column = np.mgrid[: shape[0], : shape[1]]
    ground = np.zeros(shape)
    for _ in range(count):
        r, c = generator.uniform(0, shape[0]), generator.uniform(0, shape[1])
        width = generator.uniform(0.08, 0.25) * max(shape)
        ground += generator.uniform(0.3, 1.0) * height * np.exp(-((row - r) ** 2 + (column - c) ** 2) / (2 * width**2))
    return ground


def _perlin(
    shape: Shape, cell_size: float, generator: np.random.Generator, *,
    height: float = 200.0, period: float = 0.5, octaves: int = 4, persistence: float = 0.5,
) -> Array:  # fmt: skip
    """Perlin's gradient noise (1985) in octaves; ``period`` is the size of the largest forms, in parts of the map."""
    ground = np.zeros(shape)
    amplitude, total = 1.0, 0.0
    for octave in range(octaves):
        ground += amplitude * _noise(shape, max(period * max(shape) / 2**octave, 2.0), generator)
        total += amplitude
        amplitude *= persistence
    low, high = ground.min(), ground.max()
    return np.asarray(height * (ground - low) / (high - low) if high > low else ground)


def _noise(shape: Shape, period: float, generator: np.random.Generator) -> Array:
    row, column = np.arange(shape[0]) / period, np.arange(shape[1]) / period
    angle = generator.uniform(0, 2 * np.pi, (int(row[-1]) + 2, int(column[-1]) + 2))
    r0, c0 = row.astype(int), column.astype(int)
    r, c = (row - r0)[:, None], (column - c0)[None, :]

    def corner(down: int, right: int) -> Array:
        at = angle[np.ix_(r0 + down, c0 + right)]
        return np.asarray(np.cos(at) * (r - down) + np.sin(at) * (c - right))

    smooth_r, smooth_c = r**3 * (r * (r * 6 - 15) + 10), c**3 * (c * (c * 6 - 15) + 10)
    upper = corner(0, 0) + smooth_c * (corner(0, 1) - corner(0, 0))
    lower = corner(1, 0) + smooth_c * (corner(1, 1) - corner(1, 0))
    return np.asarray(upper + smooth_r * (lower - upper))


def _gaussian(
    shape: Shape, cell_size: float, generator: np.random.Generator, *, height: float = 200.0, width: float = 0.25
) -> Array:
    """One mountain in the middle; ``width`` is its standard deviation in parts of the map."""
    row, column = np.mgrid[: shape[0], : shape[1]]
    far = (row - (shape[0] - 1) / 2) ** 2 + (column - (shape[1] - 1) / 2) ** 2
    return np.asarray(height * np.exp(-far / (2 * (width * max(shape)) ** 2)))


TERRAINS: dict[str, Callable[..., Array]] = {
    "flat": _flat,
    "hills": _hills,
    "perlin": _perlin,
    "gaussian": _gaussian,
}


# Fuel: (elevation, generator) and settings -> numbers of models.


def _uniform_fuel(elevation: Array, generator: np.random.Generator, *, model: int | str = "FM4") -> Array:
    return np.full(elevation.shape, fuel_number(model))


def _patches(
    elevation: Array, generator: np.random.Generator, *,
    models: list[int | str] | None = None, weights: list[float] | None = None, patches: int = 40,
) -> Array:  # fmt: skip
    """Each cell has the fuel of the nearest of some random points."""
    numbers = np.array([fuel_number(model) for model in models or ["GR2", "GS2", "SH5", "TU1"]])
    if weights is not None and len(weights) != len(numbers):
        raise UsageError(f"fuel.weights has {len(weights)} numbers for {len(numbers)} models")
    share = None if weights is None else np.array(weights) / np.sum(weights)
    places = generator.uniform(0, 1, (patches, 2)) * elevation.shape
    kinds = generator.choice(numbers, patches, p=share)
    row, column = np.mgrid[: elevation.shape[0], : elevation.shape[1]]
    nearest_place = np.zeros(elevation.shape, np.int64)
    least = np.full(elevation.shape, np.inf)
    for i, (r, c) in enumerate(places):  # one map at a time: all at once would need `patches` of them
        far = (row - r) ** 2 + (column - c) ** 2
        nearest_place[far < least] = i
        least = np.minimum(least, far)
    return np.asarray(kinds[nearest_place])


def _by_elevation(elevation: Array, generator: np.random.Generator, *, models: list[int | str] | None = None) -> Array:
    """Belts of equal height, from the first model in the valleys to the last on the tops."""
    numbers = np.array([fuel_number(model) for model in models or ["GR2", "SH5", "TL8"]])
    low, high = elevation.min(), elevation.max()
    part = (elevation - low) / (high - low) if high > low else np.zeros(elevation.shape)
    return np.asarray(numbers[np.minimum((part * len(numbers)).astype(int), len(numbers) - 1)])


FUELS: dict[str, Callable[..., Array]] = {
    "uniform": _uniform_fuel,
    "patches": _patches,
    "by_elevation": _by_elevation,
}


# Assets: (shape, generator) and settings -> value of each cell.


def _no_assets(shape: Shape, generator: np.random.Generator) -> Array:
    return np.zeros(shape)


def _houses(shape: Shape, generator: np.random.Generator, *, count: int = 20, value: float = 1.0) -> Array:
    """Single cells in random places."""
    worth = np.zeros(shape)
    chosen = generator.choice(worth.size, min(count, worth.size), replace=False)
    worth.ravel()[chosen] = value
    return worth


def _towns(
    shape: Shape, generator: np.random.Generator, *, count: int = 2, size: float = 0.06, value: float = 1.0
) -> Array:
    """Round settlements; ``size`` is their radius in parts of the map."""
    row, column = np.mgrid[: shape[0], : shape[1]]
    worth = np.zeros(shape)
    for _ in range(count):
        r, c = generator.uniform(0.1, 0.9) * shape[0], generator.uniform(0.1, 0.9) * shape[1]
        worth[(row - r) ** 2 + (column - c) ** 2 <= (size * max(shape)) ** 2] = value
    return worth


ASSETS: dict[str, Callable[..., Array]] = {"none": _no_assets, "houses": _houses, "towns": _towns}
