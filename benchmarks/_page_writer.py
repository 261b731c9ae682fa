"""A writer on a core of its own, and readers of its event stream on another: the part of `page.py` about live pages.

python _page_writer.py write FOLDER SECONDS CORE     records as fast as it can, prints what it managed
python _page_writer.py read ADDRESS RUN READERS      follows the run until its input ends, prints what it got
"""

from __future__ import annotations

import http.client
import json
import os
import sys
import threading
import time

TAGS = [f"train/metric{number:02d}" for number in range(10)]


def write(folder: str, seconds: float, core: int) -> None:
    os.sched_setaffinity(0, {core})
    from operant import SummaryWriter

    with SummaryWriter("live", root=folder, system_metrics=False) as writer:
        writer.add_scalar(TAGS[0], 0.0, 0)
        writer.flush()
        print(writer.run_id, flush=True)
        sys.stdin.readline()
        add, step, cpu = writer.add_scalar, 0, time.process_time()
        began = time.perf_counter()
        until = began + seconds
        while time.perf_counter() < until:
            for _ in range(100):
                for tag in TAGS:
                    add(tag, 0.5, step)
                step += 1
        took, cpu = time.perf_counter() - began, time.process_time() - cpu
    print(json.dumps({"points": step * len(TAGS), "seconds": took, "cpu": cpu}), flush=True)


def read(address: str, run_id: str, readers: int) -> None:
    got = [0] * readers
    following = threading.Semaphore(0)

    def follow(place: int) -> None:
        connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=60)
        connection.request("GET", f"/api/events?runs={run_id}&tags={','.join(TAGS)}")
        answer = connection.getresponse()
        while not answer.readline().startswith(b"event: run"):
            continue
        following.release()
        try:
            while line := answer.readline():
                got[place] += line.startswith(b"event: points")
        except (OSError, ValueError, AttributeError):
            return  # closed from the other side of this function

    threads = [threading.Thread(target=follow, args=(place,), daemon=True) for place in range(readers)]
    for thread in threads:
        thread.start()
    for _ in threads:
        following.acquire()
    print("ready", flush=True)
    sys.stdin.read()
    print(json.dumps({"events": got}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(sys.argv[2], float(sys.argv[3]), int(sys.argv[4]))
    else:
        read(sys.argv[2], sys.argv[3], int(sys.argv[4]))
