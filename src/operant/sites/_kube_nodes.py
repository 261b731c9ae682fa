"""The further pods of a job that has several: they join the program in its first one, once that has an address.

That address is the IP of the first pod, so that neither a Service nor the cluster's DNS is needed, and pods on the
node's own network can do it as well. They are a Job that belongs to the first one: Kubernetes replaces those that die,
and deletes all of them with it, whoever deletes it. What proves who may join is in a Secret and nowhere else.
"""

from __future__ import annotations

import copy
import hashlib
import secrets
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from operant.errors import ConfigError
from operant.sites._kube import Cluster, Mirror, Object, pod_state, state_of
from operant.sites.cluster_jobs import SiteAwayError, SiteRefusedError

JOINS = "operant-joins"
"""The label of further pods and of their Job: the name of the job that they join."""
SECRET = "OPERANT_SECRET"
_ADDRESS = "OPERANT_ADDRESS"  # where a training says that it is reached
_IP = "OPERANT_POD_IP"
_PORT_NAME = "operant"
_FIRST_PORT, _PORTS = 20_000, 10_000  # below those that systems give away by themselves, and those of NodePorts
_OFTEN = 1000  # pods that die are replaced as long as the job lasts, later and later
# Labels that the Job of the first pod has given it, and which another Job may not have.
_OF_CONTROLLER = ("controller-uid", "job-name", "batch.kubernetes.io/")


def port_of(name: str) -> int:
    """Where the first pod of a job listens: another port for each, as pods may share the network of their node."""
    return _FIRST_PORT + int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") % _PORTS


def new_secret() -> dict[str, str]:
    """What the pods of one job have in common."""
    return {SECRET: secrets.token_hex(16)}


def command_of(join: Any) -> list[str]:
    """The words of the setting ``join``."""
    try:
        words = shlex.split(join) if isinstance(join, str) else []
    except ValueError:  # a quote that does not end
        words = []
    if not words:
        raise ConfigError(f"`join` is a command, such as `python3 -m operant join`, not {join!r}", ("join",))
    return words


def let_join(pod: Object, name: str) -> None:
    """Tell the program of a pod where further pods reach it."""
    container = pod["containers"][0]
    address = {"name": _ADDRESS, "value": f"$({_IP}):{port_of(name)}"}
    ip = {"name": _IP, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    container["env"] = [*_without(container.get("env"), _IP, _ADDRESS, SECRET), ip, address]
    # On the node's own network the scheduler keeps pods apart that name the same port.
    mine = {"name": _PORT_NAME, "containerPort": port_of(name)}
    container["ports"] = [*_without(container.get("ports"), _PORT_NAME), mine]


def joining(job: Object, ip: str, nodes: int, join: Sequence[str]) -> Object:
    """The Job of the further pods of a job whose first pod has this IP: all as there, but for what they run."""
    name, template = job["metadata"]["name"], copy.deepcopy(job["spec"]["template"])
    labels = {"operant-search": job["metadata"]["labels"]["operant-search"], JOINS: name}
    about, pod = template.setdefault("metadata", {}), template["spec"]
    kept = {key: value for key, value in (about.get("labels") or {}).items() if not key.startswith(_OF_CONTROLLER)}
    template["metadata"] = {
        "labels": {**{key: value for key, value in kept.items() if not key.startswith("operant-")}, **labels},
        "annotations": about.get("annotations") or {},
    }
    container = pod["containers"][0]
    host = f"[{ip}]" if ":" in ip else ip
    words = [*join, f"tcp://{host}:{port_of(name)}"]
    container["command"], container["args"] = words[:1], words[1:]
    secret = {"name": SECRET, "valueFrom": {"secretKeyRef": {"name": name, "key": SECRET}}}
    container["env"] = [*_without(container.get("env"), _IP, _ADDRESS, SECRET), secret]
    # The rest of the first pod's Secret is for that one alone, and so is its port.
    whole = {"secretRef": {"name": name}}
    container["envFrom"] = [one for one in container.get("envFrom") or () if one != whole]
    container["ports"] = _without(container.get("ports"), _PORT_NAME)
    pod["restartPolicy"] = "Never"  # a pod in its place may go to another node
    pod["terminationGracePeriodSeconds"] = 1  # there is nothing to save
    owner = {"apiVersion": job["apiVersion"], "kind": job["kind"], "name": name, "uid": job["metadata"]["uid"]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"{name}-join", "labels": labels, "ownerReferences": [owner]},
        "spec": {"parallelism": nodes - 1, "completions": nodes - 1, "backoffLimit": _OFTEN, "template": template},
    }


def _without(entries: Sequence[Mapping[str, Any]] | None, *names: str) -> list[Mapping[str, Any]]:
    return [one for one in entries or () if one.get("name") not in names]


class FurtherPods:
    """Makes them for each job whose first pod runs, and tells what keeps them from it.

    :param nodes: pods of a job, the first one included.
    :param join: the command that a further pod runs, but for the address.
    """

    def __init__(self, nodes: int, join: Sequence[str], note: Callable[[str], None]) -> None:
        self.nodes, self.join, self._note = nodes, join, note
        self._told: dict[str, str] = {}
        self._refused: set[str] = set()

    def see_to(self, cluster: Cluster, mirror: Mirror, jobs: Mapping[str, Object], pods: Sequence[Object]) -> None:
        """Make those that are missing, of jobs and pods as they are now."""
        made = {one["metadata"]["labels"].get(JOINS) for one in jobs.values()}
        ready = {pod["metadata"]["labels"].get("operant-job"): ip for pod in pods if (ip := _ip_of(pod))}
        for name in ready.keys() & (jobs.keys() - made - self._refused):
            job = {"apiVersion": "batch/v1", "kind": "Job", **jobs[name]}  # lists leave both out of their items
            if not _goes_on(job):
                continue
            try:
                mirror.put(cluster.create(joining(job, ready[name], self.nodes, self.join)))
            except SiteAwayError as error:
                self._tell(name, f"the further pods of {name} are not there yet: {error}")
            except SiteRefusedError as error:
                self._refused.add(name)
                self._tell(name, f"{name} goes on without further pods: {error}")
        for pod in pods:
            name, (_, words, _) = pod["metadata"]["name"], pod_state(pod)
            if JOINS in pod["metadata"]["labels"] and words:
                self._tell(name, f"{name}: {words}")

    def _tell(self, name: str, text: str) -> None:
        """Once: jobs are looked at every second."""
        if self._told.get(name) != text:
            self._told[name] = text
            self._note(text)


def _ip_of(pod: Object) -> str:
    """The IP of a pod that runs and stays."""
    if "deletionTimestamp" in pod["metadata"] or pod_state(pod)[0] != "running":
        return ""
    return str((pod.get("status") or {}).get("podIP") or "")


def _goes_on(job: Object) -> bool:
    """Whether a Job is neither over nor being deleted; one of which only its name is known is heard of soon."""
    about = job["metadata"]
    return "uid" in about and "deletionTimestamp" not in about and state_of(job)[0] in ("waiting", "running")
