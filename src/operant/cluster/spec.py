"""A Ray cluster as its user writes it: a small YAML, checked whole before anything is sent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from operant._util.checks import is_number
from operant._util.plain_yaml import read_yaml
from operant._util.units import parse_bytes
from operant.errors import ConfigError, OperantError, UsageError, nearest, unknown
from operant.settings import fill, setting
from operant.tracking.places import find_root

DEFAULT_FILE = "cluster.yaml"
OPERATORS = ("kuberay", "none")
_NAME = re.compile(r"[a-z](?:[-a-z0-9]{0,38}[a-z0-9])?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TOLERATION = ("key", "operator", "value", "effect", "tolerationSeconds")
# What `ray start` takes (2.60) and a pod may need.
RAY_START = frozenset(
    {
        "address",
        "block",
        "cgroup-path",
        "dashboard-agent-grpc-port",
        "dashboard-agent-listen-port",
        "dashboard-host",
        "dashboard-port",
        "disable-usage-stats",
        "enable-object-reconstruction",
        "enable-resource-isolation",
        "head",
        "include-dashboard",
        "labels",
        "max-worker-port",
        "memory",
        "metrics-export-port",
        "min-worker-port",
        "no-monitor",
        "node-ip-address",
        "node-manager-port",
        "node-name",
        "num-cpus",
        "num-gpus",
        "object-manager-port",
        "object-spilling-directory",
        "object-store-memory",
        "plasma-directory",
        "port",
        "ray-client-server-port",
        "ray-debugger-external",
        "redis-password",
        "redis-username",
        "resources",
        "runtime-env-agent-port",
        "system-reserved-cpu",
        "system-reserved-memory",
        "temp-dir",
        "tracing-startup-hook",
        "verbose",
        "worker-port-list",
    }
)


@dataclass(frozen=True, kw_only=True)
class Pods:
    """What pods of one kind have."""

    cpus: float = setting(1.0, "CPUs of each pod: what it asks for and what it gets")
    memory: str = setting("4GB", "memory of each pod; above it the pod is killed")
    gpus: int = setting(0, "GPUs of each pod")
    gpu_resource: str = setting("nvidia.com/gpu", "what the cluster calls a GPU, such as nvidia.com/mig-2g.10gb")
    object_store: str | None = setting(None, "shared memory for Ray's objects (default: 30 % of the pod's memory)")
    num_cpus: float | None = setting(None, "CPUs that Ray gives to tasks (default: those of the pod; head: 0)")
    image: str | None = setting(None, "another image than the cluster's")
    env: dict[str, Any] = setting({}, "variables of these pods, beside the cluster's")
    volumes: tuple[Any, ...] = setting((), "as the cluster's, for these pods alone")
    node_selector: dict[str, Any] = setting({}, "labels of the nodes that take these pods")
    tolerations: tuple[Any, ...] = setting((), "taints that these pods bear: {key, operator, value, effect}")
    ray_start: dict[str, Any] = setting({}, "further options of `ray start`, without the dashes")


@dataclass(frozen=True, kw_only=True)
class Head(Pods):
    """The pod with Ray's control: jobs begin there, and dashboards are reached through it."""

    service: str = setting("ClusterIP", "kind of its Service; anything but ClusterIP opens Ray to others")


@dataclass(frozen=True, kw_only=True)
class Workers(Pods):
    """One group of equal pods."""

    name: str = setting("workers", "of the group")
    replicas: int = setting(1, "pods of the group")
    min: int | None = setting(None, "with autoscaling: never fewer pods (default: replicas)")
    max: int | None = setting(None, "with autoscaling: never more pods (default: replicas)")


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """What Ray's dashboard is told of Prometheus and Grafana, and they of Ray."""

    port: int = setting(8080, "where each pod tells Ray's metrics")
    annotations: bool = setting(True, "mark pods by prometheus.io/scrape")
    pod_monitor: bool = setting(False, "a PodMonitor, where the Prometheus operator runs")
    prometheus: str | None = setting(None, "address of Prometheus, as Ray's dashboard reaches it")
    grafana: str | None = setting(None, "address of Grafana, as Ray's dashboard reaches it")
    grafana_iframe: str | None = setting(None, "address of Grafana, as your browser reaches it (default: the same)")


