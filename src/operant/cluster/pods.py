"""Pods of a Ray cluster: what their containers run, see and listen to, the same with the operator and without."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from operant._util.units import parse_bytes
from operant.cluster.spec import ClusterSpec, Head, Pods, Workers, object_store
from operant.sites._kube import Object
from operant.sites.kubernetes import mount

GCS, DASHBOARD, CLIENT, AGENT = 6379, 8265, 10001, 52365
TOKEN_KEY = "auth_token"
"""The key of the Secret, which is named as the cluster is: KubeRay's own convention."""
MANAGED = {"app.kubernetes.io/managed-by": "operant"}
_FLAGS = ("block", "disable-usage-stats", "enable-object-reconstruction", "head", "no-monitor", "ray-debugger-external")


def labels(spec: ClusterSpec, group: Pods) -> dict[str, str]:
    """KubeRay's own, so that `kubectl get pods --selector=ray.io/node-type=head` finds them."""
    name = group.name if isinstance(group, Workers) else "headgroup"
    kind = "worker" if isinstance(group, Workers) else "head"
    return {
        "ray.io/cluster": spec.name,
        "ray.io/group": name,
        "ray.io/identifier": f"{spec.name}-{kind}",
        "ray.io/is-ray-node": "yes",
        "ray.io/node-type": kind,
    }


def start_params(spec: ClusterSpec, group: Pods) -> dict[str, str]:
    """Options of `ray start`."""
    head = isinstance(group, Head)
    num_cpus = (0 if head else group.cpus) if group.num_cpus is None else group.num_cpus
    found: dict[str, Any] = {
        "num-cpus": f"{int(num_cpus)}",
        "object-store-memory": object_store(group),
        "metrics-export-port": spec.metrics.port,
    }
    if not spec.host_network:
        # A raylet waits 15 s for ports that its agents choose themselves, which is short where CPUs are few
        # (github.com/ray-project/ray/issues/65983); for those that it knows it does not.
        found |= {"dashboard-agent-grpc-port": AGENT + 1, "runtime-env-agent-port": AGENT + 2}
    if head:
        # Without the operator nobody but the forward asks the dashboard, and that comes from inside the pod.
        found["dashboard-host"] = "0.0.0.0" if spec.operator == "kuberay" else "127.0.0.1"
    if group.gpus:
        found["num-gpus"] = group.gpus
    found |= group.ray_start
    return {str(key): str(value).lower() if isinstance(value, bool) else str(value) for key, value in found.items()}


def pod_template(spec: ClusterSpec, group: Pods) -> Object:
    """The pods of one group, as a template; for `operator: none` with their command and probes."""
    kind = "head" if isinstance(group, Head) else "worker"
    memory = parse_bytes(group.memory, ("memory",))
    resources: Object = {"cpu": f"{group.cpus:g}", "memory": quantity(memory)}
    if group.gpus:
        resources[group.gpu_resource] = str(group.gpus)
    container: Object = {
        "name": f"ray-{kind}",
        "image": group.image or spec.image,
        "resources": {"requests": dict(resources), "limits": dict(resources)},
        "env": _environment(spec, group),
        "ports": _ports(spec, group),
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "dshm", "mountPath": "/dev/shm"}],
    }
    if spec.pull_policy is not None:
        container["imagePullPolicy"] = spec.pull_policy
    size = quantity(object_store(group))
    pod: Object = {
        "containers": [container],
        # The 64 MB of a container's own /dev/shm would make Ray keep its objects on disk.
        "volumes": [{"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": size}}],
        "automountServiceAccountToken": spec.service_account is not None or spec.autoscaling,
    }
    given: Object = {
        "serviceAccountName": spec.service_account,
        "hostNetwork": spec.host_network or None,
        "imagePullSecrets": [{"name": name} for name in spec.pull_secrets] or None,
        "nodeSelector": {key: str(value) for key, value in group.node_selector.items()} or None,
        "tolerations": [dict(one) for one in group.tolerations] or None,
        "securityContext": None if spec.user is None else {"runAsUser": spec.user},
    }
    pod |= {key: value for key, value in given.items() if value is not None}
    mount(pod, [*spec.volumes, *group.volumes])
    if spec.operator == "kuberay":
        container["lifecycle"] = {"preStop": {"exec": {"command": [spec.ray_command, "stop"]}}}
    else:
        _run_alone(spec, group, pod, container)
    about: Object = {"labels": {**labels(spec, group), **MANAGED}}
    if spec.metrics.annotations:
        port = str(metrics_port(spec, group))
        about["annotations"] = {"prometheus.io/scrape": "true", "prometheus.io/port": port}
    return {"metadata": about, "spec": pod}


