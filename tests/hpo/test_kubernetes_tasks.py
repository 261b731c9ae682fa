"""Config files as objects of a cluster: a stand-in of the API server, whose pods are processes of this machine."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.machine import wait_until
from tests.sites.kube_stand_in import StandIn

from operant.errors import UsageError
from operant.hpo import R, hpo, run_scheduler_k8s, uniform

pytest.importorskip("kubernetes", reason="needs operant[k8s]")

TEMPLATE = Path(__file__).parents[2] / "examples/hpo/template/cartpole_dijob_with_empty_configmap.yml"
CONFIG = """
main_config = dict(exp_name='x', policy=dict(discount_factor=0.5, learn=dict(batch=64)))
create_config = {}
if __name__ == '__main__':
    import os, pickle
    factor = main_config['policy']['discount_factor']
    assert main_config['policy']['learn']['batch'] == 64
    print('factor', factor)
    os.makedirs(main_config['exp_name'])
    if factor == 1:
        raise SystemExit('a factor of one')
    with open(main_config['exp_name'] + '/result.pkl', 'wb') as stream:
        pickle.dump({'eval_value': factor}, stream)
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[StandIn]:
    stand_in = StandIn(tmp_path)
    yield stand_in
    stand_in.close()


def files(folder: Path, **metadata: Any) -> tuple[Path, Path]:
    """The config file and the shipped manifest, with paths of this test."""
    (folder / "project").mkdir(exist_ok=True)
    (folder / "config.py").write_text(CONFIG)
    documents = list(yaml.safe_load_all(TEMPLATE.read_text(encoding="utf-8")))
    job = documents[0]
    job["metadata"].update({"projectPath": str(folder / "project"), **metadata})
    job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["command"][0] = sys.executable
    (folder / "job.yml").write_text(yaml.safe_dump_all(documents))
    return folder / "config.py", folder / "job.yml"


def test_the_demo(cluster: StandIn, tmp_path: Path) -> None:
    with run_scheduler_k8s(*files(tmp_path), kubeconfig=str(cluster.kubeconfig)) as scheduler:
        search = hpo(scheduler.get_hpo_callable()).grid(silent=True).max_steps(3).max_workers(2).max_retries(0)
        search = search.maximize(R["eval_value"]).spaces({"policy": {"discount_factor": uniform(0.95, 1)}}).ephemeral()
        config, returned, _ = search.run()  # type: ignore[misc]
        assert config == {"policy": {"discount_factor": 0.975}} and returned == {"eval_value": 0.975}
        status = scheduler.status()
        assert status["task_success"] == [0, 1] and status["task_abnormal"] == [2] and "task_running" in status
        project = tmp_path / "project"
        assert (project / "cartpole-dqn-hpo-1/hpo/result.pkl").is_file()
        with pytest.raises(Exception, match="a factor of one"):
            scheduler.run_task({"policy": {"discount_factor": 1}})
    made = [found for _, plural, kind, found in cluster.changes if plural == "dijobs" and kind == "ADDED"]
    assert {one["metadata"]["name"] for one in made} == {f"cartpole-dqn-hpo-{number}" for number in range(4)}
    assert all("projectPath" not in one["metadata"] for one in made), "no field of ObjectMeta"
    maps = [found for _, plural, kind, found in cluster.changes if plural == "configmaps" and kind == "ADDED"]
    assert {one["metadata"]["ownerReferences"][0]["name"] for one in maps} == {one["metadata"]["name"] for one in made}
    assert not cluster.objects["dijobs"] and not cluster.objects["pods"]


def test_a_task_that_takes_too_long_is_ended(cluster: StandIn, tmp_path: Path) -> None:
    config, manifest = files(tmp_path)
    config.write_text("main_config = {}\nif __name__ == '__main__':\n    import time\n    time.sleep(600)\n")
    with run_scheduler_k8s(config, manifest, 0.5, kubeconfig=str(cluster.kubeconfig)) as scheduler:
        with pytest.raises(Exception, match=r"longer than its time-out of 0\.5 s"):
            scheduler.run_task({})
        assert cluster.objects["dijobs"] == {}


def test_what_a_task_prints_is_there_while_it_runs(cluster: StandIn, tmp_path: Path) -> None:
    config, manifest = files(tmp_path)
    config.write_text("""main_config = {}
if __name__ == "__main__":
    import os, sys, time
    print("here I am", flush=True)
    while not (os.path.exists("stderr") and "here I am" in open("stderr").read()):
        time.sleep(0.05)
    sys.exit("and there it is")
""")
    scheduler = run_scheduler_k8s(config, manifest, 60, kubeconfig=str(cluster.kubeconfig))
    with scheduler, pytest.raises(Exception, match="and there it is"):
        scheduler.run_task({})


def test_why_a_task_waits_is_logged_and_an_image_that_never_comes_fails_it(
    cluster: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("operant.hpo.kubernetes_tasks._PULL_SECONDS", 0.2)
    cluster.runs = False
    pull = {"waiting": {"reason": "ImagePullBackOff", "message": "no such registry"}}
    waits = {"phase": "Pending", "containerStatuses": [{"name": "di", "image": "none:1", "state": pull}]}

    def stay() -> None:
        wait_until(lambda: "cartpole-dqn-hpo-0-pod" in cluster.objects.get("pods", {}), "its pod", 30)
        cluster.pod("cartpole-dqn-hpo-0", **waits)

    threading.Thread(target=stay, daemon=True).start()
    scheduler = run_scheduler_k8s(*files(tmp_path), kubeconfig=str(cluster.kubeconfig))
    with scheduler, pytest.raises(Exception, match="the image none:1 cannot be pulled"):
        scheduler.run_task({})
    assert [one for one in caplog.messages if "task 0" in one and "waits: the image none:1" in one]


@pytest.mark.parametrize(
    ("metadata", "message"),
    [({"projectPath": None}, "metadata.projectPath is missing"), ({"projectPath": "/nowhere"}, "no folder here"),
     ({"name": None}, "metadata.name is missing")],
)  # fmt: skip
def test_mistakes_are_sentences(tmp_path: Path, metadata: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        run_scheduler_k8s(*files(tmp_path, **metadata))
