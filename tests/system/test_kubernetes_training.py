"""Trainings that are jobs of several real pods, one of which is deleted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.machine import patience, wait_until
from tests.system.kubernetes import Kubernetes, running_kubernetes
from tests.training.test_remote import IMPALA, config

import operant
from operant.tracking import Run

pytestmark = [pytest.mark.clusters, pytest.mark.long]

_SOURCE = str(Path(operant.__file__).parents[1])
_SLOW = """
import time
from operant.envs.identity import DiscreteIdentity

class Slow(DiscreteIdentity):
    def step(self, action):
        time.sleep(0.001)
        return super().step(action)
"""


@pytest.fixture(scope="module")
def kubernetes() -> Iterator[Kubernetes]:
    with running_kubernetes() as cluster:
        yield cluster


class Training:
    """`operant train --site kubernetes` in a folder that pods see, as they see this Python and this Operant."""

    def __init__(self, kubernetes: Kubernetes, folder: Path, steps: int, **settings: Any) -> None:
        self.kubernetes, self.folder = kubernetes, folder
        (folder / ".operant").mkdir()
        (folder / "slow.py").write_text(_SLOW)
        (folder / "config.json").write_text(json.dumps({**config(IMPALA, steps, num_nodes=2), **settings}))
        known = {"PYTHONPATH": f"{_SOURCE}:{folder}", "HOME": str(folder), "OMP_NUM_THREADS": "1"}
        container = {"name": "main", "env": [{"name": name, "value": value} for name, value in known.items()]}
        job = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": {"spec": {"containers": [container]}}}}
        (folder / "job.yaml").write_text(yaml.safe_dump(job))
        seen = ("/usr", "/etc", sys.base_prefix, sys.prefix, _SOURCE)
        paths = [one for one in dict.fromkeys(seen) if not any(one.startswith(f"{other}/") for other in seen)]
        volumes = [str(folder), *({"path": path, "read_only": True} for path in paths)]
        self.site = {"type": "kubernetes", **kubernetes.site(folder), "template": "job.yaml", "volumes": volumes}

    def start(self, *words: str) -> subprocess.Popen[str]:
        env = {key: value for key, value in os.environ.items() if key != "OPERANT_SECRET"}
        command = [sys.executable, "-m", "operant", "train", "config.json", "--site", json.dumps(self.site), "--json"]
        return subprocess.Popen(
            [*command, *words], cwd=self.folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def runs(self) -> list[Run]:
        return [Run(one) for one in sorted(self.folder.glob(".operant/searches/*/jobs/*/run"))]

    def said(self, words: str) -> int:
        """How often the learner of the only job has said this."""
        time.sleep(0.2)  # files are read as a whole
        return sum(words in one.text for run in self.runs() for one in run.text())

    def further_pods(self) -> list[str]:
        return self.kubernetes.say("get", "pods", "-l", "operant-joins", "-o", "name").split()

    def leaves_nothing(self) -> None:
        left = lambda: self.kubernetes.say("get", "jobs,pods", "--no-headers").strip()  # noqa: E731
        wait_until(lambda: not left(), "the end of all objects", 60)
        assert "operant-" not in self.kubernetes.say("get", "secrets", "--no-headers")


def test_two_trainings_of_two_pods_each_on_the_network_of_one_node(kubernetes: Kubernetes, tmp_path: Path) -> None:
    training = Training(kubernetes, tmp_path, steps=20_000)
    process = training.start("--seeds", "0,1")
    out, err = process.communicate(timeout=patience(300))
    assert process.returncode == 0, err
    assert [one["status"] for one in json.loads(out)["seeds"]] == ["FINISHED", "FINISHED"]
    for run in training.runs():
        assert any("has joined" in one.text for one in run.text())
        assert run.latest("workers/1/steps_per_second").value > 0.0
        assert run.latest("evaluation/return").value >= 18.0
    training.leaves_nothing()


def test_a_training_goes_on_through_the_loss_of_a_pod(kubernetes: Kubernetes, tmp_path: Path) -> None:
    slow = {"id": "slow:Slow", "num_envs": 8}
    training = Training(kubernetes, tmp_path, steps=120_000, env=slow)
    process = training.start()
    try:
        wait_until(lambda: training.said("has joined") == 1, "the further pod", 120)
        wait_until(lambda: any(run.latest("workers/1/steps_per_second") for run in training.runs()), "its work", 60)
        (before,) = training.further_pods()
        kubernetes.say("delete", before, "--wait=false")
        wait_until(lambda: training.said("is lost, with 1 workers") == 1, "news of its loss", 60)
        wait_until(lambda: training.said("has joined") == 2, "a pod in its place", 120)
        assert [one for one in training.further_pods() if one != before]
        out, err = process.communicate(timeout=patience(300))
    finally:
        process.kill()
    assert process.returncode == 0, err
    assert [one["status"] for one in json.loads(out)["seeds"]] == ["FINISHED"]
    (run,) = training.runs()
    assert run.latest("workers/restarts").value == 1.0 and run.latest("evaluation/return").value >= 18.0
    training.leaves_nothing()
