"""Every test has its own folder, cache and environment; nothing of the user's is read or written."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

# Machines are shared: an example that takes long once is no failure. `make test` draws the same examples each time, so
# that a change is judged by itself; `make test-long` looks for new ones.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("exploring", deadline=None, max_examples=500)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


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
