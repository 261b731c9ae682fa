"""Tasks of a config file on a Kubernetes cluster: each trial is an object of its own, made from the user's manifest."""

from __future__ import annotations

import ast
import contextlib
import copy
import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from operant.errors import OperantError, UsageError
from operant.hpo.config_tasks import ConfigScheduler, Task, logger, plain_values
from operant.hpo.run_config import is_main_block
from operant.sites._kube import Cluster, Object, pod_state, read_documents, state_of
from operant.sites.cluster_jobs import SiteAwayError
from operant.sites.kubernetes import pod_spec, pod_templates

_TRIES_SECONDS = 60.0
_MISSING_SECONDS = 5.0
_PULL_SECONDS = 300.0
# What is put into the file before `if __name__ == "__main__":`; pods need not have Operant.
_SET = """
import json, os
os.makedirs({folder!r}, exist_ok=True)
os.chdir({folder!r})
def _set(config, values):
    for key, value in values.items():
        if isinstance(value, dict) and isinstance(config.get(key), dict):
            _set(config[key], value)
        else:
            config[key] = value
_set(main_config, json.loads({values!r}))
"""
_TRAIN = "\nfrom ding.entry import serial_pipeline\nserial_pipeline((main_config, create_config), seed=0)\n"


class KubernetesScheduler(ConfigScheduler):
    """Runs tasks of one config file as objects of a cluster. Use it in a `with`, or call `stop` in the end.

    Task k is the object `<metadata.name>-<k>`, its folder `<metadata.projectPath>/<metadata.name>-<k>`, and its result
    `hpo/result.pkl` there. The manifest's ConfigMap is filled with the config file of the task.
    """

    def __init__(
        self,
        task_config_template_path: str | os.PathLike[str],
        k8s_dijob_yaml_file_path: str | os.PathLike[str],
        time_out: float | None = None,
        *,
        kubeconfig: str | None = None,
        context: str | None = None,
        namespace: str | None = None,
    ) -> None:
        self.manifest, self.config_maps = _read(Path(k8s_dijob_yaml_file_path))
        metadata = self.manifest["metadata"]
        # No field of ObjectMeta: a server drops it or refuses the object.
        project = Path(metadata.pop("projectPath"))
        if not project.is_dir():
            raise UsageError(f"metadata.projectPath is {project}, which is no folder here; results are read from it")
        self._where = (kubeconfig, context, namespace)
        super().__init__(task_config_template_path, metadata["name"], time_out=time_out, folder=project)

    def _open(self) -> None:
        self.selector = f"operant-search={self.project}-{os.urandom(4).hex()}"
        self._cluster = Cluster(*self._where)
        self._objects = self._cluster.mirror(self.manifest, self.selector)
        self._pods = self._cluster.mirror(None, self.selector)
        self._texts: dict[int, str] = {}
        self._running: dict[int, float] = {}
        self._missing: dict[int, float] = {}
        self._pulling: dict[int, float] = {}
        self._told: dict[int, str] = {}
        self._followers: dict[int, threading.Thread] = {}
        self._objects.objects()  # whoever cannot be reached or refuses says so now
        for mirror in (self._objects, self._pods):
            mirror.follow(self._changed)

    def _close(self) -> None:
        for mirror in (self._objects, self._pods):
            mirror.close()
        self._patiently(lambda: self._cluster.delete_all(self.manifest, self.selector))

    def _lay_out(self, task: Task, values: Mapping[str, Any]) -> None:
        task.folder.mkdir()
        given = {**plain_values(values), "exp_name": "hpo"}
        text = _filled(self._text, str(task.folder), given)
        (task.folder / "config.py").write_text(text, encoding="utf-8")
        self._texts[task.id] = text

    def _submit(self, task: Task) -> None:
        name = task.folder.name
        labels = {"operant-search": self.selector.partition("=")[2], "operant-job": name}
        manifest = copy.deepcopy(self.manifest)
        manifest["metadata"].update(name=name, labels={**(manifest["metadata"].get("labels") or {}), **labels})
        for template in pod_templates(manifest):
            about = template.setdefault("metadata", {})
            about["labels"] = {**(about.get("labels") or {}), **labels}
            for container in template["spec"]["containers"]:
                env = container.setdefault("env", [])
                if not any(one.get("name") == "JOB_NAME" for one in env):
                    env.append({"name": "JOB_NAME", "value": name})
        text = self._texts.pop(task.id)
        maps = [self._filled_map(one, name, text, manifest) for one in self.config_maps]
        if self._stopped:
            return
        task.state = "running"
        try:
            self._create(manifest, maps, labels)
        except OperantError as error:
            self._ended(task, "abnormal", {"error": str(error)})

    def _create(self, manifest: Object, maps: list[Object], labels: Mapping[str, str]) -> None:
        name = manifest["metadata"]["name"]
        made = self._patiently(lambda: self._cluster.create(manifest))
        owner = {key: made[key] for key in ("apiVersion", "kind")} | {
            "name": name,
            "uid": made["metadata"].get("uid", ""),
        }
        for one in maps:
            # With its owner it goes when that goes; pods wait for it.
            one["metadata"] |= {"labels": dict(labels), "ownerReferences": [owner]}
            self._patiently(partial(self._cluster.create, one))
        self._objects.put(made)

    def _filled_map(self, given: Object, name: str, text: str, manifest: Object) -> Object:
        made = copy.deepcopy(given)
        before = made["metadata"]["name"]
        made["metadata"]["name"] = after = f"{before.rstrip('-')}-{name}"
        data = made.get("data") or {"config.py": None}
        made["data"] = {key: value if value else text for key, value in data.items()}
        for template in pod_templates(manifest):
            for volume in template["spec"].get("volumes") or ():
                if (volume.get("configMap") or {}).get("name") == before:
                    volume["configMap"]["name"] = after
        return made

    def _await(self, task: Task) -> None:
        while not task.ended.wait(1.0):
            self._look(task)  # also when nothing changes: time runs
        self._keep_log(task)
        if not self._stopped:
            with contextlib.suppress(OperantError):  # `stop` deletes all
                self._patiently(lambda: self._cluster.delete(self.manifest, task.folder.name))

    def _changed(self) -> None:
        for task in list(self._tasks):
            if task.state == "running":
                self._look(task)

    def _look(self, task: Task) -> None:
        try:
            found = self._objects.objects().get(task.folder.name)
            pods = [pod for pod in self._pods.objects().values() if _job_of(pod) == task.folder.name]
        except OperantError:
            return
        if task.state != "running":
            return
        if found is None:
            since = self._missing.setdefault(task.id, time.monotonic())
            if time.monotonic() - since > _MISSING_SECONDS:
                self._ended(task, "abnormal", {"error": "somebody deleted it"})
            return
        self._missing.pop(task.id, None)
        state, words = state_of(found)
        told = [pod_state(pod) for pod in pods]
        if any(one[0] == "running" for one in told) and task.id not in self._running:
            self._running[task.id] = time.monotonic()
            names = [pod["metadata"]["name"] for pod in pods]
            self._followers[task.id] = threading.Thread(target=self._follow_log, args=(task, names), daemon=True)
            self._followers[task.id].start()
        started = self._running.get(task.id)
        stuck = self._why_stuck(task, told)
        if state == "good":
            self._ended(task, "success", {"code": 0})
        elif state == "bad":
            said = next((said for phase, said, _ in told if phase == "ended" and said), words)
            self._ended(task, "abnormal", {"error": said or "it failed"})
        elif stuck is not None:
            self._ended(task, "abnormal", {"error": stuck})
        elif self.time_out is not None and started is not None and time.monotonic() - started > self.time_out:
            self._ended(task, "abnormal", {"reason": "time_limit"})

    def _why_stuck(self, task: Task, told: Sequence[tuple[str, str, str | None]]) -> str | None:
        """Why its pods will never run; while they only wait, that is logged."""
        now, waits = time.monotonic(), next((said for phase, said, _ in told if phase == "waiting" and said), "")
        if waits and self._told.get(task.id) != waits:
            self._told[task.id] = waits
            logger.warning("task %d of %s waits: %s", task.id, self.project, waits)
        for _, said, reason in told:
            if reason == "cannot_start":
                return said
            if reason == "cannot_pull":
                return said if now - self._pulling.setdefault(task.id, now) > _PULL_SECONDS else None
        self._pulling.pop(task.id, None)
        return None

    def _ended(self, task: Task, state: str, info: Mapping[str, Any]) -> None:
        with self._lock:
            if task.state == "running":
                task.state, task.info = state, info
        task.ended.set()

    def _follow_log(self, task: Task, pods: Sequence[str]) -> None:
        """Write down what its pods print, while they do; a stream that is cut off is begun anew."""
        while task.state == "running" and not self._stopped:
            with contextlib.suppress(OperantError), (task.folder / "stderr").open("wb", buffering=0) as log:
                for pod in pods:
                    for part in self._cluster.follow_log(pod):
                        log.write(part)
            task.ended.wait(1.0)

    def _keep_log(self, task: Task) -> None:
        """All that its pods printed, beside its result."""
        follower = self._followers.pop(task.id, None)
        if follower is not None:
            follower.join(_MISSING_SECONDS)
            if follower.is_alive():  # its pod still prints, and is about to be deleted
                return
        try:
            names = [name for name, pod in self._pods.objects().items() if _job_of(pod) == task.folder.name]
        except SiteAwayError:
            return
        said = "".join(self._cluster.log(name, 10_000) for name in names)
        (task.folder / "stderr").write_text(said, encoding="utf-8")

    def _patiently(self, call: Callable[[], Any]) -> Any:
        """Ask again while the API server is away; names make that safe."""
        deadline, pause = time.monotonic() + _TRIES_SECONDS, 0.5
        while True:
            try:
                return call()
            except SiteAwayError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(pause)
                pause = min(10.0, 2 * pause)


