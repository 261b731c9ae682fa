"""Searches as archives: there and back, and nothing hostile gets in."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from operant.cli.search_scripts import ctl_main
from operant.errors import UsageError
from operant.schedulers import NaiveScheduler
from operant.schedulers.archives.archive import export_search, import_search
from operant.schedulers.engine.state import read_state
from operant.schedulers.views.overview import describe
from operant.sites import SITES, SimulatedSite
from operant.tracking.journal import Journal

CONFIG = {
    "task": {"search_args": [{"type": "Categorical", "name": "x", "data": [1, 2, 3]}]},
    "searcher": {"type": "GridSearcher", "reward_attribute": "acc"},
}


@pytest.fixture(scope="module")
def search(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("a") / ".operant" / "searches" / "demo"
    NaiveScheduler(folder, CONFIG, function=lambda c: c["x"]).run()
    job = folder / "jobs" / "0"
    (job / "work").mkdir(parents=True)
    (job / "work" / "kept.txt").write_text("a result")
    (job / "work" / "program.py").write_text("code")
    (job / "work" / "away").symlink_to("/etc/passwd")
    (folder / "code" / "0123456789abcdef").mkdir(parents=True)
    (folder / "code" / "0123456789abcdef" / "program.py").write_text("code")
    return folder


def test_there_and_back(search: Path, tmp_path: Path) -> None:
    archive = export_search(search, tmp_path / "demo.tar.gz")
    folder = import_search(archive, tmp_path / "searches")
    assert folder.name == "demo" and describe(folder) == describe(search)
    assert (folder / "jobs" / "0" / "work" / "kept.txt").read_text() == "a result"
    assert not (folder / "jobs" / "0" / "work" / "program.py").exists()  # the code is there once
    assert not (folder / "jobs" / "0" / "work" / "away").exists() and not (folder / "lease.json").exists()
    other = import_search(archive, tmp_path / "searches", "other")
    assert describe(other)["task"] == "other" and describe(other)["best"]["reward"] == 3.0
    assert NaiveScheduler(other, CONFIG, function=lambda c: c["x"], resume=True).run().tries == 3


def test_an_existing_search_is_replaced_only_by_force(search: Path, tmp_path: Path) -> None:
    archive = export_search(search, tmp_path / "demo.tar.gz")
    folder = import_search(archive, tmp_path / "searches")
    (folder / "mark").write_text("x")
    with pytest.raises(UsageError, match="--force"):
        import_search(archive, tmp_path / "searches")
    assert (folder / "mark").exists()
    import_search(archive, tmp_path / "searches", force=True)
    assert not (folder / "mark").exists()


def test_default_path(search: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = export_search(search)
    assert path.parent == Path("archive") and path.name.startswith("demo.") and path.name.endswith(".tar.gz")
    assert path.is_file()


Change = Callable[[tarfile.TarFile, dict[str, bytes]], None]


def add(
    archive: tarfile.TarFile,
    name: str,
    data: bytes = b"",
    kind: bytes = tarfile.REGTYPE,
    link: str = "",
    size: int | None = None,
) -> None:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, len(data) if size is None else size
    archive.addfile(info, io.BytesIO(data))


def build(
    search: Path, target: Path, extra: Change, *, task: str = "demo", listed: dict[str, bytes] | None = None
) -> Path:
    """An archive that is right in everything but what ``extra`` adds; ``listed`` is in its manifest as well."""
    files = {"journal.log": (search / "journal.log").read_bytes(), **(listed or {})}
    entries = [
        {"name": name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()
    ]
    manifest = json.dumps({"format": 1, "task": task, "files": entries}).encode()
    with tarfile.open(target, "w:gz") as archive:
        add(archive, "manifest.json", manifest)
        add(archive, "journal.log", files["journal.log"])
        extra(archive, files)
    return target


def symlink_chain(archive: tarfile.TarFile, files: dict[str, bytes]) -> None:
    add(archive, "d", kind=tarfile.SYMTYPE, link="..")
    add(archive, "d/evil", b"x")


def path_of_a_header(archive: tarfile.TarFile, files: dict[str, bytes]) -> None:
    add(archive, "x", b"17 path=../evil1\n", kind=tarfile.XHDTYPE)
    add(archive, "fine", b"x")


def as_listed(archive: tarfile.TarFile, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        if name != "journal.log":
            add(archive, name, data)


HOSTILE: dict[str, tuple[Change, dict[str, bytes]]] = {
    "traversal": (lambda a, f: add(a, "../evil", b"x"), {"../evil": b"x"}),
    "inner traversal": (lambda a, f: add(a, "jobs/../../evil", b"x"), {"jobs/../../evil": b"x"}),
    "absolute": (lambda a, f: add(a, "/tmp/operant-evil", b"x"), {"/tmp/operant-evil": b"x"}),
    "backslash": (lambda a, f: add(a, "..\\evil", b"x"), {"..\\evil": b"x"}),
    "drive": (lambda a, f: add(a, "C:evil", b"x"), {"C:evil": b"x"}),
    "reserved name": (lambda a, f: add(a, "jobs/con.txt", b"x"), {"jobs/con.txt": b"x"}),
    "NUL": (lambda a, f: add(a, "a\0b", b"x"), {"a\0b": b"x"}),
    "newline": (lambda a, f: add(a, "a\nb", b"x"), {"a\nb": b"x"}),
    "symlink": (lambda a, f: add(a, "jobs/l", kind=tarfile.SYMTYPE, link="/etc"), {}),
    "symlink chain": (symlink_chain, {"d/evil": b"x"}),
    "hard link": (lambda a, f: add(a, "jobs/h", kind=tarfile.LNKTYPE, link="/etc/passwd"), {}),
    "character device": (lambda a, f: add(a, "jobs/c", kind=tarfile.CHRTYPE), {}),
    "block device": (lambda a, f: add(a, "jobs/b", kind=tarfile.BLKTYPE), {}),
    "named pipe": (lambda a, f: add(a, "jobs/p", kind=tarfile.FIFOTYPE), {}),
    "sparse file": (lambda a, f: add(a, "jobs/s", kind=tarfile.GNUTYPE_SPARSE), {}),
    "long name of old": (lambda a, f: add(a, "././@LongLink", b"../evil\0", kind=tarfile.GNUTYPE_LONGNAME), {}),
    "global header": (lambda a, f: add(a, "g", b"19 path=../../evil\n", kind=tarfile.XGLTYPE), {}),
    "path of a header": (path_of_a_header, {"../evil1": b"x"}),
    "huge header": (lambda a, f: add(a, "x", b"0" * 70000, kind=tarfile.XHDTYPE), {}),
    "not listed": (lambda a, f: add(a, "jobs/extra", b"x"), {}),
    "twice": (lambda a, f: add(a, "journal.log", f["journal.log"]), {}),
    "listed but missing": (lambda a, f: None, {"jobs/gone": b"x"}),
    "another content": (lambda a, f: add(a, "jobs/x", b"y"), {"jobs/x": b"x"}),
    "another size": (lambda a, f: add(a, "jobs/x", b"xx"), {"jobs/x": b"x"}),
    "too deep": (lambda a, f: add(a, "/".join(["d"] * 600), b"x"), {"/".join(["d"] * 600): b"x"}),
    "long part": (lambda a, f: add(a, "n" * 300, b"x"), {"n" * 300: b"x"}),
    "case twins": (as_listed, {"jobs/A": b"x", "jobs/a": b"x"}),
    "file below a file": (as_listed, {"jobs/x": b"x", "jobs/x/y": b"y"}),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_is_refused_whole(search: Path, tmp_path: Path, name: str) -> None:
    extra, listed = HOSTILE[name]
    archive = build(search, tmp_path / "evil.tar.gz", extra, listed=listed)
    store = tmp_path / "deep" / "store" / "searches"
    with pytest.raises(UsageError, match=r"evil\.tar\.gz was not imported"):
        import_search(archive, store)
    assert list(store.iterdir()) == []  # nothing of it is left
    assert {path.name for path in tmp_path.iterdir()} == {"evil.tar.gz", "deep"}
    assert not Path("/tmp/operant-evil").exists()


def test_a_bomb_is_refused_before_it_is_unpacked(search: Path, tmp_path: Path) -> None:
    zeros = b"\0" * (80 << 20)
    archive = build(
        search, tmp_path / "bomb.tar.gz", lambda a, f: add(a, "jobs/zeros", zeros), listed={"jobs/zeros": zeros}
    )
    assert archive.stat().st_size < 200_000
    with pytest.raises(UsageError, match="would grow to"):
        import_search(archive, tmp_path / "searches")


def test_a_bomb_in_the_manifest(tmp_path: Path) -> None:
    archive = tmp_path / "bomb.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        info = tarfile.TarInfo("manifest.json")
        info.size = 300 << 20
        tar.addfile(info, _Zeros(info.size))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no exported search"):
        import_search(archive, tmp_path / "searches")


class _Zeros(io.RawIOBase):
    def __init__(self, left: int) -> None:
        self.left = left

    def read(self, size: int = -1) -> bytes:
        size = min(size, self.left)
        self.left -= size
        return bytes(size)


@pytest.mark.parametrize("task", ["../evil", "a/b", "", ".hidden", "a\0b"])
def test_a_hostile_task_name(search: Path, tmp_path: Path, task: str) -> None:
    archive = build(search, tmp_path / "evil.tar.gz", lambda a, f: None, task=task)
    with pytest.raises(UsageError):
        import_search(archive, tmp_path / "searches")
    assert list((tmp_path / "searches").iterdir()) == []


@pytest.mark.parametrize(
    "manifest",
    [
        b"{",
        b"[]",
        b'{"format": 2}',
        b'{"format": 1, "task": "x", "files": [{}]}',
        b'{"format": 1, "task": "x", "files": [{"name": "a", "size": -1, "sha256": ""}]}',
        b"[" * 100000,
    ],
)
def test_a_manifest_that_is_none(tmp_path: Path, manifest: bytes) -> None:
    with tarfile.open(tmp_path / "evil.tar.gz", "w:gz") as archive:
        add(archive, "manifest.json", manifest)
    with pytest.raises(UsageError, match="was not imported"):
        import_search(tmp_path / "evil.tar.gz", tmp_path / "searches")


def test_damage(search: Path, tmp_path: Path) -> None:
    whole = export_search(search, tmp_path / "demo.tar.gz").read_bytes()
    for name, data in {
        "cut": whole[: len(whole) // 2],
        "text": b"this is no archive",
        "empty": b"",
        "gzip of text": gzip.compress(b"this is no tar archive" * 100),
        "flipped": whole[:-8] + bytes([whole[-8] ^ 1]) + whole[-7:],
    }.items():
        (tmp_path / "bad.tar.gz").write_bytes(data)
        with pytest.raises(UsageError, match="was not imported"):
            import_search(tmp_path / "bad.tar.gz", tmp_path / name)
        assert list((tmp_path / name).iterdir()) == []
    with pytest.raises(UsageError, match="there is no archive"):
        import_search(tmp_path / "nowhere", tmp_path / "searches")


def test_no_damaged_byte_passes(search: Path, tmp_path: Path) -> None:
    whole = export_search(search, tmp_path / "demo.tar.gz").read_bytes()
    begin = whole.index(b"\0", 10) + 1  # gzip's own header tells a name and a time, which nobody reads
    for place in {*range(begin, len(whole), max(1, len(whole) // 150)), *range(len(whole) - 20, len(whole))}:
        bad = whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
        if same_content(bad, whole):
            continue  # a repetition may be told as one of several places
        (tmp_path / "bad.tar.gz").write_bytes(bad)
        with pytest.raises(UsageError, match="was not imported"):
            import_search(tmp_path / "bad.tar.gz", tmp_path / "searches")


def same_content(bad: bytes, whole: bytes) -> bool:
    try:
        return gzip.decompress(bad) == gzip.decompress(whole)
    except (OSError, EOFError, zlib.error):
        return False


@pytest.mark.parametrize(
    "manifest", [b'{"format": 1, "files": [' + b"[]," * 300_000 + b"[]]}", b"[" + b"0," * 400_000 + b"0]"]
)
def test_a_manifest_of_millions_of_entries_is_refused_before_it_is_parsed(tmp_path: Path, manifest: bytes) -> None:
    archive = tmp_path / "bomb.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        info = tarfile.TarInfo("manifest.json")
        info.size = len(manifest)
        tar.addfile(info, io.BytesIO(manifest))
    with pytest.raises(UsageError, match=r"holds more than a list of files"):
        import_search(archive, tmp_path / "searches")
    large = tmp_path / "large.tar.gz"
    with tarfile.open(large, "w:gz") as tar:
        info.size = 8 << 20
        tar.addfile(info, io.BytesIO(bytes(8 << 20)))
    with pytest.raises(UsageError, match="would grow to"):
        import_search(large, tmp_path / "searches")


@SITES.register_module("unasked")
class Unasked(SimulatedSite):
    """A site of a stranger's settings: nobody may make one of them."""

    def __init__(self, folder: Path, **settings: object) -> None:
        raise AssertionError(f"the site was made with {settings}")


