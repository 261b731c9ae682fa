"""The site kubernetes, whole searches and DI-toolkit's demo with real pods on a real cluster of one node."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from tests.hpo.test_kubernetes_tasks import CONFIG, files
from tests.machine import patience
from tests.system.kubernetes import Kubernetes, running_kubernetes

from operant.hpo import R, hpo, run_scheduler_k8s, uniform
from operant.schedulers.views.overview import describe
from operant.sites import Site, Submission
from operant.sites.kubernetes import KubernetesSite
from operant.testing import SiteContract

pytestmark = [pytest.mark.clusters, pytest.mark.long]

_PROGRAMS = {"good": "pass", "bad": "raise SystemExit(3)", "endless": "import time; time.sleep(600)"}
_PROGRAM = """
import os, sys, time
number = int(sys.argv[1])
with open(sys.argv[2], "a") as stream:
    stream.write(f"{number}\\n")
if number in (7, 8):
    raise SystemExit(3)
if number == 11 or (number == 12 and os.environ["OPERANT_ATTEMPT"] == "1"):
    time.sleep(600)
with open("result.json", "w") as stream:
    stream.write('{"acc": %d}' % number)
"""


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


class Search:
    """`search-run` in a folder of its own."""

    def __init__(self, folder: Path, kubernetes: Kubernetes) -> None:
        self.project = folder / "project"
        (self.project / ".operant").mkdir(parents=True)
        (self.project / "job.py").write_text(_PROGRAM)
        self.seen = folder / "seen"
        plan = {
            "site": {"type": "kubernetes", **kubernetes.site(folder)},
            "task": {
                "template": f"/usr/bin/python3 -I -S job.py {{x}} {self.seen}",
                "search_args": [{"name": "x", "type": "Int", "data": [0, 49]}],
            },
            "searcher": {"type": "GridSearcher", "reward_attribute": "acc"},
            "scheduler": {
                "parallel_size": 8, "grace_period": 1, "stop_criterion": {"time_limits_per_job": "20s"},
            },
        }  # fmt: skip
        (self.project / "search.yaml").write_text(yaml.safe_dump(plan))
        self.place = self.project / ".operant" / "searches" / "try"

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        with (self.project.parent / "out").open("ab") as out:
            argv = [sys.executable, "-m", "operant", *words, "--task", "try"]
            return subprocess.Popen(argv, cwd=self.project, stdout=out, stderr=out)

    def jobs(self) -> dict[str, dict[str, object]]:
        return {job["id"]: job for job in describe(self.place)["jobs"]}

    def counts(self) -> dict[int, int]:
        lines = self.seen.read_text().split() if self.seen.exists() else []
        return {int(one): lines.count(one) for one in set(lines)}

    def wait_until(self, what: str, done: Callable[[], object]) -> None:
        deadline = time.monotonic() + patience(120)
        while not self.place.exists() or not done():
            assert time.monotonic() < deadline, f"never: {what}\n{(self.project.parent / 'out').read_text()}"
            time.sleep(0.1)


def test_every_job_is_accounted_for_once_though_the_controller_is_killed(
    kubernetes: Kubernetes, tmp_path: Path
) -> None:
    search = Search(tmp_path, kubernetes)
    first = search.start("search", "search.yaml")
    search.wait_until("job 12 runs", lambda: search.counts().get(12) and search.jobs()["12"].get("site_id"))
    job = str(search.jobs()["12"]["site_id"])
    kubernetes.say("delete", "pod", "-l", f"operant-job={job}", "--wait=false", "--grace-period=1")
    search.wait_until("that is an error", lambda: search.jobs()["12"]["status"] == "ERROR")
    search.wait_until("more have begun", lambda: len(search.counts()) > 20)
    first.send_signal(signal.SIGKILL)
    first.wait()

    assert search.start("search", "search.yaml", "--resume").wait(patience(300)) == 0
    jobs = search.jobs()
    assert len(jobs) == 50
    assert {one for one, found in jobs.items() if found["status"] == "ERROR"} == {"7", "8"}
    assert {one for one, found in jobs.items() if found["status"] == "STOPPED"} == {"11"}
    assert all(found["reward"] == int(one) for one, found in jobs.items() if found["status"] == "FINISHED")
    counts = search.counts()
    assert sorted(counts) == list(range(50))
    assert {one for one, count in counts.items() if count > 1} <= {7, 8, 12}  # failed ones are run again by a resume
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
        self._apply(_CRD)
        self.kubernetes.say("wait", "--for=condition=Established", "crd/dijobs.diengine.opendilab.org")
        self.thread.start()

    def __exit__(self, *_: object) -> None:
        self.ends.set()
        self.thread.join()

    def _apply(self, manifest: object) -> None:
        path = self.kubernetes.place / f"apply-{os.urandom(4).hex()}.json"
        path.write_text(json.dumps(manifest))
        self.kubernetes.say("apply", "--validate=false", "-f", str(path))

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
        self._apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})

    def _list(self, kind: str) -> list[dict[str, dict[str, str]]]:
        found: list[dict[str, dict[str, str]]] = json.loads(self.kubernetes.say("get", kind, "-o", "json"))["items"]
        return found
