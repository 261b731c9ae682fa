"""Wildfires: steps for each CPU-second, many fires at once, cost against cells, and the shape of a point fire.

    .venv/bin/python benchmarks/wildfire.py [--only speed,scale,shape]
                      [--simfire PYTHON] [--pyretechnics PYTHON] [--pytorchfire PYTHON]

One scenario for all: GR2, 5 m/s at 10 m, 30 m cells, ignition in the middle, one simulated minute a step until the fire
reaches the edge, a fireline laid in every step, the whole map observed. PYTHON is one that has the peer, which is then
timed in the same run; SimFire burns its own fuel, chaparral, and pytorchfire an automaton's. Arrival times of three
landscapes are then compared with those of pyretechnics. Figures of peers that are not given were measured on another
day on the same kind of machine (SimFire 2.0.1 on Python 3.11, functional layers, headless, 12 to 18 steps at 64²;
pyretechnics 2026.10.20; pytorchfire 1.0.3): steps of one minute a second.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from meter import Meter

from operant.envs.wildfire import Fires, Scenario, ScenarioSettings, SpreadRates, WildfireVector
from operant.settings import fill

PEERS = {
    64: {"SimFire": 15.0, "pytorchfire": 1160.0},
    128: {"SimFire": 6.0, "pyretechnics": 863.0, "pytorchfire": 380.0},
}
ROUNDS = 5


def make(size: int, count: int, jit: bool) -> WildfireVector:
    simulation = {
        "shape": [size, size],
        "fuel": {"type": "uniform", "model": "GR2"},
        "wind": {"type": "constant", "speed": 5.0, "direction": 250.0},
        "ignition": {"type": "fixed", "cells": [[size // 2, size // 2]]},
        "minutes": 20 * size,
    }
    return WildfireVector(
        count,
        simulation=simulation,
        attributes=["fire_map"],
        normalized_attributes=["fire_map"],
        deterministic=True,
        jit=jit,
    )


def episode(env: WildfireVector) -> tuple[int, float, int]:
    """Steps until fire 0 reaches the edge, their CPU-seconds, and the cells it burnt."""
    actions = np.random.default_rng(0).integers(5, 10, (20_000, env.num_envs))  # a fireline, and any movement
    env.reset(seed=0)
    steps = steps_to_edge(env)
    with Meter() as meter:
        for step in range(steps):
            env.step(actions[step])
    return steps, meter.cpu, int(env.world.burnt[0])


def steps_to_edge(env: WildfireVector) -> int:
    """Minutes until the fire is there; lines dug at random hardly delay it."""
    time = env.world.scenarios[0].benchmark.arrival
    return math.ceil(min(time[[0, -1]].min(), time[:, [0, -1]].min()))


def time_peers(pythons: dict[str, str | None]) -> None:
    """Put the figures of this run in the place of those of another day."""
    timers = {"SimFire": time_simfire, "pyretechnics": time_pyretechnics, "pytorchfire": time_pytorchfire}
    for peer, timer in timers.items():
        python = pythons[peer.lower()]
        for size, peers in PEERS.items():
            if python:
                peers.pop(peer, None)
                peers[f"{peer}, this run"] = max(timer(python, size) for _ in range(2))


def time_pytorchfire(python: str, size: int) -> float:
    return 100 / float(_run(python, "_pytorchfire.py", size, 100).split()[0])


def time_simfire(python: str, size: int) -> float:
    cpu, steps, burnt = _run(python, "_simfire.py", size, 200).split()[-3:]
    print(f"  SimFire, {size}²: {steps} steps, {burnt} cells burnt, {float(cpu):.1f} CPU-seconds", flush=True)
    return int(steps) / float(cpu)


def time_pyretechnics(python: str, size: int) -> float:
    env = make(size, 1, True)
    env.reset(seed=0)
    scenario = env.world.scenarios[0]
    lines = np.random.default_rng(0).integers(size, size=(steps_to_edge(env), 2))
    return len(lines) / by_pyretechnics(python, scenario, 20 * size, lines)[1]


def _run(python: str, script: str, *words: object) -> str:
    command = [python, str(Path(__file__).with_name(script)), *map(str, words)]
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=alone).stdout


def speed() -> None:
    print("one fire: steps for each CPU-second, median and best of", ROUNDS)
    alone = {}
    for size in (64, 128):
        rates = {}
        for jit in (True, False):
            env = make(size, 1, jit)
            episode(env)
            taken = [steps / cpu for steps, cpu, _ in (episode(env) for _ in range(ROUNDS))]
            rates[jit] = max(taken)
            alone[size] = rates[True]
            name = "numba" if jit else "numpy"
            print(f"  {size:4}²  {name}  {statistics.median(taken):9,.0f} median  {max(taken):9,.0f} best")
        for peer, figure in PEERS[size].items():
            print(
                f"         {peer:21} {figure:7,.0f}  "
                f" ours: {rates[True] / figure:,.0f}x with numba, {rates[False] / figure:,.1f}x without"
            )
    print("many fires: steps of all for each CPU-second")
    for size in (64, 128):
        env = make(size, 64, True)
        episode(env)
        steps, cpu, _ = min((episode(env) for _ in range(2)), key=lambda taken: taken[1])
        rate = 64 * steps / cpu
        print(f"  {size:4}²  64 at once {rate:9,.0f}  {rate / alone[size]:.1f}x one after the other")


def scale() -> None:
    print("cost against cells (numba, one fire): CPU for each step and each burnt cell, memory of the fire")
    for size in (32, 64, 128, 256, 512, 1024):
        env = make(size, 1, True)
        env.reset(seed=0)
        steps, cpu, burnt = min((episode(env) for _ in range(3 if size < 512 else 1)), key=lambda taken: taken[1])
        held = sum(value.nbytes for value in vars(env.world.fires).values() if isinstance(value, np.ndarray))
        print(
            f"  {size:5}²  {1e6 * cpu / steps:8,.0f} us a step  {1e6 * cpu / burnt:6.2f} us a burnt cell"
            f"  {burnt:8,} cells  {held / 2**20:7.1f} MB"
        )


def shape() -> None:
    print("a point fire on 300 x 300 cells against the ellipse, by rings of neighbours and length to width")
    for rings in ((1,), (1, 2), (1, 3), (1, 2, 4)):
        for ratio in (1.38, 2.5, 4.0):
            worst_area, worst_head, cost = 0.0, 0.0, math.inf
            for degrees in (0.0, 11.0, 22.5, 45.0):
                area, head, cpu = point_fire(rings, ratio, degrees)
                worst_area, worst_head = min(worst_area, area), min(worst_head, head)
                cost = min(cost, cpu / 300**2)
            print(
                f"  {rings!s:10} {ratio:4}  area {worst_area:+7.2%}  head {worst_head:+7.2%}"
                f"  {1e6 * cost:5.2f} us a cell"
            )


def point_fire(rings: tuple[int, ...], ratio: float, degrees: float, size: int = 300) -> tuple[float, float, float]:
    """How area and rate of the head differ from the ellipse's, and the CPU-seconds for all cells."""
    e = math.sqrt(ratio**2 - 1) / ratio
    b = 1.0 / (1.0 + e)  # cells a minute, half the length
    north, east = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    reach = max(math.hypot(b * north, b / ratio * east), math.hypot(b * east, b / ratio * north))
    minutes = (size / 2 - 4) / reach
    start = (round(size / 2 + e * b * minutes * north), round(size / 2 - e * b * minutes * east))
    full = (1, size, size)
    rates = SpreadRates(
        10.0, np.zeros(1), np.full(full, 10.0), np.full(full, math.radians(degrees)), np.full(full, e),
        np.zeros(full), np.ones((size, size)),
    )  # fmt: skip
    fires = Fires(1, (size, size), rings=rings)
    fires.begin(0, rates, [start])
    with Meter() as meter:
        fires.advance(until=math.inf)
    arrival = fires.arrival[0]
    area = float((arrival <= minutes).sum() / (math.pi * b * b / ratio * minutes**2) - 1)
    row, column = round(start[0] - 0.9 * minutes * north), round(start[1] + 0.9 * minutes * east)
    up, right = start[0] - row, column - start[1]
    true = (math.hypot(up, right) - e * (up * north + right * east)) / (1 - e)
    return area, float(true / arrival[row, column] - 1), meter.cpu


