"""What a job records comes home: by its small server, as files that grow, and only into their own place."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from tests.cluster.prometheus import free_port
from tests.machine import patience, wait_until

from operant.cluster import home
from operant.cluster.fetching import Fetcher
from operant.cluster.packing import pack
from operant.errors import UsageError


class Job:
    """`home.py` with a program, as it runs beside it on a cluster, where the first port is another program's."""

    taken: ClassVar[int]

    def __init__(self, folder: Path, program: str, *, awaited: bool = True) -> None:
        self.ports, self.token = [self.taken, free_port()], "t" * 43
        (folder / "home.py").write_bytes(Path(home.__file__).read_bytes())
        config = {"ports": self.ports, "token": self.token, "awaited": awaited}
        (folder / "home.json").write_text(json.dumps(config))
        env = {**os.environ, "TMPDIR": str(folder)}
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(folder / "home.py"), "--", "sh", "-c", program],
            env=env, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def fetcher(self, root: Path, said: list[str]) -> Fetcher:
        return Fetcher(root, root / "known.json", self.token, self._place, said.append)

    def _place(self, failed: int) -> tuple[str, int]:
        return "127.0.0.1", self.ports[failed % 2]


@pytest.fixture(autouse=True, scope="module")
def another_program() -> Iterator[None]:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        Job.taken = one.getsockname()[1]
        yield


def test_files_come_as_they_grow_and_the_job_waits_for_the_last(tmp_path: Path) -> None:
    program = (
        "mkdir -p $OPERANT_DIR/runs/a/checkpoints; printf one > $OPERANT_DIR/runs/a/x.seg; "
        "while [ ! -e $OPERANT_DIR/runs/go ]; do sleep 0.05; done; printf two >> $OPERANT_DIR/runs/a/x.seg; "
        "printf end > $OPERANT_DIR/runs/a/checkpoints/last.npz; exit 5"
    )
    job, root, said = Job(tmp_path, program), tmp_path / "home" / ".operant", list[str]()
    fetcher = job.fetcher(root, said)
    fetcher.start()
    segment = root / "runs" / "a" / "x.seg"
    wait_until(lambda: segment.exists() and segment.read_text() == "one", "the beginning")
    (place,) = tmp_path.glob("operant-job-*")
    (place / ".operant" / "runs" / "go").touch()
    _, printed = job.process.communicate(timeout=patience(30))
    assert job.process.returncode == 5 and printed == "", "the program's own exit code"
    assert fetcher.complete.wait(patience(10)) and said == []
    assert segment.read_text() == "onetwo" and (segment.parent / "checkpoints" / "last.npz").read_text() == "end"


@pytest.mark.parametrize("foreseen", [True, False], ids=["no room", "a quota, which nobody can ask for"])
def test_a_full_disk_is_told_once_and_nothing_is_lost(
    foreseen: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("operant.cluster.fetching._SECONDS", 0.05)
    if not foreseen:
        monkeypatch.setattr("operant.cluster.fetching.shutil.disk_usage", lambda _: SimpleNamespace(free=1 << 40))
    content, small = os.urandom(3_000_000), tmp_path / "small"
    (tmp_path / "content").write_bytes(content)
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)], capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root")
    program = (
        "cd $OPERANT_DIR/runs; mkdir a b; printf one > a/x.seg; while [ ! -e go ]; do sleep 0.05; done; "
        f"cat {tmp_path}/content >> a/x.seg; cp {tmp_path}/content a/last.npz; printf two > b/y.seg"
    )
    job, root, said = Job(tmp_path, program), small / ".operant", list[str]()
    fetcher = job.fetcher(root, said)
    fetcher.start()
    try:
        wait_until(lambda: (root / "runs" / "a" / "x.seg").exists(), "the beginning")
        (place,) = tmp_path.glob("operant-job-*")
        (place / ".operant" / "runs" / "go").touch()
        wait_until(lambda: said, "that there is no room")
        assert said[0].startswith(f"what the job records cannot be written to {root}: No space left on device (runs/a/")
        if foreseen:
            wait_until(lambda: (root / "runs" / "b" / "y.seg").exists(), "what there is room for")
        assert not (root / "runs" / "a" / "last.npz").exists(), "no half of a file"
        assert job.process.poll() is None and fetcher.unwritten, "the job waits for room"
        subprocess.run(["mount", "-o", "remount,size=16m", str(small)], check=True)
        assert fetcher.complete.wait(patience(20)) and job.process.wait(patience(20)) == 0
        assert (root / "runs" / "a" / "x.seg").read_bytes() == b"one" + content
        assert (root / "runs" / "a" / "last.npz").read_bytes() == content and len(said) == 1 and not fetcher.unwritten
    finally:
        fetcher.close()
        job.process.kill()
        job.process.communicate()
        subprocess.run(["umount", "-l", str(small)], check=True)


def test_nobody_at_home_holds_no_job_up(tmp_path: Path) -> None:
    began = time.monotonic()
    job = Job(tmp_path, "echo x > $OPERANT_DIR/runs/y", awaited=False)
    _, said = job.process.communicate(timeout=patience(20))
    assert job.process.returncode == 0 and "not all that was recorded is at home; it stays on this node" in said
    assert time.monotonic() - began < patience(15)