def run_scheduler_k8s(
    task_config_template_path: str | os.PathLike[str],
    k8s_dijob_yaml_file_path: str | os.PathLike[str],
    time_out: float | None = None,
    **where: str | None,
) -> KubernetesScheduler:
    """Run trials of a config file as objects of a Kubernetes cluster.

    :param task_config_template_path: a Python file that defines `main_config` (and `create_config`).
    :param k8s_dijob_yaml_file_path: a manifest of a DIJob, a Job or another kind with pods, and an empty ConfigMap.
    :param time_out: seconds of running after which a task is ended.
    :param where: kubeconfig, context, namespace; by default the current ones.
    """
    return KubernetesScheduler(task_config_template_path, k8s_dijob_yaml_file_path, time_out, **where)


def _read(path: Path) -> tuple[Object, list[Object]]:
    documents = read_documents(path)
    manifest = next((one for one in documents if pod_templates(one)), None)
    if manifest is None:
        raise UsageError(f"{path} has no object with containers, such as a DIJob or a Job")
    pod_spec(manifest)
    for key in ("name", "projectPath"):
        if not isinstance((manifest.get("metadata") or {}).get(key), str):
            raise UsageError(f"{path}: metadata.{key} is missing in the {manifest['kind']}")
    manifest = {key: manifest[key] for key in ("apiVersion", "kind", "metadata", "spec")}
    return copy.deepcopy(manifest), [one for one in documents if one["kind"] == "ConfigMap"]


def _filled(text: str, folder: str, values: Mapping[str, Any]) -> str:
    """The config file with a task's values set before its main block, or in the end."""
    lines = text.splitlines(keepends=True)
    block = next((one for one in ast.parse(text).body if is_main_block(one)), None)
    at = len(lines) if block is None else block.lineno - 1
    inserted = _SET.format(folder=folder, values=json.dumps(values))
    return "".join(lines[:at]) + inserted + ("".join(lines[at:]) if block is not None else _TRAIN)


def _job_of(pod: Object) -> str:
    return str((pod["metadata"].get("labels") or {}).get("operant-job", ""))
