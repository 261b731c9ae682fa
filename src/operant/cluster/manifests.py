"""From the description of a cluster to objects of Kubernetes': a RayCluster, or plain manifests without operator."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from operant._util.plain_yaml import yaml_text
from operant.cluster.pods import MANAGED, TOKEN_KEY, labels, metrics_port, pod_template, start_params
from operant.cluster.spec import ClusterSpec, Head, Pods, Workers, replica_range
from operant.sites._kube import Object

RAY = "ray.io/v1"


def render(spec: ClusterSpec, token: str) -> list[Object]:
    """All objects of a cluster, in the order in which they are made.

    :param token: what Ray asks everybody for; with KubeRay it is the operator that makes one.
    """
    found = [_secret(spec, token), _service(spec)] if spec.operator == "none" else []
    if spec.network_policy:
        found.append(_network_policy(spec))
    if spec.metrics.pod_monitor:
        found.append(_pod_monitor(spec))
    if spec.operator == "none":
        found += [_deployment(spec, group) for group in (spec.head, *spec.workers)]
    else:
        about = _about(spec, spec.name)
        found.append({"apiVersion": RAY, "kind": "RayCluster", "metadata": about, "spec": cluster_spec(spec)})
    return found


def render_rayjob(
    spec: ClusterSpec,
    name: str,
    command: Sequence[str],
    *,
    runtime_env: Mapping[str, Any] | None = None,
    resources: Mapping[str, Any] | None = None,
    on_running: bool = False,
) -> Object:
    """A RayJob: a cluster of its own that is gone after the job, or with ``on_running`` the one that is there.

    :param resources: `entrypointNumCpus`, `entrypointNumGpus` as KubeRay calls them.
    """
    job: Object = {"entrypoint": shlex.join(command), "submissionMode": "K8sJobMode", **(resources or {})}
    if runtime_env:
        job["runtimeEnvYAML"] = yaml_text(dict(runtime_env))
    if on_running:
        job["clusterSelector"] = {"ray.io/cluster": spec.name}
    else:
        job |= {"rayClusterSpec": cluster_spec(spec), "shutdownAfterJobFinishes": True, "ttlSecondsAfterFinished": 600}
    return {"apiVersion": RAY, "kind": "RayJob", "metadata": _about(spec, name), "spec": job}


def cluster_spec(spec: ClusterSpec) -> Object:
    """The `spec` of a RayCluster."""
    found: Object = {"authOptions": {"mode": "token"}}
    if spec.ray_version is not None:
        found["rayVersion"] = spec.ray_version
    if spec.autoscaling:
        options = {"idleTimeoutSeconds": spec.idle_timeout, "upscalingMode": "Default"}
        found |= {"enableInTreeAutoscaling": True, "autoscalerOptions": options}
    found["headGroupSpec"] = {"serviceType": spec.head.service, **_group(spec, spec.head)}
    found["workerGroupSpecs"] = [
        {
            "groupName": group.name,
            "replicas": group.replicas,
            "minReplicas": replica_range(group)[0],
            "maxReplicas": replica_range(group)[1],
            **_group(spec, group),
        }
        for group in spec.workers
    ]
    return found


def deployment_name(spec: ClusterSpec, group: Pods) -> str:
    return f"{spec.name}-{group.name if isinstance(group, Workers) else 'head'}"


def _group(spec: ClusterSpec, group: Pods) -> Object:
    return {"rayStartParams": start_params(spec, group), "template": pod_template(spec, group)}


def _about(spec: ClusterSpec, name: str) -> Object:
    about: Object = {"name": name, "labels": {"ray.io/cluster": spec.name, **MANAGED}}
    return {**about, "namespace": spec.namespace} if spec.namespace else about


def _secret(spec: ClusterSpec, token: str) -> Object:
    made = {"apiVersion": "v1", "kind": "Secret", "metadata": _about(spec, spec.name), "type": "Opaque"}
    return {**made, "stringData": {TOKEN_KEY: token}}


def _service(spec: ClusterSpec) -> Object:
    """The head by its name. Headless: Ray must know its pod's own address."""
    ports = pod_template(spec, spec.head)["spec"]["containers"][0]["ports"]
    found: Object = {
        "type": spec.head.service,
        "selector": {"ray.io/cluster": spec.name, "ray.io/node-type": "head"},
        "publishNotReadyAddresses": True,
        "ports": [
            {"name": one["name"], "port": one["containerPort"], "targetPort": one["containerPort"], "protocol": "TCP"}
            for one in ports
        ],
    }
    if spec.head.service == "ClusterIP":
        found["clusterIP"] = "None"
    return {"apiVersion": "v1", "kind": "Service", "metadata": _about(spec, f"{spec.name}-head-svc"), "spec": found}


def _deployment(spec: ClusterSpec, group: Pods) -> Object:
    made: Object = {
        "replicas": group.replicas if isinstance(group, Workers) else 1,
        # Two heads at a time would be two clusters.
        "strategy": {"type": "Recreate"} if isinstance(group, Head) else {"type": "RollingUpdate"},
        "selector": {"matchLabels": labels(spec, group)},
        "template": pod_template(spec, group),
    }
    about = _about(spec, deployment_name(spec, group))
    about["labels"] = {**labels(spec, group), **MANAGED}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": about, "spec": made}


def _network_policy(spec: ClusterSpec) -> Object:
    """Ray listens on all interfaces of a pod, and whoever reaches it with the token runs code: only its own pods do.

    A forward comes from the pod's own node and is not concerned.
    """
    own = {"podSelector": {"matchLabels": {"ray.io/cluster": spec.name}}}
    ports = sorted({metrics_port(spec, group) for group in (spec.head, *spec.workers)})
    rules: list[Object] = [{"from": [own]}, {"ports": [{"protocol": "TCP", "port": port} for port in ports]}]
    if spec.operator == "kuberay":
        operator = {"matchLabels": {"app.kubernetes.io/component": "kuberay-operator"}}
        rules[0]["from"].append({"namespaceSelector": {}, "podSelector": operator})
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _about(spec, spec.name),
        "spec": {"podSelector": own["podSelector"], "policyTypes": ["Ingress"], "ingress": rules},
    }


def _pod_monitor(spec: ClusterSpec) -> Object:
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": _about(spec, spec.name),
        "spec": {
            "selector": {"matchLabels": {"ray.io/cluster": spec.name}},
            "podMetricsEndpoints": [{"port": "metrics"}],
        },
    }
