"""Archives of searches, as somebody else may have made them."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import random
import shutil
import tarfile
import zlib
from pathlib import Path
from typing import Any

import pytest
from tests.fuzz.driver import Fuzz, confused, few_or_many

from operant.schedulers.archives.archive import export_search, import_search
from operant.schedulers.views.overview import describe

JOURNALS = Path(__file__).parents[1] / "schedulers" / "journals"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    folder = tmp_path_factory.mktemp("archives") / "searches" / "grid"
    (folder / "jobs" / "0").mkdir(parents=True)
    (folder / "jobs" / "0" / "stdout").write_text("a line\n" * 9)
    shutil.copy(JOURNALS / "grid.log", folder / "journal.log")
    return [export_search(folder, folder.parents[1] / "grid.tar.gz").read_bytes()]


def read(folder: Path, data: bytes) -> dict[str, Any]:
    (folder / "given.tar.gz").write_bytes(data)
    searches = folder / "searches"
    try:
        imported = import_search(folder / "given.tar.gz", searches)
        assert imported.parent == searches
        seen = describe(imported)
        return {"files": {str(one): one.is_file() for one in sorted(imported.rglob("*"))}, **seen}
    finally:
        left = sorted(path.name for path in folder.iterdir() if path.name not in ("searches", "given.tar.gz"))
        hidden = [path.name for path in searches.iterdir() if path.name.startswith(".")]
        shutil.rmtree(searches)
        assert not left and not hidden, (left, hidden)


def forge(rng: random.Random, data: bytes) -> bytes:
    """Another list of files, other files with a list that fits, or other bytes inside a sound gzip file."""
    plain = gzip.decompress(data)
    kind = rng.choice(("list", "files", "files", "bytes", "bomb"))
    if kind == "bytes":
        at = rng.randrange(len(plain))
        return gzip.compress(plain[:at] + rng.randbytes(rng.choice((1, 8, 512))) + plain[at + 1 :], 1)
    if kind == "bomb":  # a stretch that packs a hundredfold
        packer = zlib.compressobj(1, wbits=31)
        at = rng.randrange(len(plain) // 512) * 512
        return packer.compress(plain[:at] + bytes(rng.choice((1, 1, 1, 24)) << 20) + plain[at:]) + packer.flush()
    with tarfile.open(fileobj=io.BytesIO(plain)) as archive:
        files = {one.name: archive.extractfile(one).read() for one in archive}  # type: ignore[union-attr]
    manifest = json.loads(files.pop("manifest.json"))
    if kind == "list":
        manifest = confused(rng, manifest)
    else:
        name = rng.choice(list(files))
        at = rng.randrange(len(files[name]))
        files[name] = files[name][:at] + rng.randbytes(3) + files[name][at + rng.randrange(3) :]
        if rng.random() < 0.3:
            files[rng.choice(("inbox/1.json", "lease.json", "journal.log/x", "jobs", "a" * 300, ".x", "../x"))] = b"{}"
        manifest["files"] = [
            {"name": name, "size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            for name, content in files.items()
        ]
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
        for name, content in {"manifest.json": json.dumps(manifest).encode(), **files}.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return packed.getvalue()


@few_or_many(120)
def test_archives(sound: list[bytes], tmp_path: Path, tries: int, first: int) -> None:
    # Bytes that gzip's own checksum does not cover (its time stamp) may change; what is read may not.
    Fuzz("archive", read, sound, lambda seen: seen["damage"] is not None, forge).run(tmp_path, tries, first)
