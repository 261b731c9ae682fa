"""Ray: ray.put of numpy arrays, read by actors."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import ray
from workload import EVENT, N_WARM, is_round, make_state, now, quantiles, report, stamp_state


class Reader:
    def __init__(self) -> None:
        self.n_heard = 0

    def read(self, state: Any, number: int, began: float) -> float:
        assert is_round(state, number)
        return now() - began

    def hear(self, *content: Any) -> int:
        self.n_heard += 1
        return self.n_heard


def main(sizes: dict[str, tuple[int, int]], n_events: int, n_pings: int) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    ray.init(
        num_cpus=4,
        include_dashboard=False,
        _node_ip_address="127.0.0.2",
        log_to_driver=False,
        object_store_memory=2_000_000_000,
        runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join(sys.path)}},
    )
    result: dict[str, Any] = {}
    readers = [ray.remote(Reader).remote() for _ in range(3)]
    ray.get([reader.hear.remote() for reader in readers])
    for name, (n_bytes, n_rounds) in sizes.items():
        state = make_state(n_bytes)
        for n_peers in (1, 3):
            slowest = []
            for number in range(n_rounds):
                stamp_state(state, number)
                began = now()
                reference = ray.put(state)
                read = [reader.read.remote(reference, number, began) for reader in readers[:n_peers]]
                slowest.append(max(ray.get(read)))
            result[f"publish {name} to {n_peers}"] = quantiles(slowest[N_WARM:])
    began = now()
    ray.get([readers[0].hear.remote(*EVENT) for _ in range(n_events)])
    result["events per second"] = n_events / (now() - began)
    seconds = []
    for _ in range(n_pings):
        began = now()
        ray.get(readers[0].hear.remote(*EVENT))
        seconds.append((now() - began) / 2)
    result["event latency"] = quantiles(seconds[N_WARM:])
    ray.shutdown()
    report(result)


if __name__ == "__main__":
    main(*json.loads(sys.argv[1]))
