"""The virtual environments of the reinforcement-learning peers, as the peers-*.txt beside this file pin them."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["ONE_THREAD", "PEERS_PYTHON", "ensure_peers", "peers_python", "pinned"]

HERE = Path(__file__).resolve().parent
PINS = HERE / "peers-rl.txt"


def peers_python(name: str = "rl") -> Path:
    """The Python of the peers that peers-NAME.txt pins."""
    return HERE.parent / f".venv-peers-{name}" / "bin" / "python"


PEERS_PYTHON = peers_python()
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "MKL", "OPENBLAS")} | {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
}


def ensure_peers(name: str = "rl") -> None:
    """Make the environment if it is not there as pinned."""
    python, pins = peers_python(name), HERE / f"peers-{name}.txt"
    venv = python.parent.parent
    stamp = venv / ".ready"
    wanted = hashlib.sha256(pins.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    print(f"making {venv.name} (a few minutes the first time)", file=sys.stderr)
    uv = shutil.which("uv", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", ""))))
    if uv is None:
        raise SystemExit("uv is not installed, so the peers cannot be")
    wheels = os.environ.get("PIP_FIND_LINKS")  # uv does not read pip's settings
    source = {"UV_FIND_LINKS": wheels} if wheels else {"UV_TORCH_BACKEND": "cpu"}
    for words in (
        ["venv", "--clear", "--python", sys.executable, str(venv)],
        ["pip", "install", "--python", str(python), "-r", str(pins)],
    ):
        subprocess.run([uv, "--quiet", *words], check=True, env={**source, **os.environ})
    stamp.write_text(wanted)


def pinned(package: str) -> str:
    """The version of a peer."""
    for pins in sorted(HERE.glob("peers-*.txt"), key=lambda path: path != PINS):
        for line in pins.read_text(encoding="utf-8").splitlines():
            name, _, version = line.partition("==")
            if name == package:
                return version.strip()
    raise LookupError(f"no peers-*.txt names {package}")