def test_a_signal_reaches_the_program(tmp_path: Path) -> None:
    job = Job(tmp_path, "trap 'exit 9' TERM; touch $OPERANT_DIR/runs/up; while :; do sleep 0.05; done", awaited=False)
    wait_until(lambda: list(tmp_path.glob("operant-job-*/.operant/runs/up")), "the program")
    job.process.terminate()
    job.process.communicate(timeout=patience(20))
    assert job.process.returncode == 9


def test_without_the_token_nothing_is_told(tmp_path: Path) -> None:
    job = Job(tmp_path, "exec sleep 60", awaited=False)

    def status(path: str, token: str) -> int:
        request = urllib.request.Request(f"http://127.0.0.1:{job.ports[1]}{path}", headers={"Authorization": token})
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    wait_until(lambda: status("/list", f"Bearer {job.token}") == 200, "the server")
    assert status("/list", "Bearer wrong") == 401 and status("/file?path=x", "") == 401
    for path in ("../home.json", "/etc/passwd", "runs"):
        assert status(f"/file?path={path}", f"Bearer {job.token}") == 404
    job.process.terminate()
    job.process.communicate(timeout=patience(20))


@contextmanager
def hostile(files: Any) -> Iterator[int]:
    """A server that lists what it likes."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            listed = self.path == "/list"
            body = json.dumps({"files": files, "code": None}).encode() if listed else b"theirs"
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def test_what_comes_from_a_pod_stays_in_its_place(tmp_path: Path) -> None:
    root = tmp_path / ".operant"
    (root / "runs" / "mine").mkdir(parents=True)
    (root / "runs" / "mine" / "x.seg").write_text("mine")
    (tmp_path / "elsewhere").mkdir()
    (root / "runs" / "link").symlink_to(tmp_path / "elsewhere")
    paths = [
        "runs/mine/x.seg", "runs/link/x.seg", "../../evil", "/etc/evil", "runs/../../evil", "runs/a/../../../evil",
        "server-token", "clusters/jobs/x.json", "runs/.hidden/x", "runs/a/\\nb", "runs/new/good.seg",
    ]  # fmt: skip
    said: list[str] = []
    with hostile([[path, 6, 1] for path in paths]) as port:
        fetcher = Fetcher(root, root / "known.json", "t", lambda _: ("127.0.0.1", port), said.append)
        assert fetcher.fetch() is False
        again = Fetcher(root, root / "known.json", "t", lambda _: ("127.0.0.1", port), said.append)
        assert again.fetch() is False, "fetching is gone on with by another process"
    assert (root / "runs" / "mine" / "x.seg").read_text() == "mine"
    assert (root / "runs" / "new" / "good.seg").read_text() == "theirs"
    found = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert found == {".operant/runs/mine/x.seg", ".operant/runs/new/good.seg", ".operant/known.json"}
    assert said.count("runs/mine of the job is not fetched: there is one of that name here") == 2


# -- what is sent ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("files", [7, [[]], [3], [["runs/a/x.seg", "big", 1]]], ids=repr)
def test_nonsense_from_a_pod_does_not_end_the_fetching(
    files: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("operant.cluster.fetching._SECONDS", 0.02)
    asked: list[int] = []
    with hostile(files) as port:

        def connect(_: int) -> tuple[str, int]:
            asked.append(port)
            return "127.0.0.1", port

        fetcher = Fetcher(tmp_path, tmp_path / "known", "t", connect, print)
        fetcher.start()
        wait_until(lambda: len(asked) > 2, "that it asks again")
        fetcher.close()
    assert not fetcher.complete.is_set()


def test_a_folder_is_packed_without_what_nobody_needs(tmp_path: Path) -> None:
    import zipfile

    folder = tmp_path / "project"
    for path in (".git/x", ".venv/x", ".operant/x", "a/__pycache__/x", "a/b.py", "data/large", "run.sh", "notes.txt"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(path)
    (folder / "run.sh").chmod(0o755)
    (folder / "gone").symlink_to(tmp_path / "nowhere")
    pack(folder, tmp_path / "one.zip", ["data/", "*.txt"], {".operant-job/home.json": b"{}"})
    pack(folder, tmp_path / "two.zip", ["data/", "*.txt"], {".operant-job/home.json": b"{}"})
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "one.zip") as archive:
        assert archive.namelist() == ["run.sh", "a/b.py", ".operant-job/home.json"]
        assert archive.getinfo("run.sh").external_attr >> 16 == 0o755
    with pytest.raises(UsageError, match="there is no folder"):
        pack(tmp_path / "none", tmp_path / "three.zip")


def test_a_folder_that_is_too_large_names_its_largest_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("operant.cluster.packing.MOST_BYTES", 1 << 20)
    (tmp_path / "weights.bin").write_bytes(os.urandom(2 << 20))
    (tmp_path / "train.py").write_text("x")
    with pytest.raises(UsageError, match=r"the largest are weights\.bin \(2 MB\)"):
        pack(tmp_path, tmp_path.parent / "out.zip")
