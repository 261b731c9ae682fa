from __future__ import annotations

import signal
import subprocess
import sys

import psutil
from tests.machine import wait_until

MAIN = """
import sys, time, os
from operant._util.pools import spawn_pool

def work(_):
    print(os.getpid(), flush=True)
    time.sleep(60)

if __name__ == "__main__":
    with spawn_pool(1) as pool:
        list(pool.map(work, [0]))
"""


def test_workers_end_with_a_parent_that_is_killed(tmp_path):
    main = tmp_path / "main.py"
    main.write_text(MAIN, encoding="utf-8")
    with subprocess.Popen([sys.executable, str(main)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
    wait_until(lambda: not _lives(worker), "the end of the worker")


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
