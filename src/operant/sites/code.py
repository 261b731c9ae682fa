"""One read-only snapshot of the user's code for a search, and from it a work folder of its own for each job."""

from __future__ import annotations

import errno
import fcntl
import filecmp
import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from operant._util.files import write_all
from operant.errors import UsageError
from operant.sites.wrapper import RESULT_NAMES
from operant.tracking.format.blocks import FILE_MAGIC

NEVER = frozenset({".git", ".venv", ".operant"})
# What `search-ctl export` leaves below the current folder is no code: else an export would look like a change of it.
_ARCHIVE = re.compile(r"(.*/)?archive/[^/]+\.\d{14}\.tar\.gz")
_EVENTS = re.compile(r"tfevents(\.[0-9][^/]*)?$")
_SNAPSHOT = re.compile(r"[0-9a-f]{16}")
_FICLONE = 0x40049409
_LARGEST_COPY = 1 << 20
_BLOCK = 1 << 20
_SHOWN_NAMES = 3


class CodeSnapshot:
    """Files below ``folder``, and paths of the user's that are linked instead."""

    def __init__(self, folder: Path, symlinks: Sequence[tuple[str, Path]] = ()) -> None:
        self.folder = folder
        self.symlinks = tuple(symlinks)
        self._folders: list[str] = []
        self._files: list[tuple[str, int]] = []
        self._links: list[tuple[str, str]] = []
        for path, folders, files in _walk(folder):
            self._folders += [f"{path}{name}" for name in folders]
            for name in files:
                entry = folder / f"{path}{name}"
                if entry.is_symlink():
                    self._links.append((f"{path}{name}", os.readlink(entry)))
                else:
                    self._files.append((f"{path}{name}", entry.stat().st_size))
        self.foreign = (*(name for name, _ in self._links), *(name for name, _ in self.symlinks))
        """What a work folder has as links: what is behind them is not the job's own."""
        self._large = [name for name, size in self._files if size > _LARGEST_COPY]
        self._clones = not self._large or _can_clone(folder / self._large[0], folder.parent)

    @property
    def name(self) -> str:
        """What tells it from snapshots with other contents: their hash."""
        return self.folder.name

    def differs_from(self, other: Path) -> list[str]:
        """The files that are not the same in another snapshot, or only in one of the two."""
        files = {name for name, _ in self._files} | {name for name, _ in self._links}
        theirs = {f"{path}{name}" for path, _, names in _walk(other) for name in names} if other.is_dir() else set()
        common = sorted(files & theirs)
        _, changed, unreadable = filecmp.cmpfiles(self.folder, other, common, shallow=False)
        return sorted((files ^ theirs) | set(changed) | set(unreadable))

    def read_text(self, name: str) -> str:
        return (self.folder / name).read_text(encoding="utf-8")

    @property
    def note(self) -> str | None:
        """What jobs cannot write over, if there is anything."""
        if self._clones:
            return None
        more = [f"{len(self._large) - _SHOWN_NAMES} more"] if len(self._large) > _SHOWN_NAMES else []
        return (
            f"jobs share the files over 1 MiB and cannot write to them, as this file system has no cheap copies: "
            f"{', '.join([*self._large[:_SHOWN_NAMES], *more])}"
        )

    def lay_out(self, work: Path, replaced: Iterable[str] = ()) -> None:
        """Make ``work`` look like the user's folder, and let it belong to the job: small files are copies, large ones
        share their blocks, or where the file system cannot do that are links to the read-only snapshot. Files in
        ``replaced`` are left for the caller to write."""
        left_out = set(replaced)
        base, target = f"{self.folder}/", f"{work}/"
        os.mkdir(work)
        for name in self._folders:
            os.mkdir(target + name)
        for name, size in self._files:
            if name in left_out:
                continue
            if size <= _LARGEST_COPY or self._clones:
                _copy(base + name, target + name, clone=size > _LARGEST_COPY)
            else:
                _link(base + name, target + name)
        for name, points_to in self._links:
            os.symlink(points_to, target + name)
        for name, original in self.symlinks:
            os.makedirs(os.path.dirname(target + name), exist_ok=True)
            os.symlink(original, target + name)


def take_snapshot(source: Path, store: Path, symlink_paths: Iterable[str | os.PathLike[str]] = ()) -> CodeSnapshot:
    """Keep what git would track below ``source`` (all of it outside a repository) as ``store/<hash>``.

    Paths in ``symlink_paths`` are not copied: work folders get links to the originals. Results and what Operant made
    are no code: a job would take the first for its own, and get each earlier job's folder with the others.
    """
    source = source.resolve()
    symlinks = [_checked_symlink(source, path) for path in symlink_paths]
    skipped = [name for name, _ in symlinks]
    if store.parent.resolve().is_relative_to(source) and store.parent.resolve() != source:
        skipped.append(str(store.parent.resolve().relative_to(source)))
    names = [name for name in _tracked_files(source) if not (_below_any(name, skipped) or _is_no_code(name))]
    staged = store / f".staged-{os.getpid()}"
    shutil.rmtree(staged, ignore_errors=True)
    staged.mkdir(parents=True)
    digest = hashlib.sha256()
    for name in names:
        _take_file(source / name, staged / name, name, digest)
    final = store / digest.hexdigest()[:16]
    if final.exists():
        remove_tree(staged)
    else:
        for path, _, _ in _walk(staged):
            os.chmod(staged / path, 0o755)
        staged.rename(final)
        _make_read_only(final)
    return CodeSnapshot(final, symlinks)


