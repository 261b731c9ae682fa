"""The site kubernetes against a stand-in of the API server whose pods are processes of this machine."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.machine import patience
from tests.sites.kube_stand_in import StandIn
from tests.system.cluster_search import same_proposals_here_and_at

from operant.cli import main
from operant.errors import ConfigError
from operant.sites import Event, Site, Submission, make_token
from operant.sites._kube import pod_state, state_of
from operant.sites.channel import channel_token
from operant.sites.kubernetes import KubernetesSite, pod_templates
from operant.testing import SiteContract

pytest.importorskip("kubernetes", reason="needs operant[k8s]")

PROGRAMS = {"good": "pass", "bad": "raise SystemExit(3)", "endless": "import time; time.sleep(600)"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[StandIn]:
    stand_in = StandIn(tmp_path)
    yield stand_in
    stand_in.close()


def site_in(folder: Path, **settings: Any) -> KubernetesSite:
    given = {
        "image": "any:1",
        "python": sys.executable,
        "volumes": [str(folder)],
        "kubeconfig": str(folder / "kubeconfig"),
    }
    return KubernetesSite(folder, **{**given, "poll": 0.1, "exit_wait": 1.0, **settings})


def job_of(folder: Path, name: str, kind: str) -> Submission:
    (folder / "jobs" / name).mkdir(parents=True, exist_ok=True)
    argv = [sys.executable, "-I", "-S", "-c", PROGRAMS[kind]]
    return Submission(make_token(name, 1, "secret"), name, 1, argv, folder / "jobs" / name, folder / "jobs" / name)


def wait(done: Callable[[], Any], what: object = "") -> Any:
    deadline = time.monotonic() + patience(20)
    while not (found := done()):
        assert time.monotonic() < deadline, what
        time.sleep(0.01)
    return found


@pytest.mark.usefixtures("cluster")
class TestKubernetesSite(SiteContract):
    patience = patience(60)

    def build(self, folder: Path) -> Site:
        return site_in(folder)

    def job(self, token: str, folder: Path, kind: str) -> Submission:
        return Submission(token, folder.name, 1, [sys.executable, "-I", "-S", "-c", PROGRAMS[kind]], folder, folder)


class TestKubernetesSiteByHttp(TestKubernetesSite):
    """Pods that see nothing of the search's folder."""

    @pytest.fixture(autouse=True)
    def stand_in(self, cluster: StandIn) -> None:
        self.cluster = cluster

    def build(self, folder: Path) -> Site:
        return site_in(folder, volumes=[], channel="http", address="127.0.0.1")

    def test_tokens_are_in_secrets_alone_and_go_with_the_jobs(self, site: Site, tmp_path: Path) -> None:
        token = self.submit(site, tmp_path, "good")
        self.end_of(token)
        self.wait(lambda: not self.cluster.objects["secrets"], "the end of the secret")
        made = {plural: str(found) for _, plural, kind, found in self.cluster.changes if kind == "ADDED"}
        token = channel_token((tmp_path / "site" / "channel.key").read_bytes(), token)
        assert token in made["secrets"] and token not in made["jobs"] + made["pods"]


@pytest.mark.long
def test_the_example_makes_the_same_proposals_here_and_there(cluster: StandIn, tmp_path: Path) -> None:
    site = {"type": "kubernetes", "image": "any:1", "python": sys.executable, "volumes": [str(tmp_path)]}
    same_proposals_here_and_at({**site, "kubeconfig": str(cluster.kubeconfig)}, tmp_path / "project")


