"""DI-engine's way: one pynng Bus0 socket in each process, messages pickled whole."""

from __future__ import annotations

import json
import multiprocessing
import pickle
import sys
import tempfile
from typing import Any

import pynng
from workload import EVENT, N_WARM, is_round, make_state, now, quantiles, report, stamp_state

PREFIX = b"task.sync_parallel_ctx::"


def _socket() -> Any:
    return pynng.Bus0(recv_max_size=0, send_buffer_size=8192, recv_buffer_size=8192)


def _pack(*args: Any) -> bytes:
    return PREFIX + pickle.dumps({"a": args, "k": {}}, protocol=pickle.HIGHEST_PROTOCOL)


def _unpack(message: bytes) -> Any:
    return pickle.loads(message[len(PREFIX) :])["a"]


def reader(address: str, n_rounds: int) -> None:
    with _socket() as sock:
        sock.dial(address, block=True)
        sock.send(_pack("ready"))
        for _ in range(n_rounds):
            (ctx,) = _unpack(sock.recv())
            assert is_round(ctx["state_dict"], ctx["number"])
            sock.send(_pack(now() - ctx["began"]))


def echo(address: str, n_events: int, n_rounds: int) -> None:
    with _socket() as sock:
        sock.dial(address, block=True)
        sock.send(_pack("ready"))
        for _ in range(n_events):
            _unpack(sock.recv())
        sock.send(_pack("all heard"))
        for _ in range(n_rounds):
            sock.send(_pack(*_unpack(sock.recv())))


def publish(n_bytes: int, n_rounds: int, n_peers: int) -> list[float]:
    address = f"ipc://{tempfile.mkdtemp()}/bus.ipc"
    with _socket() as sock:
        sock.listen(address)
        readers = [multiprocessing.Process(target=reader, args=(address, n_rounds)) for _ in range(n_peers)]
        for process in readers:
            process.start()
        for _ in readers:
            sock.recv()
        state = make_state(n_bytes)
        slowest = []
        for number in range(n_rounds):
            stamp_state(state, number)
            sock.send(_pack({"state_dict": state, "number": number, "began": now()}))
            slowest.append(max(_unpack(sock.recv())[0] for _ in readers))
        for process in readers:
            process.join()
    return slowest


def small(n_events: int, n_rounds: int) -> tuple[float, list[float]]:
    address = f"ipc://{tempfile.mkdtemp()}/bus.ipc"
    with _socket() as sock:
        sock.listen(address)
        process = multiprocessing.Process(target=echo, args=(address, n_events, n_rounds))
        process.start()
        sock.recv()
        began = now()
        for _ in range(n_events):
            sock.send(_pack(*EVENT))
        sock.recv()
        per_second = n_events / (now() - began)
        seconds = []
        for _ in range(n_rounds):
            began = now()
            sock.send(_pack(*EVENT))
            _unpack(sock.recv())
            seconds.append((now() - began) / 2)
        process.join()
    return per_second, seconds


def main(sizes: dict[str, tuple[int, int]], n_events: int, n_pings: int) -> None:
    multiprocessing.set_start_method("spawn")
    result: dict[str, Any] = {}
    for name, (n_bytes, n_rounds) in sizes.items():
        for n_peers in (1, 3):
            result[f"publish {name} to {n_peers}"] = quantiles(publish(n_bytes, n_rounds, n_peers)[N_WARM:])
    # A Bus0 socket drops what does not fit its buffers: no more at once than it can hold.
    per_second, seconds = small(min(n_events, 5000), n_pings)
    result["events per second"] = per_second
    result["event latency"] = quantiles(seconds[N_WARM:])
    report(result)


if __name__ == "__main__":
    main(*json.loads(sys.argv[1]))
