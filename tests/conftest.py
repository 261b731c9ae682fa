"""Every test has its own folder, cache and environment; nothing of the user's is read or written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# Machines are shared: an example that takes long once is no failure.
settings.register_profile("operant", deadline=None)
settings.load_profile("operant")


@pytest.fixture(autouse=True)
def private_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in [name for name in os.environ if name.startswith("OPERANT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OPERANT_CACHE_DIR", str(tmp_path / "cache"))
    work = tmp_path / "work"
    work.mkdir()
    (work / ".operant").mkdir()
    monkeypatch.chdir(work)
    yield
