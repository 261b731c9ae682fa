"""SimFire's configuration as ours: what has a counterpart is translated, what has none is named."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from operant.envs.wildfire.physics.rothermel import FEET, wind_adjustment
from operant.errors import UsageError

_MPH = 0.44704  # m/s
_CHAPARRAL = "FM4"  # SimFire's chaparral has its depth, extinction and surface-to-volume ratio
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
        "cell_size": float(area.get("pixel_scale", 50)) * FEET,
        "minutes": _minutes(simulation.get("runtime", "24h")),
        "fuel": {"type": "uniform", "model": _CHAPARRAL},
    }
    terrain = sections.get("terrain", {})
    scenario |= _topography(terrain.get("topography", {}), notes)
    if terrain.get("fuel", {}).get("type", "functional") != "functional":
        notes.append(
            "terrain.fuel is not functional: LANDFIRE is not asked; give `maps: {fuel: …}`, chaparral stands in"
        )
    scenario["wind"] = _wind(sections.get("wind", {}), notes)
    scenario["ignition"] = _ignition(sections.get("fire", {}).get("fire_initial_position", {}), scenario["shape"])
    moisture = float(sections.get("environment", {}).get("moisture", 0.03))
    scenario["moisture"] = dict.fromkeys(("dead_1h", "dead_10h", "dead_100h"), moisture)
    _name_the_rest(sections, notes)
    return {"simulation": scenario, "step_minutes": float(simulation.get("update_rate", 1.0))}, notes


def _shape(size: Any) -> list[int]:
    given = _literal(size)
    if isinstance(given, int):
        return [given, given]
    if isinstance(given, list | tuple) and len(given) == 2:
        return [int(given[0]), int(given[1])]
    raise UsageError(f"area.screen_size is {size!r}; a number of cells, or rows and columns, are wanted")


def _literal(value: Any) -> Any:
    """YAML leaves (65, 65) as text."""
    if not isinstance(value, str):
        return value
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError):
        raise UsageError(f"{value!r} is neither a number nor a pair of numbers") from None


def _minutes(runtime: Any) -> float:
    if isinstance(runtime, int | float):
        return float(runtime)
    parts = re.findall(r"([\d.]+)\s*([a-z]+)", str(runtime).lower())
    if not parts or any(unit not in _UNITS for _, unit in parts):
        raise UsageError(f"simulation.runtime is {runtime!r}; such as 15h or 90m is wanted")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def _topography(given: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    if given.get("type", "functional") != "functional":
        notes.append(
            "terrain.topography is not functional: nothing is downloaded; give `maps: {elevation: …}`, flat stands in"
        )
        return {"terrain": {"type": "flat"}}
    functional = given.get("functional", {})
    kind = functional.get("function", "flat")
    own = functional.get(kind, {}) or {}
    if kind == "flat":
        return {"terrain": {"type": "flat"}}
    if kind == "perlin":
        height = float(own.get("range_max", own.get("amplitude", 300.0))) - float(own.get("range_min", 0.0))
        terrain = {"type": "perlin", "height": height * FEET, "octaves": int(own.get("octaves", 3))}
        terrain["persistence"] = float(own.get("persistence", 0.5))
        notes.append("terrain.topography.perlin: noise of our own generator, of the same height and octaves")
        return {"terrain": terrain, "land_seed": int(own.get("seed") or 0)}
    if kind == "gaussian":
        notes.append("terrain.topography.gaussian: the mountain stands in the middle, a quarter of the map wide")
        return {"terrain": {"type": "gaussian", "height": float(own.get("amplitude", 500.0)) * FEET}}
    raise UsageError(f"terrain.topography.functional.function is {kind!r}; known: flat, perlin, gaussian")


def _wind(given: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    kind = given.get("function", "simple")
    own = given.get(kind, {}) or {}
    # SimFire uses its wind as it is on chaparral, six feet deep; ours is brought down from 10 m by this.
    lowered = float(wind_adjustment(6.0)) / 1.15
    if kind == "simple":
        speed, towards = float(own.get("speed", 7.0)), float(own.get("direction", 0.0))
        return {"type": "constant", "speed": speed * _MPH / lowered, "direction": (towards + 180.0) % 360.0}
    if kind == "perlin":
        ranges = {}
        for name, unit in (("speed", _MPH / lowered), ("direction", 1.0)):
            part = own.get(name, {})
            low, high = (float(part.get(f"range_{end}", part.get(end, 0.0))) for end in ("min", "max"))
            ranges[name] = [low * unit, high * unit]
        turned = [(degrees + 180.0) % 360.0 for degrees in ranges["direction"]]
        notes.append("wind.perlin: one wind for the whole map, drawn for each scenario from the same ranges")
        whole = ranges["direction"][1] - ranges["direction"][0] >= 360.0
        return {"type": "constant", "speed": ranges["speed"], "direction": [0.0, 360.0] if whole else sorted(turned)}
    notes.append(f"wind.function {kind!r} has no counterpart; wind over terrain stands in")
    return {"type": "terrain", "speed": float(own.get("speed", 7.0)) * _MPH / lowered}


def _ignition(given: Any, shape: list[int]) -> dict[str, Any]:
    if isinstance(given, Mapping):
        if given.get("type", "static") == "random":
            return {"type": "random", "margin": 0.0}
        given = given.get("static", {}).get("position", (shape[1] // 2, shape[0] // 2))
    column, row = _literal(given)
    return {"type": "fixed", "cells": [[int(row), int(column)]]}


def _name_the_rest(sections: Mapping[str, Any], notes: list[str]) -> None:
    fire = sections.get("fire", {})
    if "max_fire_duration" in fire:
        notes.append(
            "fire.max_fire_duration: flames stand while the front crosses a cell and for the fuel's residence time"
        )
    if "diagonal_spread" in fire:
        notes.append("fire.diagonal_spread: fire spreads in all directions")
    if not sections.get("mitigation", {}).get("ros_attenuation", True):
        notes.append(
            "mitigation.ros_attenuation is false: only firelines stop a fire here; scratchlines and wetlines slow it"
        )
    known = {"area", "simulation", "terrain", "fire", "environment", "wind", "mitigation", "display"}
    for name in sections:
        if name not in known:
            notes.append(f"{name}: has no counterpart")
