"""Real Ray places the workers; everything else is as in the local runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mains
import pytest

from operant.framework import Parallel, WorkerDied


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    ray = pytest.importorskip("ray")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    here = os.pathsep.join(
        [str(Path(__file__).parent), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    )
    ray.init(
        num_cpus=4,
        include_dashboard=False,
        _node_ip_address="127.0.0.2",
        resources={"evaluator": 1},
        object_store_memory=100_000_000,
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": here, "MARKS": str(tmp_path_factory.mktemp("marks"))}},
    )
    yield ray
    ray.shutdown()


# Ray's own code warns on start and shutdown; that is not what is tested here.
pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.timeout(180)]


def test_the_same_main_on_ray(cluster: Any) -> None:
    trained, evaluated = Parallel.runner(2, topology="star", engine="ray", labels={1: "evaluator"})(
        mains.train_and_evaluate, 20
    )
    assert evaluated["evaluated"][-1][0] >= 20 and trained["saved"]


@pytest.mark.long
def test_a_failure_comes_with_its_traceback(cluster: Any) -> None:
    with pytest.raises(WorkerDied, match="the reward is not a number"):
        Parallel.runner(2, engine="ray")(mains.fail_on, 1, "raise")


@pytest.mark.long
def test_a_killed_actor_comes_back_with_its_state(cluster: Any) -> None:
    results = Parallel.runner(2, engine="ray", auto_recover=True)(mains.die_and_go_on, 1, [3], 6, "kill")
    assert results == [(6, 0, 0), (6, 3, 1)]
