"""How long a sum over learners takes: by Operant's own link, and by torch.distributed (gloo) on loopback.

    python benchmarks/sums.py            2 and 3 processes; 9,000 numbers (two 64-unit networks) and 140,000

Each process gives an array of float32 and gets the sum; the mean over a thousand sums, of three rounds the median.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from operant.framework import Parallel, Task

SIZES, PROCESSES, SUMS, ROUNDS = (9_000, 140_000), (2, 3), 1000, 3


def _timed(total: Any) -> float:
    for _ in range(50):
        total()
    began = time.perf_counter()
    for _ in range(SUMS):
        total()
    return (time.perf_counter() - began) / SUMS


def by_link(size: int) -> float:
    with Task() as task:
        values = np.ones(size, np.float32)
        return _timed(lambda: task.router.sums.total(values))  # type: ignore[attr-defined]


def by_gloo(size: int, place: str) -> float:
    """In the same processes, which are told their numbers by the router."""
    import torch
    import torch.distributed as dist

    with Task() as task:
        spec = task.router.spec  # type: ignore[attr-defined]
        store = dist.FileStore(place, len(spec.node_ids))
        options = dist.ProcessGroupGloo._Options()
        options._devices = [dist.ProcessGroupGloo.create_device(hostname="127.0.0.1")]
        group = dist.ProcessGroupGloo(store, spec.node_id, len(spec.node_ids), options)
        values = torch.ones(size)
        found = _timed(lambda: group.allreduce([values]).wait())
        task.router.sums.total(np.zeros(1))  # type: ignore[attr-defined]  # all are done before one closes
        return found


def main() -> None:
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    for processes in PROCESSES:
        run = Parallel.runner(processes, topology="star")
        for size in SIZES:
            link = statistics.median(run(by_link, size)[0] for _ in range(ROUNDS))
            with tempfile.TemporaryDirectory() as folder:
                gloo = statistics.median(run(by_gloo, size, str(Path(folder) / str(n)))[0] for n in range(ROUNDS))
            print(
                f"{processes} processes, {size:>7,} numbers: link {link * 1e3:6.2f} ms   gloo {gloo * 1e3:6.2f} ms",
                flush=True,
            )


if __name__ == "__main__":
    main()
