"""From a small YAML to manifests: what they say, what is refused, and the examples as `kubectl apply` takes them."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from operant.cli import main
from operant.cluster import load_cluster, render, render_rayjob
from operant.cluster.schema import check
from operant.errors import ConfigError, UsageError
from operant.sites.kubernetes import pod_templates

EXAMPLES = Path(__file__).parents[2] / "examples" / "k8s"
# A folder with KubeRay's schemas (raycluster_v1.schema.json, rayjob_v1.schema.json), which are not ours to ship.
SCHEMAS = Path(os.environ.get("OPERANT_KUBERAY_SCHEMAS", "/nowhere"))


def described(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "cluster.yaml"
    path.write_text(f"name: fire\nimage: lab:1\n{text}")
    return path


def objects(tmp_path: Path, text: str = "") -> dict[str, dict[str, Any]]:
    found = render(load_cluster(described(tmp_path, text)), "secret-token")
    return {f"{one['kind']} {one['metadata']['name']}": one for one in found}


def test_a_raycluster(tmp_path: Path) -> None:
    text = """
namespace: lab
ray_version: 2.60.0
head: {cpus: 2, memory: 8GB, object_store: 2GB, env: {A: 1}}
workers:
  - {name: gpu, replicas: 1, min: 0, max: 3, cpus: 8, memory: 40GB, gpus: 1,
     tolerations: [{key: gpu, operator: Exists}]}
