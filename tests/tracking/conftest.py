"""What tests of runs on a server share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.tracking.serving import Server


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    server = Server(tmp_path / "server")
    server.start()
    monkeypatch.setenv("OPERANT_TRACKING_URI", server.uri)
    monkeypatch.setenv("OPERANT_TRACKING_TOKEN", server.token)
    yield server
    server.kill()
