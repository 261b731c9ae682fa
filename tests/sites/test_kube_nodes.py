"""Jobs of several pods, against a stand-in of the API server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.machine import patience
from tests.sites.kube_stand_in import StandIn
from tests.sites.test_kubernetes import Heard, cluster, site_in, wait
from tests.training.test_remote import IMPALA, config

from operant.errors import ConfigError
from operant.sites._kube_nodes import joining, port_of
from operant.tracking import Run

pytest.importorskip("kubernetes", reason="needs operant[k8s]")
__all__ = ["cluster"]  # a fixture


def variables(job: dict[str, Any]) -> dict[str, Any]:
    container = job["spec"]["template"]["spec"]["containers"][0]
    return {one["name"]: one.get("value") or one["valueFrom"] for one in container["env"]}


def notes(heard: Heard) -> list[str]:
    return [one.info["text"] for one in heard.events if one.kind == "note"]


@pytest.fixture
def template(tmp_path: Path) -> str:
    path = tmp_path / "job.yaml"
    path.write_text(
        "apiVersion: batch/v1\nkind: Job\nspec:\n  template:\n    metadata: {labels: {team: a}}\n    spec:\n"
        "      containers:\n      - {name: main, image: 'mine:2', "
        "env: [{name: A, value: b}, {name: OPERANT_SECRET, value: old}], ports: [{name: web, containerPort: 80}]}\n"
    )
    return str(path)


def test_further_pods_join_the_first_once_it_has_an_address(cluster: StandIn, tmp_path: Path, template: str) -> None:
    cluster.runs = False
    settings = {"template": template, "image": None, "channel": "http", "address": "127.0.0.1"}
    heard = Heard(tmp_path, nodes=3, join="py -m operant join", cpus=2, **settings)
    heard.submit("0")
    name = heard.name_of(cluster)
    first = cluster.objects["jobs"][name]
    assert variables(first)["OPERANT_ADDRESS"] == f"$(OPERANT_POD_IP):{port_of(name)}"
    assert "OPERANT_SECRET" not in variables(first), "it comes with the Secret, whose word would not count otherwise"
    assert variables(first)["OPERANT_POD_IP"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    ports = first["spec"]["template"]["spec"]["containers"][0]["ports"]
    assert [one["containerPort"] for one in ports] == [80, port_of(name)]
    time.sleep(0.3)
    assert list(cluster.objects["jobs"]) == [name], "there is no address to join yet"
    cluster.pod(name, phase="Running", podIP="10.1.2.3")
    made = wait(lambda: cluster.objects["jobs"].get(f"{name}-join"))
    assert made["spec"]["parallelism"] == made["spec"]["completions"] == 2 and made["spec"]["backoffLimit"] > 100
    assert made["metadata"]["ownerReferences"][0]["uid"] == first["metadata"]["uid"]
    labels = made["spec"]["template"]["metadata"]["labels"]
    assert labels["team"] == "a" and "operant-job" not in labels and labels["operant-joins"] == name
    container = made["spec"]["template"]["spec"]["containers"][0]
    words = ["py", "-m", "operant", "join", f"tcp://10.1.2.3:{port_of(name)}"]
    assert [*container["command"], *container["args"]] == words
    assert container["image"] == "mine:2" and container["resources"]["limits"] == {"cpu": "2"}
    assert variables(made)["A"] == "b" and "OPERANT_ADDRESS" not in variables(made)
    assert [one["name"] for one in container["ports"]] == ["web"] and not container["envFrom"], "the first pod's alone"
    assert variables(made)["OPERANT_SECRET"] == {"secretKeyRef": {"name": name, "key": "OPERANT_SECRET"}}
    secret = cluster.objects["secrets"][name]["stringData"]
    assert len(secret["OPERANT_SECRET"]) == 32 and "OPERANT_CHANNEL_TOKEN" in secret
    assert not any(secret["OPERANT_SECRET"] in str(cluster.objects[plural]) for plural in ("jobs", "pods"))
    assert [one.id for one in heard.site.look()] == [name], "a job is one, however many pods it has"
    heard.site.close()


def test_labels_of_the_first_pods_controller_and_addresses_of_ipv6() -> None:
    about = {"name": "a", "uid": "u", "labels": {"operant-search": "s", "operant-job": "a"}}
    of_pod = {"controller-uid": "u", "job-name": "a", "batch.kubernetes.io/job-name": "a", "operant-job": "a"}
    template = {"metadata": {"labels": of_pod}, "spec": {"containers": [{"name": "job"}]}}
    first = {"apiVersion": "batch/v1", "kind": "Job", "metadata": about, "spec": {"template": template}}
    made = joining(first, "fd00::2", 2, ["operant", "join"])
    template = made["spec"]["template"]
    assert template["metadata"]["labels"] == made["metadata"]["labels"] == {"operant-search": "s", "operant-joins": "a"}
    assert template["spec"]["containers"][0]["args"] == ["join", f"tcp://[fd00::2]:{port_of('a')}"]


def test_a_job_that_ends_takes_its_further_pods_with_it(cluster: StandIn, tmp_path: Path) -> None:
    heard = Heard(tmp_path, nodes=2, join=f"{sys.executable} -c 'import time; time.sleep(600)'")
    tokens = [heard.submit(name) for name in ("0", "1")]
    wait(lambda: len(cluster.processes) == 4, "two pods of each job")
    assert len({one["stringData"]["OPERANT_SECRET"] for one in cluster.objects["secrets"].values()}) == 2
    heard.site.cancel(tokens[:1], "stopped", 0.1)
    assert heard.end_of(tokens[0]).info["reason"] == "stopped"
    wait(lambda: len(cluster.objects["jobs"]) == len(cluster.objects["pods"]) == 2, cluster.objects["jobs"].keys())
    heard.site.cancel(tokens[1:], "stopped", 0.1)
    heard.end_of(tokens[1])
    heard.site.close()
    assert not any(cluster.objects[plural] for plural in ("jobs", "pods", "secrets"))
    assert not notes(heard)


def test_a_controller_that_comes_back_makes_the_further_pods(cluster: StandIn, tmp_path: Path) -> None:
    cluster.runs = False
    first = Heard(tmp_path, nodes=2)
    token = first.submit("0")
    name = first.name_of(cluster)
    first.site.close()
    cluster.pod(name, phase="Running", podIP="10.1.2.3")
    second = Heard(tmp_path, nodes=2)
    assert second.site.find([token])[token].state == "running"
    wait(lambda: f"{name}-join" in cluster.objects["jobs"])
    third = Heard(tmp_path, nodes=2)
    assert third.site.find([token])[token].state == "running"
    made = [one for one in cluster.asked if one == "POST jobs"]
    assert len(made) == 2, "one for the job, one for its further pods"
    for heard in (second, third):
        heard.site.close()


def test_what_keeps_further_pods_from_joining_is_told_once(cluster: StandIn, tmp_path: Path) -> None:
    cluster.runs = False
    heard = Heard(tmp_path, nodes=2)
    heard.submit("0")
    name = heard.name_of(cluster)
    cluster.pod(name, phase="Running", podIP="10.1.2.3")
    wait(lambda: f"{name}-join-pod" in cluster.objects["pods"])
    why = [{"type": "PodScheduled", "status": "False", "message": "no cpu"}]
    cluster.pod(f"{name}-join", phase="Pending", conditions=why)
    wait(lambda: notes(heard))
    time.sleep(0.5)  # five looks
    assert notes(heard) == [f"{name}-join-pod: no node takes it: no cpu"]
    heard.site.close()


def test_a_job_whose_further_pods_are_refused_goes_on(cluster: StandIn, tmp_path: Path) -> None:
    cluster.runs, cluster.refuses = False, ("-join",)
    heard = Heard(tmp_path, nodes=2)
    heard.submit("0")
    name = heard.name_of(cluster)
    cluster.pod(name, phase="Running", podIP="10.1.2.3")
    wait(lambda: notes(heard))
    time.sleep(0.5)
    assert len(notes(heard)) == 1 and f"{name} goes on without further pods" in notes(heard)[0]
    assert [one.state for one in heard.site.look()] == ["running"]
    heard.site.close()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"nodes": 0}, "from 1 on"),
        ({"nodes": True}, "from 1 on"),
        ({"join": ["operant"]}, "`join` is a command"),
        ({"join": "operant 'join"}, "`join` is a command"),
    ],
)
def test_mistakes(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        site_in(tmp_path, **settings)


def test_other_kinds_have_their_own_pods(tmp_path: Path) -> None:
    group = "{template: {spec: {containers: [{name: ray, image: 'rayproject/ray:2'}]}}}"
    path = tmp_path / "job.yaml"
    path.write_text(f"apiVersion: ray.io/v1\nkind: RayJob\nspec: {{rayClusterSpec: {{headGroupSpec: {group}}}}}\n")
    with pytest.raises(ConfigError, match="a RayJob has its own pods"):
        site_in(tmp_path, template=str(path), image=None, nodes=2)


@pytest.mark.long
def test_a_training_of_two_pods(cluster: StandIn, tmp_path: Path) -> None:
    (tmp_path / ".operant").mkdir()
    (tmp_path / "config.json").write_text(json.dumps(config(IMPALA, 8_000, num_nodes=2)))
    site = {"type": "kubernetes", "image": "any:1", "python": sys.executable, "volumes": [str(tmp_path)], "poll": 0.2}
    site["kubeconfig"] = str(cluster.kubeconfig)
    env = {key: value for key, value in os.environ.items() if key != "OPERANT_SECRET"}
    words = [sys.executable, "-m", "operant", "train", "config.json", "--site", json.dumps(site), "--json"]
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=patience(120))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [one["status"] for one in found["seeds"]] == ["FINISHED"]
    run = Run(tmp_path / ".operant" / "searches" / found["search"] / "jobs" / "0" / "run")
    assert any("has joined" in one.text for one in run.text())
    logs = [one.read_text() for one in tmp_path.glob("*-join-pod.log")]
    assert len(logs) == 1 and "is started" in logs[0], logs
    assert not any(cluster.objects[plural] for plural in ("jobs", "pods", "secrets"))
