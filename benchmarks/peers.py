"""The peers' own virtual environment, and running a script in one process of it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PINS = HERE / "peers-tracking.txt"
VENV = HERE.parent / ".venv-peers"

# What must be installed for each peer, with the versions that PINS gives.
PACKAGES = {
    "tensorboardX": ["tensorboardX"],
    "TensorBoard": ["tensorboard"],
    "Aim": ["aim"],
    "MLflow": ["mlflow-skinny", "sqlalchemy", "alembic", "sqlparse"],
    "W&B": ["wandb"],
    "Trackio": ["trackio"],
}

# No peer may reach for the network, call home, or write outside its folder.
QUIET = {
    "WANDB_MODE": "offline",
    "WANDB_ERROR_REPORTING": "false",
    "WANDB_SILENT": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "HF_HUB_OFFLINE": "1",
    "TRACKIO_LOGBOOK_AUTONOTE": "0",
    "GIT_PYTHON_REFRESH": "quiet",
    "OMP_NUM_THREADS": "1",
}


class Unavailable(Exception):
    """A peer cannot be measured; the message says why, in one line."""


@dataclass
class Peers:
    """Where the peers' Python is, and why some of them are missing."""

    python: Path | None
    missing: dict[str, str] = field(default_factory=dict)

    def python_for(self, name: str) -> Path:
        if name == "operant":
            return Path(sys.executable)
        if self.python is None or name in self.missing:
            raise Unavailable(self.missing.get(name, "it has no Python"))
        return self.python


def find_peers(venv: Path = VENV, *, make: bool) -> Peers:
    """The peers' environment as PINS wants it; with ``make`` it is made or brought up to date first."""
    python = venv / "bin" / "python"
    stamp = venv / ".ready.json"
    wanted = hashlib.sha256(PINS.read_bytes()).hexdigest()
    try:
        ready = json.loads(stamp.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        ready = {}
    if ready.get("pins") == wanted:
        return Peers(python, ready["missing"])
    if not make:
        return Peers(None, dict.fromkeys(PACKAGES, f"there is no up-to-date {venv.name}"))
    print(f"making {venv.name} (a few minutes the first time)", file=sys.stderr)
    try:
        _uv("venv", "--clear", "--python", sys.executable, str(venv))
    except Unavailable as error:
        return Peers(None, dict.fromkeys(PACKAGES, str(error)))
    missing = {}
    for name, packages in PACKAGES.items():
        try:
            _uv("pip", "install", "--python", str(python), "--constraint", str(PINS), *packages)
        except Unavailable as error:
            missing[name] = str(error)
    if not missing:  # else the next run tries again
        stamp.write_text(json.dumps({"pins": wanted, "missing": missing}), encoding="utf-8")
    return Peers(python, missing)


def _uv(*arguments: str) -> None:
    uv = shutil.which("uv", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", ""))))
    if uv is None:
        raise Unavailable("uv is not installed, so the peers cannot be")
    done = subprocess.run([uv, "--quiet", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise Unavailable(_last_line(done.stderr))


def run_script(python: Path, script: str, *arguments: str, folder: Path, seconds: float = 600) -> dict[str, Any]:
    """Run one of the scripts beside this file and return the JSON of its last line.

    Its home is a folder that is thrown away, so that nobody's settings or caches play a part.
    """
    with tempfile.TemporaryDirectory(prefix="operant-benchmark-home-") as home:
        places = {"HOME": home, "XDG_CACHE_HOME": home, "TMPDIR": home, "TRACKIO_DIR": str(folder)}
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("OPERANT_", "WANDB_"))}
        try:
            done = subprocess.run(
                [str(python), str(HERE / script), *arguments],
                cwd=folder,
                env={**inherited, **QUIET, **places},
                capture_output=True,
                text=True,
                timeout=seconds,
            )
        except subprocess.TimeoutExpired:
            raise Unavailable(f"it took longer than {seconds:.0f} s") from None
    if done.returncode:
        raise Unavailable(_last_line(done.stderr))
    try:
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        raise Unavailable("it ended without a result") from None
    return found


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it ended without a word"
