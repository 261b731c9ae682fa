"""`Parallel.runner(...)(main)`: the same main in several processes, linked to each other."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any, Literal

from operant.framework.errors import FrameworkError
from operant.framework.parallel.beside import Beside
from operant.framework.parallel.local_engine import Engine, LocalEngine, refuse_unguarded_main
from operant.framework.parallel.settings import Labels, RunnerSettings
from operant.framework.parallel.supervisor import OnRestart, Supervisor
from operant.framework.parallel.topology import Topology

_NEVER = 1 << 62


class Parallel:
    """Starts parallel runs."""

    def __init__(self) -> None:
        raise FrameworkError(
            "there is no object of Parallel: `Parallel.runner(...)(main)` starts workers, and `task.router` says in "
            "each of them who it is and who its peers are"
        )

    @classmethod
    def runner(
        cls,
        n_parallel_workers: int,
        topology: Topology = "mesh",
        *,
        engine: Literal["local", "ray"] = "local",
        attach_to: Sequence[str] = (),
        protocol: Literal["ipc", "tcp"] = "ipc",
        address: str | None = None,
        ports: int | Sequence[int] | None = None,
        labels: Labels | Mapping[int, Labels] = None,
        node_ids: int | Sequence[int] | None = None,
        auto_recover: bool = False,
        max_retries: float = inf,
        recover_every: int = 1,
        stall_timeout: float | None = None,
        schedule: Literal["free", "lockstep"] = "free",
        secret: str | bytes | None = None,
        ray_options: Mapping[str, Any] | None = None,
    ) -> Callable[..., list[Any]]:
        """A function that runs `main` in every worker and returns what each returned, in order.

        topology: who is linked: 'star' (the first worker with each other one), 'mesh' (all), 'alone' (none).
        engine: 'local' starts processes on this machine; 'ray' lets Ray place and supervise them.
        attach_to: addresses of workers of other runners to link to, ``tcp://host:port``.
        protocol, address, ports: 'tcp' listens for other machines too, one port for each worker.
        secret: what all machines of a run know (or ``OPERANT_SECRET``); the network is refused without it.
        labels: for all workers, or a mapping from node id to labels, for `task.use(filter_labels=...)`.
        node_ids: the number of each worker, or of the first.
        auto_recover: restart a worker that failed, up to `max_retries` times, with what its task had
        registered at its last pass (at every `recover_every`-th). Otherwise a failure ends the run.
        stall_timeout: seconds without a pass after which a worker counts as hung and is killed.
        schedule: 'lockstep' lets one worker run at a time, in a fixed order: a run repeats bit by bit.
        ray_options: passed to Ray for each worker, such as ``{'num_cpus': 2}``.
        """
        settings = RunnerSettings(
            n_parallel_workers=n_parallel_workers,
            topology=topology,
            engine=engine,
            attach_to=tuple(attach_to) if not isinstance(attach_to, str) else attach_to,
            protocol=protocol,
            address=address,
            ports=ports,
            labels=labels,
            node_ids=node_ids,
            auto_recover=auto_recover,
            max_retries=max_retries,
            recover_every=recover_every,
            stall_timeout=stall_timeout,
            schedule=schedule,
            secret=secret,
            ray_options=ray_options,
        )

        def run(main: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
            if _needs_no_other_process(settings):
                return [main(*args, **kwargs)]
            refuse_unguarded_main()
            packed = _pack(main, args, kwargs)
            return Supervisor(settings, _engine(settings), packed, list(sys.path)).run()

        return run

    @classmethod
    def beside(
        cls,
        n_workers: int,
        main: Callable[..., Any],
        *args: Any,
        engine: Literal["local", "ray", "nodes"] = "local",
        labels: Labels | Mapping[int, Labels] = None,
        stall_timeout: float | None = None,
        address: str | None = None,
        n_machines: int = 1,
        say: Callable[[str], None] | None = None,
        on_restart: OnRestart | None = None,
        topology: Topology = "star",
        ray_options: Mapping[str, Any] | None = None,
    ) -> Beside:
        """A context in which `main` runs in so many workers beside this process, which goes on as node.0:

            with Parallel.beside(2, collect) as router, Task(router=router) as task: ...

        A worker that fails is replaced, without the state of its earlier life, and `on_restart` is told; the context
        ends all of them. This process may take as long as it likes for a pass: `stall_timeout` is not for it.

        With ``engine='nodes'`` they are spread over `n_machines`, of which the others join at `address` (a
        ``tcp://host:port``, see `operant join`); `say` is told who comes and goes. With ``engine='ray'`` it is told
        who waits for a place.
        """
        refuse_unguarded_main()
        settings = RunnerSettings(
            n_parallel_workers=n_workers + 1,
            topology=topology,
            engine=engine,
            labels=labels,
            address=address,
            n_machines=n_machines,
            auto_recover=True,
            recover_every=_NEVER,
            stall_timeout=stall_timeout,
            ray_options=ray_options,
        )
        return Beside(settings, _engine(settings, say), _pack(main, args, {}), list(sys.path), on_restart)


def _needs_no_other_process(settings: RunnerSettings) -> bool:
    return (
        settings.n_parallel_workers == 1
        and settings.engine == "local"
        and not settings.reaches_out
        and not settings.auto_recover
        and settings.stall_timeout is None
        and settings.node_ids is None
    )


def _engine(settings: RunnerSettings, say: Callable[[str], None] | None = None) -> Engine:
    if settings.engine == "nodes":
        from operant.framework.parallel.nodes_engine import NodesEngine

        return NodesEngine(settings, say)
    if settings.engine == "ray":
        from operant.framework.parallel.ray_engine import RayEngine

        return RayEngine(settings, say)
    return LocalEngine()


def _pack(main: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    try:
        return pickle.dumps((main, args, kwargs))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise TypeError(
            f"the workers must be able to import main and its arguments: {error}; "
            "main is a function at the top level of a module"
        ) from error
