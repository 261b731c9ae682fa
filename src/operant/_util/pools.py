"""Pools of processes that end with whoever started them."""

from __future__ import annotations

import multiprocessing
import os
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context


def spawn_pool(workers: int) -> ProcessPoolExecutor:
    """Spawned, not forked: threads, as numerical libraries and the recorder have them, do not survive a fork.

    A worker whose parent is gone, also by `kill -9`, ends at once; by itself it would first finish its task.
    """
    return ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_end_with_parent)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, name="operant-parent", daemon=True).start()
