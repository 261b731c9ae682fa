"""The code snapshot and work folders made from it."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from operant.errors import UsageError
from operant.sites import code
from operant.sites.code import remove_tree, take_snapshot
from operant.tracking.format.blocks import FILE_MAGIC


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir() or path.is_symlink()}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    source = tmp_path / "source"
    for name in ("a.py", "pkg/b.py", "data/big.bin", ".venv/x", ".operant/y", ".git-like/z", "out/run.log"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(name)
    (source / "run.sh").write_text("#!/bin/sh\necho ok\n")
    (source / "run.sh").chmod(0o755)
    (source / "link").symlink_to("a.py")
    return source


def git(source: Path, *words: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=x", "-c", "user.email=x@x", *words], cwd=source, check=True, capture_output=True
    )


def test_outside_a_repository_everything_but_three_folders(source: Path, tmp_path: Path) -> None:
    found = names(take_snapshot(source, tmp_path / "store").folder)
    assert found == {"a.py", "pkg/b.py", "data/big.bin", ".git-like/z", "out/run.log", "run.sh", "link"}


def test_in_a_repository_what_git_would_track(source: Path, tmp_path: Path) -> None:
    git(source, "init", "-q")
    (source / ".gitignore").write_text("out/\n")
    git(source, "add", "a.py", "pkg")
    git(source, "commit", "-qm", "x")
    (source / "pkg" / "b.py").unlink()  # tracked, but no longer there
    found = names(take_snapshot(source, tmp_path / "store").folder)
    assert found == {"a.py", "data/big.bin", ".git-like/z", "run.sh", "link", ".gitignore"}
    below = names(take_snapshot(source / "data", tmp_path / "store2").folder)
    assert below == {"big.bin"}


def test_an_exported_search_is_no_code(source: Path, tmp_path: Path) -> None:
    before = take_snapshot(source, tmp_path / "store").name
    (source / "archive").mkdir()
    (source / "archive" / "mnist.20260102030405.tar.gz").write_bytes(b"x")
    assert take_snapshot(source, tmp_path / "store").name == before
    (source / "archive" / "weights.tar.gz").write_bytes(b"x")  # the user's own
    assert take_snapshot(source, tmp_path / "store").name != before


def test_the_same_code_is_kept_once(source: Path, tmp_path: Path) -> None:
    first = take_snapshot(source, tmp_path / "store").folder
    assert take_snapshot(source, tmp_path / "store").folder == first
    (source / "a.py").write_text("changed")
    assert take_snapshot(source, tmp_path / "store").folder != first
    assert (first / "a.py").read_text() == "a.py"
    assert len([one for one in (tmp_path / "store").iterdir()]) == 2


def test_a_work_folder_looks_like_the_source_and_cannot_hurt_the_snapshot(source: Path, tmp_path: Path) -> None:
    snapshot = take_snapshot(source, tmp_path / "store")
    snapshot.lay_out(tmp_path / "work", replaced=["pkg/b.py"])
    assert names(tmp_path / "work") == names(snapshot.folder) - {"pkg/b.py"}
    assert subprocess.run(["./run.sh"], cwd=tmp_path / "work", capture_output=True).stdout == b"ok\n"
    (tmp_path / "work" / "out" / "new").write_text("a job may write beside the code")
    (tmp_path / "work" / "a.py").write_text("and over it")
    assert (snapshot.folder / "a.py").read_text() == "a.py"
    remove_tree(tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_symlinked_paths_are_linked_not_copied(source: Path, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere"
    other.mkdir()
    snapshot = take_snapshot(source, tmp_path / "store", ["data", other])
    assert "data/big.bin" not in names(snapshot.folder)
    snapshot.lay_out(tmp_path / "work")
    assert str((tmp_path / "work" / "data").readlink()) == str(source / "data")
    assert str((tmp_path / "work" / "elsewhere").readlink()) == str(other)
    with pytest.raises(UsageError, match="there is no 'nothing'"):
        take_snapshot(source, tmp_path / "store", ["nothing"])


def as_nobody(check: Callable[[], None]) -> None:
    """Run it as a user without privileges; root may write to anything."""
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            check()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_job_of_any_user_may_write_over_its_files_but_not_over_large_ones_of_all() -> None:
    with tempfile.TemporaryDirectory() as folder:  # pytest's own is closed to others
        base = Path(folder)
        base.chmod(0o777)

        def check() -> None:
            (base / "source").mkdir()
            for name, size in (("a.py", 4), ("run.sh", 4), ("large.bin", (1 << 20) + 1)):
                (base / "source" / name).write_bytes(bytes(size))
            (base / "source" / "run.sh").chmod(0o755)
            snapshot = take_snapshot(base / "source", base / "store")
            snapshot.lay_out(base / "work")
            for name in ("a.py", "run.sh"):
                (base / "work" / name).write_text("mine")
            assert os.access(base / "work" / "run.sh", os.X_OK)
            try:
                (base / "work" / "large.bin").write_bytes(b"mine")
            except PermissionError:  # where the file system cannot share blocks
                assert "large.bin" in str(snapshot.note)
            else:
                assert snapshot.note is None
            assert [(snapshot.folder / name).stat().st_size for name in ("a.py", "large.bin")] == [4, (1 << 20) + 1]
            remove_tree(base / "store")
            remove_tree(base / "work")
            remove_tree(base / "source")

        as_nobody(check)


def test_where_blocks_can_be_shared_large_files_are_the_jobs_too(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def share(origin: int, copy: int) -> bool:  # what btrfs and xfs do, in bytes
        return os.write(copy, os.pread(origin, 1 << 22, 0)) > 0

    monkeypatch.setattr(code, "_share_blocks", share)
    (source / "large.bin").write_bytes(bytes((1 << 20) + 1))
    snapshot = take_snapshot(source, tmp_path / "store")
    snapshot.lay_out(tmp_path / "work")
    (tmp_path / "work" / "large.bin").write_bytes(b"mine")
    assert snapshot.note is None and (tmp_path / "work" / "large.bin").stat().st_mode & 0o200
    assert (snapshot.folder / "large.bin").stat().st_size == (1 << 20) + 1


@pytest.mark.parametrize("tracked", [False, True])
def test_results_and_what_operant_made_are_no_code(source: Path, tmp_path: Path, tracked: bool) -> None:
    if tracked:
        git(source, "init", "-q")
        (source / ".gitignore").write_text("*.log\n")
    before = names(take_snapshot(source, tmp_path / "store").folder)
    made = {
        "result.json": b"{}",
        "result.pkl": b"",
        "logs/events.out.tfevents.1700000000.host.1.0": b"",
        "out/search/journal.log": FILE_MAGIC,
        "out/search/jobs/1/work/a.py": b"",
        "out/runs/one/00.seg": FILE_MAGIC,
        "out/runs/one/files/config.yaml": b"",
        "task-1/claim-1": b"{}",
        "task-1/hpo/x.py": b"",
        "jobs/code/0123456789abcdef/a.py": b"",
    }
    own = {"tfevents_reader.py": b"", "data/result.json": b"{}", "logs/journal.log": b"mine", "code/x/a.py": b""}
    for name, content in {**made, **own}.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(content)
    ignored = {"logs/journal.log"} if tracked else set()
    assert names(take_snapshot(source, tmp_path / "store").folder) - before == set(own) - ignored


def test_a_search_whose_folder_is_in_the_project_does_not_copy_itself(source: Path) -> None:
    for search in ("one", "two"):
        snapshot = take_snapshot(source, source / "results" / search / "code")
        snapshot.lay_out(source / "results" / search / "work")
        (source / "results" / search / "journal.log").write_bytes(FILE_MAGIC)
    assert not any(name.startswith("results/") for name in names(snapshot.folder))
