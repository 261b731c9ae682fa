"""`/metrics` of a program that records, where its user wants it: ``OPERANT_METRICS=9101`` or ``HOST:PORT``.

One small server for each process, on loopback unless a host is named. Who listens where is left as a file in the local
cache, in the form that Prometheus' file service discovery reads; it goes with the process.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from operant._util.files import write_file
from operant._util.prometheus import CONTENT_TYPE, Metric, render
from operant.errors import UsageError
from operant.tracking.identity import is_alive, process_identity
from operant.tracking.places import cache_dir, root_key

log = logging.getLogger("operant.tracking")

Collect = Callable[[], list[Metric]]
_lock = threading.Lock()
_server: _Server | None = None


def metrics_address() -> tuple[str, int] | None:
    """``$OPERANT_METRICS``, checked; None where nobody wants metrics."""
    given = os.environ.get("OPERANT_METRICS", "")
    if not given:
        return None
    host, _, port = given.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise UsageError(f"OPERANT_METRICS is {given!r}: it must be a port (0 picks a free one) or HOST:PORT")
    return host.strip("[]") or "127.0.0.1", int(port)


def serve_run(root: Path, folder: Path, run_id: str) -> None:
    """Tell of a run of this process, if metrics are wanted."""
    if metrics_address() is None:
        return
    from operant.tracking.reading.metrics import Rates, about_runs
    from operant.tracking.reading.summary import summarize

    summary, rates = summarize(folder, run_id), Rates()

    def collect() -> list[Metric]:
        summary.update()
        return about_runs([summary], rates, time.time())

    serve(root, f"run {run_id}", collect)


def serve(root: Path, what: str, collect: Collect) -> None:
    """Tell what ``collect`` finds from now on, if metrics are wanted; the first call begins to listen."""
    global _server
    address = metrics_address()
    if address is None:
        return
    with _lock:
        if _server is None or _server.pid != os.getpid():
            try:
                _server = _Server(root, address)
            except OSError as error:
                log.warning("metrics cannot be served at %s:%d: %s", *address, error.strerror)
                return
        _server.collectors[what] = collect


def stop_serving(what: str) -> None:
    """Tell no more of it; whoever is the last ends the server."""
    global _server
    with _lock:
        if _server is None or _server.pid != os.getpid():
            return
        _server.collectors.pop(what, None)
        if not _server.collectors:
            _server.close()
            _server = None


class _Server:
    def __init__(self, root: Path, address: tuple[str, int]) -> None:
        self.pid = os.getpid()
        self.root = root
        self.collectors: dict[str, Collect] = {}
        self._collecting = threading.Lock()
        handler = type("Handler", (_Handler,), {"server_of": self})
        try:
            self._http = ThreadingHTTPServer(address, handler)
        except OSError:
            # Jobs of a search have the same variable: whoever is the second takes a free port, and says which.
            self._http = ThreadingHTTPServer((address[0], 0), handler)
        self._http.daemon_threads = True
        self.port = self._http.server_port
        threading.Thread(target=self._http.serve_forever, args=(0.2,), name="operant-metrics", daemon=True).start()
        self._file = leave_target(
            root, f"{address[0] if address[0] != '0.0.0.0' else '127.0.0.1'}:{self.port}", "program"
        )
        atexit.register(self._forget)
        log.info("metrics at http://%s:%d/metrics", address[0], self.port)

    def render(self) -> str:
        from operant.tracking.reading.metrics import about_process

        with self._collecting:
            parts = [about_process(self.root), *(collect() for collect in list(self.collectors.values()))]
        found: dict[str, Metric] = {}
        for metric in (one for part in parts for one in part):
            known = found.setdefault(metric.name, metric)
            if known is not metric:
                known.samples += metric.samples
        return render(found.values())

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._forget()
        atexit.unregister(self._forget)

    def _forget(self) -> None:
        if self._file is not None and os.getpid() == self.pid:
            self._file.unlink(missing_ok=True)


class _Handler(BaseHTTPRequestHandler):
    server_of: _Server
    timeout = 10

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(404)
            return
        body = self.server_of.render().encode()
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def targets_folder(root: Path) -> Path:
    """Where processes of this machine leave their addresses, for each `.operant` folder."""
    return cache_dir() / "metrics" / root_key(root)


def leave_target(root: Path, address: str, kind: str) -> Path | None:
    """Write down where this process tells its metrics; None where that cannot be. Files of the dead are removed."""
    folder = targets_folder(root)
    path = folder / f"{os.getpid()}.json"
    # Labels that begin like this are not kept by Prometheus.
    labels = {"operant": kind, "pid": str(os.getpid()), "__meta_process": json.dumps(process_identity())}
    with contextlib.suppress(OSError):
        forget_dead(root)
        write_file(path, json.dumps([{"targets": [address], "labels": labels}]))
        return path
    return None


def forget_dead(root: Path) -> None:
    """Remove what processes left that were killed."""
    for path in targets_folder(root).glob("*.json"):
        try:
            process = json.loads(json.loads(path.read_text(encoding="utf-8"))[0]["labels"]["__meta_process"])
            if is_alive(process) is False:
                path.unlink(missing_ok=True)
        except (OSError, ValueError, KeyError, IndexError, TypeError):
            continue
