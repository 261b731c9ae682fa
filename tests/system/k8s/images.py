"""Makes images as tar files, as there is no registry: `python images.py FOLDER`, then `ctr images import`."""

from __future__ import annotations

import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path

_FOLDERS = ("usr", "tmp", "etc", "proc", "sys", "dev", "root", "work")


def make_image(out: Path, name: str, files: dict[str, Path], links: dict[str, str], command: list[str]) -> None:
    """An image of one layer."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for folder in _FOLDERS:
            member = tarfile.TarInfo(folder)
            member.type, member.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(member)
        for path, source in files.items():
            member = tarfile.TarInfo(path)
            data = source.read_bytes()
            member.size, member.mode = len(data), 0o755
            tar.addfile(member, io.BytesIO(data))
        for path, target in links.items():
            member = tarfile.TarInfo(path)
            member.type, member.linkname = tarfile.SYMTYPE, target
            tar.addfile(member)
    data = layer.getvalue()
    digest = hashlib.sha256(data).hexdigest()
    about = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Cmd": command, "Env": ["PATH=/bin:/usr/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    config = json.dumps(about).encode()
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = [{"Config": config_name, "RepoTags": [name], "Layers": [f"{digest}/layer.tar"]}]
    with tarfile.open(out, "w") as tar:
        for path, content in (
            (config_name, config),
            (f"{digest}/layer.tar", data),
            ("manifest.json", json.dumps(manifest).encode()),
        ):
            member = tarfile.TarInfo(path)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


if __name__ == "__main__":
    place = Path(sys.argv[1])
    make_image(place / "pause.tar", "operant.test/pause:1", {"pause": place / "pause"}, {}, ["/pause"])
    # An image with no files: everything comes from mounts of the host's folders.
    host = {name: f"usr/{name}" for name in ("bin", "lib", "lib64", "sbin")}
    make_image(place / "host.tar", "operant.test/host:1", {}, host, ["/usr/bin/python3"])
