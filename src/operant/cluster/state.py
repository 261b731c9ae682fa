"""How a cluster stands, in words: its pods and why they wait, the operator, and waiting until all is ready."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from operant.cluster.applying import DEPLOYMENT, POD, RAY_CLUSTER, selector
from operant.cluster.spec import ClusterSpec
from operant.errors import OperantError
from operant.sites._kube import Cluster, Object, pod_state
from operant.sites.cluster_jobs import SiteAwayError, SiteRefusedError

_OPERATOR = "app.kubernetes.io/component=kuberay-operator"
_POLL_SECONDS = 1.0


class PodState(NamedTuple):
    name: str
    group: str
    state: str
    """`ready`, `starting`, `waiting`, `ending` or `failed`."""
    words: str
    node: str
    restarts: int
    hopeless: bool
    """Whether time will not mend it."""


class ClusterState(NamedTuple):
    pods: list[PodState]
    trouble: list[str]
    """What keeps pods from being made at all, such as a quota."""
    there: bool

    @property
    def ready(self) -> dict[str, int]:
        """Ready pods by group."""
        found: dict[str, int] = {}
        for one in self.pods:
            found[one.group] = found.get(one.group, 0) + (one.state == "ready")
        return found


class NotReadyError(OperantError):
    """A cluster that does not come up; why."""


def look(spec: ClusterSpec, cluster: Cluster) -> ClusterState:
    """How the cluster stands now."""
    pods = [_pod(one) for one in cluster.find(POD, selector(spec))]
    if spec.operator == "none":
        found = cluster.find(DEPLOYMENT, selector(spec))
        trouble = [word for one in found for word in _trouble(one)]
        return ClusterState(sorted(pods), trouble, bool(found))
    ray = cluster.get(RAY_CLUSTER, spec.name)
    status = (ray or {}).get("status") or {}
    words = [str(status["reason"])] if status.get("reason") else []
    words += [
        f"{one.get('reason')}: {one.get('message')}"
        for one in status.get("conditions") or ()
        if one.get("type") == "ReplicaFailure" and one.get("status") == "True"
    ]
    return ClusterState(sorted(pods), words, ray is not None)


def wait_ready(
    spec: ClusterSpec,
    cluster: Cluster,
    timeout: float,
    said: Callable[[str], None],
    *,
    pull_wait: float = 120.0,
) -> ClusterState:
    """Return when the head and all workers are ready. Why one is not is said once for each reason; what time does not
    mend, an image that cannot be pulled for two minutes, or the end of the time, is an error with the reason."""
    began, told, pulling = time.monotonic(), set[str](), dict[str, float]()
    wanted = {"headgroup": 1, **{group.name: group.replicas for group in spec.workers}}
    why = "its pods have not been made"
    while True:
        now = time.monotonic()
        try:
            state = look(spec, cluster)
        except SiteAwayError as error:
            state, why = ClusterState([], [], True), str(error)
        ready = state.ready
        if state.pods and all(ready.get(name, 0) >= count for name, count in wanted.items()):
            return state
        for line in _reasons(state):
            why = line
            if line not in told:
                told.add(line)
                said(line)
        for one in state.pods:
            if one.state != "failed" and not one.hopeless:
                pulling.pop(one.name, None)
            elif one.hopeless or now - pulling.setdefault(one.name, now) > pull_wait:
                lines = cluster.log(one.name).strip().splitlines()
                log = f"; its log says: {lines[-1][:300]}" if lines else ""
                raise NotReadyError(f"{spec.name} does not come up: {one.name}: {one.words}{log}")
        if now - began > timeout:
            raise NotReadyError(f"{spec.name} is not ready after {timeout:g} s: {why}")
        time.sleep(_POLL_SECONDS)


def operator_state(cluster: Cluster) -> tuple[bool, str]:
    """Whether KubeRay's operator runs, where, and how ready it is."""
    known = _knows_rayclusters(cluster)
    place = "in any namespace"
    try:
        found = cluster.find(DEPLOYMENT, _OPERATOR, everywhere=True)
        pods = cluster.find(POD, _OPERATOR, everywhere=True)
    except SiteRefusedError:  # not everybody may look into other namespaces
        place = f"in the namespace {cluster.namespace}, and you may not look into others"
        try:
            found, pods = cluster.find(DEPLOYMENT, _OPERATOR), cluster.find(POD, _OPERATOR)
        except SiteRefusedError as error:
            return False, f"nobody can tell: {error}"
    if found:
        one = found[0]
        status = one.get("status") or {}
        ready, wanted = status.get("readyReplicas", 0), one["spec"].get("replicas", 1)
        where = f"in {one['metadata']['namespace']} ({one['metadata']['name']}): {ready} of {wanted} pods ready"
        return ready > 0, where
    if pods:
        state = _pod(pods[0])
        return state.state == "ready", f"in {pods[0]['metadata']['namespace']} ({state.name}): {state.state}"
    kinds = "RayClusters are known, but " if known else "RayClusters are not known, and "
    return False, f"{kinds}no KubeRay operator runs {place}"


def _knows_rayclusters(cluster: Cluster) -> bool:
    try:
        kinds = cluster.request("GET", "/apis/ray.io/v1")
    except SiteRefusedError:
        return False
    return any(one.get("name") == "rayclusters" for one in kinds.get("resources") or ())


def _reasons(state: ClusterState) -> Iterable[str]:
    yield from state.trouble
    for one in state.pods:
        if one.state in ("waiting", "failed") and one.words:
            yield f"{one.name}: {one.words}"


def _pod(found: Object) -> PodState:
    about, status = found["metadata"], found.get("status") or {}
    word, words, reason = pod_state(found)
    containers = status.get("containerStatuses") or ()
    ready = bool(containers) and all(one.get("ready") for one in containers)
    waits = [(one.get("state") or {}).get("waiting") or {} for one in containers]
    if "deletionTimestamp" in about:
        state = "ending"
    elif word == "ended" or reason == "cannot_pull":
        state = "failed"
    elif any(one.get("reason") == "CrashLoopBackOff" for one in waits):
        state, words = "failed", _last_end(containers)
    else:
        state = "ready" if ready else "starting" if word == "running" else "waiting"
    labels, node = about.get("labels") or {}, str((found.get("spec") or {}).get("nodeName") or "")
    restarts = sum(int(one.get("restartCount") or 0) for one in containers)
    hopeless = reason == "cannot_start"
    return PodState(about["name"], labels.get("ray.io/group", ""), state, words, node, restarts, hopeless)


def _last_end(containers: Iterable[Object]) -> str:
    for one in containers:
        over = (one.get("lastState") or {}).get("terminated")
        if over:
            said = over.get("message") or over.get("reason") or ""
            return f"{one['name']} ends again and again, with exit code {over.get('exitCode')} {said}".strip()
    return "its container ends again and again"


def _trouble(deployment: Object) -> Iterable[str]:
    for one in (deployment.get("status") or {}).get("conditions") or ():
        if one.get("type") == "ReplicaFailure" and one.get("status") == "True":
            yield f"{deployment['metadata']['name']}: {one.get('message') or one.get('reason')}"