LANDSCAPES: dict[str, dict[str, Any]] = {
    "flat grass": {"wind": {"speed": 4.5, "direction": 247.5}},
    "patches": {
        "fuel": {"type": "patches", "models": ["GR2", "GS2", "GR4", "SH5"], "patches": 25},
        "wind": {"speed": 6.0, "direction": 292.0},
    },
    "hills": {
        "terrain": {"type": "perlin", "height": 300, "period": 0.7, "octaves": 2},
        "fuel": {"type": "uniform", "model": "GS2"},
        "wind": {"speed": 4.0, "direction": 225.0},
    },
}


def compare(python: str) -> None:
    print("arrival times beside pyretechnics, 120 x 120 cells of 30 m, 400 minutes")
    for name, own in LANDSCAPES.items():
        settings = fill(
            ScenarioSettings,
            {"shape": [120, 120], "minutes": 400, "ignition": {"type": "fixed", "cells": [[60, 60]]}, **own},
        )
        scenario = settings.make(0)
        fires = Fires(1, scenario.land.shape)
        for _ in range(2):  # the second time nothing is left to compile
            fires.begin(0, scenario.rates, scenario.ignitions)
            with Meter() as meter:
                fires.advance(until=400.0)
        ours = fires.arrival[0]
        theirs, cpu = by_pyretechnics(python, scenario, 400)
        both = np.isfinite(ours) & np.isfinite(theirs) & (ours > 30)
        slope, offset = np.polyfit(theirs[both], ours[both], 1)
        print(
            f"  {name:10}  median difference {np.median(ours[both] / theirs[both] - 1):+.2%}, "
            f"ours = {slope:.4f} theirs {offset:+.1f} min; CPU {meter.cpu:.3f} s and {cpu:.3f} s"
        )


