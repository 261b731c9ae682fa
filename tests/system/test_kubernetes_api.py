"""The site kubernetes against a real API server, its controllers and its scheduler, with a node that is a stand-in."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.machine import patience
from tests.system.cluster_search import Search
from tests.system.fake_node import FakeNode
from tests.system.kubernetes import Kubernetes, running_kubernetes

from operant.sites import Site, Submission
from operant.sites.kubernetes import KubernetesSite
from operant.testing import SiteContract

pytest.importorskip("kubernetes", reason="needs operant[k8s]")
pytestmark = [pytest.mark.clusters, pytest.mark.long]

_PROGRAMS = {"good": "pass", "bad": "raise SystemExit(3)", "endless": "import time; time.sleep(600)"}


@pytest.fixture(scope="module")
def kubernetes() -> Iterator[Kubernetes]:
    with running_kubernetes(api_only=True) as cluster, FakeNode(cluster):
        yield cluster


class TestKubernetesApi(SiteContract):
    patience = patience(60)

    @pytest.fixture(autouse=True)
    def cluster(self, kubernetes: Kubernetes) -> None:
        self.kubernetes = kubernetes

    def build(self, folder: Path) -> Site:
        settings = {"image": "any:1", "python": sys.executable, "kubeconfig": self.kubernetes.kubeconfig}
        return KubernetesSite(folder, **settings, volumes=[str(folder)], exit_wait=5, poll=0.2)

    def job(self, token: str, folder: Path, kind: str) -> Submission:
        return Submission(token, folder.name, 1, [sys.executable, "-I", "-S", "-c", _PROGRAMS[kind]], folder, folder)

    def test_a_search_leaves_no_object_and_no_secret(self, kubernetes: Kubernetes, tmp_path: Path) -> None:
        site = {"type": "kubernetes", "image": "any:1", "python": sys.executable, "kubeconfig": kubernetes.kubeconfig}
        site |= {"channel": "http", "address": "127.0.0.1"}
        search = Search(tmp_path / "project", 3, json.dumps(site), limit=60)
        program = "import sys\nopen('result.json', 'w').write('{\"acc\": %s}' % sys.argv[1])\n"
        (search.folder / "job.py").write_text(program)
        assert search.run("search", "search.yaml", "--task", "try") == 0, search.printed()
        assert [job["reward"] for job in search.jobs().values()] == [0, 1, 2]
        search.wait_until("no pod is left", lambda: not kubernetes.say("get", "jobs,pods", "--no-headers").strip())
        assert "operant-" not in kubernetes.say("get", "secrets", "--no-headers")
