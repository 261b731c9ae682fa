"""Configurations of SimFire become ours."""

from __future__ import annotations

import shutil
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from operant.cli import main
from operant.envs.wildfire import Wildfire, WildfireVector
from operant.envs.wildfire.physics.fuels import fuel_table
from operant.envs.wildfire.physics.rothermel import MILES_PER_HOUR, Moisture, fire_behaviour, fuel_bed
from operant.envs.wildfire.scenarios import load_scenario
from operant.envs.wildfire.simfire import from_simfire
from operant.errors import UsageError
from operant.tracking import Run

CONFIG = """
area: {screen_size: [24, 32], pixel_scale: 50}
display: {fire_size: 2, control_line_size: 2, agent_size: 4}
simulation: {update_rate: 2, runtime: 15h, headless: true, record: false}
mitigation: {ros_attenuation: false}
operational: {latitude: 39.67, longitude: 119.8}
terrain:
  topography:
    type: functional
    functional: {function: perlin, perlin: {octaves: 3, persistence: 0.7, seed: 827, range_min: 100, range_max: 300}}
  fuel: {type: functional, functional: {function: chaparral, chaparral: {seed: 1113}}}
fire:
  fire_initial_position: {type: static, static: {position: "(20, 10)"}, random: {seed: 1}}
  max_fire_duration: 4
  diagonal_spread: true
environment: {moisture: 0.03}
wind: {function: simple, simple: {speed: 7, direction: 90.0}}
"""


def config(**changes: Any) -> dict[str, Any]:
    return {**yaml.safe_load(CONFIG), **changes}


def test_it_burns_as_simfire_means_it() -> None:
    settings, notes = from_simfire(config())
    env = Wildfire(**settings)
    env.reset(seed=0)
    scenario = env.world.scenarios[0]
    assert env.world.shape == (24, 32) and scenario.land.cell_size == pytest.approx(15.24)
    assert scenario.ignitions == ((10, 20),)
    assert env.world.max_episode_steps == 450
    assert np.ptp(scenario.land.elevation) == pytest.approx(200 * 0.3048)
    told = " ".join(notes)
    for name in ("max_fire_duration", "diagonal_spread", "ros_attenuation", "operational", "perlin", "display"):
        assert name in told
    assert "simulation.headless" in told and "simulation.runtime" not in told


def test_environments_and_simulate_take_a_configuration_of_simfire(tmp_path: Path) -> None:
    settings, _ = from_simfire(config())
    (tmp_path / "simfire.yml").write_text(CONFIG)
    assert load_scenario(tmp_path / "simfire.yml").ignitions == ((10, 20),)
    for taken in (Wildfire(simulation=config()), WildfireVector(1, simulation=config())):
        assert taken.world.settings.simulation == Wildfire(**settings).world.settings.simulation
        assert taken.world.settings.step_minutes == 2.0
    assert Wildfire(simulation=config(), step_minutes=3.0).world.settings.step_minutes == 3.0


def test_simulate_tells_what_has_no_counterpart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "simfire.yml").write_text(CONFIG)
    assert main(["fire", "simulate", str(tmp_path / "simfire.yml"), "--no-gif"]) == 0
    assert "SimFire's fire.max_fire_duration: flames stand" in capsys.readouterr().out


def test_wind_is_that_at_midflame_and_blows_to_its_direction() -> None:
    flat = {"topography": {"type": "functional", "functional": {"function": "flat"}}}
    settings, _ = from_simfire(config(terrain=flat))
    env = Wildfire(**settings)
    env.reset(seed=0)
    rates = env.world.scenarios[0].rates
    table = fuel_table()
    bed = fuel_bed(table, Moisture(0.03, 0.03, 0.03), rows=table.rows(np.array([4])))
    assert np.degrees(rates.heading[0, 0, 0]) == pytest.approx(90.0)
    assert rates.rate[0, 0, 0] == pytest.approx(float(fire_behaviour(bed, 7 * MILES_PER_HOUR).rate[0]) * 0.3048)


def test_what_is_drawn_or_missing() -> None:
    settings, notes = from_simfire(
        config(
            area={"screen_size": 16, "pixel_scale": 30},
            fire={"fire_initial_position": {"type": "random", "random": {"seed": 3}}},
            wind={
                "function": "perlin",
                "perlin": {"speed": {"range_min": 7, "range_max": 20}, "direction": {"range_min": 0, "range_max": 360}},
            },
            terrain={"topography": {"type": "operational"}, "fuel": {"type": "operational"}},
        )
    )
    env = Wildfire(**settings)
    assert env.world.shape == (16, 16)
    ignitions = set()
    for seed in range(4):
        env.reset(seed=seed)
        ignitions.add(env.world.scenarios[0].ignitions)
    assert len(ignitions) > 1
    assert sum("maps" in note for note in notes) == 2
    for wrong in ({"area": {"screen_size": "wide"}}, {"simulation": {"runtime": "soon"}}):
        with pytest.raises(UsageError):
            from_simfire(config(**wrong))


class Simulation:
    """Has the verbs of SimFire's ``FireSimulation``; fire goes to all neighbours in every step."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.size = config["area"]["screen_size"][0]
        self.reset()

    def reset(self) -> None:
        self.map = np.zeros((self.size, self.size), int)
        self.map[self.size // 2, self.size // 2] = 1

    def get_actions(self) -> dict[str, int]:
        return {"fireline": 3}

    def update_mitigation(self, lines: list[tuple[int, int, int]]) -> None:
        for column, row, kind in lines:
            self.map[row, column] = kind

    def run(self, steps: int) -> tuple[Any, bool]:
        for _ in range(steps):
            near = np.pad(self.map == 1, 1)
            reached = near[2:, 1:-1] | near[:-2, 1:-1] | near[1:-1, 2:] | near[1:-1, :-2]
            self.map = np.where((self.map == 0) & reached, 1, np.where(self.map == 1, 2, self.map))
        return self.map.copy(), bool((self.map == 1).any())


def test_simfire_itself_is_made_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in: SimFire wants a Python of its own. docs/wildfire.md tells of a training with the real one."""
    # Without `capsys`: Hydra has logging closed, and Abseil's handler then closes a stderr that is not the present one.
    example = Path(__file__).parents[3] / "examples" / "wildfire" / "simfire"
    monkeypatch.chdir(shutil.copytree(example, tmp_path / "simfire"))
    for name, values in (
        ("simfire", {}),
        ("simfire.sim", {}),
        ("simfire.sim.simulation", {"FireSimulation": Simulation}),
        ("simfire.utils", {}),
        ("simfire.utils.config", {"Config": lambda config_dict: config_dict}),
    ):
        module = types.ModuleType(name)
        vars(module).update(values)
        monkeypatch.setitem(sys.modules, name, module)
    words = ["harness", "--config-dir", ".", "--config-name", "simfire", "cli.mode=train"]
    assert main([*words, "stop_conditions.timesteps_total=256"]) == 0
    (run,) = (Run.open(one.name) for one in Path(".operant/runs").iterdir())
    returns = run.scalars("env_runners/episode_return_mean")
    assert returns["step"][-1] == 256 and -1.0 < returns["value"][-1] < 0.0
