"""Where things are: the ``.operant`` folder, run folders and their ids, the local cache."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

from operant.errors import UsageError

__all__ = [
    "cache_dir",
    "check_run_id",
    "find_root",
    "iter_run_dirs",
    "new_run_id",
    "on_network_filesystem",
    "resolve_run_dir",
    "root_key",
    "run_dir",
    "safe_part",
]

ROOT_NAME = ".operant"
_PART = re.compile(r"[^\W_](?:[\w .-]{0,126}[\w.-])?")
_LONGEST_PART = 200  # bytes: with what is put around it, it has to be the name of a file
_NETWORK_FILESYSTEMS = {
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "lustre",
    "gpfs",
    "beegfs",
    "ceph",
    "9p",
    "afs",
}


def find_root(start: str | os.PathLike[str] | None = None) -> Path:
    """The ``.operant`` folder: ``$OPERANT_DIR``, else the nearest at or above ``start``, else one to be made there."""
    named = os.environ.get("OPERANT_DIR")
    if named and start is None:
        return Path(named).absolute()
    here = Path(start or Path.cwd()).absolute()
    for folder in (here, *here.parents):
        if folder.name == ROOT_NAME:
            return folder
        if (folder / ROOT_NAME).is_dir():
            return folder / ROOT_NAME
    return here / ROOT_NAME


def cache_dir() -> Path:
    """Folder on this machine for what can be derived again: ``$OPERANT_CACHE_DIR`` or the user's cache."""
    named = os.environ.get("OPERANT_CACHE_DIR")
    if named:
        return Path(named).absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "operant"


def root_key(root: Path) -> str:
    """Short name of a root for use in the cache."""
    return hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:16]


def safe_part(text: str, limit: int = 40) -> str:
    """``text`` as a piece of a file name: ASCII letters, digits, ``._-``."""
    part = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")
    return part[:limit].strip("-._").lower()


def new_run_id(name: str) -> str:
    """A fresh id such as ``resnet18-20260131-142501-4f7km``: it sorts by name, then time; its start is easy to type."""
    alphabet = "abcdefghjkmnpqrstuvwxyz23456789"
    tail = "".join(secrets.choice(alphabet) for _ in range(5))
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return f"{safe_part(name.rsplit('/', 1)[-1]) or 'run'}-{stamp}-{tail}"


def check_run_id(run_id: object) -> str:
    """Return the id of a run (``name`` or ``search/job``), or say what is wrong with it."""
    if not isinstance(run_id, str):
        raise UsageError(f"a run id is a string, got {type(run_id).__name__}: {run_id!r:.100}")
    parts = run_id.split("/")
    if len(parts) > 2 or not all(_PART.fullmatch(part) and len(part.encode()) <= _LONGEST_PART for part in parts):
        raise UsageError(
            f"run id {run_id!r:.100} is not valid: ids are letters, digits, '._-' and spaces inside "
            "(or 'search/job'), as `operant runs` prints them"
        )
    return run_id


def run_dir(root: Path, run_id: str) -> Path:
    """Folder of the run with exactly this id, whether it exists or not."""
    search, _, job = check_run_id(run_id).rpartition("/")
    if search:
        return root / "searches" / search / "jobs" / job / "run"
    return root / "runs" / job


def iter_run_dirs(root: Path) -> Iterator[tuple[str, Path]]:
    """Every run below ``root`` as (id, folder)."""
    for entry in _subfolders(root / "runs"):
        yield entry.name, entry
    for search in _subfolders(root / "searches"):
        for job in _subfolders(search / "jobs"):
            if (job / "run").is_dir():
                yield f"{search.name}/{job.name}", job / "run"


def resolve_run_dir(root: Path, run_id: str) -> tuple[str, Path]:
    """The run named by an id, by the start of an id if only one begins so, or by ``last``."""
    exact = run_dir(root, run_id)
    if exact.is_dir():
        return run_id, exact
    runs = dict(iter_run_dirs(root))
    if run_id == "last" and runs:
        latest = max(runs, key=lambda one: runs[one].stat().st_mtime_ns)
        return latest, runs[latest]
    fits = sorted(one for one in runs if one.startswith(run_id))
    if len(fits) == 1:
        return fits[0], runs[fits[0]]
    if fits:
        some = ", ".join(fits[:3]) + (", …" if len(fits) > 3 else "")
        raise UsageError(f"run id {run_id!r} fits {len(fits)} runs ({some}): give more of it")
    raise UsageError(f"there is no run {run_id!r} in {root}: `operant runs` lists those that exist")


def on_network_filesystem(path: Path) -> bool:
    """Whether ``path`` lies on a network file system, where only a sync makes bytes visible to others."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    real, best, kind = str(path.resolve()), "", ""
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split()
        if len(fields) < 5 or not right:
            continue
        point = fields[4].replace("\\040", " ")
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, right.split()[0]
    return kind in _NETWORK_FILESYSTEMS or (kind.startswith("fuse.") and kind != "fuse.lxcfs")


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _subfolders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            # Nothing of ours has a name that is no UTF-8, and no table could hold it.
            return sorted(
                Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False) and _is_utf8(entry.name)
            )
    except (FileNotFoundError, NotADirectoryError):
        return []
