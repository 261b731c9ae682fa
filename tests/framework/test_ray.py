"""Real Ray places the workers; everything else is as in the local runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mains
import pytest

from operant.assessors import AssessResult
from operant.framework import Parallel, WorkerDied
from operant.hpo import R, choice, hpo, report


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


def test_trials_of_a_search_are_calls_of_warm_workers(cluster: Any, tmp_path: Path) -> None:
    marks = str(tmp_path)

    def trial(config: dict[str, Any]) -> dict[str, Any]:
        x = config["x"]
        if x == 3 and not os.path.exists(f"{marks}/died"):  # noqa: PTH110 - runs elsewhere
            open(f"{marks}/died", "w").close()  # noqa: PTH123
            os._exit(1)
        if x == 4:
            raise ValueError("not four")
        for step in range(3):
            report(step, -x if x < 6 else -100)
        return {"y": -abs(x - 2), "pid": os.getpid()}

    search = hpo(trial).grid(silent=True).workers("ray", num_cpus=0.5).max_workers(2).max_retries(1).ephemeral()
    found = search.spaces({"x": choice(list(range(8)))}).maximize(R["y"]).early_stop(_Last()).run()
    assert found is not None and found[0] == {"x": 2}
    by_x = {one.config["x"]: one for one in search.history}
    assert by_x[3].status == "FINISHED", "a worker that died was replaced, and the trial tried again"
    assert by_x[4].status == "ERROR" and {by_x[6].status, by_x[7].status} == {"STOPPED"}
    assert len({one.result["pid"] for one in by_x.values() if one.status == "FINISHED"}) <= 3


class _Last:
    """Ends trials that report -100."""

    def assess_job(self, job_id: str, history: list[dict[str, Any]]) -> AssessResult:
        return AssessResult.Bad if history[-1]["value"] == -100 else AssessResult.Good

    def job_end(self, job_id: str) -> None:
        pass
