"""The presets learn to fight fires; benchmarks/wildfire_learning.py has what they reach in full."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from operant.tracking import SummaryWriter
from operant.training import Training
from operant.training.evaluating import Player
from operant.training.targets import load_config

BENCHMARK: dict[str, Any] = runpy.run_path(str(Path(__file__).parents[3] / "benchmarks" / "wildfire_learning.py"))
BENCHMARK["saved"].__globals__["EPISODES"] = 50
FEW = ("evaluation.frames=0", "evaluation.every=1000000000", "seed=3")


@pytest.mark.long  # 12 CPU-seconds each
@pytest.mark.parametrize(
    ("preset", "steps"), [("wildfire-ppo", 49_152), ("wildfire-dqn", 30_000), ("wildfire-marl", 16_384)]
)
def test_a_short_training_saves_more_than_chance(preset: str, steps: int, tmp_path: Path) -> None:
    config = load_config(preset, [*FEW, f"total_steps={steps}"])
    with SummaryWriter("training", root=tmp_path) as writer:
        training = Training(config, writer)
        training.begin()
        training.run()
    env = BENCHMARK["make"](config)
    player = Player(training.algorithm, env, training.normalizer)
    learned = BENCHMARK["saved"](env, lambda env, obs: player.act(obs, env.action_mask), 5)
    chance = BENCHMARK["by_rule"]("random", config, 5)["saved"]
    assert learned > 1.5 * chance
    if preset == "wildfire-ppo":
        two = BENCHMARK["saved"](BENCHMARK["make"](config, num_agents=2), BENCHMARK["each"](player), 5)
        assert two > learned + 0.05


def test_agents_that_learn_nothing_fight_as_they_should() -> None:
    config = load_config("wildfire-ppo", [])
    by_rule = BENCHMARK["by_rule"]
    assert by_rule("none", config, 5)["saved"] == 0.0
    greedy, chance = (by_rule(rule, config, 5)["saved"] for rule in ("greedy", "random"))
    assert greedy > 0.5 > 0.2 > chance > 0.0
    two = by_rule("greedy", load_config("wildfire-marl", []), 5)["saved"]
    assert two > greedy + 0.1
