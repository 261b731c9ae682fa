"""torch.multiprocessing: tensors through its queues, which move them into shared memory."""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
import torch.multiprocessing as mp
from workload import EVENT, N_WARM, is_round, make_state, now, quantiles, report, stamp_state


def reader(inbox: Any, outbox: Any, n_rounds: int) -> None:
    outbox.put("ready")
    for _ in range(n_rounds):
        state, number, began = inbox.get()
        assert is_round(state, number)
        outbox.put(now() - began)
        del state


def echo(inbox: Any, outbox: Any, n_events: int, n_rounds: int) -> None:
    outbox.put("ready")
    for _ in range(n_events):
        inbox.get()
    outbox.put("all heard")
    for _ in range(n_rounds):
        outbox.put(inbox.get())


def publish(context: Any, n_bytes: int, n_rounds: int, n_peers: int) -> list[float]:
    inboxes = [context.Queue() for _ in range(n_peers)]
    outbox = context.Queue()
    readers = [context.Process(target=reader, args=(inbox, outbox, n_rounds)) for inbox in inboxes]
    for process in readers:
        process.start()
    for _ in readers:
        outbox.get()
    state = {name: torch.from_numpy(array) for name, array in make_state(n_bytes).items()}
    slowest = []
    for number in range(n_rounds):
        stamp_state(state, number)
        began = now()
        # The model trains on: what is sent must be a copy, made once for all readers.
        copy = {name: tensor.clone().share_memory_() for name, tensor in state.items()}
        for inbox in inboxes:
            inbox.put((copy, number, began))
        slowest.append(max(outbox.get() for _ in readers))
    for process in readers:
        process.join()
    return slowest


def main(sizes: dict[str, tuple[int, int]], n_events: int, n_pings: int) -> None:
    context = mp.get_context("spawn")
    torch.set_num_threads(1)
    result: dict[str, Any] = {}
    for name, (n_bytes, n_rounds) in sizes.items():
        for n_peers in (1, 3):
            seconds = publish(context, n_bytes, n_rounds, n_peers)
            result[f"publish {name} to {n_peers}"] = quantiles(seconds[N_WARM:])
    inbox, outbox = context.Queue(), context.Queue()
    process = context.Process(target=echo, args=(inbox, outbox, n_events, n_pings))
    process.start()
    outbox.get()
    began = now()
    for _ in range(n_events):
        inbox.put(EVENT)
    outbox.get()
    result["events per second"] = n_events / (now() - began)
    seconds = []
    for _ in range(n_pings):
        began = now()
        inbox.put(EVENT)
        outbox.get()
        seconds.append((now() - began) / 2)
    process.join()
    result["event latency"] = quantiles(seconds[N_WARM:])
    report(result)


if __name__ == "__main__":
    main(*json.loads(sys.argv[1]))