def remove_tree(folder: Path) -> None:
    """Remove a folder with all that is in it, read-only folders of a snapshot included."""
    for path, folders, _ in os.walk(folder):
        for name in folders:
            entry = os.path.join(path, name)
            if not os.path.islink(entry):
                os.chmod(entry, 0o755)
    if folder.exists():
        os.chmod(folder, 0o755)
        shutil.rmtree(folder)


def _tracked_files(source: Path) -> list[str]:
    listed = (
        subprocess.run(
            ["git", "-C", str(source), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            capture_output=True,
            check=False,
        )
        if shutil.which("git")
        else None
    )
    if listed is not None and listed.returncode == 0:
        names = sorted({os.fsdecode(name) for name in listed.stdout.split(b"\0") if name})
        # The index also names files that have been deleted, and submodules, which are folders.
        there = [name for name in names if (source / name).is_symlink() or (source / name).is_file()]
        made = functools.cache(lambda folder: _is_made(source / folder, os.listdir(source / folder)))
        return [
            name
            for name in there
            if not NEVER.intersection(Path(name).parts) and not any(map(made, Path(name).parents[:-1]))
        ]
    return sorted(f"{path}{name}" for path, _, files in _walk(source, skip_made=True) for name in files)


def _is_no_code(name: str) -> bool:
    return name in RESULT_NAMES or bool(_EVENTS.search(name) or _ARCHIVE.fullmatch(name))


def _is_made(folder: Path, names: Iterable[str]) -> bool:
    """Whether Operant made this folder: it is a snapshot, or that of a search, of a job or of a run."""
    if folder.parent.name == "code" and _SNAPSHOT.fullmatch(folder.name):
        return True
    return any(
        name == "claim-1" or ((name == "journal.log" or name.endswith(".seg")) and _is_log(folder / name))
        for name in names
    )


def _is_log(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return stream.read(len(FILE_MAGIC)) == FILE_MAGIC
    except OSError:
        return False


def _walk(folder: Path, *, skip_made: bool = False) -> Iterator[tuple[str, list[str], list[str]]]:
    """Below ``folder``: relative path with a slash at its end, folders there, files and links there."""
    waiting = [""]
    while waiting:
        path = waiting.pop()
        folders, files = [], []
        with os.scandir(folder / path) as entries:
            for entry in entries:
                if entry.name in NEVER:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                elif entry.is_file(follow_symlinks=False) or entry.is_symlink():
                    files.append(entry.name)
        if skip_made and path and _is_made(folder / path, files):
            continue
        yield path, sorted(folders), sorted(files)
        waiting += [f"{path}{name}/" for name in sorted(folders, reverse=True)]


def _take_file(origin: Path, target: Path, name: str, digest: hashlib._Hash) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    digest.update(os.fsencode(name) + b"\0")
    if origin.is_symlink():
        points_to = os.readlink(origin)
        digest.update(b"link" + os.fsencode(points_to) + b"\0")
        target.symlink_to(points_to)
        return
    executable = bool(origin.stat().st_mode & 0o111)
    _clone(origin, target)
    content = hashlib.sha256()
    with target.open("rb") as stream:
        while block := stream.read(1 << 20):
            content.update(block)
    digest.update(b"x" if executable else b"-")
    digest.update(content.digest())
    target.chmod(0o555 if executable else 0o444)


def _clone(origin: Path, target: Path) -> None:
    """Share the blocks where the file system can (btrfs, xfs), copy the bytes elsewhere."""
    with origin.open("rb") as source, target.open("xb") as copy:
        if not _share_blocks(source.fileno(), copy.fileno()):
            shutil.copyfileobj(source, copy, _BLOCK)


def _share_blocks(source: int, copy: int) -> bool:
    try:
        fcntl.ioctl(copy, _FICLONE, source)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        return False
    return True


def _can_clone(origin: Path, folder: Path) -> bool:
    with origin.open("rb") as source, tempfile.TemporaryFile(dir=folder) as copy:
        return _share_blocks(source.fileno(), copy.fileno())


def _copy(origin: str, target: str, *, clone: bool = False) -> None:
    """A copy that its owner may write to."""
    source = os.open(origin, os.O_RDONLY | os.O_CLOEXEC)
    try:
        mode = os.fstat(source).st_mode & 0o777 | 0o200
        copy = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            if not clone or not _share_blocks(source, copy):
                while block := os.read(source, _BLOCK):
                    write_all(copy, block)
        finally:
            os.close(copy)
    finally:
        os.close(source)


def _link(origin: str, target: str) -> None:
    try:
        os.link(origin, target)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EXDEV, errno.EMLINK, errno.ENOTSUP):
            raise
        _copy(origin, target)


def _make_read_only(folder: Path) -> None:
    for path, _, _ in list(_walk(folder)):
        os.chmod(folder / path, 0o555)


def _checked_symlink(source: Path, path: str | os.PathLike[str]) -> tuple[str, Path]:
    original = (source / path).absolute()
    if not original.exists():
        raise UsageError(f"--symlinks: there is no {os.fspath(path)!r} in {source}")
    try:
        name = str(original.relative_to(source))
    except ValueError:
        name = original.name  # a path elsewhere appears under its own name
    if name == ".":
        raise UsageError("--symlinks: the current folder itself cannot be linked; name what is in it")
    return name, original


def _below_any(name: str, folders: Sequence[str]) -> bool:
    return any(name == one or name.startswith(f"{one}/") for one in folders)
