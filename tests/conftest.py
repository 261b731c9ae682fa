"""Every test has its own folder, cache and environment; nothing of the user's is read or written."""

from __future__ import annotations

import operator
import os
import random
import secrets
import signal
import sys
import time
import uuid
from collections.abc import Generator, Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import settings
from tests.machine import DEAREST, MARK, left_behind, patience

# Machines are shared: an example that takes long once is no failure. `make test` draws the same examples each time, so
# that a change is judged by itself; `make test-long` looks for new ones.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("exploring", deadline=None, max_examples=500)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

# Ray reads how it authenticates when it is first loaded, by whichever test that is: one token for all of them.
os.environ["RAY_AUTH_MODE"] = "token"
os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))

# A shell starts what runs in the background with SIGINT ignored, and children inherit that: no ctrl-C would reach them.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The dearest modules first: workers that are given them last would end long after the others."""
    here = Path(__file__).parent
    place = {here / name: number for number, name in enumerate(DEAREST)}
    items.sort(key=lambda item: place.get(item.path, len(place)))


@pytest.hookimpl(tryfirst=True, wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """The guard against hanging for ever (pytest-timeout) waits longer on a machine that has much to do."""
    if item.get_closest_marker("timeout") is None:
        item.add_marker(pytest.mark.timeout(patience(300)))
    return (yield)


@pytest.fixture(scope="session", autouse=True)
def nothing_left_behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Whatever the session has started and not ended is ended now, and told with the test that started it."""
    os.environ["XDG_CONFIG_HOME"] = str(tmp_path_factory.mktemp("config"))  # where the key for signatures is kept
    os.environ[MARK] = mark = uuid.uuid4().hex
    yield
    deadline = time.monotonic() + patience(5)
    while (left := left_behind(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    for process, _ in left:
        try:
            process.kill()
        except psutil.Error:
            pass
    assert not left, "left behind:\n" + "\n".join(told for _, told in left)


@pytest.fixture(autouse=True)
def private_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in [name for name in os.environ if name.startswith("OPERANT_")]:
        monkeypatch.delenv(name)
    private = tmp_path_factory.mktemp("private")
    monkeypatch.setenv("OPERANT_CACHE_DIR", str(private / "cache"))
    work = private / "work"
    (work / ".operant").mkdir(parents=True)
    monkeypatch.chdir(work)
    yield


@pytest.fixture(autouse=True)
def same_draws() -> None:
    """Weights and numbers that a test draws without a seed are the same each time."""
    random.seed(0)
    for name, seed in (("numpy", "random.seed"), ("torch", "manual_seed")):
        if name in sys.modules:
            operator.attrgetter(seed)(sys.modules[name])(0)
