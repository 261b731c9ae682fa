"""Workers as processes of this machine."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import wait
from typing import Any, Protocol

from operant.framework.parallel.spec import WorkerSpec
from operant.framework.parallel.worker import run_in_new_process

# The exit code of a worker that met the start of the run while it imported the main module.
_UNGUARDED = 79

ExitCallback = Callable[[WorkerSpec, str], None]


class WorkerHandle(Protocol):
    """A worker as its supervisor sees it."""

    def has_place(self) -> bool:
        """Whether it could be started yet; one that waits for a machine with room is not late."""

    def ask_to_end(self) -> None:
        """Politely: it may still clean up."""

    def kill(self) -> None:
        """At once."""

    def release(self) -> None:
        """It has ended; forget it."""


class Engine(Protocol):
    """Starts workers and tells when one has ended."""

    def supervisor_address(self, session: str) -> str: ...
    def listen_at(self, session: str, spec: WorkerSpec, tcp: list[str]) -> list[str]: ...
    def start(self, spec: WorkerSpec, on_exit: ExitCallback) -> WorkerHandle: ...
    def close(self) -> None: ...


class LocalEngine:
    """Starts each worker in a fresh interpreter (spawn): a fork would copy locks that threads hold."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("spawn")

    def supervisor_address(self, session: str) -> str:
        return f"ipc://operant-{session}-supervisor"

    def listen_at(self, session: str, spec: WorkerSpec, tcp: list[str]) -> list[str]:
        return [f"ipc://operant-{session}-{spec.node_id}-{spec.incarnation}", *tcp]

    def start(self, spec: WorkerSpec, on_exit: ExitCallback) -> WorkerHandle:
        process = self._context.Process(
            target=run_in_new_process, args=(spec,), name=f"operant-node.{spec.node_id}", daemon=False
        )
        process.start()

        def watch() -> None:
            wait([process.sentinel])
            process.join()
            on_exit(spec, _describe_exit(process.exitcode, process.pid))

        threading.Thread(target=watch, name="operant-watch", daemon=True).start()
        return _LocalHandle(process)

    def close(self) -> None:
        pass


class _LocalHandle:
    def __init__(self, process: Any) -> None:
        self._process = process

    def has_place(self) -> bool:
        return True

    def ask_to_end(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()

    def release(self) -> None:
        self._process.join()
        self._process.close()


def refuse_unguarded_main() -> None:
    """End a worker that would start workers of its own because its main module starts them when it is imported."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise SystemExit(_UNGUARDED)


def _describe_exit(code: int | None, pid: int | None) -> str:
    if code is not None and code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = "unknown"
        return f"was killed by signal {-code} ({name}), process {pid}"
    if code == _UNGUARDED:
        return (
            "came upon the start of the run while it imported the main module, as every worker does: put the call of "
            "Parallel.runner under `if __name__ == '__main__':`"
        )
    return f"ended with exit code {code}, process {pid}"
