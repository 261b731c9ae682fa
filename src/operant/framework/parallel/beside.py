"""Workers beside a process that goes on: it is node.0 of their run, and supervises it from a thread."""

from __future__ import annotations

import queue
import threading
from types import TracebackType

from operant.framework.errors import FrameworkError
from operant.framework.parallel.link import Kind
from operant.framework.parallel.local_engine import Engine, ExitCallback, WorkerHandle
from operant.framework.parallel.router import Router
from operant.framework.parallel.settings import RunnerSettings
from operant.framework.parallel.spec import WorkerSpec
from operant.framework.parallel.supervisor import OnRestart, Supervisor

# How long workers may take to end their pass when this process is done with them, and when it has failed.
_GRACE = 10.0
_FAILED_GRACE = 1.0
_JOIN_TIMEOUT = 120.0


class Beside:
    """A context: inside it the workers run, and what it gives is the router for this process' task."""

    def __init__(
        self,
        settings: RunnerSettings,
        engine: Engine,
        main: bytes,
        sys_path: list[str],
        on_restart: OnRestart | None = None,
    ) -> None:
        # Machines that have yet to join are waited for here, where the wait can be interrupted.
        self._get_ready = getattr(engine, "wait_for_machines", None)
        self._engine = _FirstHere(engine)
        self._supervisor = Supervisor(settings, self._engine, main, sys_path, on_restart)
        self._thread = threading.Thread(target=self._supervise, name="operant-supervisor", daemon=True)
        self._failure: BaseException | None = None
        self._router: Router | None = None

    def __enter__(self) -> Router:
        if self._get_ready is not None:
            try:
                self._get_ready()
            except BaseException:
                self._engine.close()
                raise
        self._thread.start()
        try:
            self._router = Router(self._engine.spec(_JOIN_TIMEOUT))
            self._router.join()
        except BaseException:
            self._end(_FAILED_GRACE)
            if self._failure is not None:
                raise self._failure from None
            raise
        return self._router

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._router is not None
        self._router.raise_finish()
        self._end(_GRACE if kind is None else _FAILED_GRACE)

    def _supervise(self) -> None:
        try:
            self._supervisor.run()
        except BaseException as error:
            self._failure = error
            self._engine.give_up()

    def _end(self, grace: float) -> None:
        router = self._router
        if router is not None:
            router.supervisor.send(Kind.RESULT, None)
        self._engine.left()
        self._thread.join(grace)
        self._supervisor.stop()  # what has not ended by now is ended
        self._thread.join()
        if router is not None:
            router.supervisor.leave()
            router.close()


class _FirstHere:
    """An engine whose first worker is this process."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._session = ""
        self._spec: queue.SimpleQueue[WorkerSpec | None] = queue.SimpleQueue()
        self._on_exit: list[tuple[ExitCallback, WorkerSpec]] = []

    def supervisor_address(self, session: str) -> str:
        self._session = session
        return self._engine.supervisor_address(session)

    def listen_at(self, session: str, spec: WorkerSpec, tcp: list[str]) -> list[str]:
        return self._engine.listen_at(session, spec, tcp)

    def start(self, spec: WorkerSpec, on_exit: ExitCallback) -> WorkerHandle:
        if spec.node_id != spec.node_ids[0]:
            return self._engine.start(spec, on_exit)
        spec.here = True
        spec.heartbeat = None  # nobody watches over this process: it may evaluate for as long as it likes
        # An engine that spans machines lets each worker say where it is.
        spec.listen_at = spec.listen_at or [self._engine.supervisor_address(self._session)]
        self._on_exit.append((on_exit, spec))
        self._spec.put(spec)
        return _Here()

    def spec(self, timeout: float) -> WorkerSpec:
        try:
            spec = self._spec.get(timeout=timeout)
        except queue.Empty:
            spec = None
        if spec is None:
            raise FrameworkError("the workers could not be started")
        return spec

    def give_up(self) -> None:
        self._spec.put(None)

    def left(self) -> None:
        for on_exit, spec in self._on_exit:
            on_exit(spec, "ended")

    def close(self) -> None:
        self._engine.close()


class _Here:
    """This process is not ended by its own supervisor; the router tells it that the run has failed."""

    def has_place(self) -> bool:
        return True

    def ask_to_end(self) -> None: ...
    def kill(self) -> None: ...
    def release(self) -> None: ...