def by_pyretechnics(python: str, scenario: Scenario, minutes: int, lines: Any = None) -> tuple[Any, float]:
    """Arrival times and CPU-seconds of its fire, with a line laid in each minute if there are any."""
    land, weather = scenario.land, scenario.weather
    with tempfile.TemporaryDirectory() as folder:
        given, written = Path(folder, "given.npz"), Path(folder, "written.npz")
        np.savez(
            given, minutes=minutes, cell_size=land.cell_size, fuel=land.fuel, slope=land.slope,
            aspect=(np.degrees(land.upslope) + 180) % 360, ignition=scenario.ignitions[0],
            wind_speed=weather.wind_speed[0], wind_direction=weather.wind_direction[0],
            **({} if lines is None else {"lines": lines}),
        )  # fmt: skip
        _run(python, "_pyretechnics.py", given, written)
        result = np.load(written)
        return result["arrival"], float(result["cpu"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="speed,scale,shape", help="which parts to run")
    parser.add_argument("--simfire", metavar="PYTHON", help="time SimFire in this run")
    parser.add_argument("--pyretechnics", metavar="PYTHON", help="time pyretechnics, and compare arrival times")
    parser.add_argument("--pytorchfire", metavar="PYTHON", help="time pytorchfire in this run")
    args = parser.parse_args()
    chosen = args.only.split(",")
    print(f"load {os.getloadavg()[0]:.1f} at the beginning", flush=True)
    if "speed" in chosen:
        time_peers(vars(args))
    for part in (speed, scale, shape):
        if part.__name__ in chosen:
            part()
    if args.pyretechnics:
        compare(args.pyretechnics)


if __name__ == "__main__":
    main()