def test_a_check_is_of_the_site_with_the_settings_that_are_given(
    cluster: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = {"type": "kubernetes", "image": "any:1", "python": sys.executable, "volumes": [str(tmp_path)]}
    words = ["sites", "check", json.dumps({**site, "kubeconfig": str(cluster.kubeconfig)}), "--folder", str(tmp_path)]
    assert main(words) == 0 and "kubernetes works" in capsys.readouterr().out
    cluster.close()
    assert main(words) == 1 and "does not answer" in capsys.readouterr().err


class Heard:
    """A site that runs, and its events."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.events: list[Event] = []
        self.folder = folder
        self.site = site_in(folder, **settings)
        self.site.start(self.events.append)

    def submit(self, name: str, kind: str = "endless") -> str:
        job = job_of(self.folder, name, kind)
        self.site.submit([job])
        return job.token

    def end_of(self, token: str) -> Event:
        ends = ("ended", "lost")
        found = wait(lambda: [one for one in self.events if one.token == token and one.kind in ends], self.events)
        return found[0]  # type: ignore[no-any-return]

    def name_of(self, cluster: StandIn) -> str:
        return str(wait(lambda: list(cluster.objects.get("jobs", {})))[0])


@pytest.fixture
def heard(cluster: StandIn, tmp_path: Path) -> Iterator[Heard]:
    cluster.runs = False
    heard = Heard(tmp_path)
    yield heard
    heard.site.close()


@pytest.mark.parametrize(
    ("status", "reason", "words"),
    [
        ({"containerStatuses": [{"name": "job", "state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}]},
         "memory_limit", "memory passed the pod's limit"),
        ({"reason": "Evicted", "message": "low on disk"}, "preempted", "evicted it: low on disk"),
        ({"reason": "DeadlineExceeded"}, "time_limit", "deadline"),
        ({"reason": "NodeLost"}, "node_failed", "its node went away"),
    ],
)  # fmt: skip
def test_what_a_pod_died_of_is_told_in_words(
    cluster: StandIn, heard: Heard, status: dict[str, Any], reason: str, words: str
) -> None:
    token = heard.submit("0")
    name = heard.name_of(cluster)
    cluster.pod(name, phase="Failed", **status)
    end = heard.end_of(token)
    assert end.info["reason"] == reason and words in end.info["error"] and "node-1" in end.info["error"]
    wait(lambda: not cluster.objects["jobs"], "what was settled is deleted")


def test_a_pod_that_somebody_deleted_is_told_as_one(cluster: StandIn, heard: Heard) -> None:
    token = heard.submit("0")
    name = heard.name_of(cluster)
    found = cluster.objects["pods"][f"{name}-pod"]
    later = {**found["metadata"], "name": f"{name}-other", "creationTimestamp": "2030-01-01T00:00:00Z"}
    cluster.put("pods", {**found, "metadata": later, "status": {"phase": "Succeeded"}})
    assert heard.end_of(token).info["reason"] == "preempted"


def test_why_a_pod_waits_is_told_and_what_cannot_start_fails(cluster: StandIn, heard: Heard) -> None:
    token = heard.submit("0")
    name = heard.name_of(cluster)
    cluster.pod(name, phase="Pending", conditions=[{"type": "PodScheduled", "status": "False", "message": "no cpu"}])
    wait(lambda: any("no node takes it: no cpu" in one.info.get("queue", "") for one in heard.events))
    waits = {"reason": "ErrImageNeverPull", "message": "not present"}
    cluster.pod(name, phase="Pending", containerStatuses=[{"name": "job", "state": {"waiting": waits}}])
    end = heard.end_of(token)
    assert end.info["reason"] == "cannot_start" and "it never began" in end.info["error"]


def test_an_image_that_cannot_be_pulled_is_waited_for_a_while(cluster: StandIn, tmp_path: Path) -> None:
    cluster.runs = False
    heard = Heard(tmp_path, pull_wait=0.5)
    token = heard.submit("0")
    waits = {"reason": "ImagePullBackOff", "message": "no such host"}
    container = {"name": "job", "image": "a:1", "state": {"waiting": waits}}
    cluster.pod(heard.name_of(cluster), phase="Pending", containerStatuses=[container])
    wait(lambda: any("a:1 cannot be pulled" in one.info.get("queue", "") for one in heard.events))
    assert "cannot be pulled" in heard.end_of(token).info["error"]
    heard.site.close()


def test_a_watch_that_is_too_old_is_begun_anew(cluster: StandIn, heard: Heard) -> None:
    token = heard.submit("0")
    name = heard.name_of(cluster)
    wait(lambda: any("?" in one or one == "GET pods" for one in cluster.asked))
    cluster.expire()
    cluster.pod(name, phase="Failed", reason="Evicted", message="after the watch expired")
    cluster.expire()
    assert "after the watch expired" in heard.end_of(token).info["error"]


def test_lists_are_made_once_and_not_for_each_look(cluster: StandIn, heard: Heard) -> None:
    heard.submit("0")
    heard.name_of(cluster)
    before = len(cluster.asked)
    time.sleep(0.5)  # five looks
    assert len(cluster.asked) - before <= 1


def test_an_api_server_that_is_away_loses_nothing(cluster: StandIn, tmp_path: Path) -> None:
    heard = Heard(tmp_path)
    first = heard.submit("0", "good")
    heard.end_of(first)
    cluster.away = True
    second = heard.submit("1", "good")
    wait(lambda: any(one.kind == "note" and "asked again" in one.info["text"] for one in heard.events))
    assert not [one for one in heard.events if one.token == second]
    cluster.away = False
    assert heard.end_of(second).info["code"] == 0
    assert [one.kind for one in heard.events if one.token == second].count("ended") == 1
    heard.site.close()


def test_a_controller_that_comes_back_finds_its_jobs_and_leaves_nothing(cluster: StandIn, tmp_path: Path) -> None:
    first = Heard(tmp_path)
    tokens = [first.submit(name) for name in ("0", "1")]
    wait(lambda: len([one for one in first.events if one.kind == "started"]) == 2)
    first.site.close()
    assert len(cluster.objects["jobs"]) == 2, "jobs outlive their controller"
    second = Heard(tmp_path)
    found = second.site.find(tokens)
    assert {one.state for one in found.values()} == {"running"}
    second.site.cancel(tokens, "stopped", 0.1)
    assert [second.end_of(token).info["reason"] for token in tokens] == ["stopped", "stopped"]
    second.site.close()
    assert not cluster.objects["jobs"] and not cluster.objects["pods"]


def test_a_template_keeps_what_it_says(cluster: StandIn, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(
        "shared: &path /mnt\n"
        "apiVersion: batch/v1\nkind: Job\nmetadata: {labels: {team: a}}\nspec:\n  template:\n    spec:\n"
        "      containers:\n      - {name: main, image: 'mine:2', env: [{name: A, value: b}]}\n"
        "      - {name: side, image: s}\n"
        "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: shared}\ndata: {a: b}\n"
    )
    cluster.runs = False
    heard = Heard(tmp_path, template=str(tmp_path / "job.yaml"), image=None, cpus=2, gpus=1, service_account="lab")
    heard.submit("0")
    name = heard.name_of(cluster)
    made = cluster.objects["jobs"][name]
    pod = made["spec"]["template"]["spec"]
    main, side = pod["containers"]
    assert made["metadata"]["labels"]["team"] == "a" and made["spec"]["backoffLimit"] == 0
    assert main["image"] == "mine:2" and {"name": "A", "value": "b"} in main["env"] and side["image"] == "s"
    assert main["resources"]["limits"] == {"cpu": "2", "nvidia.com/gpu": 1}
    assert pod["serviceAccountName"] == "lab" and pod["restartPolicy"] == "Never"
    assert "secret" not in str(made), "tokens stay in the job's folder"
    assert cluster.objects["configmaps"]["shared"]["data"] == {"a": "b"}
    heard.site.close()


def test_a_ray_job_gets_the_program_as_its_entrypoint(cluster: StandIn, tmp_path: Path) -> None:
    group = "{template: {spec: {containers: [{name: ray, image: 'rayproject/ray:2'}]}}}"
    (tmp_path / "job.yaml").write_text(
        "apiVersion: ray.io/v1\nkind: RayJob\nmetadata: {}\nspec:\n  rayClusterSpec:\n"
        f"    headGroupSpec: {group}\n    workerGroupSpecs: [{group}]\n"
    )
    cluster.runs = False
    heard = Heard(tmp_path, template=str(tmp_path / "job.yaml"), image=None)
    token = heard.submit("0")
    name = str(wait(lambda: list(cluster.objects.get("rayjobs", {})))[0])
    made = cluster.objects["rayjobs"][name]
    assert (
        made["spec"]["entrypoint"].startswith("env OPERANT_RESTART=0 ")
        and "wrapper.py run" in made["spec"]["entrypoint"]
    )
    head, *workers = (one["spec"]["containers"][0] for one in pod_templates(made))
    assert "command" not in head and all(one["volumeMounts"] == head["volumeMounts"] for one in workers)
    cluster.put("rayjobs", {**made, "status": {"jobStatus": "FAILED", "message": "the head went away"}})
    assert "FAILED: the head went away" in heard.end_of(token).info["error"]
    heard.site.close()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"volumes": ["/elsewhere"]}, "add a path above it"),
        ({"volumes": ["relative"]}, "from / on"),
        ({"volumes": [{"path": "/a", "clam": "x"}]}, "'clam'"),
        ({"image": None}, "which image"),
        ({"gpus": 0}, "from 1 on"),
        ({"template": "nowhere.yaml"}, "cannot be read"),
        ({"kubeconfig": "/nowhere/config"}, "no way to a cluster"),
    ],
)
def test_mistakes_are_found_before_anything_runs(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        site_in(tmp_path, **settings).start(print)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("apiVersion: v1\nkind: Service\n", "a Service beside the job"),
        ("apiVersion: v1\nkind: ConfigMap\n", "no objects with containers"),
        ("apiVersion: [", "template.yaml:1"),
    ],
)
def test_a_template_that_cannot_be_used(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "template.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        site_in(tmp_path, template=str(tmp_path / "template.yaml"))


def test_what_objects_of_several_kinds_say() -> None:
    for status, state in (
        ({"conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}]}, "bad"),
        ({"jobStatus": "SUCCEEDED"}, "good"),
        ({"jobDeploymentStatus": "Failed", "message": "no head"}, "bad"),
        ({"phase": "Running"}, "running"),
        ({}, "waiting"),
    ):
        assert state_of({"kind": "RayJob", "status": status})[0] == state
    assert pod_state({"metadata": {}, "status": {"phase": "Running"}}) == ("running", "", None)
