"""SimFire's configuration as ours: what has a counterpart is translated, what has none is named."""

from __future__ import annotations

import ast
import logging
import math
import re
from collections.abc import Mapping
from typing import Any

from operant.envs.wildfire.physics.rothermel import FEET, wind_adjustment
from operant.errors import UsageError

_log = logging.getLogger(__name__)

_MPH = 0.44704  # m/s
_CHAPARRAL = "FM4"  # SimFire's chaparral has its depth, extinction and surface-to-volume ratio
_READ: dict[str, tuple[str, ...]] = {
    "area": ("screen_size", "pixel_scale"),
    "simulation": ("update_rate", "runtime"),
    "mitigation": ("ros_attenuation",),
    "terrain": ("topography", "fuel"),
    "fire": ("fire_initial_position",),
    "environment": ("moisture",),
    "wind": ("function", "simple", "perlin", "cfd"),
}
_UNREAD = {  # why, where it is more than that we have nothing like it
    "display": "pictures choose their own sizes",
    "fire.max_fire_duration": "flames stand while the front crosses a cell and for the fuel's residence time",
    "fire.diagonal_spread": "fire spreads in all directions",
    "simulation.headless": "nothing is drawn unless render_mode asks for it",
    "simulation.record": "films come from `operant view` and evaluation.frames",
    "simulation.draw_spread_graph": "`operant fire simulate` writes arrival times and perimeters",
    "simulation.save_data": "`operant fire simulate` writes arrival times and perimeters",
}
_UNITS = {"s": 1 / 60, "m": 1.0, "min": 1.0, "h": 60.0, "hr": 60.0, "d": 1440.0}


