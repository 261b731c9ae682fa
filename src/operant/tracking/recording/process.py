"""One place in the process that flushes every open recorder: each half second, at exit, at fork, on SIGTERM."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
import threading
import traceback
from types import FrameType, TracebackType
from typing import Any, Protocol

from operant.status import Status

log = logging.getLogger("operant.tracking")

FLUSH_SECONDS = 0.5


class Flushable(Protocol):
    def flush(self) -> None: ...
    def tick(self) -> None: ...
    def end(self, status: str, *, code: int | None = None, error: str | None = None) -> None: ...
    def after_fork_in_child(self) -> None: ...


class Gate:
    """The lock around all recording I/O of this process.

    A signal handler runs in the main thread between two of its instructions, perhaps in the middle of a
    flush. It must not start a second flush there, nor wait for a lock that its own thread holds: so a
    handler that finds its thread inside the gate is put off until the gate is left.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._owner: int | None = None
        self._depth = 0
        self._put_off: int | None = None

    def __enter__(self) -> None:
        self._lock.acquire()
        self._depth += 1
        self._owner = threading.get_ident()

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._owner = None
        self._lock.release()
        if self._put_off is not None and self._owner is None and _in_main_thread():
            signum, self._put_off = self._put_off, None
            _die_of(signum)

    def put_off(self, signum: int) -> bool:
        if self._owner != threading.get_ident():
            return False
        self._put_off = signum
        return True

    def reset(self) -> None:
        self.__init__()  # type: ignore[misc]


gate = Gate()
_open: dict[int, Flushable] = {}  # in order of creation
_thread: threading.Thread | None = None
_wake = threading.Event()
_hooked = False
_failure: BaseException | None = None


def register(recorder: Flushable) -> None:
    """Keep ``recorder`` flushed until :func:`unregister`."""
    with gate:
        _open[id(recorder)] = recorder
        _hook_process()
        settle()


def settle() -> None:
    """Make sure that this process flushes: what a fork does not bring along is set up again."""
    global _thread
    if _thread is None or not _thread.is_alive():
        _hook_multiprocessing_exit()
        _thread = threading.Thread(target=_flush_regularly, name="operant-flush", daemon=True)
        _thread.start()


def unregister(recorder: Flushable) -> None:
    with gate:
        _open.pop(id(recorder), None)


def _flush_regularly() -> None:
    while not _wake.wait(FLUSH_SECONDS):
        for recorder in list(_open.values()):
            try:
                recorder.tick()
                recorder.flush()
            except Exception:
                log.exception("a recorder could not be flushed; it is tried again")


def _end_all(status: str, *, code: int | None = None, error: str | None = None) -> None:
    for recorder in list(_open.values()):
        try:
            recorder.end(status, code=code, error=error)
        except Exception:
            log.exception("a recorder could not be closed")


def _at_exit() -> None:
    failure = _failure
    if failure is None:
        _end_all(Status.FINISHED)
    else:
        _end_all(Status.ERROR, code=1, error="".join(traceback.format_exception_only(failure)).strip())
    _wake.set()


def _hook_process() -> None:
    global _hooked
    if not _hooked:
        _hooked = True
        atexit.register(_at_exit)
        os.register_at_fork(before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
        _chain_excepthook()
    _hook_sigterm()


def _chain_excepthook() -> None:
    previous = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> Any:
        global _failure
        _failure = error
        return previous(kind, error, trace)

    sys.excepthook = hook


def _hook_sigterm() -> None:
    """Only where the program has no handler of its own: one that has will come to ``atexit`` or has its reasons."""
    if _in_main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _on_sigterm)


def _on_sigterm(signum: int, _frame: FrameType | None) -> None:
    if not gate.put_off(signum):
        _die_of(signum)


def _die_of(signum: int) -> None:
    with gate:
        _end_all(Status.KILLED, code=-signum, error=f"ended by {signal.Signals(signum).name}")
    signal.signal(signum, signal.SIG_DFL)
    os.kill(os.getpid(), signum)


def _hook_multiprocessing_exit() -> None:
    """Children of multiprocessing leave by ``os._exit`` and never reach ``atexit``; its finalizers do run."""
    util = sys.modules.get("multiprocessing.util")
    process = sys.modules.get("multiprocessing.process")
    if util is not None and process is not None and process.parent_process() is not None:
        util.Finalize(None, _at_exit, exitpriority=0)


def _before_fork() -> None:
    gate.__enter__()
    for recorder in list(_open.values()):
        try:
            recorder.flush()
        except Exception:
            log.exception("a recorder could not be flushed before a fork")


def _after_in_parent() -> None:
    gate.__exit__()


def _after_in_child() -> None:
    global _thread, _wake, _failure
    gate.reset()
    _thread, _wake, _failure = None, threading.Event(), None
    for recorder in list(_open.values()):
        recorder.after_fork_in_child()


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
