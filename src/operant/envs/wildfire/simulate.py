"""A fire without agents, run to its end and written down: arrival times, perimeters, area over time, pictures."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from operant.envs.vector import Array
from operant.envs.wildfire.grids import read_grid, write_ascii_grid
from operant.envs.wildfire.physics.spread import Fires
from operant.envs.wildfire.rendering import picture, save_gif
from operant.envs.wildfire.scenarios import Scenario
from operant.envs.wildfire.verbs import BURNED, BURNING
from operant.errors import UsageError


@dataclass(frozen=True)
class Simulation:
    """A fire from its ignition to its end, or to the end of the time it is looked at."""

    scenario: Scenario
    minutes: Array  # [T] when it was looked at
    arrival: Array  # [H, W] minutes; infinite where it did not burn

    @property
    def area(self) -> Array:
        """[T] hectares."""
        times = np.sort(self.arrival[np.isfinite(self.arrival)])
        return np.searchsorted(times, self.minutes, side="right") * self.scenario.land.cell_size**2 / 10_000

    def status(self, minute: float) -> Array:
        """[H, W] the numbers of ``fire_map`` at a time."""
        burning = self.arrival + self.scenario.rates.duration > minute
        return np.where(self.arrival > minute, 0, np.where(burning, BURNING, BURNED))

    def picture(self, minute: float, *, size: int = 512) -> Array:
        weather, rates = self.scenario.weather, self.scenario.rates
        k = int(weather.at(np.array(minute)))
        return picture(
            self.scenario.land,
            self.status(minute),
            intensity=rates.intensity[k],
            wind=(weather, k),
            minutes=minute,
            size=size,
        )

    def write(self, folder: str | Path, *, gif: bool = True, size: int = 512) -> list[Path]:
        """Everything into a folder; returns the files."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        west, south = self._corner()
        names = [
            "arrival.asc",
            "arrival.npy",
            "area.csv",
            "perimeters.geojson",
            "map.png",
            *(["fire.gif"] if gif else []),
        ]
        files = [folder / name for name in names]
        cell = self.scenario.land.cell_size
        write_ascii_grid(files[0], self.arrival, cell_size=cell, west=west, south=south)
        np.save(files[1], self.arrival)
        with files[2].open("w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file, lineterminator="\n")
            rows.writerow(["minute", "hectares"])
            rows.writerows((f"{minute:g}", f"{area:g}") for minute, area in zip(self.minutes, self.area, strict=True))
        files[3].write_text(json.dumps(self._geojson(west, south)), encoding="utf-8")
        from PIL import Image

        Image.fromarray(self.picture(float(self.minutes[-1]), size=size)).save(files[4])
        if gif:
            save_gif([self.picture(float(minute), size=size) for minute in self.minutes], files[5])
        return files

    def _corner(self) -> tuple[float, float]:
        """West and south of the user's map, if one is given that knows its place."""
        for file in self.scenario.settings.maps.values():
            grid = read_grid(file)
            if grid.cell_size:
                return grid.west, grid.south
        return 0.0, 0.0

    def _geojson(self, west: float, south: float) -> dict[str, Any]:
        cell, rows = self.scenario.land.cell_size, self.scenario.land.shape[0]
        features = []
        for minute, area in zip(self.minutes.tolist(), self.area.tolist(), strict=True):
            polygons = [
                [[[west + column * cell, south + (rows - row) * cell] for row, column in ring] for ring in polygon]
                for polygon in perimeter(self.arrival <= minute)
            ]
            features.append(
                {
                    "type": "Feature",
                    "properties": {"minute": minute, "hectares": area},
                    "geometry": {"type": "MultiPolygon", "coordinates": polygons},
                }
            )
        return {"type": "FeatureCollection", "features": features}


def simulate(scenario: Scenario, *, every: float = 10.0, jit: bool | None = None) -> Simulation:
    """Let the fire of a scenario burn for ``simulation.minutes`` and look at it ``every`` so many minutes."""
    if every <= 0:
        raise UsageError(f"every is {every}; it must be a time in minutes")
    fires = Fires(1, scenario.land.shape, jit=jit)
    fires.begin(0, scenario.rates, scenario.ignitions)
    fires.advance(until=scenario.settings.minutes)
    arrival = np.array(fires.arrival[0])
    last = arrival[np.isfinite(arrival)].max(initial=0.0)
    minutes = np.minimum(np.arange(0.0, last + every, every), max(last, 0.0))
    return Simulation(scenario, minutes, arrival)


Corner = tuple[int, int]


def perimeter(burnt: Array) -> list[list[list[Corner]]]:
    """The outline of what burnt: polygons of rings of corners (row, column), the outer ring of each first."""
    rings = list(_rings(burnt))
    outer = [ring for ring in rings if _area(ring) > 0]
    polygons = [[ring] for ring in sorted(outer, key=_area)]
    for hole in (ring for ring in rings if _area(ring) < 0):
        # Of the rings around a hole the smallest is its own.
        next(polygon for polygon in polygons if _inside(hole, polygon[0])).append(hole)
    return polygons


def _rings(burnt: Array) -> Iterator[list[Corner]]:
    """Closed rings along the edges of cells, with what burnt on the left."""
    padded = np.pad(burnt.astype(bool), 1)
    steps: dict[Corner, list[Corner]] = {}
    for row, column in np.argwhere(padded).tolist():
        r, c = row - 1, column - 1
        for beside, start, end in (
            ((row - 1, column), (r, c + 1), (r, c)),
            ((row, column - 1), (r, c), (r + 1, c)),
            ((row + 1, column), (r + 1, c), (r + 1, c + 1)),
            ((row, column + 1), (r + 1, c + 1), (r, c + 1)),
        ):
            if not padded[beside]:
                steps.setdefault(start, []).append(end)
    while steps:
        start = next(iter(steps))
        ring, here, came = [start], start, (0, 0)
        while True:
            ends = steps[here]
            # Where two cells touch at a corner: turn left, so that rings do not cross themselves.
            left = (-came[1], came[0])
            chosen = min(range(len(ends)), key=lambda i: (ends[i][0] - here[0], ends[i][1] - here[1]) != left)
            end = ends.pop(chosen)
            if not ends:
                del steps[here]
            step = (end[0] - here[0], end[1] - here[1])
            if step == came:
                ring.pop()
            ring.append(end)
            here, came = end, step
            if here == start:
                break
        first = (ring[1][0] - ring[0][0], ring[1][1] - ring[0][1])
        if first[0] * came[1] == first[1] * came[0]:  # it began in the middle of a straight piece
            ring = [*ring[1:-1], ring[1]]
        yield ring


def _area(ring: list[Corner]) -> float:
    """Twice the area in cells, positive for rings around what burnt (rows run southwards)."""
    return sum(a[0] * b[1] - b[0] * a[1] for a, b in pairwise(ring))


def _inside(hole: list[Corner], ring: list[Corner]) -> bool:
    row, column = hole[0][0] + (hole[1][0] - hole[0][0]) / 2 + 0.25, hole[0][1] + (hole[1][1] - hole[0][1]) / 2 + 0.25
    crossed = False
    for (r1, c1), (r2, c2) in pairwise(ring):
        if (r1 > row) != (r2 > row) and column < c1 + (row - r1) / (r2 - r1) * (c2 - c1):
            crossed = not crossed
    return crossed
