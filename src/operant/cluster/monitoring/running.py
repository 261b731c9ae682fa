"""Starting and ending Prometheus, Grafana and Aim on this machine: on loopback, in the background, by their ids."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from operant._util.files import write_file
from operant.cluster.monitoring.files import write_files
from operant.errors import OperantError, UsageError
from operant.tracking.identity import is_alive, process_identity, start_ticks
from operant.tracking.recording.scraping import forget_dead, targets_folder

_STATE = "monitor.json"
_START_SECONDS = 30.0
_GRAFANA_HOMES = ("/usr/share/grafana", "/usr/local/share/grafana", "/opt/grafana")


class Service(NamedTuple):
    name: str
    words: Sequence[str]
    address: str
    ready: str
    """What answers once it is up."""


def start(
    root: Path,
    *,
    port: int = 9090,
    grafana_port: int = 3000,
    ray: Path | None = None,
    aim: Path | None = None,
    aim_port: int = 43800,
    interval: str = "10s",
    said: Callable[[str], None],
) -> dict[str, str]:
    """Write what they need and start what is installed; the address of each. What runs already goes on."""
    folder = root / "monitor"
    folder.mkdir(parents=True, exist_ok=True)
    targets = targets_folder(root)
    targets.mkdir(parents=True, exist_ok=True)
    forget_dead(root)
    write_files(folder, targets, ray, f"http://127.0.0.1:{port}", grafana_port, interval)
    running = _running(folder)
    for service in _services(folder, port, grafana_port, aim, aim_port, said):
        if service.name in running:
            _reload(running[service.name], service.name)
            said(f"{service.name} runs already, at {running[service.name]['address']}")
            continue
        running[service.name] = _begin(folder, service)
        write_file(folder / _STATE, json.dumps(running))  # after each: a crash must not leave one unknown
        said(f"{service.name} runs at {service.address}")
    return {name: str(one["address"]) for name, one in running.items()}


def stop(root: Path, *, said: Callable[[str], None]) -> None:
    """End what `start` has started, and nothing else."""
    folder = root / "monitor"
    running = _running(folder)
    for name, one in running.items():
        _end(int(one["process"]["pid"]), one["process"])
        said(f"{name} is ended")
    (folder / _STATE).unlink(missing_ok=True)
    if not running:
        said("nothing runs that was started from here")


def _services(
    folder: Path, port: int, grafana_port: int, aim: Path | None, aim_port: int, said: Callable[[str], None]
) -> list[Service]:
    found = []
    prometheus = shutil.which("prometheus")
    if prometheus is None:
        raise OperantError(
            "Prometheus is not installed (Debian: apt install prometheus); what it needs is in "
            f"{folder}, for one that runs elsewhere"
        )
    words = [prometheus, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/prometheus-data"]
    words += [f"--web.listen-address=127.0.0.1:{port}", "--web.enable-lifecycle", "--storage.tsdb.retention.time=30d"]
    found.append(Service("Prometheus", words, f"http://127.0.0.1:{port}", "/-/ready"))
    grafana = shutil.which("grafana-server") or shutil.which("grafana")
    home = next((one for one in _GRAFANA_HOMES if Path(one, "conf").is_dir()), None)
    if grafana is None or home is None:
        said(f"Grafana is not installed; its provisioning is in {folder / 'grafana'}, for one that runs elsewhere")
    else:
        words = [grafana, *([] if grafana.endswith("-server") else ["server"])]
        words += [f"--homepath={home}", f"--config={folder}/grafana/grafana.ini"]
        found.append(Service("Grafana", words, f"http://127.0.0.1:{grafana_port}", "/api/health"))
    if aim is not None:
        program = shutil.which("aim")
        if program is None:
            raise UsageError("Aim is not installed: pip install aim")
        words = [program, "up", "--host", "127.0.0.1", "--port", str(aim_port), "--repo", str(aim), "--yes"]
        found.append(Service("Aim", words, f"http://127.0.0.1:{aim_port}", "/"))
    return found


def _begin(folder: Path, service: Service) -> dict[str, Any]:
    host, _, port = service.address.removeprefix("http://").partition(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 1.0):
        raise UsageError(
            f"{service.name} cannot be started: something else listens on {host}:{port}; pick another port"
        )
    log = folder / f"{service.name.lower()}.log"
    with log.open("ab") as stream:
        process = subprocess.Popen(
            list(service.words), stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True
        )
    known = {**process_identity(), "pid": process.pid, "ticks": start_ticks(process.pid)}
    deadline = time.monotonic() + _START_SECONDS
    while not _answers(f"{service.address}{service.ready}"):
        if process.poll() is not None or time.monotonic() > deadline:
            _end(process.pid, known)
            lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            why = f": {lines[-1][:300]}" if lines else ""
            raise OperantError(f"{service.name} does not come up{why}; its log is {log}")
        time.sleep(0.05)
    return {"process": known, "address": service.address}


def _answers(url: str) -> bool:
    import urllib.error
    import urllib.request

    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except (OSError, ValueError):
        return False


def _reload(known: dict[str, Any], name: str) -> None:
    if name == "Prometheus":
        with contextlib.suppress(OSError):
            os.kill(int(known["process"]["pid"]), signal.SIGHUP)


def _end(pid: int, known: dict[str, Any]) -> None:
    """By its id, if that is still the process that was started."""
    for number, seconds in ((signal.SIGTERM, 10.0), (signal.SIGKILL, 5.0)):
        if is_alive(known) is not True:
            break
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        deadline = time.monotonic() + seconds
        while is_alive(known) is True and time.monotonic() < deadline:
            time.sleep(0.05)
    with contextlib.suppress(ChildProcessError):  # where it was started by this very process
        os.waitpid(pid, os.WNOHANG)


def _running(folder: Path) -> dict[str, dict[str, Any]]:
    try:
        found = json.loads((folder / _STATE).read_text(encoding="utf-8"))
        return {str(name): one for name, one in found.items() if is_alive(one["process"]) is True}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
