"""A folder with one search that has ended and one run beside it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.web.asking import Client, MadeSearch, record_run

__all__ = ["client", "made_once", "root"]


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / ".operant"
    folder.mkdir()
    search = MadeSearch(folder)
    search.add_job("STOPPED", 0.05, reason="assessor")
    search.add_job("ERROR")
    search.close()
    record_run(folder / "runs" / "plain-1", "plain-1", {"acc": [0.5, 0.6], "x/y": range(10_000)}, tags=["baseline"])
    return folder


@pytest.fixture
def root(tmp_path: Path, made_once: Path) -> Path:
    folder = tmp_path / "project" / ".operant"
    shutil.copytree(made_once, folder)
    return folder


@pytest.fixture
def client(root: Path) -> Client:
    return Client(root)
