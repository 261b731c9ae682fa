"""Which process is this, and is that one still alive? Answers that survive a reused pid and a reboot."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["boot_id", "is_alive", "process_identity", "start_ticks"]


@cache
def boot_id() -> str:
    """Changes with every boot of the machine; empty where the system does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


@cache
def _pid_space() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def start_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot, or None when there is no such (living) process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    # The command name may hold spaces and brackets: count from the last bracket.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


@cache
def _own_ticks(pid: int) -> int | None:
    """By pid, since a forked process has another one and another start."""
    return start_ticks(pid)


def process_identity() -> dict[str, Any]:
    pid = os.getpid()
    return {
        "host": os.uname().nodename,
        "pid": pid,
        "boot": boot_id(),
        "ticks": _own_ticks(pid),
        "pid_space": _pid_space(),
    }


def is_alive(identity: dict[str, Any]) -> bool | None:
    """Whether the process of :func:`process_identity` still runs; None when only its own host could tell."""
    if identity.get("host") != os.uname().nodename:
        return None
    if identity.get("boot") != boot_id():
        return False
    if identity.get("pid_space") != _pid_space():  # another container of this machine: its pids mean nothing here
        return None
    pid, ticks = identity.get("pid"), identity.get("ticks")
    if type(pid) is not int or not 0 < pid < 1 << 31:  # the identity may come out of a damaged file
        return None
    if ticks is not None:
        return bool(start_ticks(pid) == ticks)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
