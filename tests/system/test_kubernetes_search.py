"""The site kubernetes, whole searches and DI-toolkit's demo with real pods on a real cluster of one node."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.hpo.test_kubernetes_tasks import CONFIG, files
from tests.machine import patience, wait_until
from tests.system.cluster_search import Search, same_proposals_here_and_at, survive
from tests.system.kubernetes import Kubernetes, running_kubernetes

from operant.hpo import R, hpo, run_scheduler_k8s, uniform
from operant.sites import Site, Submission
from operant.sites.kubernetes import KubernetesSite
from operant.testing import SiteContract

pytestmark = [pytest.mark.clusters, pytest.mark.long]

_PROGRAMS = {"good": "pass", "bad": "raise SystemExit(3)", "endless": "import time; time.sleep(600)"}


@pytest.fixture(scope="module")
def kubernetes() -> Iterator[Kubernetes]:
    with running_kubernetes() as cluster:
        yield cluster


class TestKubernetesPods(SiteContract):
    patience = patience(120)

    @pytest.fixture(autouse=True)
    def cluster(self, kubernetes: Kubernetes) -> None:
        self.kubernetes = kubernetes

    def build(self, folder: Path) -> Site:
        return KubernetesSite(folder, **self.kubernetes.site(folder))

    def job(self, token: str, folder: Path, kind: str) -> Submission:
        return Submission(
            token, folder.name, 1, ["/usr/bin/python3", "-I", "-S", "-c", _PROGRAMS[kind]], folder, folder
        )


def test_every_job_is_accounted_for_once_though_the_controller_is_killed(
    kubernetes: Kubernetes, tmp_path: Path
) -> None:
    site = {"type": "kubernetes", **kubernetes.site(tmp_path)}
    search = Search(tmp_path / "project", 50, json.dumps(site), "/usr/bin/python3", limit=5)
    survive(search, lambda job: kubernetes.say("delete", "pod", "-l", f"operant-job={job}", "--wait=false"))
    search.wait_until("nothing is left", lambda: not kubernetes.say("get", "jobs,pods", "--no-headers").strip())


def test_the_example_makes_the_same_proposals_here_and_there(kubernetes: Kubernetes, tmp_path: Path) -> None:
    site = {"type": "kubernetes", **kubernetes.site(tmp_path)}
    same_proposals_here_and_at(site, tmp_path / "project", "/usr/bin/python3")


def test_an_api_server_that_is_away_for_20_seconds_loses_nothing(kubernetes: Kubernetes, tmp_path: Path) -> None:
    site = {"type": "kubernetes", **kubernetes.site(tmp_path)}
    search = Search(tmp_path / "project", 12, json.dumps(site), "/usr/bin/python3", limit=600, parallel=4)
    program = "import sys, time\ntime.sleep(2)\nopen('result.json', 'w').write('{\"acc\": %s}' % sys.argv[1])\n"
    (search.folder / "job.py").write_text(program)
    process = search.start("search", "search.yaml", "--task", "try")
    search.wait_until("some have ended", lambda: any(one["status"] == "FINISHED" for one in search.jobs().values()))
    server = int((kubernetes.place / "apiserver.pid").read_text())
    os.kill(server, signal.SIGSTOP)
    time.sleep(20)
    os.kill(server, signal.SIGCONT)
    assert process.wait(patience(180)) == 0, search.printed()
    assert [job["reward"] for job in search.jobs().values()] == list(range(12))
    search.wait_until("nothing is left", lambda: not kubernetes.say("get", "jobs,pods", "--no-headers").strip())


def test_pods_that_do_not_see_the_folder(kubernetes: Kubernetes, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    settings = kubernetes.site(tmp_path)
    settings["volumes"] = settings["volumes"][1:]
    site = {"type": "kubernetes", **settings, "channel": "http", "address": "127.0.0.1"}
    search = Search(folder, 3, json.dumps(site), "/usr/bin/python3", limit=60)
    (folder / "job.py").write_text("import sys\nopen('result.json', 'w').write('{\"acc\": %s}' % sys.argv[1])\n")
    assert search.run("search", "search.yaml", "--task", "try") == 0, search.printed()
    assert [job["reward"] for job in search.jobs().values()] == [0, 1, 2]
    search.wait_until("nothing is left", lambda: "operant-" not in kubernetes.say("get", "secrets", "--no-headers"))


def test_a_search_in_a_pod_of_the_cluster_that_it_uses(kubernetes: Kubernetes, tmp_path: Path) -> None:
    """Its service account is all that it has: no kubeconfig."""
    site = {"type": "kubernetes", **kubernetes.site(tmp_path)}
    del site["kubeconfig"]
    search = Search(tmp_path / "project", 3, json.dumps(site), "/usr/bin/python3", limit=60)
    program = "import sys\nopen('result.json', 'w').write('{\"acc\": %s}' % sys.argv[1])\n"
    (search.folder / "job.py").write_text(program)
    kubernetes.say("create", "serviceaccount", "searcher")
    allowed = "--resource=jobs.batch,pods,pods/log,secrets,configmaps"
    kubernetes.say("create", "role", "searcher", "--verb=*", allowed)
    kubernetes.say("create", "rolebinding", "searcher", "--role=searcher", "--serviceaccount=default:searcher")
    read_only = ["/usr", "/etc", sys.base_prefix, str(Path(__file__).parents[2])]
    paths = {f"v{number}": path for number, path in enumerate([str(tmp_path), *read_only])}
    variables = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "16443", "HOME": str(tmp_path)}
    container = {
        "name": "search", "image": "operant.test/host:1", "imagePullPolicy": "Never", "workingDir": str(search.folder),
        "command": [sys.executable, "-m", "operant", "search", "search.yaml", "--task", "try"],
        "env": [{"name": name, "value": value} for name, value in variables.items()],
        "volumeMounts": [{"name": name, "mountPath": path, "readOnly": name != "v0"} for name, path in paths.items()],
    }  # fmt: skip
    spec = {
        "serviceAccountName": "searcher", "restartPolicy": "Never", "hostNetwork": True, "containers": [container],
        "volumes": [{"name": name, "hostPath": {"path": path}} for name, path in paths.items()],
    }  # fmt: skip
    kubernetes.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "searcher"}, "spec": spec})
    phase = lambda: kubernetes.say("get", "pod", "searcher", "-o", "jsonpath={.status.phase}")  # noqa: E731
    wait_until(lambda: phase() in ("Succeeded", "Failed"), "the end of the search", 180)
    assert phase() == "Succeeded", kubernetes.say("logs", "searcher")
    assert [(job["reward"], job["node"]) for job in search.jobs().values()] == [(x, "localhost") for x in range(3)]
    kubernetes.say("delete", "pod", "searcher")
    search.wait_until("nothing is left", lambda: not kubernetes.say("get", "jobs,pods", "--no-headers").strip())


def test_a_pod_over_its_memory_is_told_in_words(kubernetes: Kubernetes, tmp_path: Path) -> None:
    events: list[object] = []
    site = KubernetesSite(tmp_path, **kubernetes.site(tmp_path), memory="200MB")
    site.start(events.append)
    folder = tmp_path / "jobs" / "0"
    folder.mkdir(parents=True)
    argv = ["/usr/bin/python3", "-I", "-S", "-c", "x = bytearray(600 << 20); import time; time.sleep(60)"]
    site.submit([Submission("0/1/secret", "0", 1, argv, folder, folder)])
    deadline = time.monotonic() + patience(120)
    while not any(one.kind == "ended" for one in events):  # type: ignore[attr-defined]
        assert time.monotonic() < deadline, events
        time.sleep(0.1)
    site.close()
    assert events[-1].info["reason"] == "memory_limit", events  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", ["Job", "DIJob"])
def test_the_demo_of_di_toolkit(kubernetes: Kubernetes, tmp_path: Path, kind: str) -> None:
    config, manifest = files(tmp_path)
    assert config.read_text() == CONFIG
    job, config_map = yaml.safe_load_all(manifest.read_text())
    template = job["spec"]["tasks"][0]["template"]
    pod, container = template["spec"], template["spec"]["containers"][0]
    pod["hostNetwork"] = True
    container |= {"image": "operant.test/host:1", "imagePullPolicy": "Never", "resources": {}}
    container["command"][0] = "/usr/bin/python3"
    container["volumeMounts"] = [
        {"name": "config-py", "mountPath": "/etc/config"},
        {"name": "project", "mountPath": str(tmp_path)},
        {"name": "usr", "mountPath": "/usr", "readOnly": True},
    ]
    pod["volumes"] = [
        {"name": "config-py", "configMap": {"name": "config-py-"}},
        {"name": "project", "hostPath": {"path": str(tmp_path)}},
        {"name": "usr", "hostPath": {"path": "/usr"}},
    ]
    if kind == "Job":
        job |= {"apiVersion": "batch/v1", "kind": "Job", "spec": {"backoffLimit": 0, "template": template}}
    manifest.write_text(yaml.safe_dump_all([job, config_map]))
    with _Operator(kubernetes), run_scheduler_k8s(config, manifest, kubeconfig=kubernetes.kubeconfig) as scheduler:
        search = hpo(scheduler.get_hpo_callable()).grid(silent=True).max_steps(3).max_workers(3).max_retries(0)
        search = search.maximize(R["eval_value"]).spaces({"policy": {"discount_factor": uniform(0.95, 1)}}).ephemeral()
        found = search.run()
        assert found is not None and found[1] == {"eval_value": 0.975}
        assert scheduler.status()["task_abnormal"] == [2] and "task_success" in scheduler.status_table()
    deadline = time.monotonic() + patience(60)
    while kubernetes.say("get", f"{kind.lower()}s,configmaps", "-l", "operant-job", "--no-headers").strip():
        assert time.monotonic() < deadline, "an object or its ConfigMap is left"
        time.sleep(0.2)


_CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "dijobs.diengine.opendilab.org"},
    "spec": {
        "group": "diengine.opendilab.org",
        "scope": "Namespaced",
        "names": {"kind": "DIJob", "plural": "dijobs", "singular": "dijob"},
        "versions": [
            {
                "name": "v2alpha1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


class _Operator:
    """What DI-orchestrator does, as far as the demo needs it: a kind DIJob, a pod for each object, its phase."""

    def __init__(self, kubernetes: Kubernetes) -> None:
        self.kubernetes = kubernetes
        self.ends = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self.kubernetes.apply(_CRD)
        self.kubernetes.say("wait", "--for=condition=Established", "crd/dijobs.diengine.opendilab.org")
        self.thread.start()

    def __exit__(self, *_: object) -> None:
        self.ends.set()
        self.thread.join()

    def _run(self) -> None:
        phases: dict[str, str] = {}
        while not self.ends.wait(0.3):
            jobs = {one["metadata"]["name"]: one for one in self._list("dijobs")}
            pods = {one["metadata"]["name"]: one["status"].get("phase", "") for one in self._list("pods")}
            for name, job in jobs.items():
                phase = pods.get(f"{name}-serial-0")
                if phase is None and name not in phases:
                    phases[name] = ""
                    self._begin(name, job)
                elif phase and phases.get(name) != phase:
                    phases[name] = phase
                    told = json.dumps({"status": {"phase": phase}})
                    self.kubernetes.say("patch", "dijob", name, "--type=merge", "-p", told)

    def _begin(self, name: str, job: dict[str, object]) -> None:
        about: dict[str, str] = job["metadata"]  # type: ignore[assignment]
        template = job["spec"]["tasks"][0]["template"]  # type: ignore[index]
        owner = {"apiVersion": job["apiVersion"], "kind": "DIJob", "name": name, "uid": about["uid"]}
        metadata = {**template["metadata"], "name": f"{name}-serial-0", "ownerReferences": [owner]}
        self.kubernetes.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})

    def _list(self, kind: str) -> list[dict[str, dict[str, str]]]:
        found: list[dict[str, dict[str, str]]] = json.loads(self.kubernetes.say("get", kind, "-o", "json"))["items"]
        return found
