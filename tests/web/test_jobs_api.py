"""A page for every job, recorded or not; what it printed is shown, searched and saved whatever it holds."""

from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path
from urllib.parse import quote

import pytest
from tests.web.asking import Client, MadeSearch

from operant.tracking.journal import Journal
from operant.web import jobs_api


@pytest.fixture
def failed(root: Path) -> Path:
    """The folder of a job that failed twice before its first point."""
    search = MadeSearch(root, "broken", jobs=1)
    number, config = search.count, {"lr": 0.5, "units": 3, "act": "relu"}
    journal: Journal = search.journal
    journal.append("proposed", number=number, config=config)
    for attempt in (1, 2):
        journal.append("submitting", job="1", number=number, seed=None, attempt=attempt, token=f"1/{attempt}/x")
        journal.append("started", job="1", attempt=attempt, wall=100.0 * attempt)
        journal.append(
            "ended",
            job="1",
            attempt=attempt,
            status="ERROR",
            wall=100.0 * attempt + 5,
            code=3,
            error="exit code 3: boom",
        )
    search.close()
    folder = search.folder / "jobs" / "1"
    folder.mkdir(parents=True)
    (folder / "claim-2").write_text(json.dumps({"host": "node7", "pid": 42, "token": "1/2/x"}))
    (folder / "exit-2.json").write_text(json.dumps({"cpu_seconds": 1.5, "peak_bytes": 2048, "signal": None}))
    (folder / "stderr").write_text("Traceback\nboom: <b>no</b>\n")
    (folder / "stdout").write_text("")
    return folder


def test_a_job_without_a_run_has_a_page(client: Client, failed: Path) -> None:
    found = client.get("/api/run?id=broken/1").json
    assert (found["recorded"], found["status"], found["search"], found["job"]) == (False, "ERROR", "broken", "1")
    assert found["params"] == {"lr": 0.5, "units": 3, "act": "relu"} and found["streams"] == ["stdout", "stderr"]
    job = found["job_facts"]
    assert job["words"] == "failed with exit code 3" and job["error"] == "exit code 3: boom"
    first, second = job["attempts"]
    assert (first["attempt"], first["started"], first["ended"], first["host"]) == (1, 100.0, 105.0, None)
    assert (second["host"], second["pid"], second["cpu_seconds"], second["peak_bytes"]) == ("node7", 42, 1.5, 2048)
    assert client.get("/api/run?id=broken/2").status == client.get("/api/run?id=gone/1").status == 404


def test_the_job_of_a_run_is_told_with_it(client: Client) -> None:
    found = client.get("/api/run?id=made/12").json
    assert found["recorded"] and found["job_facts"]["words"].startswith("ended early") and found["status"] == "STOPPED"
    assert client.get("/api/run?id=plain-1").json["job_facts"] is None


@pytest.mark.parametrize("claim", ["[1]", "{", "[" * 60_000, '{"host": {"a": 1}}', ""])
def test_whatever_lies_beside_a_job_it_is_described(client: Client, failed: Path, claim: str) -> None:
    (failed / "claim-2").write_text(claim)
    (failed / "exit-2.json").unlink()
    os.mkfifo(failed / "exit-2.json")  # would hold up who opens it
    (failed / "stdout").unlink()
    (failed / "stdout").symlink_to("/etc/passwd")
    found = client.get("/api/run?id=broken/1").json
    assert len(found["job_facts"]["attempts"]) == 2 and found["streams"] == ["stderr"]
    for path in ("console", "output", "console/find"):
        assert client.get(f"/api/run/{path}?id=broken/1&stream=stdout&text=root").status == 404


def test_a_text_is_found_in_all_that_was_printed(client: Client, failed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_api, "_FIND_CHUNK", 1000)
    lines = [f"step {number}: loss {'NaN' if number % 100 == 7 else number}" for number in range(1000)]
    (failed / "stdout").write_text("\n".join(lines))
    found = client.get("/api/run/console/find?id=broken/1&text=nan").json
    assert [one["before"] + one["match"] + one["after"] for one in found["matches"]] == lines[7::100]
    assert found["next"] is None
    for one in found["matches"]:
        assert (failed / "stdout").read_bytes()[one["at"] :].startswith(b"NaN")
    monkeypatch.setattr(jobs_api, "FIND_BYTES", 3000)
    places, start = [], 0
    while start is not None:
        part = client.get(f"/api/run/console/find?id=broken/1&text=NaN&start={start}").json
        places += [one["at"] for one in part["matches"]]
        start = part["next"]
    assert places == [one["at"] for one in found["matches"]]
    assert client.get("/api/run/console/find?id=broken/1").status == 400


def test_an_output_is_saved_as_it_is_under_a_name_that_tells(client: Client, failed: Path) -> None:
    answer = client.get("/api/run/output?id=broken/1&stream=stderr")
    assert answer.body == b"Traceback\nboom: <b>no</b>\n"
    assert answer.headers["content-disposition"] == 'attachment; filename="broken-1-stderr.txt"'
    assert (
        answer.headers["content-type"].startswith("text/plain")
        and "sandbox" in answer.headers["content-security-policy"]
    )


def test_a_gigabyte_in_one_line_costs_a_few_megabytes(client: Client, failed: Path) -> None:
    with (failed / "stdout").open("wb") as file:
        file.write(b"\x1b]0;title\x07<script>alert(1)</script>\x1b[31m\x00\x9b\xe2\x80\xaeevil needle ")
        file.seek(1 << 30)  # a hole: no disk is used
        file.write(b"\x1b[2Jneedle\xff")
    client.get("/api/run?id=broken/1")  # what is read once
    tracemalloc.start()
    tail = client.get("/api/run/console?id=broken/1").json
    head = client.get("/api/run/console?id=broken/1&end=60").json
    found = client.get(f"/api/run/console/find?id=broken/1&text={quote('needle')}").json
    last = client.get(f"/api/run/console/find?id=broken/1&text=needle&start={(1 << 30) - 10}").json
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert tail["text"] == "needle\ufffd" and tail["size"] > 1 << 30 and peak < 24 << 20
    assert head["text"].startswith("<script>alert(1)</script>") and not set(head["text"]) & set("\x00\x1b\x9b\u202e")
    assert [one["match"] for one in found["matches"]] == ["needle"] and found["next"] == jobs_api.FIND_BYTES
    assert [one["at"] for one in last["matches"]] == [(1 << 30) + 4] and last["next"] is None
