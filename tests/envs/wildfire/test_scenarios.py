"""Scenarios by seed, their benchmark fires, and sets chosen by a condition."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from operant.envs.wildfire import ScenarioSet, ScenarioSettings
from operant.envs.wildfire.grids import write_ascii_grid
from operant.envs.wildfire.scenarios import SetSettings, facts
from operant.errors import UsageError
from operant.settings import fill
from operant.tracking.places import cache_dir


def settings(**kwargs: Any) -> ScenarioSettings:
    return fill(ScenarioSettings, {"shape": [20, 24], "minutes": 300, **kwargs})


def seeds(chosen: ScenarioSet) -> list[int]:
    assert chosen.seeds is not None
    return [int(seed) for seed in chosen.seeds]


def test_a_scenario_is_that_of_its_seed() -> None:
    kind = settings(terrain={"type": "perlin"}, wind={"type": "gusts", "speed": [2, 8]})
    one, same, other = kind.make(3), kind.make(3), kind.make(4)
    assert one.ignitions == same.ignitions and (one.rates.rate == same.rates.rate).all()
    assert one.land is other.land and not (one.rates.rate == other.rates.rate).all()
    own = settings(terrain={"type": "perlin"}, land_seed=None)
    assert not (own.make(3).land.elevation == own.make(4).land.elevation).all()
    assert (own.make(3).land.elevation == own.make(3).land.elevation).all()


def test_the_benchmark_fire_counts_what_burns() -> None:
    made = settings(assets={"type": "houses", "count": 30}, ignition={"type": "fixed", "cells": [[10, 3]]}).make(0)
    fire = made.benchmark
    assert fire.burnt(0.0) == 1 and fire.burnt(1e9) == fire.cells == np.isfinite(fire.arrival).sum()
    middle = float(np.median(fire.arrival[np.isfinite(fire.arrival)]))
    assert fire.burnt(middle) == (fire.arrival <= middle).sum()
    assert fire.assets_lost(middle) == made.land.assets[fire.arrival <= middle].sum()
    assert facts(made)["elapsed_minutes"] == fire.end


def test_embers_fly_with_the_wind_and_light_more_land() -> None:
    land = {
        "shape": [40, 40],
        "wind": {"type": "constant", "speed": 10.0, "direction": 270.0},
        "ignition": {"type": "fixed", "cells": [[20, 5]]},
    }
    made = {
        probability: settings(**land, spotting={"probability": probability, "delay": 2.0}).make(3)
        for probability in (0.0, 0.2)
    }
    embers = made[0.2].rates.embers
    assert made[0.0].rates.embers is None and embers is not None
    lights = embers[0] >= 0
    away = embers[0][lights] % 40 - np.arange(40)[None].repeat(40, 0)[lights]
    assert 0.05 < lights.mean() < 0.2 and (away >= 0).all() and 5 < away.mean() < 15
    later, sooner = made[0.0].benchmark.arrival, made[0.2].benchmark.arrival
    assert (sooner <= later).all() and (sooner < later).any()
    with pytest.raises(UsageError, match="probability"):
        _ = settings(spotting={"probability": 2.0}).make(0).rates


def test_moisture_and_wind_change_each_at_its_times() -> None:
    made = settings(
        wind={"type": "table", "times": [0, 40], "speed": [3, 6], "direction": [270, 180]},
        moisture={"times": [0, 20, 60], "dead_1h": [0.04, 0.1, 0.05], "live_herb": 0.7},
    ).make(0)
    weather = made.weather
    assert weather.changes.tolist() == [0, 20, 40, 60]
    assert [moisture.dead_1h for moisture in weather.moisture] == [0.04, 0.1, 0.1, 0.05]
    assert weather.wind_speed.tolist() == [3, 3, 6, 6] and {moisture.live_herb for moisture in weather.moisture} == {
        0.7
    }
    dry, wet, windy, drier = made.rates.rate[:, 5, 5]
    assert wet < dry and wet < windy < drier
    alone = settings(wind={"type": "table", "times": [0, 40], "speed": [3, 6], "direction": [270, 180]}).make(0)
    assert alone.weather.changes.tolist() == [0, 40] and len(alone.weather.moisture) == 1


def test_maps_of_the_users(tmp_path: Path) -> None:
    row, column = np.mgrid[:15, :18]
    write_ascii_grid(tmp_path / "elevation.asc", row * 2.0, cell_size=25.0)
    np.save(tmp_path / "fuel.npy", np.where(column > 12, 98, 121))
    kind = settings(maps={"elevation": str(tmp_path / "elevation.asc"), "fuel": str(tmp_path / "fuel.npy")})
    made = kind.make(1)
    assert made.land.shape == (15, 18) and made.land.cell_size == 25.0
    assert not np.isfinite(made.benchmark.arrival[:, 13:]).any()
    before = kind.hash
    np.save(tmp_path / "fuel.npy", np.full((15, 18), 121))
    assert kind.hash != before
    with pytest.raises(UsageError, match="elevation"):
        settings(maps={"elevatoin": "x"}).make(0)


@pytest.mark.parametrize(
    ("group", "message"),
    [
        ({"wind": {"type": "constnat"}}, "constant"),
        ({"wind": {"speeed": 3}}, r"no setting 'speeed' \(did you mean 'speed'"),
        ({"wind": {"speed": "fast"}}, "wind.speed is 'fast'; it is a number"),
        ({"wind": {"speed": [8, 5]}}, "the first is not the larger"),
        ({"wind": {"speed": float("nan")}}, "must be numbers"),
        ({"wind": {"type": "table", "times": [0, 9], "speed": [1], "direction": [0]}}, "2 times, 1 speeds"),
        ({"wind": {"type": "table", "times": [0]}}, "needs speed and direction"),
        ({"terrain": {"type": "hills", "hight": 3}}, "'height'"),
        ({"canopy": {"cover": 50}}, "not in percent"),
        ({"moisture": {"dead_1h": 6}}, "0.06 for 6 %"),
        ({"ignition": {"type": "fixed", "cells": [5, 2]}}, "list of rows and columns"),
        ({"ignition": {"margin": 0.7}}, "less than 0.5"),
        ({"ignition": {"count": 0}}, "at least 1"),
        ({"moisture": {"dead_1": 0.1}}, "dead_1h"),
        ({"moisture": {"dead_1h": [0.1, 0.2], "times": [0, 10, 20]}}, "as many as moisture.dead_1h"),
        ({"moisture": {"dead_1h": [0.1, 0.2], "times": [10, 0]}}, "rising"),
        ({"ignition": {"type": "fixed", "cells": [[99, 0]]}}, "99"),
        ({"ignition": {"places": 3}}, "places"),
        ({"fuel": {"type": "uniform", "model": "NB8"}}, "nothing on this land can burn"),
    ],
)
def test_mistakes_are_told(group: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        settings(**group).make(0)


def test_where_a_map_has_no_data(tmp_path: Path) -> None:
    head = "ncols 3\nnrows 2\nxllcorner 0\nyllcorner 0\ncellsize 10\nNODATA_value -1\n"
    (tmp_path / "map.asc").write_text(head + "102 102 102\n102 -1 102\n")
    file = str(tmp_path / "map.asc")
    land = settings(maps={"fuel": file, "assets": file}).make(0).land
    assert land.burnable.tolist() == [[True] * 3, [True, False, True]] and land.assets[1, 1] == 0
    with pytest.raises(UsageError, match="no data in 1 cells"):
        settings(maps={"elevation": file}).make(0)


def test_a_condition_asks_for_facts_and_runs_nothing() -> None:
    for text, message in (
        ("elapsed_stepps < 3", "did you mean 'elapsed_steps'"),
        ("__import__('os') < 3", "unknown argument '__import__'"),
        ("elapsed_steps <", "it ends where"),
    ):
        with pytest.raises(UsageError, match=message):
            ScenarioSet(settings(), SetSettings(condition=text))


def test_sets_satisfy_their_condition_and_never_meet() -> None:
    kind = settings(wind={"type": "constant", "speed": [1, 9]})
    chosen = {"count": 5, "condition": "150 < elapsed_steps < 250", "population": 60}
    train = ScenarioSet(kind, fill(SetSettings, chosen))
    for number in range(5):
        assert 150 < facts(train.scenario(number))["elapsed_steps"] < 250
    assert train.scenario(0) is train.scenario(5)
    other = ScenarioSet(kind, fill(SetSettings, {**chosen, "split": "eval"}))
    assert not set(seeds(train)) & set(seeds(other))
    again = train.resampled(1)
    assert not set(seeds(train)) & set(seeds(again))
    files = list((cache_dir() / "wildfire").glob("*.json"))
    assert len(files) == 3
    for file in files:
        file.write_text(json.dumps(list(range(5))))
    assert seeds(ScenarioSet(kind, fill(SetSettings, chosen))) == [0, 1, 2, 3, 4]
    for file in files:
        file.write_text("[1, ")
    assert seeds(ScenarioSet(kind, fill(SetSettings, chosen))) == seeds(train)
    with pytest.raises(UsageError, match="only 0 of 60"):
        ScenarioSet(kind, fill(SetSettings, {**chosen, "condition": "elapsed_steps < 0"}))


def test_without_a_count_every_number_is_another_scenario() -> None:
    drawn = ScenarioSet(settings(), SetSettings(condition="elapsed_steps > 1"))
    assert len({drawn.scenario(number).ignitions for number in range(8)}) > 4
