"""What runs in a worker process."""

from __future__ import annotations

import pickle
import signal
import sys
import traceback
from typing import Any

from operant.framework.parallel.link import Kind
from operant.framework.parallel.router import Router
from operant.framework.parallel.spec import WorkerSpec
from operant.framework.parallel.standalone import current_router
from operant.framework.parallel.wire import WireError


def run_in_new_process(spec: WorkerSpec) -> None:
    """The entry of a process that was started for one worker."""
    # Ctrl-C goes to the whole group; the supervisor alone decides what follows.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if not run_worker(spec):
        sys.exit(1)


def run_worker(spec: WorkerSpec) -> bool:
    """Join the others, run main, report what it returned or raised; True when it returned."""
    for entry in spec.sys_path:
        if entry not in sys.path:
            sys.path.append(entry)
    router = Router(spec)
    token = None
    try:
        router.join()
        token = current_router.set(router)
        if spec.lockstep:
            router.supervisor.turn.take()
        main, args, kwargs = pickle.loads(spec.main)
        _report(router, main(*args, **kwargs))
        return True
    except BaseException as error:
        router.supervisor.send(Kind.FAILURE, _describe(error))
        return False
    finally:
        if token is not None:
            current_router.reset(token)
        router.supervisor.leave()
        router.close()


def _report(router: Router, result: Any) -> None:
    try:
        router.supervisor.send(Kind.RESULT, result)
    except WireError as error:
        raise TypeError(f"what main returned on node.{router.node_id} cannot be sent back: {error}") from error


def _describe(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))
