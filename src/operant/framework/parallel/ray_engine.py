"""Workers as Ray actors: Ray places them on its cluster and tells when one dies; the wire is our own."""

from __future__ import annotations

import importlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from operant.errors import MissingExtraError, OperantError
from operant.framework.parallel.local_engine import ExitCallback, WorkerHandle
from operant.framework.parallel.settings import RunnerSettings
from operant.framework.parallel.spec import WorkerSpec
from operant.framework.parallel.worker import run_worker

_LOG = logging.getLogger(__name__)

# A custom resource only says where an actor may run; this little of it is taken.
_TOUCH = 0.001
# A worker that is not up by then is told of: it may wait for a place for long.
_SLOW_START = 30.0
# Ray itself looks for a cluster that is not there for minutes.
_ANSWER_TIMEOUT = 10.0


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

    They are spread over its nodes. One for which there is no room waits until there is, and `say` is told.

    A label ``key=value`` is a Ray node label that the worker needs; a label that names a custom resource of
    the cluster (``ray start --resources='{"evaluator": 1}'``) places the worker where that resource is. Other
    labels only select middleware.
    """

    def __init__(self, settings: RunnerSettings, say: Callable[[str], None] | None = None) -> None:
        if not os.environ.get("RAY_ADDRESS"):
            prepare_ray()
        try:
            ray: Any = importlib.import_module("ray")
        except ImportError:
            raise MissingExtraError("engine='ray'", "ray") from None
        self._ray = ray
        self._say = say or (lambda sentence: _LOG.warning("%s", sentence))
        self._options = {"num_cpus": 1, "scheduling_strategy": "SPREAD", **(settings.ray_options or {})}
        if not ray.is_initialized():
            _init(ray, settings.n_parallel_workers)

    def supervisor_address(self, session: str) -> str:
        return f"tcp://{self._ray.util.get_node_ip_address()}:0"

    def listen_at(self, session: str, spec: WorkerSpec, tcp: list[str]) -> list[str]:
        # Only the actor knows on which machine it is.
        return []

    def start(self, spec: WorkerSpec, on_exit: ExitCallback) -> WorkerHandle:
        actor_class = self._ray.remote(_WorkerActor)
        options = {**self._options, **self._placement(spec.labels)}
        # Ray must not restart it by itself: the supervisor does, with the state and a new number.
        actor = actor_class.options(max_restarts=0, **options).remote()
        placed = actor.placed.remote()
        finished = actor.run.remote(spec)

        def watch() -> None:
            try:
                if not self._ray.wait([placed], timeout=_SLOW_START)[0]:
                    self._say(f"node.{spec.node_id} has no place yet: {self._room()}")
                self._ray.get(finished)
                text = "ended"
            except Exception as error:
                text = f"ended as a Ray actor: {error}"
            on_exit(spec, text)

        threading.Thread(target=watch, name="operant-watch", daemon=True).start()
        return _RayHandle(self._ray, actor, placed)

    def close(self) -> None:
        pass

    def _room(self) -> str:
        there, free = (read().get("CPU", 0.0) for read in (self._ray.cluster_resources, self._ray.available_resources))
        return f"of Ray's {there:g} CPUs {free:g} are free, and a worker wants {self._options['num_cpus']:g}"

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
    address = os.environ.get("RAY_ADDRESS")
    if not address:
        try:
            ray.init(num_cpus=max(workers, os.cpu_count() or 1))
            return
        except ValueError:  # one runs on this machine already, and has the CPUs that it has
            pass
    else:
        _must_answer(address)
    try:
        ray.init()
    except (OSError, RuntimeError, ValueError) as error:
        raise _no_cluster(address or "the address that Ray has noted", error) from error


def _must_answer(address: str) -> None:
    """Somebody must listen where a cluster is said to be; addresses of other forms are for Ray to judge."""
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdigit():
        return
    deadline = time.monotonic() + _ANSWER_TIMEOUT
    while True:
        try:
            socket.create_connection((host.strip("[]"), int(port)), _ANSWER_TIMEOUT).close()
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise _no_cluster(address, error) from None
        time.sleep(0.5)  # it may be starting


def _no_cluster(address: str, error: Exception) -> OperantError:
    why = " ".join(str(error).split())
    return OperantError(
        f"there is no Ray cluster at {address} ({why}): `ray start --head` starts one, RAY_ADDRESS=host:port names one "
        "elsewhere, and without RAY_ADDRESS one is started here for as long as it is needed"
    )


class _WorkerActor:
    def placed(self) -> bool:
        """Answered as soon as the actor has a process somewhere."""
        return True

    def run(self, spec: WorkerSpec) -> bool:
        ray: Any = importlib.import_module("ray")
        spec.listen_at = [f"tcp://{ray.util.get_node_ip_address()}:0"]
        return run_worker(spec)


class _RayHandle:
    def __init__(self, ray: Any, actor: Any, placed: Any) -> None:
        self._ray = ray
        self._actor = actor
        self._placed = placed

    def has_place(self) -> bool:
        return bool(self._ray.wait([self._placed], timeout=0)[0])

    def ask_to_end(self) -> None:
        self.kill()

    def kill(self) -> None:
        self._ray.kill(self._actor, no_restart=True)

    def release(self) -> None:
        """The actor ends when nothing refers to it any more."""
        self.kill()
