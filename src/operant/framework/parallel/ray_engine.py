"""Workers as Ray actors: Ray places them on its cluster and tells when one dies; the wire is our own."""

from __future__ import annotations

import importlib
import logging
import os
import threading
from typing import Any

from operant.errors import MissingExtraError
from operant.framework.parallel.local_engine import ExitCallback, WorkerHandle
from operant.framework.parallel.settings import RunnerSettings
from operant.framework.parallel.spec import WorkerSpec
from operant.framework.parallel.worker import run_worker

_LOG = logging.getLogger(__name__)

# A custom resource only says where an actor may run; this little of it is taken.
_TOUCH = 0.001


def prepare_ray() -> None:
    """Set what a Ray that is started here reads from the environment when it is first loaded, where nobody has."""
    os.environ.setdefault("RAY_AUTH_MODE", "token")  # Ray runs anybody's code otherwise
    # Where there is much to do, Ray's parts need longer than its 30 s to come up.
    os.environ.setdefault("RAY_raylet_start_wait_time_s", "180")
    os.environ.setdefault("RAY_agent_register_timeout_ms", "180000")
    os.environ.setdefault("RAY_worker_niceness", "0")  # by default 15: beside other work nothing would come of them
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # small networks lose to the starting of threads


class RayEngine:
    """Starts each worker in an actor, on the cluster that `ray.init` has chosen, or on a local one.

    A label ``key=value`` is a Ray node label that the worker needs; a label that names a custom resource of
    the cluster (``ray start --resources='{"evaluator": 1}'``) places the worker where that resource is. Other
    labels only select middleware.
    """

    def __init__(self, settings: RunnerSettings) -> None:
        if not os.environ.get("RAY_ADDRESS"):
            prepare_ray()
        try:
            ray: Any = importlib.import_module("ray")
        except ImportError:
            raise MissingExtraError("engine='ray'", "ray") from None
        self._ray = ray
        self._options = dict(settings.ray_options or {})
        if not ray.is_initialized():
            _init(ray, settings.n_parallel_workers)
        self._nodes: set[int] = set()

    def supervisor_address(self, session: str) -> str:
        return f"tcp://{self._ray.util.get_node_ip_address()}:0"

    def listen_at(self, session: str, spec: WorkerSpec, tcp: list[str]) -> list[str]:
        # Only the actor knows on which machine it is.
        return []

    def start(self, spec: WorkerSpec, on_exit: ExitCallback) -> WorkerHandle:
        self._tell_of_missing(spec.node_id)
        actor_class = self._ray.remote(_WorkerActor)
        options: dict[str, Any] = {"num_cpus": 1, **self._options, **self._placement(spec.labels)}
        # Ray must not restart it by itself: the supervisor does, with the state and a new number.
        actor = actor_class.options(max_restarts=0, **options).remote()
        finished = actor.run.remote(spec)

        def watch() -> None:
            try:
                self._ray.get(finished)
                text = "ended"
            except Exception as error:
                text = f"ended as a Ray actor: {error}"
            on_exit(spec, text)

        threading.Thread(target=watch, name="operant-watch", daemon=True).start()
        return _RayHandle(self._ray, actor)

    def close(self) -> None:
        pass

    def _tell_of_missing(self, node_id: int) -> None:
        each, there = float(self._options.get("num_cpus", 1)), self._ray.cluster_resources().get("CPU", 0.0)
        enough = len(self._nodes) * each <= there
        self._nodes.add(node_id)
        if enough and len(self._nodes) * each > there:  # said once
            _LOG.warning("Ray has %g CPUs and each worker wants %g: some must wait for a place", there, each)

    def _placement(self, labels: list[str]) -> dict[str, Any]:
        selector = dict(label.split("=", 1) for label in labels if "=" in label)
        known = self._ray.cluster_resources()
        resources = {label: _TOUCH for label in labels if label in known and label not in ("CPU", "GPU")}
        placement: dict[str, Any] = {}
        if selector:
            placement["label_selector"] = selector
        if resources:
            placement["resources"] = {**self._options.get("resources", {}), **resources}
        return placement


def _init(ray: Any, workers: int) -> None:
    """Join the cluster that there is, or start one with a place for every worker, however few cores there are."""
    if not os.environ.get("RAY_ADDRESS"):
        try:
            ray.init(num_cpus=max(workers, os.cpu_count() or 1))
            return
        except ValueError:  # one runs on this machine already, and has the CPUs that it has
            pass
    ray.init()


class _WorkerActor:
    def run(self, spec: WorkerSpec) -> bool:
        ray: Any = importlib.import_module("ray")
        spec.listen_at = [f"tcp://{ray.util.get_node_ip_address()}:0"]
        return run_worker(spec)


class _RayHandle:
    def __init__(self, ray: Any, actor: Any) -> None:
        self._ray = ray
        self._actor = actor

    def ask_to_end(self) -> None:
        self.kill()

    def kill(self) -> None:
        self._ray.kill(self._actor, no_restart=True)

    def release(self) -> None:
        """The actor ends when nothing refers to it any more."""
        self.kill()
