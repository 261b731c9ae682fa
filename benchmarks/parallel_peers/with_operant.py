"""Operant: a shared ctx read from task.parallel_ctx, and events."""

from __future__ import annotations

import sys
from typing import Any

from workload import EVENT, N_WARM, is_round, make_state, now, quantiles, report, stamp_state

from operant.framework import Context, Parallel, Task


def publish(n_bytes: int, n_rounds: int) -> Any:
    """Seconds from before the publish until a reader has the whole value, for each round."""
    with Task() as task:
        n_peers = len(task.router.peers)
        if task.router.node_id != 0:
            return _read(task, n_rounds)
        task.share("state_dict", "began", "number")
        state = make_state(n_bytes)
        arrived = 0

        def one_more(node: int) -> None:
            nonlocal arrived
            arrived += 1
            task.router.notify()

        task.on("read", one_more)

        def train(ctx: Context) -> None:
            # All have read the last round and asked for the next.
            task.router.wait_until(lambda: arrived >= ctx.total_step * n_peers)
            stamp_state(state, ctx.total_step)
            ctx.state_dict, ctx.number, ctx.began = state, ctx.total_step, now()

        task.use(train)
        task.run(max_step=n_rounds)
        return None


def _read(task: Task, n_rounds: int) -> list[float]:
    seconds: list[float] = []
    view = task.parallel_ctx
    while len(seconds) < n_rounds:
        state = view.get("state_dict")
        if state is not None and view.number == len(seconds):
            assert is_round(state, view.number)
            seconds.append(now() - view.began)
            task.emit("read", task.router.node_id)
            if len(seconds) == n_rounds:
                break
        newer = view.wait_newer(30)
        if newer is None:
            raise TimeoutError(f"no snapshot after {len(seconds)} rounds")
        view = newer
    return seconds


def events(n_events: int) -> Any:
    with Task() as task:
        heard = 0

        def hear(*content: Any) -> None:
            nonlocal heard
            heard += 1
            if heard >= n_events:
                task.router.notify()

        task.on("event", hear)
        if task.router.node_id == 0:
            began = now()
            for _ in range(n_events):
                task.emit("event", *EVENT, only_remote=True)
            task.wait_for("all heard", until_finish=False)
            return n_events / (now() - began)
        task.router.wait_until(lambda: heard >= n_events)
        task.emit("all heard")
        return None


def ping(n_rounds: int) -> Any:
    with Task() as task:
        if task.router.node_id == 1:
            task.on("ping", lambda *content: task.emit("pong", *content))
            task.wait_for("over", until_finish=False)
            return None
        seconds = []
        for _ in range(n_rounds):
            began = now()
            answered: list[bool] = []
            task.once("pong", lambda *content: (answered.append(True), task.router.notify()))  # noqa: B023
            task.emit("ping", *EVENT)
            task.router.wait_until(lambda: answered)  # noqa: B023
            seconds.append((now() - began) / 2)
        task.emit("over")
        return seconds


def main(sizes: dict[str, tuple[int, int]], n_events: int, n_pings: int) -> None:
    result: dict[str, Any] = {}
    for name, (n_bytes, n_rounds) in sizes.items():
        for n_peers in (1, 3):
            _, *seen = Parallel.runner(1 + n_peers, topology="star")(publish, n_bytes, n_rounds)
            slowest = [max(one) for one in zip(*seen, strict=True)]
            result[f"publish {name} to {n_peers}"] = quantiles(slowest[N_WARM:])
    result["events per second"] = Parallel.runner(2)(events, n_events)[0]
    result["event latency"] = quantiles(Parallel.runner(2)(ping, n_pings)[0][N_WARM:])
    report(result)


if __name__ == "__main__":
    import json

    main(*json.loads(sys.argv[1]))