autoscaling: true
volumes: [{path: /runs, claim: lab-runs}]
metrics: {prometheus: "http://p:9090", grafana: "http://g:3000"}
"""
    found = objects(tmp_path, text)
    ray = found["RayCluster fire"]
    assert ray["apiVersion"] == "ray.io/v1" and ray["metadata"]["namespace"] == "lab"
    spec = ray["spec"]
    assert spec["authOptions"] == {"mode": "token"} and spec["rayVersion"] == "2.60.0"
    head, (gpu,) = spec["headGroupSpec"], spec["workerGroupSpecs"]
    assert (gpu["groupName"], gpu["replicas"], gpu["minReplicas"], gpu["maxReplicas"]) == ("gpu", 1, 0, 3)
    assert head["rayStartParams"]["num-cpus"] == "0" and gpu["rayStartParams"]["num-cpus"] == "8"
    assert all(isinstance(value, str) for value in {**head["rayStartParams"], **gpu["rayStartParams"]}.values())
    container = gpu["template"]["spec"]["containers"][0]
    limits = {"cpu": "8", "memory": "40Gi", "nvidia.com/gpu": "1"}
    assert container["resources"] == {"requests": limits, "limits": limits}
    assert gpu["template"]["spec"]["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
    shm, runs = gpu["template"]["spec"]["volumes"]
    assert shm["emptyDir"] == {"medium": "Memory", "sizeLimit": "12Gi"}
    assert runs["persistentVolumeClaim"] == {"claimName": "lab-runs"}
    env = {one["name"]: one["value"] for one in head["template"]["spec"]["containers"][0]["env"]}
    assert env["RAY_PROMETHEUS_HOST"] == "http://p:9090" and env["RAY_GRAFANA_IFRAME_HOST"] == "http://g:3000"
    assert env["A"] == "1" and "RAY_AUTH_TOKEN" not in env, "the operator gives it"
    assert "secret-token" not in json.dumps(found)


def test_plain_manifests_have_what_the_operator_would_give(tmp_path: Path) -> None:
    found = objects(tmp_path, "operator: none\nworkers: [{name: small, replicas: 2}]\n")
    assert set(found) == {
        "Secret fire", "Service fire-head-svc", "NetworkPolicy fire", "Deployment fire-head", "Deployment fire-small",
    }  # fmt: skip
    assert found["Secret fire"]["stringData"] == {"auth_token": "secret-token"}
    assert json.dumps(list(found.values())).count("secret-token") == 1, "the token stands in the Secret alone"
    head, small = found["Deployment fire-head"], found["Deployment fire-small"]
    assert head["spec"]["replicas"] == 1 and head["spec"]["strategy"] == {"type": "Recreate"}
    labels = head["spec"]["template"]["metadata"]["labels"]
    assert labels["ray.io/node-type"] == "head" and labels["ray.io/cluster"] == "fire"
    selected = found["Service fire-head-svc"]["spec"]["selector"]
    assert selected.items() <= labels.items() and small["spec"]["selector"]["matchLabels"]["ray.io/group"] == "small"
    container = head["spec"]["template"]["spec"]["containers"][0]
    env = {one["name"]: one for one in container["env"]}
    assert env["RAY_AUTH_MODE"]["value"] == "token"
    assert env["RAY_AUTH_TOKEN"]["valueFrom"]["secretKeyRef"] == {"name": "fire", "key": "auth_token"}
    assert container["command"][:2] == ["ray", "start"] and "--dashboard-host=127.0.0.1" in container["command"]
    wait, exec_ = small["spec"]["template"]["spec"]["containers"][0]["command"][2].split("; exec ")
    assert "health-check --address fire-head-svc:6379" in wait and "--address=fire-head-svc:6379" in exec_
    assert container["readinessProbe"]["httpGet"] == {"path": "/api/local_raylet_healthz", "port": 52365}


def test_whoever_may_reach_ray(tmp_path: Path) -> None:
    policy = objects(tmp_path, "workers: [{name: small}]\n")["NetworkPolicy fire"]["spec"]
    own, metrics = policy["ingress"]
    assert own["from"][0] == {"podSelector": {"matchLabels": {"ray.io/cluster": "fire"}}} and "ports" not in own
    assert metrics == {"ports": [{"protocol": "TCP", "port": 8080}]}, "nothing else is for others"
    for pod in pod_templates(render(load_cluster(described(tmp_path, "")), "x")):
        assert pod["spec"]["automountServiceAccountToken"] is False


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("wrokers: []\n", "there is no setting 'wrokers' (did you mean 'workers'?)"),
        ("head: {cpu: 1}\n", "'head.cpu' (did you mean 'cpus'?)"),
        (
            "workers: [{name: a, ray_start: {num_cpus: 1}}]\n",
            "workers[0].ray_start: `ray start` has no option 'num_cpus'",
        ),
        ("workers: [{name: a}, {name: a}]\n", "workers[1].name: a group has a name of its own"),
        ("workers: [{name: a, replicas: 3, max: 2}]\n", "min 3 ≤ replicas 3 ≤ max 2 does not hold"),
        ("workers: [{name: a, tolerations: [{kay: gpu}]}]\n", "workers[0].tolerations[0]: unknown key 'kay'"),
        ("head: {memory: much}\n", "head.memory: a size is"),
        ("head: {object_store: 9GB}\n", "head.object_store: the object store is a part of the pod's memory, 4GB"),
        ("operator: nobody\n", "operator: unknown operator 'nobody'"),
        ("operator: none\nautoscaling: true\n", "autoscaling: KubeRay's operator does that"),
        ("env: {A: [1]}\n", "env.A: a variable is a text or a number"),
        ("volumes: [runs]\n", "a volume has the `path`"),
        ("kind: RayCluster\napiVersion: ray.io/v1\n", "is a manifest of Kubernetes' (RayCluster)"),
    ],
)
def test_mistakes_are_told_before_anything_is_sent(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        render(load_cluster(described(tmp_path, text)), "x")
    assert told in str(caught.value)


def test_a_cluster_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"which cluster\? There is no cluster\.yaml here"):
        load_cluster()
    with pytest.raises(UsageError, match=r"there is no cluster 'valley' here: looked for valley\.yaml"):
        load_cluster("valley")
    place = tmp_path / "conf" / "cluster" / "valley.yaml"
    place.parent.mkdir(parents=True)
    place.write_text("name: valley\nimage: lab:1\n")
    assert load_cluster("valley").name == "valley"


@pytest.mark.parametrize("operator", ["kuberay", "none"])
def test_init_writes_what_render_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], operator: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["cluster", "init", "fire.yaml", "--operator", operator]) == 0
    assert main(["cluster", "init", "fire.yaml"]) == 1 and "exists already" in capsys.readouterr().err
    assert main(["cluster", "render", "fire"]) == 0
    printed = capsys.readouterr().out
    kinds = [one["kind"] for one in yaml.safe_load_all(printed)]
    assert ("RayCluster" in kinds) == (operator == "kuberay") and ("Secret" in kinds) == (operator == "none")
    # Every setting that stands there as a comment is one that there is.
    lines = [
        re.sub(r"^( *)# (?=[ -]*\w+:|  - \{)", r"\1", line) for line in Path("fire.yaml").read_text().splitlines()[1:]
    ]
    Path("all.yaml").write_text("\n".join(lines))
    spec = load_cluster("all.yaml")
    assert spec.workers[0].gpus == 1 and spec.metrics.pod_monitor and len(spec.volumes) == 2


def test_the_shipped_manifests_are_what_the_examples_say(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("minimal", "grafana", "gpu"):
        assert main(["cluster", "render", str(EXAMPLES / f"{name}.yaml")]) == 0
        shipped = (EXAMPLES / "ray" / f"raycluster-{name}.yaml").read_text()
        assert capsys.readouterr().out == shipped, f"operant cluster render examples/k8s/{name}.yaml makes it anew"
    assert main(["cluster", "render", str(EXAMPLES / "plain.yaml")]) == 0


def test_a_rayjob(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = described(tmp_path, "workers: [{name: small}]\n")
    words = ["cluster", "submit", "-c", str(path), "--as-rayjob", "--cpus", "2", "--env", "A=1", "--name", "nightly"]
    assert main([*words, "--", "python", "train.py", "a b"]) == 0
    said = capsys.readouterr()
    job = yaml.safe_load(said.out)
    assert job["kind"] == "RayJob" and job["metadata"]["name"] == "nightly"
    assert job["spec"]["entrypoint"] == "python train.py 'a b'" and job["spec"]["entrypointNumCpus"] == 2
    assert yaml.safe_load(job["spec"]["runtimeEnvYAML"]) == {"env_vars": {"A": "1"}}
    assert job["spec"]["shutdownAfterJobFinishes"] and job["spec"]["rayClusterSpec"]["authOptions"] == {"mode": "token"}
    assert "takes no files from here" in said.err


@pytest.mark.skipif(not SCHEMAS.is_dir(), reason="needs KubeRay's schemas, in the folder of OPERANT_KUBERAY_SCHEMAS")
def test_rayclusters_and_rayjobs_are_what_kuberay_takes(tmp_path: Path) -> None:
    ray = json.loads((SCHEMAS / "raycluster_v1.schema.json").read_text())
    job = json.loads((SCHEMAS / "rayjob_v1.schema.json").read_text())
    for name in ("minimal", "grafana", "gpu"):
        (cluster,) = (one for one in yaml.safe_load_all((EXAMPLES / "ray" / f"raycluster-{name}.yaml").read_text())
                      if one["kind"] == "RayCluster")  # fmt: skip
        check(cluster, ray)
        spec = load_cluster(EXAMPLES / f"{name}.yaml")
        check(render_rayjob(spec, "job", ["python", "x.py"], resources={"entrypointNumCpus": 1.5}), job)
        check(render_rayjob(spec, "job", ["python", "x.py"], on_running=True), job)
    cluster["spec"]["workerGroupSpecs"][0]["replica"] = 1
    with pytest.raises(
        ConfigError, match=r"workerGroupSpecs\[0\]\.replica: unknown key 'replica'; did you mean 'replicas'"
    ):
        check(cluster, ray)


def test_a_schema_tells_types_and_what_is_missing() -> None:
    schema = {
        "type": "object",
        "required": ["spec"],
        "properties": {
            "kind": {"type": "string"},
            "spec": {"$ref": "#/definitions/Spec"},
            "free": {"type": "object"},
        },
    }
    properties = {
        "count": {"type": "integer"},
        "port": {"format": "int-or-string", "type": "string"},
        "mode": {"type": "string", "enum": ["a", "b"]},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "rows": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "number"}}}},
    }
    definitions = {"Spec": {"type": "object", "properties": properties}}
    good = {"count": 1, "port": 80, "mode": "a", "labels": {"any": "one"}, "rows": [{"x": 1}]}
    check({"kind": "A", "spec": good, "free": {"x": 1}}, schema, definitions)
    bad: list[tuple[dict[str, Any], str]] = [
        ({"count": "1"}, r"spec\.count: this is of type integer"),
        ({"count": True}, r"spec\.count: this is of type integer"),
        ({"mode": "c"}, r"spec\.mode: unknown value 'c'"),
        ({"labels": {"a": 1}}, r"spec\.labels\.a: this is of type string"),
        ({"rows": [{"y": 1}]}, r"spec\.rows\[0\]\.y: unknown key 'y'"),
    ]
    for spec, told in bad:
        with pytest.raises(ConfigError, match=told):
            check({"kind": "A", "spec": spec}, schema, definitions)
    with pytest.raises(ConfigError, match="`spec` is missing"):
        check({"kind": "A"}, schema, definitions)
