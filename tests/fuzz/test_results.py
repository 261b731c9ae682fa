"""Result files that programs leave: a job's result can hurt nothing but that job."""

from __future__ import annotations

import json
import math
import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
from tests.fuzz.driver import Fuzz, confused, few_or_many

from operant.schedulers.planning.rewards import JobReader, RewardRule

RESULT = {"acc": [0.1, 0.5, 0.7], "loss": 3, "name": "x"}
PICKLED = {"acc": np.linspace(0, 1, 5), "loss": np.float32(3), "more": [1, None, "x", b"y", {"z": (1, 2)}, {1, 2}]}


def result(folder: Path, name: str, data: bytes) -> Any:
    (folder / name).write_bytes(data)
    reward, problem = JobReader(folder / "job", folder, RewardRule.parse("acc")).result()
    assert reward is None or (type(reward) is float and not math.isnan(reward)), reward
    assert problem is None or (problem and len(problem) < 4000 and "\n" not in problem), problem
    json.dumps([reward, problem]).encode()
    return reward, problem


def forge_json(rng: random.Random, data: bytes) -> bytes:
    return json.dumps(confused(rng, json.loads(data))).encode()


@few_or_many(700)
def test_json(tmp_path: Path, tries: int, first: int) -> None:
    def read(folder: Path, data: bytes) -> Any:
        return result(folder, "result.json", data)

    Fuzz("result-json", read, [json.dumps(RESULT).encode()], None, forge_json).run(tmp_path, tries, first)


def forge_pickle(rng: random.Random, data: bytes) -> bytes:
    try:
        return pickle.dumps(confused(rng, {"acc": RESULT["acc"], "more": [1, {}]}), rng.choice((0, 2, 5)))
    except RecursionError:
        return b""


@few_or_many(700)
def test_pickles(tmp_path: Path, tries: int, first: int) -> None:
    def read(folder: Path, data: bytes) -> Any:
        return result(folder, "result.pkl", data)

    sound = [pickle.dumps(PICKLED, protocol) for protocol in (0, 2, 4, 5)]
    Fuzz("result-pickle", read, sound, None, forge_pickle).run(tmp_path, tries, first)
