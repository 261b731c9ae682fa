"""A whole search as one file, and back: for another machine, or to be kept."""

from __future__ import annotations

import hashlib
import io
import json
import os
import secrets
import shutil
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from operant._util.files import replacing
from operant._version import __version__
from operant.errors import UsageError
from operant.schedulers.archives.tar import check_member_name, read_members
from operant.schedulers.engine.state import read_state
from operant.sites.code import remove_tree
from operant.tracking.journal import controller_is_alive
from operant.tracking.journal.journal import JOURNAL_NAME
from operant.tracking.places import check_run_id

MANIFEST = "manifest.json"
FORMAT = 1
_LARGEST_MANIFEST = 256 << 20
# A list of checksums hardly shrinks, and its entries are long; what says otherwise is made to fill a memory.
_MANIFEST_EXPANSION = 20
_BYTES_OF_A_VALUE = 12
_MOST_FILES = 5_000_000
# No search shrinks to a two-hundredth of itself; what claims to is made to fill a disk.
_MOST_EXPANSION = 200
_ALWAYS_ALLOWED = 16 << 20
_LEFT_OUT = frozenset({"inbox", "lease.json", "lease.lock"})


def export_search(folder: Path, target: Path | None = None) -> Path:
    """Write the search in ``folder`` to ``target``, by default ``archive/<name>.<time>.tar.gz``."""
    if not (folder / JOURNAL_NAME).exists():
        raise UsageError(f"there is no search {folder.name!r} in {folder.parent}")
    if target is None:
        target = Path("archive") / f"{folder.name}.{time.strftime('%Y%m%d%H%M%S')}.tar.gz"
    target.parent.mkdir(parents=True, exist_ok=True)
    files = [(name, *_fingerprint(folder / name)) for name in _files_of(folder)]
    manifest = {
        "format": FORMAT,
        "operant": __version__,
        "task": folder.name,
        "files": [{"name": name, "size": size, "sha256": digest} for name, size, digest in files],
    }
    with (
        replacing(target) as staged,
        tarfile.open(staged, "w:gz", format=tarfile.PAX_FORMAT, compresslevel=6) as archive,
    ):
        _add(archive, MANIFEST, io.BytesIO(json.dumps(manifest).encode()), None)
        for name, size, _ in files:
            with (folder / name).open("rb") as stream:
                _add(archive, name, stream, size)
    return target


def import_search(archive: Path, searches: Path, name: str | None = None, *, force: bool = False) -> Path:
    """Bring an exported search into ``searches``; an archive with anything wrong in it leaves nothing behind."""
    if not archive.is_file():
        raise UsageError(f"there is no archive {str(archive)!r}")
    searches.mkdir(parents=True, exist_ok=True)
    staged = searches / f".import-{secrets.token_hex(6)}"
    staged.mkdir(mode=0o700)
    try:
        manifest = _unpack(archive, staged)
        task = check_run_id(name if name is not None else manifest["task"])
        if "/" in task:
            raise UsageError(f"{task!r} is no name of a search")
        _check_journal(staged)
        target = searches / task
        if target.exists():
            _make_way(target, force)
        staged.chmod(0o755)
        staged.rename(target)
    except (UsageError, OSError) as error:
        raise UsageError(f"{archive} was not imported: {error}") from None
    finally:
        if staged.exists():
            remove_tree(staged)
    return target


def _files_of(folder: Path) -> Iterator[str]:
    """Relative names of what belongs to the search: regular files only, and no copies of the code in work folders."""
    code = [one for one in (folder / "code").glob("*") if one.is_dir()]
    for path, folders, names in os.walk(folder):
        here = Path(path).relative_to(folder)
        folders[:] = sorted(one for one in folders if not one.startswith(".") and (here.parts or one not in _LEFT_OUT))
        for name in sorted(names):
            file = Path(path) / name
            if (name.startswith(".") and here == Path()) or (here == Path() and name in _LEFT_OUT):
                continue
            if file.is_symlink() or not file.is_file():
                continue
            relative = (here / name).as_posix()
            if here.parts[:1] == ("jobs",) and len(here.parts) > 2 and here.parts[2].startswith("work"):
                inside = Path(*here.parts[3:], name)
                if any(_same_file(file, one / inside) for one in code):
                    continue
            try:
                yield check_member_name(relative)
            except UsageError:
                continue  # a name that not every system can hold


