"""Configs of searches and of trainings, as YAML."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import yaml
from tests.fuzz.driver import Fuzz, confused, few_or_many

from operant.errors import ConfigError
from operant.schedulers.planning.plan import load_plan
from operant.training.targets import load_config

SEARCH = """
task:
  template: "echo {lr} {layers} {kind} {other}"
  search_args:
    - {type: Real, name: lr, data: [1e-5, 0.1], log: true}
    - {type: Int, name: layers, data: [1, 4]}
    - {type: Categorical, name: kind, data: &kinds [a, b, 3, null]}
    - {type: Categorical, name: other, data: *kinds}
searcher: {type: RandomSearcher, reward_attribute: acc, pattern: "acc {value}"}
scheduler:
  parallel_size: 2
  max_retries: 1
  stop_criterion: {max_tries: 10, time_limits: 60, time_limits_per_job: 5m}
seeds: [0, 1, 2]
racing: true
final_check: {top: 1, seeds: 2}
"""
TRAINING = """
env: {id: CartPole-v1, num_envs: 2, arguments: {max_episode_steps: 100}}
algorithm: {name: ppo, gamma: 0.98, rollout: 32}
model: {hidden: [32, 32], activation: tanh}
total_steps: 1000
evaluation: {episodes: 3, stop_value: 450}
"""
LAUGHS = "".join(f"{n}: &{n} [*{p}, *{p}, *{p}]\n" for p, n in zip("abcdefghij", "bcdefghijk", strict=True))
BOMBS = (
    f"a: &a [x]\n{LAUGHS}",
    "x: " + "[" * 900,
    "x: " + "9" * 5000,
    "? " * 500,
    "- " * 2000,
    "<<: &x {<<: *x}",
    "!!python/object:os.system x",
)


def read(folder: Path, data: bytes) -> Any:
    (folder / "search.yaml").write_bytes(data)
    return load_plan(folder / "search.yaml", folder=folder).digest


def read_training(folder: Path, data: bytes) -> Any:
    (folder / "training.yaml").write_bytes(data)
    return repr(load_config(str(folder / "training.yaml")))


def forge(rng: random.Random, data: bytes) -> bytes:
    if rng.random() < 0.2:
        at = rng.choice([place for place, byte in enumerate(data) if byte == ord("\n")])
        return data[: at + 1] + rng.choice(BOMBS).encode() + b"\n" + data[at + 1 :] * rng.randrange(2)
    tree = confused(rng, yaml.safe_load(data))
    try:
        return yaml.safe_dump(tree, allow_unicode=True).encode("utf-8", "surrogatepass")
    except (yaml.YAMLError, RecursionError):
        return b""


@few_or_many(120)
def test_search_files(tmp_path: Path, tries: int, first: int) -> None:
    Fuzz("yaml", read, [SEARCH.encode()], None, forge).run(tmp_path, tries, first)


@few_or_many(60)
def test_training_files(tmp_path: Path, tries: int, first: int) -> None:
    Fuzz("training", read_training, [TRAINING.encode()], None, forge).run(tmp_path, tries, first)


def test_a_sound_file_is_read(tmp_path: Path) -> None:
    assert read(tmp_path, SEARCH.encode())
    try:
        read(tmp_path, SEARCH.replace("max_tries", "max_trys").encode())
    except ConfigError as error:
        assert error.line is not None
    else:
        raise AssertionError
