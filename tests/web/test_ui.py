"""`operant ui` as a person starts it."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from tests.machine import patience
from tests.web.asking import record_run
from tests.web.serving import Page

from operant.cli import main
from operant.cli.search_scripts import ctl_main
from operant.web.address import address_of


def test_it_serves_streams_and_ends(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = record_run(root / "runs" / "live", "live", {"acc": [0.0]}, end="")
    with Page(root) as page:
        with urllib.request.urlopen(f"{page.address}/api/overview") as answer:
            assert json.load(answer)["runs"] == 16
        assert address_of(root) == page.address
        monkeypatch.setenv("OPERANT_DIR", str(root))
        assert ctl_main(["show", "--task", "made"]) == 0
        shown = capsys.readouterr().out
        assert f"page {page.address}/compare/search:made" in shown and f"{page.address}/run?id=made/3" in shown
        host = page.address.removeprefix("http://")
        connection = http.client.HTTPConnection(host, timeout=patience(30))
        connection.request("GET", "/api/events?runs=live&tags=acc")
        stream = connection.getresponse()
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines: list[bytes] = []
        while not any(line.startswith(b"event: run") for line in lines):
            lines.append(stream.readline())
        recorder.add_array("acc", np.array([1], "<i8"), np.array([1e9]), np.array([0.5]))
        while not lines[-1].startswith(b"data: ") or b'"value":[0.5]' not in lines[-1]:
            lines.append(stream.readline())
        page.process.send_signal(2)
        assert page.process.wait(20) == 0  # an open stream does not hold it up
        while stream.readline():
            pass
        connection.close()
    recorder.end("FINISHED")
    assert address_of(root) == "http://127.0.0.1:4270"


def test_off_loopback_it_prints_its_token_once(root: Path) -> None:
    with Page(root, "--host", "0.0.0.0", "--name", "localhost") as page:
        address, _, token = page.address.partition("/?token=")
        assert len(token) >= 32
        local = f"http://127.0.0.1:{address.rpartition(':')[2]}"
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{local}/api/searches")
        assert refused.value.code == 401
        refused.value.close()
        request = urllib.request.Request(f"{local}/api/searches", headers={"authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request) as answer:
            assert len(json.load(answer)["searches"]) == 1


def test_a_taken_port_is_one_sentence(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Page(root) as page:
        port = page.address.rpartition(":")[2]
        assert main(["ui", "--root", str(root), "--port", port]) == 1
    assert "--port picks another" in capsys.readouterr().err
