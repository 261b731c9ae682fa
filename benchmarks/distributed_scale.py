"""What transport costs a learner with a hundred and a thousand actors: light clients that send recorded trajectories.

    python benchmarks/distributed_scale.py                     100 and 1,000 actors on loopback
    python benchmarks/distributed_scale.py --actors 100 --rows 8

The learner is IMPALA's, with the queue, the snapshots and the batches of `workers=N`; acting costs nothing here, so
that the queue never runs empty. Shares are of the learner's CPU time: learning, collecting (taking messages from the
queue and putting batches together), and transport: the thread that moves bytes, and publishing the weights to all.
What transport takes of a core at 20,000 steps/s stands beside it. `--steps 64 --rows 16` is as large as the messages
of the presets are.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np

from operant.algorithms.impala import IMPALA, IMPALASettings
from operant.envs import make_env
from operant.framework import Parallel, Task
from operant.framework.parallel.queues import QueueSettings
from operant.framework.parallel.router import Router
from operant.training.actors import QUEUE, queue_size
from operant.training.collecting import Collector
from operant.training.config import TrainConfig
from operant.training.remote import Remote

HERE = Path(__file__).resolve().parent
PROCESSES = 4


def nobody() -> None:
    """What workers would run if there were any."""


class Scaled(Remote):
    """The source of `workers=N` whose workers are light clients."""

    @contextmanager
    def connected(self) -> Iterator[Router]:
        with Parallel.beside(0, nobody) as router:
            self._router = router
            self._queue = router.queue(QUEUE, QueueSettings(queue_size(self.config), "block", 0))
            yield router


def measure(actors: int, steps: int, rows: int, seconds: float) -> dict[str, float]:
    config = TrainConfig.from_mapping(
        {"workers": actors, "env": {"num_envs": actors * rows}, "algorithm": {"name": "impala", "rollout": steps}}
    )
    env = make_env("CartPole-v1", 1)
    algorithm = IMPALA(env.single_observation_space, env.single_action_space, IMPALASettings(rollout=steps))
    source = Scaled(
        algorithm, Collector(env, algorithm, rng=np.random.default_rng(0)), np.random.default_rng(1), config
    )
    spent = {"learn": 0.0, "publish": 0.0}
    with source.connected() as router, Task(router=router) as task:
        address = router.hub.listen("tcp://127.0.0.1:0")
        settings = QueueSettings(queue_size(config), "block", 0)
        each = -(-actors // PROCESSES)
        clients, started = [], time.perf_counter()
        for first in range(1, actors + 1, each):
            client = subprocess.Popen(
                [sys.executable, str(HERE / "_light_actors.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            about = {
                "address": address, "secret": router.spec.secret.hex(), "first": first, "steps": steps, "rows": rows,
                "count": min(each, actors + 1 - first), "settings": astuple(settings),
            }  # fmt: skip
            assert client.stdin is not None
            client.stdin.write((json.dumps(about) + "\n").encode())
            client.stdin.flush()
            clients.append(client)

        def work(ctx: Any) -> None:
            batch = source.collect(10**9)
            began = time.thread_time()
            source.learn(batch, 10**9, measure=False)
            spent["learn"] += time.thread_time() - began

        after_pass = router.after_pass

        def publish(ctx: Any) -> None:
            began = time.thread_time()
            after_pass(ctx)
            spent["publish"] += time.thread_time() - began

        router.after_pass = publish  # type: ignore[method-assign]
        task.use(work).use(source.publish)
        try:
            for client in clients:
                assert client.stdout is not None
                while not task.finish and not _ready(client.stdout):
                    task.step()
            joined = time.perf_counter() - started
            _steps_for(task, seconds / 3)
            spent |= {"learn": 0.0, "publish": 0.0}
            env_step, dropped = source.collector.env_step, source.dropped
            began, cpu, main = time.perf_counter(), time.process_time(), time.thread_time()
            fills = _steps_for(task, seconds, source)
            wall, cpu, main = time.perf_counter() - began, time.process_time() - cpu, time.thread_time() - main
            lag = source.figures()["workers/lag"]
        finally:
            for client in clients:
                client.kill()
                client.wait()
    made = source.collector.env_step - env_step
    return {
        "rate": made / wall,
        "per_cpu": made / cpu,
        "learn": spent["learn"] / cpu,
        "collect": (main - spent["learn"] - spent["publish"]) / cpu,
        "transport": (cpu - main + spent["publish"]) / cpu,
        "at_20k": 20_000 * (cpu - main + spent["publish"]) / made,
        "joined": joined,
        "fill": float(np.mean(fills)),
        "least": float(np.min(fills)),
        "lag": lag,
        "dropped": float(source.dropped - dropped),
    }


def _ready(stream: Any) -> bool:
    import select

    return bool(select.select([stream], [], [], 0)[0])


def _steps_for(task: Task, seconds: float, source: Any = None) -> list[float]:
    end, fills = time.perf_counter() + seconds, [0.0]
    while time.perf_counter() < end:
        task.step()
        if source is not None:
            fills.append(source._queue.qsize() / queue_size(source.config))
    return fills[1:] or fills


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--actors", type=int, nargs="*", default=[100, 1000])
    parser.add_argument("--steps", type=int, default=20, help="of a trajectory")
    parser.add_argument("--rows", type=int, nargs="*", default=[1, 8], help="environments of each actor")
    parser.add_argument("--seconds", type=float, default=10.0)
    args = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    for actors in args.actors:
        for rows in args.rows:
            found = measure(actors, args.steps, rows, args.seconds)
            rates = f"{found['rate']:>9,.0f} steps/s, {found['per_cpu']:>9,.0f} a CPU-second"
            shares = "  ".join(f"{name} {found[name]:.0%}" for name in ("learn", "collect", "transport"))
            print(
                f"{actors:>5} actors x {rows} envs x {args.steps} steps: {rates}  {shares} "
                f"({found['at_20k']:.1%} of a core at 20k/s)  queue {found['fill']:.0%}, least {found['least']:.0%}  "
                f"lag {found['lag']:.1f}  dropped {found['dropped']:.0f}  all there after {found['joined']:.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