@dataclass(frozen=True, kw_only=True)
class ClusterSpec:
    """One Ray cluster in one namespace."""

    name: str = setting("ray", "of the cluster; its objects begin with it")
    namespace: str | None = setting(None, "where it lives (default: kubectl's)")
    context: str | None = setting(None, "which context of the kubeconfig (default: the current one)")
    kubeconfig: str | None = setting(None, "which kubeconfig (default: kubectl's)")
    operator: str = setting("kuberay", "kuberay: a RayCluster for its operator; none: plain manifests, anywhere")
    image: str = setting("", "what pods run: it has Ray, your packages and Operant, if jobs use it")
    ray_version: str | None = setting(None, "of Ray in the image; KubeRay's autoscaler goes by it")
    ray_command: str = setting("ray", "how `ray` is called in the image")
    python: str = setting("python3", "the interpreter in the image, 3.8 or later, that jobs are begun by")
    pull_policy: str | None = setting(None, "Always, IfNotPresent or Never")
    pull_secrets: tuple[str, ...] = setting((), "Secrets with the passwords of registries")
    service_account: str | None = setting(None, "of the pods")
    user: int | None = setting(None, "user id of the programs in pods (default: the image's)")
    host_network: bool = setting(False, "pods use the node's network; then every port in ray_start is theirs alone")
    head: Head = setting(Head, "the head's pod")
    workers: tuple[Workers, ...] = setting((), "groups of workers")
    autoscaling: bool = setting(False, "let Ray add and remove workers (KubeRay)")
    idle_timeout: int = setting(60, "with autoscaling: seconds after which an idle worker goes")
    env: dict[str, Any] = setting({}, "variables of all pods")
    volumes: tuple[Any, ...] = setting((), "/data, {path, claim, read_only} or {path, host, read_only}, for all pods")
    network_policy: bool = setting(True, "only pods of this cluster reach its ports (and anybody its metrics)")
    metrics: Metrics = setting(Metrics, "Prometheus and Grafana")

    def __post_init__(self) -> None:
        _check(self)


def load_cluster(given: str | Path | None = None) -> ClusterSpec:
    """The cluster of a file, or of a name: ``NAME.yaml``, ``conf/cluster/NAME.yaml`` or what was applied from here."""
    path = find_cluster(given)
    if path is None:
        places = ", ".join(str(one) for one in _places(str(given)))
        raise UsageError(
            f"there is no cluster {str(given)!r} here: looked for {places}; `operant cluster init` begins one"
        )
    return read_cluster(path)


def find_cluster(given: str | Path | None) -> Path | None:
    """The file that describes a cluster."""
    if given is None or Path(given).suffix in (".yaml", ".yml"):
        path = Path(given or DEFAULT_FILE)
        if given is None and not path.is_file():
            raise UsageError(f"which cluster? There is no {path} here; name a file, or begin one: operant cluster init")
        return path
    return next((path for path in _places(str(given)) if path.is_file()), None)


def applied_file(name: str) -> Path:
    """Where a cluster that was applied from this folder is remembered."""
    return find_root() / "clusters" / f"{name}.yaml"


def read_cluster(path: Path) -> ClusterSpec:
    """What a file says, checked."""
    content = read_yaml(path)
    if not isinstance(content, Mapping):
        raise UsageError(f"{path} describes no cluster: it is no mapping of settings")
    if "kind" in content and "apiVersion" in content:
        raise UsageError(f"{path} is a manifest of Kubernetes' ({content['kind']}); `kubectl apply -f {path}` takes it")
    try:
        return fill(ClusterSpec, {str(key): value for key, value in content.items()})
    except ConfigError as error:
        raise error.located(str(path), {}) from None
    except OperantError as error:
        raise UsageError(f"{path}: {error}") from None


