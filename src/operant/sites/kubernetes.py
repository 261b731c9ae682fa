"""Jobs of a Kubernetes cluster: any manifest as a template, created by the official client, followed by a watch."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import os
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from operant._util.checks import is_whole, positive, whole_number
from operant._util.units import parse_bytes, parse_duration
from operant.errors import ConfigError, OperantError
from operant.sites._kube import Cluster, Mirror, Object, pod_state, read_documents, state_of
from operant.sites._kube_nodes import JOINS, FurtherPods, command_of, let_join, new_secret
from operant.sites.base import SITES, Submission
from operant.sites.cluster import ClusterSite
from operant.sites.cluster_jobs import Batch, SiteAwayError, SiteJob, SiteRefusedError, memory_for

_JOB: Object = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "spec": {"backoffLimit": 0, "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "job"}]}}},
}
_SECRET: Object = {"apiVersion": "v1", "kind": "Secret"}
_FIELDS = ("apiVersion", "kind", "metadata", "spec", "data", "binaryData", "stringData", "type")
_NODE: Object = {"name": "OPERANT_NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
_DONE_SECONDS = 3600


@SITES.register_module("kubernetes")
class KubernetesSite(ClusterSite):
    """Jobs of a Kubernetes cluster whose pods see the search's folder.

    :param template: a manifest (YAML file) of a `Job`, `RayJob`, `DIJob` …; its first container runs the program.
        Without it a plain `batch/v1` Job is made. ConfigMaps and Secrets beside it are created and stay.
    :param image: what pods run; needs a Python ≥ 3.8, not Operant. A template may name it instead.
    :param python: the interpreter in the image.
    :param volumes: paths that pods see where they are here: ``/data``, or ``{path, host | claim, read_only}``; the
        search's folder must lie in one of them, or in a mount of the template.
    :param namespace: and context, kubeconfig: which cluster; by default the current context, or the one this runs in.
    :param service_account: and node_selector, pull_policy, host_network, user: as a pod takes them.
    :param cpus: and memory, gpus: for each pod; without `memory` the search's ``memory_limit``, if there is one.
    :param nodes: pods of each job; the first runs the program, and the others join what it trains (``num_nodes``).
    :param join: the command by which they do, but for the address; without it ``python -m operant join``.
    :param pull_wait: how long an image may fail to be pulled before the job counts as failed.
    :param restarts: how often an attempt that was evicted or preempted, or lost its node, is started again.
    :param exit_wait: seconds that a file of a node may take to be seen here.
    :param channel: ``http`` where pods do not see the search's folder; ``address`` is how they reach us.
    """

    kind = "kubernetes"
    keeps_ended = True
    most_in_batch = 1  # one object, one call: it arrived or it did not

    def __init__(
        self,
        folder: Path,
        *,
        template: str | None = None,
        image: str | None = None,
        python: str = "python3",
        volumes: Sequence[str | Mapping[str, Any]] = (),
        namespace: str | None = None,
        context: str | None = None,
        kubeconfig: str | None = None,
        service_account: str | None = None,
        node_selector: Mapping[str, str] | None = None,
        pull_policy: str | None = None,
        host_network: bool = False,
        user: int | None = None,
        cpus: float | None = None,
        memory: str | int | None = None,
        gpus: int | None = None,
        nodes: int = 1,
        join: str | None = None,
        pull_wait: str | float = 300,
        restarts: int = 0,
        poll: float = 1.0,
        exit_wait: float = 60.0,
        channel: str = "dir",
        address: str | None = None,
    ) -> None:
        super().__init__(
            folder,
            channel=channel,
            address=address,
            poll=positive(poll, "poll"),
            exit_wait=positive(exit_wait, "exit_wait"),
            restarts=whole_number(restarts, "restarts", 0),
        )
        if gpus is not None and not is_whole(gpus, 1):
            raise ConfigError(f"`gpus` must be a whole number from 1 on, not {gpus!r}", ("gpus",))
        self.python = python
        self.pull_wait = parse_duration(pull_wait, ("pull_wait",), bare_unit="s") or 0.0
        self.memory = None if memory is None else parse_bytes(memory, ("memory",))
        self.manifest, self.beside = (copy.deepcopy(_JOB), []) if template is None else read_manifest(template)
        if whole_number(nodes, "nodes", 1) > 1 and self.manifest["kind"] != "Job":
            raise ConfigError(f"`nodes` is for a Job: a {self.manifest['kind']} has its own pods", ("nodes",))
        words = [python, "-m", "operant", "join"] if join is None else command_of(join)
        self.further = FurtherPods(nodes, words, self._note) if nodes > 1 else None
        self.has_secrets = self.by_http or self.further is not None
        self._where = (kubeconfig, context, namespace)
        pod = pod_spec(self.manifest)
        self._fill(pod, image, pull_policy, service_account, node_selector, host_network, user)
        wanted = {"cpu": None if cpus is None else f"{positive(cpus, 'cpus'):g}", "nvidia.com/gpu": gpus}
        limits = pod["containers"][0].setdefault("resources", {}).setdefault("limits", {})
        limits.update({key: value for key, value in wanted.items() if value is not None})
        for template_of in pod_templates(self.manifest):
            mount(template_of["spec"], volumes)
        # Names of other searches in the same namespace must not be taken for this one's.
        short = re.sub(r"[^a-z0-9]+", "-", folder.name.lower())[:24].strip("-") or "search"
        self.prefix = f"operant-{short}-{hashlib.sha256(os.fsencode(folder)).hexdigest()[:8]}"
        self.selector = f"operant-search={self.prefix}"
        self._cluster: Cluster | None = None
        self._jobs: Mirror | None = None
        self._pods: Mirror | None = None
        self._pulling: dict[str, float] = {}

    @staticmethod
    def missing() -> str | None:
        """Why there is no Kubernetes here; None where there is."""
        try:
            Cluster().mirror(None, "operant-search=none").objects()
        except OperantError as error:
            return str(error)
        return None

    def start(self, emit: Any) -> None:
        mounts = pod_spec(self.manifest)["containers"][0]["volumeMounts"]
        seen = [Path(one["mountPath"]) for one in mounts if not one.get("readOnly")]
        if not self.by_http and not any(self.folder.is_relative_to(path) for path in seen):
            raise ConfigError(
                f"pods do not see {self.folder}, where jobs keep their files: add a path above it to `volumes`, or set "
                "`channel: http`",
                ("site", "volumes"),
            )
        jobs, pods = self._mirrors()
        assert self._cluster is not None
        with contextlib.suppress(SiteAwayError):  # that passes; a refusal does not
            jobs.objects(), pods.objects()
            for one in self.beside:
                self._cluster.create(one)  # or it is there: searches may share it
        super().start(emit)
        for mirror in (jobs, pods):
            mirror.follow(lambda: None)

    def close(self) -> None:
        super().close()
        for mirror in (self._jobs, self._pods):
            if mirror is not None:
                mirror.close()
        if self._cluster is not None and not self._open:
            with contextlib.suppress(
                SiteAwayError
            ):  # what was left by a controller that died before it could delete it
                self._cluster.delete_all(self.manifest, self.selector)
                if self.has_secrets:
                    self._cluster.delete_all(_SECRET, self.selector)

    # -- the three verbs ------------------------------------------------------------------------------------------

    def launch(self, batch: Batch) -> list[str]:
        jobs, _ = self._mirrors()
        assert self._cluster is not None
        manifest = self._manifest(batch, batch.jobs[0])
        if self.has_secrets:
            about = {"name": manifest["metadata"]["name"], "labels": manifest["metadata"]["labels"]}
            known = self.environment(batch, batch.jobs[0]) if self.by_http else {}  # there is a token in it
            known |= {} if self.further is None else new_secret()
            self._cluster.create({**_SECRET, "metadata": about, "stringData": known})
        made = self._cluster.create(manifest)
        jobs.put(made)
        return [made["metadata"]["name"]]

    def look(self) -> list[SiteJob]:
        mirror, of_pods = self._mirrors()
        try:
            jobs, pods = mirror.objects(), of_pods.objects()
        except SiteRefusedError as error:  # it was allowed when the search began
            raise SiteAwayError(str(error)) from None
        by_job: dict[str, list[Object]] = {}
        for pod in sorted(pods.values(), key=lambda one: str(one["metadata"].get("creationTimestamp") or "")):
            by_job.setdefault(pod["metadata"]["labels"].get("operant-job", ""), []).append(pod)
        if self.further is not None:
            assert self._cluster is not None
            self.further.see_to(self._cluster, mirror, jobs, list(pods.values()))
        first = {name: found for name, found in jobs.items() if JOINS not in found["metadata"]["labels"]}
        return [self._word(name, found, by_job.get(name, [])) for name, found in first.items()]

    def end(self, ids: Sequence[str]) -> None:
        assert self._cluster is not None
        for name in ids:
            try:
                self._cluster.delete(self.manifest, name)
                if self.has_secrets:
                    self._cluster.delete(_SECRET, name)
            except SiteRefusedError as error:
                self._note(f"{name} is left: {error}")

    def clean(self, ids: Sequence[str]) -> None:
        """Delete what is over: its files say the rest."""
        for name in ids:
            self._pulling.pop(name, None)
        self.end(ids)

    def explain(self, word: SiteJob) -> str:
        """The last line of the pod itself: a missing interpreter, a folder that the pod cannot see."""
        assert self._cluster is not None and self._pods is not None
        with contextlib.suppress(SiteAwayError, SiteRefusedError):
            for name, pod in self._pods.objects().items():
                if pod["metadata"]["labels"].get("operant-job") == word.id:
                    lines = self._cluster.log(name).strip().splitlines()
                    return f"; its log says: {lines[-1][:300]}" if lines else ""
        return ""

    # -- how they are said ----------------------------------------------------------------------------------------

    def _mirrors(self) -> tuple[Mirror, Mirror]:
        if self._jobs is None or self._pods is None:
            self._cluster = Cluster(*self._where)
            self._jobs = self._cluster.mirror(self.manifest, self.selector)
            self._pods = self._cluster.mirror(None, self.selector)
        return self._jobs, self._pods

    def _manifest(self, batch: Batch, job: Submission) -> Object:
        name = f"{self.prefix}-{batch.name}"
        labels = {"operant-search": self.prefix, "operant-batch": batch.name, "operant-job": name}
        manifest = copy.deepcopy(self.manifest)
        pod = pod_spec(manifest)
        container = pod["containers"][0]
        command = self.command(batch, 0)
        if manifest["kind"] == "RayJob":  # its pods are Ray's; the program is submitted to them
            restart = ["env", f"OPERANT_RESTART={batch.restart}"]
            manifest["spec"] |= {"entrypoint": shlex.join([*restart, *command]), "shutdownAfterJobFinishes": True}
        else:
            container["command"], container["args"] = command[:1], command[1:]
            ours = [{"name": "OPERANT_RESTART", "value": str(batch.restart)}, _NODE]
            names = [one["name"] for one in ours]
            kept = [one for one in container.get("env") or () if one.get("name") not in names]
            container["env"] = [*kept, *ours]
        limits = job.limits
        memory = memory_for(job, self.memory)
        if memory is not None:
            container["resources"]["limits"]["memory"] = str(memory)
        pod["terminationGracePeriodSeconds"] = int(limits.grace_seconds) + 5
        metadata = manifest.setdefault("metadata", {})
        metadata["name"] = name
        metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
        for template in pod_templates(manifest):
            about = template.setdefault("metadata", {})
            about["labels"] = {**(about.get("labels") or {}), **labels}
            if self.has_secrets:
                template["spec"]["containers"][0].setdefault("envFrom", []).append({"secretRef": {"name": name}})
            if self.further is not None:
                let_join(template["spec"], name)
        if manifest["kind"] == "Job":
            spec = manifest["spec"]
            spec["backoffLimit"] = 0  # attempts are the search's
            spec.setdefault("ttlSecondsAfterFinished", _DONE_SECONDS)
            if limits.seconds is not None:
                spec.setdefault("activeDeadlineSeconds", int(limits.seconds + limits.grace_seconds) + 60)
        return manifest

    def _word(self, name: str, found: Object, pods: Sequence[Object]) -> SiteJob:
        batch = found["metadata"]["labels"].get("operant-batch", "")
        state, words = state_of(found)
        node, reason = "", None
        if pods:
            node = str((pods[0].get("spec") or {}).get("nodeName") or "")
            of_pod, said, reason = pod_state(pods[0])
            words = said or words
            alone = self.manifest["kind"] == "Job"  # other kinds have several pods, and their own word on them
            if alone and of_pod != "ended" and (len(pods) > 1 or "deletionTimestamp" in pods[0]["metadata"]):
                # Somebody drained the node or needed the room. A pod in its place finds the attempt claimed and leaves.
                of_pod, state, words, reason = "ended", "ended", "its pod was deleted", "preempted"
            if reason == "cannot_pull":
                since = self._pulling.setdefault(name, time.monotonic())
                of_pod = "ended" if time.monotonic() - since > self.pull_wait else "waiting"
            hopeless = reason in ("cannot_start", "cannot_pull")
            if state in ("waiting", "running") and (alone or (of_pod == "ended" and hopeless)):
                state = of_pod
        if state in ("good", "bad"):
            state = "ended"
        where = f" on {node}" if node else ""
        return SiteJob(batch, 0, name, state, node, f"{words or state}{where}", reason if state == "ended" else None)

    def _fill(
        self,
        pod: Object,
        image: str | None,
        pull_policy: str | None,
        service_account: str | None,
        node_selector: Mapping[str, str] | None,
        host_network: bool,
        user: int | None,
    ) -> None:
        container = pod["containers"][0]
        given = {"image": image, "imagePullPolicy": pull_policy}
        container.update({key: value for key, value in given.items() if value is not None})
        if not container.get("image"):
            raise ConfigError("which image do pods run? Name it as `image`, or in the template", ("image",))
        given_pod = {
            "serviceAccountName": service_account,
            "nodeSelector": node_selector,
            "hostNetwork": host_network or None,
        }
        pod.update({key: value for key, value in given_pod.items() if value is not None})
        if self.manifest["kind"] == "Job":
            pod["restartPolicy"] = "Never"
        user = os.getuid() if user is None else user
        if user:
            # Files of jobs belong to whoever searches; a shared folder may refuse root.
            pod.setdefault("securityContext", {}).setdefault("runAsUser", user)


def read_manifest(path: str) -> tuple[Object, list[Object]]:
    """The object of a file that has pods, and the ConfigMaps and Secrets beside it."""
    found: list[Object] = []
    beside: list[Object] = []
    for one in read_documents(path):
        kept = {key: value for key, value in one.items() if key in _FIELDS}
        if pod_templates(kept):
            (kept.get("metadata") or {}).pop("projectPath", None)  # DI-toolkit's, no field that Kubernetes knows
            found.append(kept)
        elif one["kind"] in ("ConfigMap", "Secret"):
            beside.append(kept)
        else:
            raise ConfigError(
                f"{path}: a {one['kind']} beside the job is not made for a search; create it before", ("template",)
            )
    if len(found) != 1:
        raise ConfigError(f"{path} has {len(found) or 'no'} objects with containers; one is needed", ("template",))
    return found[0], beside


def pod_templates(manifest: Any) -> list[Object]:
    """Every pod template in a manifest, wherever its kind keeps them."""
    found: list[Object] = []
    if isinstance(manifest, dict):
        for key, value in manifest.items():
            if key == "template" and isinstance(value, dict) and "containers" in (value.get("spec") or {}):
                found.append(value)
            else:
                found += pod_templates(value)
    elif isinstance(manifest, list):
        for one in manifest:
            found += pod_templates(one)
    return found


def pod_spec(manifest: Object) -> Object:
    """The spec of the pod that runs the program."""
    templates = pod_templates(manifest)
    if not templates or not templates[0]["spec"]["containers"]:
        raise ConfigError(f"a {manifest.get('kind')} without a container cannot run a program", ("template",))
    spec: Object = templates[0]["spec"]
    return spec


def mount(pod: Object, volumes: Sequence[str | Mapping[str, Any]]) -> None:
    container = pod["containers"][0]
    mounts = container.setdefault("volumeMounts", [])
    kept = pod.setdefault("volumes", [])
    for number, given in enumerate(volumes):
        where = ("volumes", number)
        one = {"path": given} if isinstance(given, str) else dict(given)
        path = one.pop("path", None)
        if not isinstance(path, str) or not path.startswith("/"):
            raise ConfigError(f"a volume has the `path` at which pods see it, from / on, not {given!r}", where)
        claim, host, read_only = one.pop("claim", None), one.pop("host", path), bool(one.pop("read_only", False))
        if one:
            raise ConfigError(f"a volume has path, host or claim, and read_only, not {next(iter(one))!r}", where)
        source = {"persistentVolumeClaim": {"claimName": claim}} if claim else {"hostPath": {"path": host}}
        kept.append({"name": f"operant-{number}", **source})
        mounts.append({"name": f"operant-{number}", "mountPath": path, "readOnly": read_only})