def test_what_an_imported_search_names_is_acted_on_only_with_trust(
    search: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its journal names a site with open jobs, and a file to go on with, which the archive brings along."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".operant").mkdir()
    searches = tmp_path / ".operant" / "searches"
    folder = import_search(export_search(search, tmp_path / "demo.tar.gz"), searches)
    with Journal.open(folder) as journal:
        read, _ = read_state(folder)
        origin = {"file": ".operant/searches/demo/evil.yaml", "source": ".", "symlinks": []}
        given = {"config": {"site": {"type": "unasked", "kubeconfig": "evil"}}, "origin": origin, "outlives": True}
        journal.append("opened", **{**read.opened, **given})
        journal.append("submitting", job="0", number=0, seed=None, attempt=2, token="t")
        journal.commit()
    (folder / "evil.yaml").write_text("task: {template: touch ran}")
    for command in ("restart", "stop"):
        assert ctl_main([command, "-t", "demo"]) == 1
        assert "not begun by you on this machine" in capsys.readouterr().err
    with pytest.raises(AssertionError, match="evil"):
        ctl_main(["stop", "-t", "demo", "--trust"])
    assert ctl_main(["rm", "-t", "demo"]) == 0 and not folder.exists()
    assert "its site is not asked" in capsys.readouterr().out