def _places(name: str) -> list[Path]:
    return [Path(f"{name}.yaml"), Path("conf", "cluster", f"{name}.yaml"), applied_file(name)]


def _check(spec: ClusterSpec) -> None:
    if not _NAME.fullmatch(spec.name):
        raise ConfigError(f"a name has up to 40 small letters, digits and dashes, not {spec.name!r}", ("name",))
    if spec.operator not in OPERATORS:
        raise ConfigError(unknown("operator", spec.operator, OPERATORS), ("operator",))
    if not spec.image:
        raise ConfigError("which image do pods run? It has Ray, and Operant if jobs use it", ("image",))
    if spec.autoscaling and spec.operator == "none":
        raise ConfigError(
            "KubeRay's operator does that; without it say `operant cluster scale GROUP=N`", ("autoscaling",)
        )
    if spec.autoscaling and spec.ray_version is None:
        raise ConfigError("the autoscaler must know which Ray the image has", ("ray_version",))
    _check_variables(spec.env, ())
    names: set[str] = set()
    for number, group in enumerate((spec.head, *spec.workers)):
        where: tuple[str | int, ...] = ("head",) if number == 0 else ("workers", number - 1)
        _check_pods(group, where)
        if isinstance(group, Workers):
            if not _NAME.fullmatch(group.name) or group.name in names:
                raise ConfigError(
                    f"a group has a name of its own in small letters, not {group.name!r}", (*where, "name")
                )
            names.add(group.name)
            low, high = replica_range(group)
            if group.replicas < 0 or not 0 <= low <= group.replicas <= high:
                raise ConfigError(f"min {low} ≤ replicas {group.replicas} ≤ max {high} does not hold", where)


def _check_pods(group: Pods, where: tuple[str | int, ...]) -> None:
    if not group.cpus > 0 or group.gpus < 0:
        raise ConfigError(f"a pod has more than 0 CPUs and 0 GPUs or more, not {group.cpus:g} and {group.gpus}", where)
    memory = parse_bytes(group.memory, (*where, "memory"))
    if object_store(group) >= memory:
        raise ConfigError(f"the object store is a part of the pod's memory, {group.memory}", (*where, "object_store"))
    _check_variables(group.env, where)
    for key in group.ray_start:
        if key not in RAY_START:
            told = f"`ray start` has no option {key!r}{nearest(str(key), RAY_START)}"
            raise ConfigError(told, (*where, "ray_start"))
    for number, one in enumerate(group.tolerations):
        place = (*where, "tolerations", number)
        if not isinstance(one, Mapping):
            raise ConfigError(f"a toleration is a mapping with {', '.join(_TOLERATION)}, not {one!r}", place)
        for key in one:
            if key not in _TOLERATION:
                raise ConfigError(unknown("key", key, _TOLERATION), place)


def _check_variables(env: Mapping[str, Any], where: tuple[str | int, ...]) -> None:
    for key, value in env.items():
        if not _VARIABLE.fullmatch(str(key)):
            raise ConfigError(f"{key!r} is no name of a variable", (*where, "env"))
        if not isinstance(value, str) and not is_number(value):
            raise ConfigError(f"a variable is a text or a number, not {value!r}", (*where, "env", str(key)))


def replica_range(group: Workers) -> tuple[int, int]:
    return (group.replicas if group.min is None else group.min), (group.replicas if group.max is None else group.max)


def object_store(group: Pods) -> int:
    """Bytes of shared memory for Ray's objects."""
    if group.object_store is not None:
        return parse_bytes(group.object_store, ("object_store",))
    return int(parse_bytes(group.memory, ("memory",)) * 0.3)
