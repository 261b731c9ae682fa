"""What a run needs to be understood later: its command, its code, its packages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

GIT_SECONDS = 5.0
MAX_DIFF = 4 << 20


def command_line() -> list[str]:
    """The command as it was started, with the interpreter; ``-c`` and notebooks give what Python knows of them."""
    return list(sys.orig_argv) or [sys.executable, *sys.argv]


def machine() -> dict[str, Any]:
    system = os.uname()  # `platform.platform()` reads the interpreter's binary: 20 ms
    return {
        "platform": f"{system.sysname} {system.release} {system.machine}",
        "python": sys.version.split()[0],
        "cpus": os.cpu_count(),
    }


def installed_versions() -> dict[str, str]:
    """Names and versions of all packages; read anew (0.2 s) only when a folder they are found in has changed."""
    global _versions
    folders = tuple((path, Path(path).stat().st_mtime_ns) for path in sys.path if Path(path).exists())
    if _versions[0] != folders:
        _versions = (folders, _read_versions())
    return dict(_versions[1])


_versions: tuple[tuple[tuple[str, int], ...], dict[str, str]] = ((), {})


def _read_versions() -> dict[str, str]:
    from importlib import metadata  # slow to load, and needed only here

    found: dict[str, str] = {}
    for one in metadata.distributions():
        name = one.metadata["Name"] if one.metadata else None
        if name:
            found.setdefault(name, one.version)
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))


def git_state(folder: Path) -> tuple[dict[str, Any], bytes] | None:
    """(commit, branch and whether there are changes, the changes as a diff), or None outside a repository."""
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    branch = _git(folder, "rev-parse", "--abbrev-ref", "HEAD") or b""
    diff = _git(folder, "diff", "HEAD", "--no-color", "--no-ext-diff") or b""
    untracked = _git(folder, "ls-files", "--others", "--exclude-standard") or b""
    state: dict[str, Any] = {
        "commit": commit.decode("ascii", "replace").strip(),
        "branch": branch.decode("utf-8", "replace").strip(),
        "dirty": bool(diff.strip()),
        "untracked": len(untracked.splitlines()),
    }
    if len(diff) > MAX_DIFF:
        state["diff_cut_at"] = MAX_DIFF
    return state, diff[:MAX_DIFF]


def _git(folder: Path, *words: str) -> bytes | None:
    # A repository may name programs of its own to run (fsmonitor, pagers): recording a run must not start them.
    command = ["git", "-C", str(folder), "-c", "core.fsmonitor=false", "--no-pager", *words]
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            timeout=GIT_SECONDS,
            env=environment,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
