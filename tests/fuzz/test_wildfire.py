"""Maps and scenarios of wildfires: ASCII grids, arrays, GeoTIFF; YAML of ours and of SimFire's."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from tests.fuzz.driver import Fuzz, confused, few_or_many

from operant.envs.wildfire.grids import read_grid, write_ascii_grid
from operant.envs.wildfire.scenarios import load_scenario

OURS = {
    "shape": [8, 8],
    "cell_size": 30.0,
    "terrain": {"type": "hills", "count": 2},
    "fuel": {"type": "uniform", "model": "GR2"},
    "wind": {"type": "gusts", "speed": [2.0, 4.0], "every": 10.0},
    "moisture": {"dead_1h": 0.05},
    "canopy": {"cover": 0.3},
    "assets": {"type": "houses"},
    "ignition": {"type": "fixed", "cells": [[4, 4]]},
    "minutes": 60.0,
}
SIMFIRE = {
    "area": {"screen_size": "(16, 16)", "pixel_scale": 50},
    "simulation": {"update_rate": 1, "runtime": "1h 30m"},
    "terrain": {
        "topography": {"type": "functional", "functional": {"function": "perlin", "perlin": {"range_max": 300}}},
        "fuel": {"type": "functional"},
    },
    "fire": {"fire_initial_position": {"type": "static", "static": {"position": "(8, 8)"}}},
    "environment": {"moisture": 0.03},
    "wind": {"function": "perlin", "perlin": {"speed": {"range_min": 7, "range_max": 47}, "direction": {"min": 0}}},
}
WRONG = (b"inf", b"nan", b"-1", b"1e400", b"x", b"", b"9" * 400, b"65000")


def seen(path: Path) -> Any:
    grid = read_grid(path)
    return grid.values.tobytes(), grid.values.shape, grid.cell_size


def forge_text(rng: random.Random, data: bytes) -> bytes:
    words = data.split(b" ")
    words[rng.randrange(len(words))] = rng.choice(WRONG)
    return b" ".join(words)


@few_or_many(200)
def test_ascii_grids(tmp_path: Path, tries: int, first: int) -> None:
    write_ascii_grid(tmp_path / "sound.asc", np.arange(12.0).reshape(3, 4), cell_size=30.0)

    def read(folder: Path, data: bytes) -> Any:
        (folder / "map.asc").write_bytes(data)
        return seen(folder / "map.asc")

    sound = [(tmp_path / "sound.asc").read_bytes()]
    Fuzz("ascii-grid", read, sound, None, forge_text).run(tmp_path, tries, first)


def forge_array(rng: random.Random, data: bytes) -> bytes:
    shape = rng.choice((b"(900000, 900000)", b"(-3, 4)", b"(3,)", b"(65000, 65000)", b"(3, 4"))
    kind = rng.choice((b"<f8", b"|O ", b"<U8", b"<c8", b"M8 "))
    return data.replace(b"(3, 4), }" + b" " * 8, (shape + b", }" + b" " * 20)[:17]).replace(b"<f8", kind)


@few_or_many(200)
def test_arrays(tmp_path: Path, tries: int, first: int) -> None:
    def read(folder: Path, data: bytes) -> Any:
        (folder / "map.npy").write_bytes(data)
        return seen(folder / "map.npy")

    made = io.BytesIO()
    np.save(made, np.arange(12.0).reshape(3, 4))
    Fuzz("array", read, [made.getvalue()], None, forge_array).run(tmp_path, tries, first)


def forge_image(rng: random.Random, data: bytes) -> bytes:
    source = "<SimpleSource><SourceFilename>/etc/hostname</SourceFilename></SimpleSource>"
    band = f'<VRTRasterBand dataType="Float64" band="1">{source}</VRTRasterBand>'
    side = rng.choice((2, 60_000))
    return f'<VRTDataset rasterXSize="{side}" rasterYSize="{side}">{band}</VRTDataset>'.encode()


@few_or_many(60)
def test_geotiffs(tmp_path: Path, tries: int, first: int) -> None:
    rasterio = pytest.importorskip("rasterio")
    place = rasterio.Affine(30.0, 0.0, 0.0, 0.0, -30.0, 90.0)
    form = {"driver": "GTiff", "height": 3, "width": 4, "count": 1, "dtype": "float32", "transform": place}
    with rasterio.open(tmp_path / "sound.tif", "w", **form) as file:
        file.write(np.arange(12, dtype=np.float32).reshape(3, 4), 1)

    def read(folder: Path, data: bytes) -> Any:
        (folder / "map.tif").write_bytes(data)
        return seen(folder / "map.tif")

    sound = [(tmp_path / "sound.tif").read_bytes()]
    assert read(tmp_path, sound[0])[1:] == ((3, 4), 30.0)
    Fuzz("geotiff", read, sound, None, forge_image).run(tmp_path, tries, first)


def forge_yaml(rng: random.Random, data: bytes) -> bytes:
    tree = confused(rng, yaml.safe_load(data))
    try:
        return yaml.safe_dump(tree, allow_unicode=True).encode("utf-8", "surrogatepass")
    except (yaml.YAMLError, RecursionError):
        return b""


@few_or_many(60)
def test_scenarios(tmp_path: Path, tries: int, first: int) -> None:
    def read(folder: Path, data: bytes) -> Any:
        (folder / "scenario.yaml").write_bytes(data)
        return load_scenario(folder / "scenario.yaml").ignitions

    sound = [yaml.safe_dump(one).encode() for one in (OURS, SIMFIRE)]
    Fuzz("scenario", read, sound, None, forge_yaml).run(tmp_path, tries, first)