def metrics_port(spec: ClusterSpec, group: Pods) -> int:
    return int(start_params(spec, group)["metrics-export-port"])


def head_address(spec: ClusterSpec) -> str:
    """Where workers find the head: its Service."""
    return f"{spec.name}-head-svc:{spec.head.ray_start.get('port', GCS)}"


def quantity(size: int) -> str:
    """Bytes as Kubernetes writes them."""
    for unit, step in (("Gi", 1 << 30), ("Mi", 1 << 20)):
        if size % step == 0:
            return f"{size // step}{unit}"
    return str(size)


def _environment(spec: ClusterSpec, group: Pods) -> list[Object]:
    metrics, found = spec.metrics, {"RAY_USAGE_STATS_ENABLED": "0"}
    if isinstance(group, Head):
        told = {
            "RAY_PROMETHEUS_HOST": metrics.prometheus,
            "RAY_GRAFANA_HOST": metrics.grafana,
            "RAY_GRAFANA_IFRAME_HOST": metrics.grafana_iframe or metrics.grafana,
        }
        found |= {key: value for key, value in told.items() if value is not None}
    found |= {str(key): str(value) for key, value in {**spec.env, **group.env}.items()}
    variables: list[Object] = [{"name": name, "value": value} for name, value in found.items()]
    if spec.operator == "none":  # KubeRay does it for `authOptions`
        secret = {"secretKeyRef": {"name": spec.name, "key": TOKEN_KEY}}
        variables += [{"name": "RAY_AUTH_MODE", "value": "token"}, {"name": "RAY_AUTH_TOKEN", "valueFrom": secret}]
    return variables


def _ports(spec: ClusterSpec, group: Pods) -> list[Object]:
    metrics = {"name": "metrics", "containerPort": metrics_port(spec, group)}
    if not isinstance(group, Head):
        return [metrics]
    given = group.ray_start
    return [
        {"name": "gcs-server", "containerPort": int(given.get("port", GCS))},
        {"name": "dashboard", "containerPort": int(given.get("dashboard-port", DASHBOARD))},
        {"name": "client", "containerPort": int(given.get("ray-client-server-port", CLIENT))},
        metrics,
    ]


def _run_alone(spec: ClusterSpec, group: Pods, pod: Object, container: Object) -> None:
    params: Mapping[str, str] = start_params(spec, group)
    if isinstance(group, Head):
        params = {"head": "true", "port": str(GCS), **params}
        container["command"] = _start_words(spec, params)
    else:
        params = {"address": head_address(spec), **params}
        # An init container would not wait again when Ray in this one has ended with the head, and begins anew.
        ready = shlex.join([spec.ray_command, "health-check", "--address", params["address"]])
        wait = f"until {ready} >/dev/null 2>&1; do echo 'waiting for the head'; sleep 2; done"
        container["command"] = ["sh", "-c", f"{wait}; exec {shlex.join(_start_words(spec, params))}"]
    port = int(params.get("dashboard-agent-listen-port", AGENT))
    ask: Object = {"path": "/api/local_raylet_healthz", "port": port}
    if "node-ip-address" in params:
        ask["host"] = params["node-ip-address"]
    probe: Object = {"httpGet": ask, "periodSeconds": 5, "timeoutSeconds": 5}
    container["startupProbe"] = {**probe, "failureThreshold": 120}  # a worker may wait for the head, and Ray is slow
    container["readinessProbe"] = {**probe, "failureThreshold": 3}
    container["livenessProbe"] = {**probe, "failureThreshold": 12}
    pod["terminationGracePeriodSeconds"] = 30


def _start_words(spec: ClusterSpec, params: Mapping[str, str]) -> list[str]:
    words = [spec.ray_command, "start", "--block", "--disable-usage-stats"]
    for key, value in params.items():
        if key not in _FLAGS:
            words.append(f"--{key}={value}")
        elif value == "true" and key not in ("block", "disable-usage-stats"):
            words.append(f"--{key}")
    return words
