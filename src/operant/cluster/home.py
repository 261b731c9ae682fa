"""Runs a job's program on a cluster, and hands what it records to whoever submitted it. Standard library alone.

`python home.py -- PROGRAM …`: the program gets an `.operant` folder of its own. A small server on loopback, which
only a forward reaches and only with the token that came with the job, lists its files and gives their bytes; whoever
is at home fetches them as they grow. When the program has ended, the last bytes are waited for while somebody fetches;
whoever asks and has no room for them has ten minutes to make some.
"""

import hmac
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

CONFIG = "home.json"
HEARD_SECONDS = 30.0  # whoever has asked within this is at home
WAIT_SECONDS = 600.0  # without a byte that was not asked for before
STOP_SECONDS = 2.0  # Ray kills what it stops after three
_CHUNK = 1 << 20


class Shared:
    def __init__(self, folder, token):
        self.folder, self.token = folder, token
        self.heard, self.code, self.done = float("-inf"), None, threading.Event()
        self.given, self.got_on = {}, float("-inf")

    def gave(self, path, offset):
        """Bytes of a file are on their way home, up to this one."""
        self.heard = time.monotonic()
        if offset > self.given.get(path, 0):
            self.given[path], self.got_on = offset, self.heard

    def wait(self, began, stopped):
        """Until all is at home, or nobody asks for it, or nothing gets on any more; ``began``: somebody was there."""
        ended = self.got_on = time.monotonic()
        while not self.done.is_set():
            now = time.monotonic()
            late = now - ended > STOP_SECONDS if stopped else now - self.got_on > WAIT_SECONDS
            if late or now - max(self.heard, began) > HEARD_SECONDS:
                return
            self.done.wait(0.2)


class Handler(BaseHTTPRequestHandler):
    shared = None
    protocol_version = "HTTP/1.1"
    timeout = 60

    def log_message(self, format, *args):
        pass

    def do_GET(self):
        if not self._known():
            return
        url = urlsplit(self.path)
        if url.path == "/list":
            self._answer(json.dumps({"files": list_files(self.shared.folder), "code": self.shared.code}).encode())
        elif url.path == "/file":
            query = {key: values[0] for key, values in parse_qs(url.query).items()}
            self._file(query.get("path", ""), int(query.get("offset", "0")))
        else:
            self._answer(b"", 404)

    def do_POST(self):
        if self._known():
            self._answer(b"{}")
            self.shared.done.set()

    def _known(self):
        given = self.headers.get("Authorization", "").encode("latin-1")
        if not hmac.compare_digest(given, b"Bearer " + self.shared.token.encode()):
            self._answer(b"", 401)
            return False
        self.shared.heard = time.monotonic()
        return True

    def _file(self, path, offset):
        wanted = os.path.realpath(os.path.join(self.shared.folder, path))
        if not wanted.startswith(os.path.realpath(self.shared.folder) + os.sep) or not os.path.isfile(wanted):
            self._answer(b"", 404)
            return
        with open(wanted, "rb") as stream:
            left = max(0, os.fstat(stream.fileno()).st_size - offset)
            stream.seek(offset)
            self.send_response(200)
            self.send_header("Content-Length", str(left))
            self.end_headers()
            while left > 0:
                data = stream.read(min(_CHUNK, left))
                if not data:
                    self.close_connection = True  # it has become shorter: whoever reads sees that bytes are missing
                    return
                self.wfile.write(data)
                left -= len(data)
                self.shared.gave(wanted, stream.tell())

    def _answer(self, body, code=200):
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def list_files(folder):
    """Path, size and time of each regular file."""
    found = []
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(place, name)
            try:
                about = os.lstat(path)
            except OSError:
                continue
            if os.path.isfile(path) and not os.path.islink(path):
                found.append([os.path.relpath(path, folder), about.st_size, about.st_mtime_ns])
    return found


def run(words, config):
    folder = os.environ.get("OPERANT_DIR")
    if folder is None:
        folder = os.path.join(tempfile.mkdtemp(prefix="operant-job-"), ".operant")
        os.makedirs(os.path.join(folder, "runs"))
    shared = Shared(folder, config["token"])
    handler = type("_Handler", (Handler,), {"shared": shared})
    for port in config["ports"]:  # one of them may be another program's
        try:
            server = ThreadingHTTPServer(("127.0.0.1", port), handler)
        except OSError as error:
            why = f"port {port}: {error}"
            continue
        server.daemon_threads = True
        server.handle_error = lambda *_: None  # whoever asked has gone
        threading.Thread(target=server.serve_forever, args=(0.2,), daemon=True).start()
        break
    else:
        print(f"operant: what is recorded stays here, in {folder}: {why}", file=sys.stderr)
    began = time.monotonic()
    process = subprocess.Popen(words, env={**os.environ, "OPERANT_DIR": folder})
    stopped = []

    def stop(number, _):
        stopped.append(number)
        process.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    code = process.wait()
    shared.code = code if code >= 0 else 128 - code
    shared.wait(began if config.get("awaited") else float("-inf"), stopped)
    if not shared.done.is_set() and list_files(folder):
        print(f"operant: not all that was recorded is at home; it stays on this node in {folder}", file=sys.stderr)
    return shared.code


if __name__ == "__main__":
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), CONFIG)) as _stream:
        _config = json.load(_stream)
    sys.exit(run(sys.argv[sys.argv.index("--") + 1 :], _config))