def _same_file(a: Path, b: Path) -> bool:
    try:
        left, right = a.stat(), b.stat()
    except OSError:
        return False
    if (left.st_ino, left.st_dev) == (right.st_ino, right.st_dev):
        return True
    return left.st_size == right.st_size and a.read_bytes() == b.read_bytes()


def _fingerprint(path: Path) -> tuple[int, str]:
    digest = hashlib.sha256()
    size = 0
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
            size += len(block)
    return size, digest.hexdigest()


def _add(archive: tarfile.TarFile, name: str, stream: Any, size: int | None) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(stream.getbuffer()) if size is None else size
    info.mtime = 0
    archive.addfile(info, stream)


def _unpack(archive: Path, target: Path) -> dict[str, Any]:
    members = read_members(archive)
    first = next(members, None)
    if first is None or first.name != MANIFEST or first.is_folder or first.size > _LARGEST_MANIFEST:
        raise UsageError(f"it does not begin with a {MANIFEST}: it is no exported search")
    if first.size > (1 << 20) + _MANIFEST_EXPANSION * archive.stat().st_size:
        raise UsageError(f"its {MANIFEST} would grow to {first.size} bytes, which no real one does")
    manifest, wanted = _read_manifest(b"".join(first.chunks))
    allowed = _ALWAYS_ALLOWED + _MOST_EXPANSION * archive.stat().st_size
    total = sum(size for size, _ in wanted.values())
    if total > allowed:
        raise UsageError(f"it would grow to {total} bytes, which no real search of its size does")
    free = shutil.disk_usage(target).free
    if total > free:
        raise UsageError(f"it needs {total} bytes, and the disk has {free} left")
    for member in members:
        if member.is_folder:
            continue
        if member.name not in wanted:
            raise UsageError(f"{member.name!r} is not in its list, or is there twice")
        size, digest = wanted.pop(member.name)
        if member.size != size:
            raise UsageError(f"{member.name!r} is not as long as its list says")
        _write(target, member.name, member.chunks, digest)
    if wanted:
        raise UsageError(f"{len(wanted)} files of its list are missing, such as {next(iter(wanted))!r}")
    return manifest


def _read_manifest(text: bytes) -> tuple[dict[str, Any], dict[str, tuple[int, str]]]:
    wanted: dict[str, tuple[int, str]] = {}
    folded: set[str] = set()
    if sum(map(text.count, (b",", b"[", b"{"))) > 64 + len(text) // _BYTES_OF_A_VALUE:
        raise UsageError(f"its {MANIFEST} holds more than a list of files")
    try:
        manifest = json.loads(text)
        if manifest["format"] != FORMAT:
            raise UsageError(f"its format is {manifest['format']!r:.80}; this version of Operant reads {FORMAT}")
        entries = manifest["files"]
        if len(entries) > _MOST_FILES:
            raise UsageError(f"it lists {len(entries)} files")
        for entry in entries:
            name, size, digest = check_member_name(str(entry["name"])), int(entry["size"]), str(entry["sha256"])
            if size < 0 or name.casefold() in folded:
                raise UsageError(f"its list names {name!r} twice, or with an impossible size")
            folded.add(name.casefold())
            wanted[name] = (size, digest)
        manifest["task"] = str(manifest["task"])
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"its {MANIFEST} cannot be read ({type(error).__name__})") from None
    return manifest, wanted


def _write(target: Path, name: str, chunks: Iterator[bytes], digest: str) -> None:
    path = target / name
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    found = hashlib.sha256()
    with os.fdopen(descriptor, "wb") as stream:
        for chunk in chunks:
            found.update(chunk)
            stream.write(chunk)
    if found.hexdigest() != digest:
        raise UsageError(f"the content of {name!r} does not fit its checksum")


def _check_journal(folder: Path) -> None:
    state, _ = read_state(folder) if (folder / JOURNAL_NAME).is_file() else (None, "")
    if state is None or not state.opened:
        raise UsageError("it holds no journal of a search")


def _make_way(target: Path, force: bool) -> None:
    if not force:
        raise UsageError(f"there is a search {target.name!r} already; --force replaces it, --task gives another name")
    if controller_is_alive(target):
        raise UsageError(f"the search {target.name!r} is running")
    aside = target.with_name(f".replaced-{secrets.token_hex(6)}")
    target.rename(aside)
    remove_tree(aside)
