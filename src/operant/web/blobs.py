"""Pictures, films and files of a run. Only what the run itself lists is given out, under a type that runs nothing."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Any
from urllib.parse import quote

from operant.tracking.format.blobs import BLOB_NAME, blob_path
from operant.web.answers import ApiRequest, NotFound
from operant.web.app_state import AppState

__all__ = ["blob", "read_blob"]

_SHOWN = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".mp4": "video/mp4",
    ".webm": "video/webm",
    ".wav": "audio/wav",
    ".mp3": "audio/mpeg",
    ".ogg": "audio/ogg",
}
_AS_TEXT = {".txt", ".log", ".json", ".yaml", ".yml", ".toml", ".csv", ".md", ".py", ".diff", ".cfg", ".ini"}
_SANDBOX = "default-src 'none'; sandbox"


def blob(app: AppState, request: ApiRequest) -> Any:
    from starlette.responses import FileResponse

    opened = app.runs.open(request.text("id"))
    name = request.text("name")
    with opened.lock:
        opened.refresh()
        listed = _listed(opened.run)
    if name not in listed or not BLOB_NAME.fullmatch(name):
        raise NotFound("the run lists no such file")
    path = blob_path(opened.folder, name)
    try:
        found = path.lstat()
    except OSError:
        raise NotFound("the file is not here (it may not have been sent yet)") from None
    if not stat.S_ISREG(found.st_mode) or path.parent.is_symlink():
        raise NotFound("what lies under that name is no plain file")
    kind = _SHOWN.get(path.suffix)
    headers = {"content-security-policy": _SANDBOX, "cache-control": "private, max-age=31536000, immutable"}
    shown = kind is not None or path.suffix in _AS_TEXT
    # Pages and drawings (html, svg) can hold programs: they are saved, never shown.
    headers["content-disposition"] = _disposition("inline" if shown else "attachment", listed[name])
    if kind is not None:
        return FileResponse(path, media_type=kind, headers=headers, stat_result=found)
    if path.suffix in _AS_TEXT:
        return FileResponse(path, media_type="text/plain; charset=utf-8", headers=headers, stat_result=found)
    return FileResponse(path, media_type="application/octet-stream", headers=headers, stat_result=found)


def _listed(run: Any) -> dict[str, str]:
    """What the run lists: the name of each blob, and what it is called when it is saved."""
    found = {}
    for kind in ("file", "media"):
        for record in run.records(kind):
            one = record.get("blob")
            name = str(one.get("name")) if isinstance(one, dict) else ""
            told = record.get("name") or f"{record.get('tag')}-{record.get('step')}{Path(name).suffix}"
            found[name] = str(told).rpartition("/")[2] if kind == "file" else str(told)
    diff = (run.provenance.get("git") or {}).get("diff")
    if isinstance(diff, dict):
        found[str(diff.get("name"))] = "changes.diff"
    return found


def _disposition(kind: str, name: str) -> str:
    """The header that names a file; whatever a program called it, only plain letters stand outside the quoted form."""
    whole = "".join(one for one in name[:150] if one.isprintable()).replace("/", "_").lstrip(".") or "file"
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", whole)
    return f"{kind}; filename=\"{plain}\"; filename*=UTF-8''{quote(whole, safe='', errors='replace')}"


def read_blob(folder: Path, name: str, most: int) -> str | None:
    """The text of a blob; None if it is not here."""
    try:
        descriptor = os.open(blob_path(folder, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as stream:
        return stream.read(most).decode("utf-8", "replace")