def from_simfire(config: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Settings of `Wildfire` that stand for a SimFire configuration, and one sentence for each thing that changes.

    SimFire's wind is that at midflame height in miles an hour, named by where it blows to; ours is that at 10 m, named
    by where it comes from. Its lengths are feet, its positions (x, y).
    """
    sections = {str(name): value for name, value in config.items() if isinstance(value, Mapping)}
    area = sections.get("area", {})
    notes: list[str] = []
    simulation = sections.get("simulation", {})
    scenario: dict[str, Any] = {
        "shape": _shape(area.get("screen_size")),
        "cell_size": _number(area, "area.pixel_scale", 50.0) * FEET,
        "minutes": _minutes(simulation.get("runtime", "24h")),
        "fuel": {"type": "uniform", "model": _CHAPARRAL},
    }
    terrain = sections.get("terrain", {})
    scenario |= _topography(_group(terrain, "terrain.topography"), notes)
    if _group(terrain, "terrain.fuel").get("type", "functional") != "functional":
        notes.append(
            "terrain.fuel is not functional: LANDFIRE is not asked; give `maps: {fuel: …}`, chaparral stands in"
        )
    scenario["wind"] = _wind(sections.get("wind", {}), notes)
    scenario["ignition"] = _ignition(sections.get("fire", {}).get("fire_initial_position", {}), scenario["shape"])
    moisture = _number(sections.get("environment", {}), "environment.moisture", 0.03)
    scenario["moisture"] = dict.fromkeys(("dead_1h", "dead_10h", "dead_100h"), moisture)
    _name_the_rest(sections, notes)
    return {"simulation": scenario, "step_minutes": _number(simulation, "simulation.update_rate", 1.0)}, notes


def _group(given: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The group of this dotted name, whose last part is its key; none is an empty one."""
    found = given.get(name.rpartition(".")[2])
    if found is not None and not isinstance(found, Mapping):
        raise UsageError(f"{name} is a group of settings in SimFire's configuration, got {found!r:.80}")
    return found or {}


def _number(given: Mapping[str, Any], name: str, default: float) -> float:
    found = given.get(name.rpartition(".")[2], default)
    try:
        number = float(found)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise UsageError(f"{name} is a number in SimFire's configuration, got {found!r:.80}")
    return number


def _pair(given: Any) -> tuple[int, int] | None:
    match _literal(given):
        case (int(first), int(second)) | [int(first), int(second)]:
            return first, second
    return None


def _shape(size: Any) -> list[int]:
    given = _literal(size)
    if isinstance(given, int):
        return [given, given]
    pair = _pair(given)
    if pair is None:
        raise UsageError(f"area.screen_size is {size!r:.80}; a number of cells, or rows and columns, are wanted")
    return list(pair)


def _literal(value: Any) -> Any:
    """YAML leaves (65, 65) as text."""
    if not isinstance(value, str):
        return value
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        raise UsageError(f"{value!r:.80} is neither a number nor a pair of numbers") from None


def _minutes(runtime: Any) -> float:
    if isinstance(runtime, int | float):
        return _number({"runtime": runtime}, "simulation.runtime", 0.0)
    parts = re.findall(r"(\d+\.?\d*|\.\d+)\s*([a-z]+)", str(runtime)[:100].lower())
    if not parts or any(unit not in _UNITS for _, unit in parts):
        raise UsageError(f"simulation.runtime is {runtime!r:.80}; such as 15h or 90m is wanted")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def _topography(given: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    if given.get("type", "functional") != "functional":
        notes.append(
            "terrain.topography is not functional: nothing is downloaded; give `maps: {elevation: …}`, flat stands in"
        )
        return {"terrain": {"type": "flat"}}
    functional = _group(given, "terrain.topography.functional")
    kind = str(functional.get("function", "flat"))
    where = f"terrain.topography.functional.{kind}"
    if kind == "flat":
        return {"terrain": {"type": "flat"}}
    if kind == "perlin":
        own = _group(functional, where)
        highest = _number(own, f"{where}.range_max", _number(own, f"{where}.amplitude", 300.0))
        terrain: dict[str, Any] = {"type": "perlin"}
        terrain["height"] = (highest - _number(own, f"{where}.range_min", 0.0)) * FEET
        terrain["octaves"] = int(_number(own, f"{where}.octaves", 3))
        terrain["persistence"] = _number(own, f"{where}.persistence", 0.5)
        notes.append("terrain.topography.perlin: noise of our own generator, of the same height and octaves")
        return {"terrain": terrain, "land_seed": int(_number({"seed": own.get("seed") or 0}, f"{where}.seed", 0))}
    if kind == "gaussian":
        notes.append("terrain.topography.gaussian: the mountain stands in the middle, a quarter of the map wide")
        amplitude = _number(_group(functional, where), f"{where}.amplitude", 500.0)
        return {"terrain": {"type": "gaussian", "height": amplitude * FEET}}
    raise UsageError(f"terrain.topography.functional.function is {kind!r:.80}; known: flat, perlin, gaussian")


def _wind(given: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    kind = str(given.get("function", "simple"))
    own = _group(given, f"wind.{kind}")
    # SimFire uses its wind as it is on chaparral, six feet deep; ours is brought down from 10 m by this.
    lowered = float(wind_adjustment(6.0)) / 1.15
    if kind == "simple":
        speed, towards = _number(own, "wind.simple.speed", 7.0), _number(own, "wind.simple.direction", 0.0)
        return {"type": "constant", "speed": speed * _MPH / lowered, "direction": (towards + 180.0) % 360.0}
    if kind == "perlin":
        ranges = {}
        for name, unit in (("speed", _MPH / lowered), ("direction", 1.0)):
            where = f"wind.perlin.{name}"
            part = _group(own, where)
            low, high = (
                _number(part, f"{where}.range_{end}", _number(part, f"{where}.{end}", 0.0)) for end in ("min", "max")
            )
            ranges[name] = [low * unit, high * unit]
        turned = [(degrees + 180.0) % 360.0 for degrees in ranges["direction"]]
        notes.append("wind.perlin: one wind for the whole map, drawn for each scenario from the same ranges")
        whole = ranges["direction"][1] - ranges["direction"][0] >= 360.0
        return {"type": "constant", "speed": ranges["speed"], "direction": [0.0, 360.0] if whole else sorted(turned)}
    notes.append(f"wind.function {kind!r:.80} has no counterpart; wind over terrain stands in")
    return {"type": "terrain", "speed": _number(own, f"wind.{kind}.speed", 7.0) * _MPH / lowered}


def _ignition(given: Any, shape: list[int]) -> dict[str, Any]:
    if isinstance(given, Mapping):
        if given.get("type", "static") == "random":
            return {"type": "random", "margin": 0.0}
        static = _group(given, "fire.fire_initial_position.static")
        given = static.get("position", (shape[1] // 2, shape[0] // 2))
    pair = _pair(given)
    if pair is None:
        raise UsageError(f"fire.fire_initial_position is {given!r:.80}; two whole numbers (x, y) are wanted")
    return {"type": "fixed", "cells": [[pair[1], pair[0]]]}


def _name_the_rest(sections: Mapping[str, Any], notes: list[str]) -> None:
    if not sections.get("mitigation", {}).get("ros_attenuation", True):
        notes.append(
            "mitigation.ros_attenuation is false: only firelines stop a fire here; scratchlines and wetlines slow it"
        )
    for name, section in sections.items():
        if name not in _READ:
            notes.append(f"{name}: {_UNREAD.get(name, 'has no counterpart')}")
            continue
        for key in section:
            if key not in _READ[name]:
                notes.append(f"{name}.{key}: {_UNREAD.get(f'{name}.{key}', 'has no counterpart')}")


def with_simfire(settings: Mapping[str, Any], notes: list[str] | None = None) -> dict[str, Any]:
    """Settings of an environment whose ``simulation`` may be a SimFire configuration; what it says there gives way.

    What changes joins ``notes``, or the log.
    """
    simulation = settings.get("simulation")
    if not isinstance(simulation, Mapping) or not isinstance(simulation.get("area"), Mapping):
        return dict(settings)
    translated, changed = from_simfire(simulation)
    if notes is not None:
        notes += changed
    else:
        for note in changed:
            _log.info("SimFire's %s", note)
    return {**translated, **settings, "simulation": translated["simulation"]}
