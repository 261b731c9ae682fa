"""A real browser on a real server: what every test of the page starts from."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.machine import patience

ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
START_SECONDS = 30.0

StartUi = Callable[[Path], AbstractContextManager[str]]


class PageFaults:
    """Everything that went wrong in the page; a test that provokes something says so with :meth:`allow`."""

    def __init__(self) -> None:
        self._found: list[str] = []
        self._allowed: list[str] = []

    def allow(self, part: str) -> None:
        self._allowed.append(part)

    def add(self, text: str) -> None:
        self._found.append(text)

    def unexpected(self) -> list[str]:
        return [one for one in self._found if not any(part in one for part in self._allowed)]

    def watch(self, page: Any) -> None:
        page.on("console", lambda said: self.add(f"console: {said.text}") if said.type == "error" else None)
        page.on("pageerror", lambda error: self.add(f"page error: {error}"))
        page.on("requestfailed", self._failed)
        page.on("response", lambda one: self.add(f"{one.status} {one.url}") if one.status >= 400 else None)

    def _failed(self, request: Any) -> None:
        # A view that is left aborts what it asked for, and its event stream ends: that is as it should be.
        if request.failure != "net::ERR_ABORTED":
            self.add(f"request failed: {request.url} {request.failure}")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("the package `chromium` is not installed")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        try:
            yield started
        finally:
            started.close()


@pytest.fixture
def page_faults() -> PageFaults:
    return PageFaults()


@pytest.fixture
def page(browser: Any, page_faults: PageFaults) -> Iterator[Any]:
    context = browser.new_context(
        viewport={"width": 1280, "height": 860}, color_scheme="light", reduced_motion="reduce"
    )
    context.set_default_timeout(patience(20) * 1000)
    opened = context.new_page()
    page_faults.watch(opened)
    try:
        yield opened
    finally:
        context.close()
    assert not page_faults.unexpected(), "\n".join(page_faults.unexpected())


def wait_until_it_answers(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + patience(START_SECONDS)
    while time.monotonic() < deadline:
        if process.poll() is not None:
            said = log.read_text(encoding="utf-8", errors="replace")[-2000:]
            raise AssertionError(f"`operant ui` ended with {process.returncode} before it answered: {said}")
        try:
            with urllib.request.urlopen(f"{address}/healthz", timeout=2):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.05)
    raise AssertionError(f"`operant ui` did not answer at {address} within {START_SECONDS:.0f} s")


@contextmanager
def run_ui(root: Path, port: int = 0) -> Iterator[str]:
    """Run ``operant ui`` over the ``.operant`` folder ``root``, on a free port if none is given; gives the address."""
    if not port:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
    cache = root.parent / "ui-cache"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OPERANT_")}
    # The server runs elsewhere: it must find the very package that the caller has.
    environment["PYTHONPATH"] = os.pathsep.join(str(Path(one).absolute()) for one in sys.path if one)
    environment |= {"OPERANT_DIR": str(root), "OPERANT_CACHE_DIR": str(cache), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", "import sys; from operant.cli import main; sys.exit(main())"]
    with (root.parent / "ui.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "ui", "--port", str(port)],
            env=environment,
            cwd=root.parent,
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )
        try:
            address = f"http://127.0.0.1:{port}"
            wait_until_it_answers(address, process, Path(log.name))
            yield address
        finally:
            process.terminate()
            try:
                process.wait(timeout=patience(10))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture(scope="session")
def ui() -> StartUi:
    return run_ui
