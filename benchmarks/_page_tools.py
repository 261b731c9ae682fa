"""How each tool's page is started and used: the part of `page.py` that knows their addresses and elements."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from _page_browser import Watch
from peers import QUIET

START_SECONDS = 180.0
RUNS_SHOWN = 100
RUNS_COMPARED = 50

Times = dict[str, float]


def run_name(number: int) -> str:
    return f"run{number:04d}"


@contextmanager
def serving(command: list[str], port: int, ready: str, folder: Path, extra: dict[str, str]) -> Iterator[str]:
    """A server until the block ends; gives its address once ``ready`` answers."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("OPERANT_")}
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, env={**inherited, **QUIET, **extra}, cwd=folder
        )
    address = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                urllib.request.urlopen(address + ready, timeout=5).close()
                break
            except urllib.error.HTTPError:
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{command[0]} did not start; see {folder / 'server.log'}") from None
                time.sleep(0.05)
        yield address
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


class Operant:
    chart = ".chart-card .chart"

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder, self.cache = folder, cache

    @contextmanager
    def serve(self) -> Iterator[str]:
        port = free_port()
        command = [sys.executable, "-m", "operant", "ui", "--port", str(port), "--root", str(self.folder / ".operant")]
        with serving(command, port, "/healthz", self.folder, {"OPERANT_CACHE_DIR": str(self.cache)}) as address:
            yield address

    def use(self, address: str, browser: Any, runs: int) -> Times:
        found: Times = {}
        watch = Watch(browser)
        watch.start()
        watch.page.goto(self._compare(address, min(runs, RUNS_SHOWN)), wait_until="commit")
        found["open: first chart"] = watch.until_drawn(self.chart)
        watch.close()
        watch = Watch(browser)
        watch.start()
        watch.page.goto(f"{address}/runs", wait_until="commit")
        found["open: list of runs"] = watch.until_shown(
            "() => document.querySelectorAll('a[href*=\"/run?id=\"]').length > 5"
        )
        watch.start()
        watch.page.fill("input.filter", "batch == 64 and lr < 1e-3")
        count = "document.querySelector('.page-head .muted').textContent"
        changed = f"all => {{ const now = {count}; return now.includes(' of ') && now !== all; }}"
        found["filter"] = watch.until_shown(changed, watch.page.inner_text(".page-head .muted"))
        watch.close()
        watch = Watch(browser)
        watch.start()
        watch.page.goto(self._compare(address, RUNS_COMPARED), wait_until="commit")
        found["compare 50 runs"] = watch.until_drawn(self.chart)
        watch.settle(self.chart)
        found["zoom"] = watch.until_settled(self.chart, lambda: watch.drag(".chart-card .u-over"))
        watch.close()
        return found

    @staticmethod
    def _compare(address: str, count: int) -> str:
        return f"{address}/compare?runs={','.join(run_name(number) for number in range(count))}"


class TensorBoard:
    chart = "scalar-card .series-view"

    def __init__(self, python: Path, folder: Path) -> None:
        self.python, self.folder = python, folder

    @contextmanager
    def serve(self) -> Iterator[str]:
        port = free_port()
        command = [str(self.python.parent / "tensorboard"), "--logdir", str(self.folder), "--port", str(port)]
        with serving(command, port, "/data/environment", self.folder, {}) as address:
            # It answers before it has read anything; the clock of `open` starts when all runs are known.
            _until_all_runs(address)
            yield address

    def use(self, address: str, browser: Any, runs: int) -> Times:
        found: Times = {}
        watch = Watch(browser)
        watch.start()
        watch.page.goto(address, wait_until="commit")
        found["open: list of runs"] = watch.until_shown(
            "() => document.querySelectorAll('runs-data-table tb-data-table-content-row').length > 5"
        )
        found["open: first chart"] = watch.until_drawn(self.chart)
        watch.settle(self.chart)
        found["zoom"] = watch.until_settled(self.chart, lambda: watch.drag(self.chart))
        # The list reacts to keys, one after the other: the clock starts with the last of them.
        watch.page.locator("input[placeholder^='Filter runs']").click()
        watch.page.keyboard.type("run00")
        watch.settle("runs-data-table")
        watch.start()
        watch.page.keyboard.type("7")
        count = "document.querySelectorAll('runs-data-table tb-data-table-content-row').length"
        found["filter"] = watch.until_shown(f"() => {{ const rows = {count}; return rows > 0 && rows <= 10; }}")
        watch.close()
        watch = Watch(browser)
        watch.start()
        watch.page.goto(f"{address}/?runFilter=run00%5B0-4%5D", wait_until="commit")
        found["compare 50 runs"] = watch.until_drawn(self.chart)
        watch.close()
        return found


def _until_all_runs(address: str) -> None:
    seen, deadline = "", time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with urllib.request.urlopen(f"{address}/data/runs", timeout=60) as answer:
            now = answer.read().decode()
        if now == seen and len(re.findall("run[0-9]", now)) > 1:
            return
        seen = now
        time.sleep(1.0)
