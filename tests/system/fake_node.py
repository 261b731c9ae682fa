"""A node of a real Kubernetes that only says it is one: its pods are processes of this machine."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from typing import Any

from tests.system.kubernetes import Kubernetes

NAME = "fake"
_HEARTBEAT = 5.0


class FakeNode:
    """Does what a kubelet does as far as jobs need it: starts what was scheduled to it, tells its state, ends it."""

    def __init__(self, kubernetes: Kubernetes) -> None:
        from kubernetes import client, config

        self._core = client.CoreV1Api(config.new_client_from_config(kubernetes.kubeconfig))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._core.create_node({"metadata": {"name": NAME}})
        self._say_ready()
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()
        for process in self._processes.values():
            process.kill()
            process.wait()

    def _say_ready(self) -> None:
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "it says so"}
        room = {"cpu": "64", "memory": "64Gi", "pods": "200"}
        status = {"conditions": [ready], "capacity": room, "allocatable": room}
        self._core.patch_node_status(NAME, {"status": status})
        self._core.patch_node(NAME, {"spec": {"taints": None}})

    def _run(self) -> None:
        from kubernetes.client.exceptions import NotFoundException

        beats = 0
        while not self._ends.wait(0.1):
            beats += 1
            if beats % int(_HEARTBEAT / 0.1) == 0:
                self._say_ready()
            for pod in self._core.list_pod_for_all_namespaces(field_selector=f"spec.nodeName={NAME}").items:
                with contextlib.suppress(NotFoundException):  # somebody deleted it meanwhile
                    self._see_to(pod)

    def _see_to(self, pod: Any) -> None:
        name, process = pod.metadata.uid, self._processes.get(pod.metadata.uid)
        if pod.metadata.deletion_timestamp is not None:
            if process is not None and process.poll() is None:
                process.terminate()
            elif process is None or process.poll() is not None:
                self._core.delete_namespaced_pod(pod.metadata.name, pod.metadata.namespace, grace_period_seconds=0)
        elif process is None:
            container = pod.spec.containers[0]
            env = {one.name: one.value for one in container.env or () if one.value is not None}
            for one in container.env_from or ():
                secret = self._core.read_namespaced_secret(one.secret_ref.name, pod.metadata.namespace)
                env |= {key: _decoded(value) for key, value in secret.data.items()}
            argv = [*container.command, *(container.args or ())]
            self._processes[name] = subprocess.Popen(argv, env={**os.environ, **env})
            self._tell(pod, "Running", {"running": {}})
        elif process.poll() is not None and pod.status.phase == "Running":
            over = {"terminated": {"exitCode": process.poll(), "reason": "Completed"}}
            self._tell(pod, "Failed" if process.poll() else "Succeeded", over)

    def _tell(self, pod: Any, phase: str, state: dict[str, Any]) -> None:
        container = pod.spec.containers[0]
        about = {"name": container.name, "image": container.image, "imageID": "", "restartCount": 0}
        ready = "running" in state
        status = {
            "phase": phase,
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "containerStatuses": [{**about, "ready": ready, "state": state}],
        }
        self._core.patch_namespaced_pod_status(pod.metadata.name, pod.metadata.namespace, {"status": status})


def _decoded(value: str) -> str:
    import base64

    return base64.b64decode(value).decode()
