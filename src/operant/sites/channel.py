"""A job's way to its folder where none is shared: a small server of the controller's, which writes the same files.

Every request but the one for the wrapper's own text carries what only one attempt was told, and reaches only its job:

    GET  /wrapper.py
    GET  /JOB/ATTEMPT/spec, /bundle (a tar of its work folder, and of its checkpoints where it was begun before), /order
    POST /JOB/ATTEMPT/claim, /started, /exit
    PUT  /JOB/ATTEMPT/file?path=…&offset=…   appended if the file is so long; without offset it replaces the file
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import http.server
import json
import os
import re
import resource
import secrets
import socket
import sys
import tarfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from operant._util.files import write_all, write_file
from operant.errors import UsageError
from operant.sites import wrapper

BOOTSTRAP = """
import http.client, os, sys, time, urllib.request
for tries in range(17300):
    try:
        text = urllib.request.urlopen(os.environ["OPERANT_CHANNEL"] + "/wrapper.py", timeout=60).read()
        break
    except (OSError, http.client.HTTPException):
        time.sleep(min(5.0, 0.2 + 0.2 * tries))
else:
    sys.exit("no controller has answered for a day")
wrapper = {"__name__": "wrapper"}
exec(compile(text, "wrapper.py", "exec"), wrapper)
sys.exit(wrapper["main"](["fetch"]))
"""
"""What is run where there is only a Python: it gets the wrapper, which gets everything else. It asks for a day."""

_PLACE = re.compile(r"/([\w.-]{1,128})/([0-9]{1,9})/([a-z]+)")
_MOST_TEXT = 1 << 20
_CHUNK = 1 << 20
_MOST_CONNECTIONS = 256
_MOST_OF_A_JOB = 8
_HEAD_SECONDS = 10.0
_LONGEST_HEAD = 1 << 16
_NEVER = (errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP)  # later is no better


class ChannelServer:
    """Serves the jobs below ``folder``. Its port stays the same when the search is gone on with: jobs may be waiting.

    :param address: ``host:port`` that jobs can reach; the host alone, or nothing, lets it choose.
    """

    def __init__(self, folder: Path, address: str | None) -> None:
        self.folder = folder
        place = folder / "site" / "channel.json"
        before = wrapper.read_json(str(place))
        host, _, port = (address or before.get("address") or socket.gethostname()).partition(":")
        if not port and before.get("address", "").partition(":")[0] == host:
            port = before["address"].partition(":")[2]
        self._key = _key(folder / "site" / "channel.key")
        handler = type("Handler", (_Handler,), {"folder": folder, "key": self._key})
        try:
            self._server = _Server((host, int(port or 0)), handler)
        except (OSError, ValueError, OverflowError) as error:
            raise UsageError(f"jobs cannot be served at {host}:{port or 0}: {error}") from None
        self.address = f"{host}:{self._server.server_port}"
        write_file(place, json.dumps({"address": self.address}))
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="operant-channel", daemon=True
        )
        self._thread.start()

    def environment(self, job_id: str, attempt: int, token: str) -> dict[str, str]:
        """What the job must find in its environment, by a file that only its owner can read."""
        return {
            "OPERANT_CHANNEL": f"http://{self.address}",
            "OPERANT_CHANNEL_JOB": f"{job_id}/{attempt}",
            "OPERANT_CHANNEL_TOKEN": channel_token(self._key, token),
        }

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _key(path: Path) -> bytes:
    """What a search's channel is opened by, the same after a resume; nobody but its owner can read it."""
    if not path.exists():
        staged = path.with_name(f".{path.name}")
        staged.unlink(missing_ok=True)
        with os.fdopen(os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
            stream.write(secrets.token_bytes(32))
            stream.flush()
            os.fsync(stream.fileno())
        staged.replace(path)
    return path.read_bytes()


def channel_token(key: bytes, token: str) -> str:
    """What an attempt shows. Its token alone opens nothing: the journal and the claim have it, for all to read."""
    return hmac.new(key, token.encode(), "sha256").hexdigest()


class _Server(http.server.ThreadingHTTPServer):
    """Has places for so many requests, half of them for one address: strangers cannot use up what the controller
    itself needs, nor lock jobs out. Who is turned away asks again."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[_Handler]) -> None:
        self._places = max(16, min(_MOST_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4))
        self._open: Counter[str] = Counter()
        self._of_job: Counter[Path] = Counter()
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._writers: dict[Path, threading.Thread] = {}
        super().__init__(address, handler)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        with self._lock:
            if self._open.total() >= self._places or self._open[client_address[0]] >= self._places // 2:
                return False
            self._open[client_address[0]] += 1
        return True

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._open -= Counter({client_address[0]: 1})

    @contextmanager
    def place_of(self, job: Path) -> Iterator[None]:
        """One of the few places that a job may have at once: bodies that never come lock out their own job alone."""
        with self._lock:
            if self._of_job[job] >= _MOST_OF_A_JOB:
                raise OSError("too many requests of this job are under way")
            self._of_job[job] += 1
        try:
            yield
        finally:
            with self._lock:
                self._of_job -= Counter({job: 1})

    @contextmanager
    def writing(self, target: Path) -> Iterator[None]:
        """The file is this request's: a job that sends anew no longer waits for what it sent before, whose bytes may
        still be on their way."""
        me = threading.current_thread()
        with self._writing:
            self._writers[target] = me
        try:
            yield
        finally:
            with self._writing:
                if self._writers.get(target) is me:
                    del self._writers[target]

    @contextmanager
    def owned(self, target: Path) -> Iterator[None]:
        """Nobody takes the file over meanwhile; an error if somebody has."""
        with self._writing:
            if self._writers.get(target) is not threading.current_thread():
                raise OSError("the same is being sent anew")
            yield

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever broke off asks again: a traceback for each would fill the log."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 120.0
    folder: Path
    key: bytes
    server: _Server

    def handle_one_request(self) -> None:
        """As the base does, once the head of the request has come as a whole: nobody holds a place with half of one."""
        deadline = time.monotonic() + _HEAD_SECONDS
        head = b""
        while b"\r\n\r\n" not in head:
            left = deadline - time.monotonic()
            self.connection.settimeout(max(left, 0.01))
            try:
                more = self.connection.recv(_LONGEST_HEAD, socket.MSG_PEEK)
            except OSError:
                more = b""
            whole = b"\r\n\r\n" in more  # what is behind it is the body
            if not more or left <= 0 or (len(more) == _LONGEST_HEAD and not whole):
                self.close_connection = True
                return
            if more == head:
                time.sleep(0.02)
            head = more
        self.connection.settimeout(self.timeout)
        super().handle_one_request()

    def do_GET(self) -> None:
        if self.path == "/wrapper.py":
            self._answer(200, Path(wrapper.__file__).read_bytes())
            return
        self._serve({"spec": self._spec, "bundle": self._bundle, "order": self._order})

    def do_POST(self) -> None:
        self._serve({"claim": self._claim, "started": self._started, "exit": self._exit})

    def do_PUT(self) -> None:
        self._serve({"file": self._file})

    def log_message(self, *_: Any) -> None:
        """Jobs ask every second."""

    def _serve(self, known: dict[str, Any]) -> None:
        found = _PLACE.fullmatch(urlsplit(self.path).path)
        if found is None or found[3] not in known:
            self._answer(404, b"there is no such thing here")
            return
        self.job, self.attempt = self.folder / "jobs" / found[1], int(found[2])
        self.spec = wrapper.read_json(str(self.job / f"spec-{self.attempt}.json"))
        given = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        token = str(self.spec.get("token") or "")  # none: there is no such attempt, and nothing opens it
        word = channel_token(self.key, token)
        if found[1].strip(".") == "" or not token or not hmac.compare_digest(given.encode(), word.encode()):
            self.close_connection = True
            self._answer(403, b"this is the token of no such job")
            return
        try:
            with self.server.place_of(self.job):
                known[found[3]]()
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            self.close_connection = True
            self._answer(400, str(error).encode())
        except OSError as error:  # a full disk: the job keeps what it has and tries again; a name stays what it is
            self.close_connection = True
            self._answer(400 if error.errno in _NEVER else 507, str(error).encode(errors="replace"))

    def _answer(self, code: int, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _tell(self, found: dict[str, Any], code: int = 200) -> None:
        self._answer(code, json.dumps(found).encode())

    def _text(self) -> dict[str, Any]:
        found = json.loads(self.rfile.read(self._length(_MOST_TEXT)))
        if not isinstance(found, dict):
            raise ValueError("a mapping is expected")
        return found

    def _length(self, most: int = sys.maxsize) -> int:
        length = int(self.headers["Content-Length"])
        if not 0 <= length <= most:
            raise ValueError(f"a body of {length} bytes")
        return length

    def _spec(self) -> None:
        self._tell(self.spec)

    def _order(self) -> None:
        self._tell(wrapper.read_json(str(self.job / f"cancel-{self.attempt}")))

    def _bundle(self) -> None:
        self.close_connection = True
        self.send_response(200)
        self.send_header("Connection", "close")
        self.end_headers()
        with tarfile.open(fileobj=self.wfile, mode="w|") as bundle:
            for name in ("work", "run/checkpoints"):
                if (self.job / name).is_dir():
                    bundle.add(self.job / name, name)

    def _claim(self) -> None:
        who = self._text()
        restart = int(who.pop("restart", 0))
        taken = not wrapper.claim(str(self.job), self.attempt, self.spec["token"], restart, who)
        holder = wrapper.read_json(str(self.job / f"claim-{self.attempt}"))
        # Asked twice by the same one: the answer was lost.
        again = taken and holder == {**who, "token": self.spec["token"], "restart": restart}
        self._tell({}, 409 if taken and not again else 200)

    def _started(self) -> None:
        self._notice(int(self._text().get("restart", 0)), "started")
        self._tell({})

    def _exit(self) -> None:
        record = self._text()
        if record.get("token") != self.spec["token"]:
            raise ValueError("this is the end of another attempt")
        descriptor = wrapper.write_exit(str(self.job), self.attempt, record)
        os.fsync(descriptor)
        os.close(descriptor)
        self._notice(int(record.get("restart", 0)), "ended")
        self._tell({})

    def _notice(self, restart: int, kind: str) -> None:
        (self.folder / "site" / "notices" / f"{self.job.name}.{self.attempt}.{restart}.{kind}").touch()

    def _file(self) -> None:
        asked = parse_qs(urlsplit(self.path).query, errors="surrogateescape")
        target = self._target(asked["path"][0])
        length = self._length()
        offset = int(asked["offset"][0]) if "offset" in asked else None
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.parent.resolve().is_relative_to(self.job.resolve()):
            raise ValueError("this path leads out of the job's folder")
        with self.server.writing(target):
            size = self._replace(target, length) if offset is None else self._append(target, offset, length)
        self._tell({"size": size})

    def _replace(self, target: Path, length: int) -> int:
        staged = target.with_name(f".arriving-{hashlib.sha256(os.fsencode(target.name)).hexdigest()[:16]}")
        descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
        self._receive(target, descriptor, length)
        with self.server.owned(target):
            try:
                staged.replace(target)
            except OSError:
                staged.unlink(missing_ok=True)
                raise
        return length

    def _append(self, target: Path, offset: int, length: int) -> int:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o644)
        size = os.fstat(descriptor).st_size
        if offset == size:
            self._receive(target, descriptor, length)
            return size + length
        os.close(descriptor)  # it came twice, or something before it did not come: go on from what is there
        while length and (data := self.rfile.read(min(length, _CHUNK))):  # else who still sends would not hear that
            length -= len(data)
        return size

    def _target(self, path: str) -> Path:
        parts = Path(path).parts
        results = len(parts) == 2 and parts[0] == "work" and parts[1] in wrapper.RESULT_NAMES
        if not (path in wrapper.STREAMS or results or (len(parts) > 1 and parts[0] == "run")) or ".." in parts:
            raise ValueError(f"a job does not send {path!r}")
        return self.job.joinpath(*parts)

    def _receive(self, target: Path, descriptor: int, length: int) -> None:
        try:
            while length:
                data = self.rfile.read(min(length, _CHUNK))
                if not data:
                    raise OSError("it was cut off")
                length -= len(data)
                with self.server.owned(target):
                    write_all(descriptor, data)
        finally:
            os.close(descriptor)
