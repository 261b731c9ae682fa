"""`operant cluster` against a real API server and its controllers; pods are processes that only say they are Ray."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cluster.test_manifests import EXAMPLES, SCHEMAS
from tests.machine import wait_until
from tests.system.fake_node import FakeNode
from tests.system.kubernetes import Kubernetes, running_kubernetes

from operant.cli import main
from operant.cluster import load_cluster, render_rayjob
from operant.cluster.applying import connect
from operant.cluster.schema import check_against_server
from operant.errors import ConfigError

pytest.importorskip("kubernetes", reason="needs operant[k8s]")
pytestmark = [pytest.mark.clusters, pytest.mark.long]

_KINDS = "deployments,replicasets,pods,services,secrets,configmaps,networkpolicies"


@pytest.fixture(scope="module")
def kubernetes() -> Iterator[Kubernetes]:
    with running_kubernetes(api_only=True) as cluster, FakeNode(cluster):
        yield cluster


@pytest.fixture
def place(kubernetes: Kubernetes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a cluster.yaml whose `ray` only waits."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".operant").mkdir()
    ray = tmp_path / "ray"
    ray.write_text('#!/bin/sh\n[ "$1" = health-check ] && exit 0\nexec sleep 600\n')
    ray.chmod(0o755)
    describe(kubernetes, tmp_path)
    return tmp_path


def describe(kubernetes: Kubernetes, folder: Path, **changes: Any) -> None:
    content = {
        "name": "fire", "operator": "none", "image": "any:1", "kubeconfig": kubernetes.kubeconfig,
        "ray_command": str(folder / "ray"), "head": {"cpus": 0.1, "memory": "100MB"},
        "workers": [{"name": "small", "replicas": 1, "cpus": 0.1, "memory": "100MB"}],
    }  # fmt: skip
    (folder / "cluster.yaml").write_text(yaml.safe_dump({**content, **changes}))


def token_of(kubernetes: Kubernetes, account: str, seconds: int) -> str:
    """A token of a ServiceAccount, as the server itself would sign it, that runs out in so many seconds."""
    uid = kubernetes.say("get", "serviceaccount", account, "-o", "jsonpath={.metadata.uid}")
    claims = {
        "iss": "https://localhost:16443", "aud": ["https://localhost:16443"], "exp": int(time.time()) + seconds,
        "nbf": 0, "sub": f"system:serviceaccount:default:{account}",
        "kubernetes.io": {"namespace": "default", "serviceaccount": {"name": account, "uid": uid}},
    }  # fmt: skip
    parts = [base64.urlsafe_b64encode(json.dumps(one).encode()) for one in ({"alg": "RS256"}, claims)]
    signing = ["openssl", "dgst", "-sha256", "-sign", str(kubernetes.place / "pki" / "sa.key")]
    text = b".".join(one.rstrip(b"=") for one in parts)
    signed = subprocess.run(signing, input=text, capture_output=True, check=True).stdout
    return b".".join([text, base64.urlsafe_b64encode(signed).rstrip(b"=")]).decode()


def objects(kubernetes: Kubernetes) -> list[str]:
    found = kubernetes.say("get", _KINDS, "-o", "name").split()
    return sorted(one for one in found if "fire" in one)


def test_apply_changes_what_differs_and_delete_leaves_nothing(
    kubernetes: Kubernetes, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = kubernetes.say("get", _KINDS, "-A", "-o", "name")
    assert main(["cluster", "apply", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "fire in default: 5 to create" in said and "+kind: Deployment" in said and "(hidden)" in said
    assert not objects(kubernetes), "a dry run makes nothing"
    assert main(["cluster", "apply"]) == 0
    assert "fire is ready: 2 pods" in capsys.readouterr().out
    token = kubernetes.say("get", "secret", "fire", "-o", "jsonpath={.data.auth_token}")
    pods = ["get", "pods", "--selector=ray.io/node-type=head", "-o", "name"]
    assert len(kubernetes.say(*pods).split()) == 1, "as the document finds it"

    assert main(["cluster", "apply"]) == 0
    assert "fire in default: nothing to change" in capsys.readouterr().out
    assert kubernetes.say("get", "secret", "fire", "-o", "jsonpath={.data.auth_token}") == token

    describe(kubernetes, place, env={"A": "1"}, workers=[])
    assert main(["cluster", "apply", "--no-wait"]) == 0
    said = capsys.readouterr().out
    assert "1 to change, 1 to remove" in said and re.search(r"^\+ +- name: A\n\+ +value: '1'$", said, re.MULTILINE), (
        said
    )
    describe(kubernetes, place)
    assert main(["cluster", "apply"]) == 0
    assert main(["cluster", "scale", "small=3"]) == 0
    listed = lambda: kubernetes.say("get", "pods", "-l", "ray.io/group=small", "-o", "name").split()  # noqa: E731
    wait_until(lambda: len(listed()) == 3, "three workers")
    assert main(["cluster", "scale", "smal=3"]) == 1 and "did you mean 'small'" in capsys.readouterr().err
    assert main(["cluster", "status", "fire"]) == 0, "found by its name, as applied from here"
    assert "small" in capsys.readouterr().out

    assert main(["cluster", "delete", "--yes"]) == 0
    assert "nothing of fire is left in default" in capsys.readouterr().out
    wait_until(lambda: kubernetes.say("get", _KINDS, "-A", "-o", "name") == before, "all as before")
    assert main(["cluster", "status"]) == 1 and "fire is not there" in capsys.readouterr().out


def test_why_it_does_not_come_up(kubernetes: Kubernetes, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "small"},
        "spec": {"hard": {"pods": "1"}},
    }
    kubernetes.apply(quota)
    try:
        assert main(["cluster", "apply", "--timeout", "8"]) == 1
        said = capsys.readouterr()
        assert "exceeded quota: small" in said.out + said.err and said.err.count("\n") == 1
    finally:
        kubernetes.say("delete", "resourcequota", "small")
    describe(kubernetes, place, head={"cpus": 1000, "memory": "100MB"})
    assert main(["cluster", "apply", "--timeout", "5"]) == 1
    assert "no node takes it: 0/1 nodes are available: 1 Insufficient cpu" in capsys.readouterr().err
    assert main(["cluster", "status"]) == 1 and "no node takes it" in capsys.readouterr().out
    assert main(["cluster", "delete", "--yes"]) == 0


def test_a_namespace_without_rights_and_a_token_that_has_run_out(
    kubernetes: Kubernetes, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kubernetes.say("create", "serviceaccount", "guest")
    config = yaml.safe_load(Path(kubernetes.kubeconfig).read_text())
    for seconds, told in ((600, 'User "system:serviceaccount:default:guest" cannot'), (-600, "Unauthorized")):
        config["users"][0]["user"] = {"token": token_of(kubernetes, "guest", seconds)}
        (place / "guest").write_text(yaml.safe_dump(config))
        describe(kubernetes, place, kubeconfig=str(place / "guest"))
        for verb in (["apply"], ["status"], ["delete", "--yes"], ["submit", "--", "true"]):
            assert main(["cluster", *verb[:1], *verb[1:]]) == 1, verb
            said = capsys.readouterr().err
            assert said.count("\n") == 1 and "the cluster refuses: " in said and told in said, said
    kubernetes.say("delete", "serviceaccount", "guest")
    assert not objects(kubernetes)


@pytest.mark.skipif(not SCHEMAS.is_dir(), reason="needs KubeRay's CRDs, in the folder of OPERANT_KUBERAY_SCHEMAS")
def test_rayclusters_where_the_server_knows_them(
    kubernetes: Kubernetes, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    describe(kubernetes, place, operator="kuberay", ray_command="ray")
    assert main(["cluster", "apply"]) == 1
    assert "does not know RayClusters: its admin installs KubeRay, or set `operator: none`" in capsys.readouterr().err
    for name in ("rayclusters", "rayjobs"):
        kubernetes.say("create", "--validate=false", "-f", str(SCHEMAS / f"ray.io_{name}.yaml"))
    try:
        cluster = connect(load_cluster("cluster.yaml"))
        known = lambda: json.dumps(cluster.request("GET", "/openapi/v2"))  # noqa: E731
        wait_until(lambda: all(f'"kind": "{kind}"' in known() for kind in ("RayCluster", "RayJob")), "the schemas", 60)
        for name in ("minimal", "grafana"):
            text = (EXAMPLES / "ray" / f"raycluster-{name}.yaml").read_text()
            for one in yaml.safe_load_all(text):
                assert check_against_server(cluster, [one]) == []
                cluster.put(one, dry_run=True)
        spec = load_cluster(EXAMPLES / "gpu.yaml")
        job = render_rayjob(spec, "job", ["python", "x.py"])
        assert check_against_server(cluster, [job]) == []
        cluster.put(job, dry_run=True)
        job["spec"]["entrypiont"] = "x"
        with pytest.raises(ConfigError, match="did you mean 'entrypoint'"):
            check_against_server(cluster, [job])
        assert main(["cluster", "apply", "--no-wait"]) == 0
        assert "no KubeRay operator runs" in capsys.readouterr().err
        assert main(["cluster", "apply", "--no-wait"]) == 0
        assert "nothing to change" in capsys.readouterr().out
        assert main(["cluster", "scale", "small=2"]) == 0
        replicas = "jsonpath={.spec.workerGroupSpecs[0].replicas}"
        assert kubernetes.say("get", "raycluster", "fire", "-o", replicas) == "2"
        assert main(["cluster", "status"]) == 1
        assert (
            "KubeRay's operator does not run: RayClusters are known, but no KubeRay operator" in capsys.readouterr().out
        )
        assert main(["cluster", "delete", "--yes"]) == 0
        assert kubernetes.say("get", "rayclusters", "-o", "name") == ""
        # The operator, as far as `status` looks for it.
        about = {"name": "kuberay-operator", "labels": {"app.kubernetes.io/component": "kuberay-operator"}}
        container = {"name": "operator", "image": "any:1", "command": ["sleep", "600"]}
        template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}
        spec_of = {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template}
        kubernetes.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": about, "spec": spec_of})
        ready = ["get", "deployment", "kuberay-operator", "-o", "jsonpath={.status.readyReplicas}"]
        wait_until(lambda: kubernetes.say(*ready) == "1", "the operator", 60)
        assert main(["cluster", "status"]) == 1
        assert "operator runs: in default (kuberay-operator): 1 of 1 pods ready" in capsys.readouterr().out
        kubernetes.say("delete", "deployment", "kuberay-operator")
    finally:
        kubernetes.say("delete", "crd", "rayclusters.ray.io", "rayjobs.ray.io")


def test_the_manifests_of_the_page_are_taken(kubernetes: Kubernetes, place: Path) -> None:
    """`kubectl apply -k deploy/serve`, by the server's dry run."""
    import shutil

    copy = shutil.copytree(Path(__file__).parents[2] / "deploy" / "serve", place / "serve")
    (copy / "token").write_text("0" * 64)
    said = kubernetes.say("apply", "--dry-run=server", "-k", str(copy))
    assert {line.partition(" ")[0] for line in said.splitlines()} == {
        "secret/operant-token", "service/operant", "deployment.apps/operant", "persistentvolumeclaim/operant-runs",
        "networkpolicy.networking.k8s.io/operant",
    }  # fmt: skip
