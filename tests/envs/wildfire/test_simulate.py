"""Fires without agents, written down; the command and the examples."""

from __future__ import annotations

import csv
import json
import re
import runpy
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from operant.cli import main
from operant.envs.wildfire.grids import read_grid, write_ascii_grid
from operant.envs.wildfire.simulate import perimeter

EXAMPLES = Path(__file__).parents[3] / "examples" / "wildfire"


def area(ring: list[tuple[int, int]]) -> float:
    return sum(a[0] * b[1] - b[0] * a[1] for a, b in pairwise(ring)) / 2


@settings(max_examples=60)
@given(st.integers(0, 10_000), st.floats(0.1, 0.9))
def test_perimeters_enclose_what_burnt(seed: int, part: float) -> None:
    burnt = np.random.default_rng(seed).random((9, 12)) < part
    polygons = perimeter(burnt)
    assert sum(area(ring) for polygon in polygons for ring in polygon) == burnt.sum()
    for outer, *holes in polygons:
        assert area(outer) > 0 and all(area(hole) < 0 for hole in holes)
        assert all(ring[0] == ring[-1] for ring in (outer, *holes))


def test_a_ring_has_a_hole() -> None:
    burnt = np.ones((5, 5), bool)
    burnt[2, 2] = False
    [[outer, hole]] = perimeter(burnt)
    assert len(outer) == 5 and area(outer) == 25 and area(hole) == -1


def test_simulate_writes_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_ascii_grid(
        tmp_path / "hills.asc", np.add.outer(np.arange(20.0), np.arange(24.0)), cell_size=20.0, west=1000.0
    )
    (tmp_path / "fire.yaml").write_text(
        "maps: {elevation: hills.asc}\nassets: {type: houses}\nminutes: 90\n"
        "wind: {speed: 4}\nignition: {type: fixed, cells: [[10, 5]]}\n"
    )
    assert main(["fire", "simulate", str(tmp_path / "fire.yaml"), "--every", "30", "--size", "96"]) == 0
    out = capsys.readouterr().out
    folder = tmp_path / "fire"
    arrival = np.load(folder / "arrival.npy")
    assert f"{np.isfinite(arrival).mean():.0%} of the map" in out and "assets lost" in out
    grid = read_grid(folder / "arrival.asc")
    assert grid.west == 1000.0 and (grid.values >= 0).sum() == np.isfinite(arrival).sum()
    with (folder / "area.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert float(rows[-1]["hectares"]) == pytest.approx(np.isfinite(arrival).sum() * 0.04)
    shapes: dict[str, Any] = json.loads((folder / "perimeters.geojson").read_text())
    minutes = [feature["properties"]["minute"] for feature in shapes["features"]]
    assert minutes == pytest.approx([float(row["minute"]) for row in rows], rel=1e-4)
    corner = shapes["features"][0]["geometry"]["coordinates"][0][0][0]
    assert corner in ([1100.0, 180.0], [1100.0, 200.0], [1120.0, 180.0], [1120.0, 200.0])
    with Image.open(folder / "fire.gif") as gif:
        assert gif.n_frames == len(rows)  # type: ignore[attr-defined]


def test_mistakes_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text, message in (("shap: [3, 4]", "shape"), ("[1, 2]", "no settings"), ("{", "no YAML")):
        (tmp_path / "fire.yaml").write_text(text)
        assert main(["fire", "simulate", str(tmp_path / "fire.yaml")]) == 1
        assert message in capsys.readouterr().err
    assert main(["fire", "simulate", str(tmp_path / "none.yaml")]) == 1


def test_the_scenario_of_the_examples(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["fire", "simulate", str(EXAMPLES / "valley.yaml"), "--output", str(tmp_path / "out"), "--no-gif"]
    assert main(words) == 0
    assert float(re.findall(r"([\d.]+) ha", capsys.readouterr().out)[0]) > 100


def test_the_example_of_an_agent(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["greedy.py"])
    runpy.run_path(str(EXAMPLES / "greedy.py"), run_name="__main__")
    alone, with_line = (int(part) for part in re.findall(r"(\d+)% saved", capsys.readouterr().out))
    assert alone == 0 and with_line > 15
