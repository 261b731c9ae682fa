"""Making a cluster what its description says: a diff by the API server's own dry run, then only what differs."""

from __future__ import annotations

import copy
import difflib
import secrets
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from operant._util.files import write_file
from operant._util.plain_yaml import yaml_text
from operant.cluster.manifests import RAY, deployment_name, render
from operant.cluster.pods import TOKEN_KEY
from operant.cluster.schema import check_against_server
from operant.cluster.spec import ClusterSpec, applied_file
from operant.errors import ConfigError, UsageError, unknown
from operant.settings import to_mapping
from operant.sites._kube import AlreadyThere, Cluster, Object
from operant.sites.cluster_jobs import SiteAwayError

DEPLOYMENT: Object = {"apiVersion": "apps/v1", "kind": "Deployment"}
RAY_CLUSTER: Object = {"apiVersion": RAY, "kind": "RayCluster"}
SECRET: Object = {"apiVersion": "v1", "kind": "Secret"}
POD: Object = {"apiVersion": "v1", "kind": "Pod"}
KINDS: tuple[Object, ...] = (
    {"apiVersion": RAY, "kind": "RayJob"},
    RAY_CLUSTER,
    DEPLOYMENT,
    {"apiVersion": "v1", "kind": "Service"},
    {"apiVersion": "v1", "kind": "ConfigMap"},
    SECRET,
    {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy"},
    {"apiVersion": "monitoring.coreos.com/v1", "kind": "PodMonitor"},
)
"""Whatever a cluster may have of us, in the order in which it goes."""
_OF_THE_SERVER = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink")
_TRIES = 5


class Change(NamedTuple):
    """One object that is to become another."""

    verb: str
    """`create`, `change` or `remove`."""
    manifest: Object
    diff: str


def connect(spec: ClusterSpec) -> Cluster:
    return Cluster(spec.kubeconfig, spec.context, spec.namespace)


def selector(spec: ClusterSpec) -> str:
    return f"ray.io/cluster={spec.name}"


def plan_changes(spec: ClusterSpec, cluster: Cluster) -> list[Change]:
    """What `apply` would do. Nothing is sent but dry runs, and nothing that the server's schema does not know."""
    objects = render(spec, read_token(spec, cluster) or secrets.token_urlsafe(32))
    missing = check_against_server(cluster, objects)
    if "RayCluster" in missing:
        raise ConfigError(
            "the cluster does not know RayClusters: its admin installs KubeRay, or set `operator: none`", ("operator",)
        )
    if missing:
        raise ConfigError(f"the cluster knows no {missing[0]}; leave it out, or its admin installs it", ("metrics",))
    found = [change for one in objects if (change := _change(cluster, one)) is not None]
    wanted = {(one["kind"], one["metadata"]["name"]) for one in objects}
    for kind in KINDS[1:]:
        for one in cluster.find(kind, f"{selector(spec)},app.kubernetes.io/managed-by=operant"):
            if (one["kind"], one["metadata"]["name"]) not in wanted and not one["metadata"].get("ownerReferences"):
                found.append(Change("remove", one, _diff(_shown(one), None, one)))
    return found


def apply_changes(spec: ClusterSpec, cluster: Cluster, changes: list[Change]) -> None:
    """Do what `plan_changes` said, and remember the cluster under its name in this folder."""
    for change in changes:
        name = change.manifest["metadata"]["name"]
        if change.verb == "remove":
            cluster.delete(change.manifest, name)
            continue
        for left in reversed(range(_TRIES)):
            try:
                cluster.put(_merged(cluster.get(change.manifest, name), change.manifest))
                break
            except (SiteAwayError, AlreadyThere):  # somebody else, such as a controller, has changed it meanwhile
                if not left:
                    raise
                time.sleep(0.5)
    given = {key: value for key, value in to_mapping(spec).items() if value is not None}
    write_file(applied_file(spec.name), yaml_text({**given, "namespace": cluster.namespace}))


def delete_cluster(spec: ClusterSpec, cluster: Cluster) -> list[str]:
    """Delete all objects of a cluster; what they were called. Claims of volumes and what lies there stay."""
    gone = []
    for kind in KINDS:
        for one in cluster.find(kind, selector(spec)):
            name, about = one["metadata"]["name"], one["metadata"]
            ours = about["labels"].get("app.kubernetes.io/managed-by") == "operant"
            if ours and not about.get("ownerReferences"):
                cluster.delete(kind, name)
                gone.append(f"{kind['kind']} {name}")
    return gone


def wait_until_gone(spec: ClusterSpec, cluster: Cluster, timeout: float) -> None:
    """Return when no pod and no object of a cluster is left."""
    deadline = time.monotonic() + timeout
    while True:
        left = [
            f"{one['kind']} {one['metadata']['name']}"
            for kind in (*KINDS, POD)
            for one in cluster.find(kind, selector(spec))
        ]
        if not left:
            applied_file(spec.name).unlink(missing_ok=True)
            return
        if time.monotonic() > deadline:
            raise UsageError(f"after {timeout:g} s there are still {', '.join(left[:5])}")
        time.sleep(0.5)


def scale(spec: ClusterSpec, cluster: Cluster, wanted: Mapping[str, int]) -> None:
    """Set the number of pods of groups of workers."""
    groups = {group.name: group for group in spec.workers}
    for name, count in wanted.items():
        if name not in groups:
            raise UsageError(unknown("group of workers", name, groups))
        if count < 0:
            raise UsageError(f"a group has 0 pods or more, not {count}")
    if spec.operator == "none":
        for name, count in wanted.items():
            found = cluster.get(DEPLOYMENT, deployment_name(spec, groups[name]))
            if found is None:
                raise UsageError(f"the cluster {spec.name} is not there; `operant cluster apply` makes it")
            found["spec"]["replicas"] = count
            cluster.put(found)
        return
    found = cluster.get(RAY_CLUSTER, spec.name)
    if found is None:
        raise UsageError(f"the cluster {spec.name} is not there; `operant cluster apply` makes it")
    for group in found["spec"].get("workerGroupSpecs") or ():
        if group["groupName"] in wanted:
            group["replicas"] = wanted[group["groupName"]]
            group["minReplicas"] = min(group["minReplicas"], group["replicas"])
            group["maxReplicas"] = max(group["maxReplicas"], group["replicas"])
    cluster.put(found)


def read_token(spec: ClusterSpec, cluster: Cluster) -> str | None:
    """Ray's token, out of the Secret that has the cluster's name."""
    import base64

    secret = cluster.get(SECRET, spec.name)
    data = (secret or {}).get("data") or {}
    return base64.b64decode(data[TOKEN_KEY]).decode() if TOKEN_KEY in data else None


def _change(cluster: Cluster, wanted: Object) -> Change | None:
    live = cluster.get(wanted, wanted["metadata"]["name"])
    after = cluster.put(_merged(live, wanted), dry_run=True)
    before = None if live is None else _shown(live)
    if before == _shown(after):
        return None
    return Change("create" if live is None else "change", wanted, _diff(before, _shown(after), wanted))


def _merged(live: Object | None, wanted: Object) -> Object:
    """What is wanted in the place of what is there: what only the server decides, and labels of others, stay."""
    if live is None:
        return wanted
    made = copy.deepcopy(live)
    made.pop("status", None)
    about, given = made["metadata"], wanted["metadata"]
    for key in ("labels", "annotations"):
        if given.get(key):
            about[key] = {**(about.get(key) or {}), **given[key]}
    for key, value in wanted.items():
        if key not in ("metadata", "spec", "stringData"):
            made[key] = value
    if "stringData" in wanted:
        made["stringData"] = wanted["stringData"]
    if "spec" in wanted:
        made["spec"] = copy.deepcopy(wanted["spec"])
        if wanted["kind"] == "Service":  # what the server has given must be said again
            given_once = {key: live["spec"][key] for key in ("clusterIP", "clusterIPs") if key in live["spec"]}
            made["spec"] = {**given_once, **made["spec"]}
        if wanted["spec"].get("enableInTreeAutoscaling"):  # the number of pods is the autoscaler's then
            count = {one["groupName"]: one.get("replicas") for one in live["spec"].get("workerGroupSpecs") or ()}
            for group in made["spec"]["workerGroupSpecs"]:
                group["replicas"] = count.get(group["groupName"], group["replicas"])
    return made


def _shown(found: Object) -> Object:
    """An object without what the server adds to each, and without secrets."""
    about = {key: value for key, value in found["metadata"].items() if key not in _OF_THE_SERVER}
    about.get("annotations", {}).pop("deployment.kubernetes.io/revision", None)
    shown = {**found, "metadata": about}
    shown.pop("status", None)
    for key in ("data", "stringData"):
        if found.get("kind") == "Secret" and key in shown:
            shown[key] = dict.fromkeys(shown[key], "(hidden)")
    return shown


def _diff(before: Object | None, after: Object | None, named: Object) -> str:
    name = f"{named['kind']}/{named['metadata']['name']}"
    there, wanted = ([] if one is None else yaml_text(_ordered(one)).splitlines() for one in (before, after))
    lines = difflib.unified_diff(there, wanted, f"{name} (there)", f"{name} (wanted)", lineterm="")
    return "\n".join(lines)


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _ordered(value[key]) for key in sorted(value)}
    return [_ordered(one) for one in value] if isinstance(value, list) else value
