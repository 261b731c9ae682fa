"""Jobs that do not see the search's folder: everything goes through the controller's HTTP channel."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.machine import patience, wait_until
from tests.sites.test_container import PYTHON, SETTINGS, podman

from operant.sites import Event, Site, Submission, channel
from operant.sites.channel import ChannelServer
from operant.sites.cluster import ClusterSite
from operant.sites.cluster_jobs import Batch, SiteJob, write_batch
from operant.sites.container import ContainerSite
from operant.testing import SiteContract
from operant.tracking import Run

__all__ = ["podman"]

# Prints, records two points, leaves a result and a checkpoint; all of it in a folder of its own.
PROGRAM = """
import json, os, sys
there = open("there.txt").read()  # a file is as it was; arguments and variables that name the folder are changed
assert not os.getcwd().startswith(there) and not os.environ["OPERANT_RUN_DIR"].startswith(there)
assert "OPERANT_CHANNEL_TOKEN" not in os.environ
print("hello")
json.dump({"acc": 0.5}, open("result.json", "w"))
kept = os.path.join(os.environ["OPERANT_RUN_DIR"], "checkpoints")
os.makedirs(kept)
open(os.path.join(kept, "weights"), "wb").write(b"x" * 3000000)
"""


class Processes(ClusterSite):
    """Processes of this machine, which reach nothing but the channel."""

    most_in_batch = 1

    def __init__(self, folder: Path, **options: object) -> None:
        super().__init__(folder, poll=0.2, exit_wait=2.0, channel="http", address="127.0.0.1", **options)  # type: ignore[arg-type]
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def launch(self, batch: Batch) -> list[str]:
        env = {**os.environ, **self.environment(batch, batch.jobs[0])}
        self.processes[batch.name] = subprocess.Popen(self.command(batch, 0), cwd="/", env=env)
        return [batch.name]

    def look(self) -> list[SiteJob]:
        return [
            SiteJob(name, 0, name, "running" if one.poll() is None else "ended") for name, one in self.processes.items()
        ]

    def end(self, ids: Sequence[str]) -> None:
        """The order goes through the channel."""

    def clean(self, ids: Sequence[str]) -> None:
        for name in ids:
            self.processes[name].wait(patience(20))


class TestByHttp(SiteContract):
    patience = patience(60)

    def build(self, folder: Path) -> Site:
        return Processes(folder)

    def job(self, token: str, folder: Path, kind: str) -> Submission:
        code = {"good": "pass", "bad": "raise SystemExit(3)", "endless": "import time; time.sleep(600)"}[kind]
        return submission(folder.parent.parent, [sys.executable, "-I", "-S", "-c", code], folder.name, token)


def submission(folder: Path, argv: list[str], name: str = "0", token: str = "0/1/secret") -> Submission:
    job = folder / "jobs" / name
    (job / "work").mkdir(parents=True, exist_ok=True)
    (job / "work" / "there.txt").write_text(str(job))
    env = {"OPERANT_RUN_DIR": str(job / "run"), "OPERANT_RUN_ID": "s/0"}
    return Submission(token, name, 1, argv, job, job / "work", env)


def run_to_end(site: Site, job: Submission) -> Event:
    events: list[Event] = []
    site.start(events.append)
    try:
        site.submit([job])
        deadline = time.monotonic() + patience(60)
        while not any(one.kind in ("ended", "lost") for one in events):
            assert time.monotonic() < deadline, events
            time.sleep(0.02)
    finally:
        site.close()
    return next(one for one in events if one.kind in ("ended", "lost"))


def check(job: Submission, end: Event) -> None:
    assert end.info.get("code") == 0, (job.folder / "stderr").read_text()
    assert (job.folder / "stdout").read_text() == "hello\n"
    assert json.loads((job.work / "result.json").read_text()) == {"acc": 0.5} and end.info["results"] == ["result.json"]
    assert (job.folder / "run" / "checkpoints" / "weights").stat().st_size == 3_000_000


def test_everything_that_a_job_leaves_comes_back(tmp_path: Path) -> None:
    job = submission(tmp_path, [sys.executable, "-c", PROGRAM])
    check(job, run_to_end(Processes(tmp_path), job))


def test_a_file_that_cannot_be_kept_is_told_and_the_rest_comes_back(tmp_path: Path) -> None:
    more = "kept = os.environ['OPERANT_RUN_DIR']\nos.makedirs(kept + '/taken')\nopen(kept + '/taken/x', 'w').close()"
    job = submission(tmp_path, [sys.executable, "-c", PROGRAM + more])
    (job.folder / "run").mkdir()
    (job.folder / "run" / "taken").touch()
    check(job, run_to_end(Processes(tmp_path), job))
    assert (job.folder / "stderr").read_text().count("is not kept: PUT file?path=run/taken/x: ") == 1


def test_a_run_is_recorded_from_elsewhere(tmp_path: Path) -> None:
    text = (
        "from operant import SummaryWriter\nwith SummaryWriter('x') as w: [w.add_scalar('acc', i, i) for i in range(9)]"
    )
    job = submission(tmp_path, [sys.executable, "-c", text])
    assert run_to_end(Processes(tmp_path), job).info["code"] == 0
    assert list(Run(job.folder / "run").scalars("acc")["value"]) == list(range(9))


def test_a_job_outlives_its_controller_and_is_found_by_the_next(tmp_path: Path) -> None:
    job = submission(tmp_path, [sys.executable, "-c", f"import time; time.sleep(1.5)\n{PROGRAM}"])
    events: list[Event] = []
    first = Processes(tmp_path)
    first.start(events.append)
    first.submit([job])
    deadline = time.monotonic() + patience(30)
    while not any(one.kind == "started" for one in events) and time.monotonic() < deadline:
        time.sleep(0.02)
    first.close()
    time.sleep(2.0)  # it ends while nobody answers
    assert not (job.folder / "exit-1.json").exists()
    second = Processes(tmp_path)
    second.processes = first.processes
    second.start(events.append)
    assert second.find([job.token])[job.token].state == "running"
    while not any(one.kind == "ended" for one in events) and time.monotonic() < deadline:
        time.sleep(0.02)
    second.close()
    check(job, events[-1])
    assert all(one.wait(patience(10)) == 0 for one in first.processes.values())


def test_a_job_that_begins_while_nobody_answers_waits_for_the_next(tmp_path: Path) -> None:
    job = submission(tmp_path, [sys.executable, "-c", PROGRAM])
    events: list[Event] = []
    first, second = Processes(tmp_path), Processes(tmp_path)
    first.start(events.append)
    batch = Batch("b", [job], first.place / "b.list")
    write_batch(first.place, batch, {})
    env, argv = {**os.environ, **first.environment(batch, job)}, first.command(batch, 0)
    first.close()
    second.processes["b"] = process = subprocess.Popen(argv, cwd="/", env=env)
    time.sleep(0.5)
    assert process.poll() is None
    second.start(events.append)
    assert second.find([job.token])[job.token].state == "running"
    wait_until(lambda: any(one.kind == "ended" for one in events), "its end")
    second.close()
    check(job, events[-1])
    assert process.wait(patience(10)) == 0


@pytest.mark.usefixtures("podman")
def test_a_container_that_sees_nothing_of_the_search(tmp_path: Path) -> None:
    job = submission(tmp_path, [PYTHON, "-c", PROGRAM])
    check(job, run_to_end(ContainerSite(tmp_path, **SETTINGS, channel="http", address="127.0.0.1"), job))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ChannelServer]:
    (tmp_path / "site" / "notices").mkdir(parents=True)
    job = submission(tmp_path, ["true"])
    write_batch(tmp_path / "site", Batch("b", [job], tmp_path / "site" / "b.list"), {})
    found = ChannelServer(tmp_path, "127.0.0.1")
    yield found
    found.close()


def right(server: ChannelServer) -> str:
    """What the job shows."""
    return server.environment("0", 1, "0/1/secret")["OPERANT_CHANNEL_TOKEN"]


def ask(server: ChannelServer, method: str, place: str, token: str, body: bytes = b"") -> int:
    request = urllib.request.Request(f"http://{server.address}{place}", body or None, method=method)
    request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.parametrize("token", ["", "0/1/other", "0/2/secret", "0/1/secret"])  # the last is its own: all can read it
def test_a_wrong_token_reaches_nothing(server: ChannelServer, token: str, tmp_path: Path) -> None:
    for method, place in (("GET", "spec"), ("GET", "bundle"), ("POST", "exit"), ("PUT", "file?path=stdout&offset=0")):
        for attempt in (1, 99):  # of the second there is none, and so no token
            assert ask(server, method, f"/0/{attempt}/{place}", token, b"{}" if method != "GET" else b"") == 403
    assert ask(server, "GET", "/../1/spec", token) in (403, 404)
    assert not (tmp_path / "jobs" / "0" / "stdout").exists()


def test_what_opens_a_channel_is_its_owner_s_and_stays_the_same(server: ChannelServer, tmp_path: Path) -> None:
    assert (tmp_path / "site" / "channel.key").stat().st_mode & 0o777 == 0o600
    later = ChannelServer(tmp_path, "127.0.0.1:0")
    assert (
        right(later) == right(server) != ChannelServer.environment(later, "0", 1, "0/1/other")["OPERANT_CHANNEL_TOKEN"]
    )
    later.close()


def test_a_large_body_right_behind_its_head_is_taken(server: ChannelServer, tmp_path: Path) -> None:
    body = b"x" * (1 << 20)
    with socket.create_connection(server.address.split(":"), patience(20)) as connection:
        head = f"PUT /0/1/file?path=run/large HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {right(server)}\r\n"
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
    assert (tmp_path / "jobs" / "0" / "run" / "large").stat().st_size == len(body)


def test_half_requests_lock_no_job_out(server: ChannelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "_HEAD_SECONDS", 0.5)
    host, _, port = server.address.partition(":")
    standing = []
    for _ in range(200):
        standing.append(socket.create_connection((host, int(port)), 5, source_address=("127.0.0.2", 0)))
        standing[-1].sendall(b"GET /0/1/spec HTTP/1.1\r\nHo")
    assert ask(server, "GET", "/0/1/spec", right(server)) == 200
    for one in standing:
        one.settimeout(patience(20))
        with one, contextlib.suppress(ConnectionResetError):
            assert one.recv(1) == b""


def test_a_job_whose_bodies_never_come_locks_itself_out_alone(server: ChannelServer, tmp_path: Path) -> None:
    other = tmp_path / "jobs" / "1" / "spec-1.json"
    other.parent.mkdir()
    other.write_text(json.dumps({"token": "1/1/secret"}), encoding="utf-8")
    host, _, port = server.address.partition(":")
    own, others = (server.environment(job, 1, f"{job}/1/secret")["OPERANT_CHANNEL_TOKEN"] for job in ("0", "1"))
    with contextlib.ExitStack() as standing:
        for number in range(40):
            one = standing.enter_context(socket.create_connection((host, int(port)), patience(20)))
            head = f"PUT /0/1/file?path=run/{number} HTTP/1.1\r\nAuthorization: Bearer {own}\r\n"
            one.sendall(f"{head}Content-Length: 70000000\r\n\r\nhalf".encode())
        wait_until(lambda: ask(server, "GET", "/0/1/spec", own) == 507)  # it asks again, later
        wait_until(lambda: server._server._open.total() <= channel._MOST_OF_A_JOB)
        assert ask(server, "GET", "/1/1/spec", others) == 200
    wait_until(lambda: ask(server, "GET", "/0/1/spec", own) == 200)


@pytest.mark.parametrize(
    "path",
    ["../1/stdout", "work/there.txt", "spec-1.json", "run/../spec-1.json", "/etc/x", "run", "out/result.json"],
)
def test_a_job_writes_only_where_jobs_write(server: ChannelServer, path: str, tmp_path: Path) -> None:
    before = (tmp_path / "jobs" / "0" / "spec-1.json").read_bytes()
    assert ask(server, "PUT", f"/0/1/file?path={path}", right(server), b"bad") == 400
    assert (tmp_path / "jobs" / "0" / "spec-1.json").read_bytes() == before


def test_a_name_as_long_as_names_may_be_is_kept_and_a_longer_one_refused(server: ChannelServer, tmp_path: Path) -> None:
    for name, code in (("x" * 255, 200), ("caf%E9", 200), ("x" * 256, 400), ("x" * 255 + "/y", 400)):
        assert ask(server, "PUT", f"/0/1/file?path=run/{name}", right(server), b"good") == code, name
    assert {os.fsencode(one.name) for one in (tmp_path / "jobs" / "0" / "run").iterdir()} == {b"x" * 255, b"caf\xe9"}


def test_a_link_does_not_lead_out_of_the_job(server: ChannelServer, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "jobs" / "0" / "run").symlink_to(tmp_path / "elsewhere")
    assert ask(server, "PUT", "/0/1/file?path=run/x", right(server), b"bad") == 400
    assert not list((tmp_path / "elsewhere").iterdir())


def test_bytes_that_come_twice_are_written_once(server: ChannelServer, tmp_path: Path) -> None:
    for offset, body in ((0, b"one "), (0, b"one "), (4, b"two"), (99, b"lost")):
        assert ask(server, "PUT", f"/0/1/file?path=stdout&offset={offset}", right(server), body) == 200
    assert (tmp_path / "jobs" / "0" / "stdout").read_bytes() == b"one two"


def test_what_is_sent_anew_is_written_once_though_the_first_sending_arrives_late(
    server: ChannelServer, tmp_path: Path
) -> None:
    stdout, body = tmp_path / "jobs" / "0" / "stdout", b"x" * (1 << 20) + b"y" * 100
    host, _, port = server.address.partition(":")
    with socket.create_connection((host, int(port)), patience(20)) as slow:
        head = f"PUT /0/1/file?path=stdout&offset=0 HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {right(server)}\r\n"
        slow.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[: 1 << 20])
        wait_until(lambda: stdout.exists() and stdout.stat().st_size == 1 << 20)
        for offset in (0, 1 << 20):  # told how much is there, the job goes on with the rest
            assert ask(server, "PUT", f"/0/1/file?path=stdout&offset={offset}", right(server), body[offset:]) == 200
        slow.sendall(body[1 << 20 :])
        assert b" 507 " in slow.recv(100)
    assert stdout.read_bytes() == body


@pytest.mark.parametrize(
    ("method", "place", "length", "body"),
    [
        ("PUT", "file?path=stdout&offset=0", "-1", b"x"),
        ("PUT", "file?path=stdout&offset=" + "9" * 5000, "1", b"x"),
        ("POST", "started", "17", b'{"restart":1e999}'),
        ("POST", "claim", "100000", b"[" * 100_000),
        ("POST", "exit", "9" * 5000, b"{}"),
        ("POST", "exit", str(1 << 40), b"{}"),
    ],
    ids=["length", "offset", "infinite", "deep", "digits", "terabyte"],
)
def test_numbers_that_are_none_are_refused_and_cost_nothing(
    server: ChannelServer, method: str, place: str, length: str, body: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    host, _, port = server.address.partition(":")
    with socket.create_connection((host, int(port)), patience(20)) as connection:
        head = f"{method} /0/1/{place} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {right(server)}\r\n"
        connection.sendall(f"{head}Content-Length: {length}\r\n\r\n".encode() + body)
        assert b" 400 " in connection.recv(100)
    assert not capfd.readouterr().err
