"""Where the page of a folder is served: the server leaves its address in the cache, commands print it."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

from operant._util.files import write_file
from operant.tracking.identity import is_alive, process_identity
from operant.tracking.places import cache_dir, root_key

__all__ = ["DEFAULT_PORT", "address_of", "compare_url", "job_url", "leave_address"]

DEFAULT_PORT = 4270


def address_of(root: Path) -> str:
    """Where the page of this folder is served now, or where `operant ui` would serve it."""
    try:
        found = json.loads(_file(root).read_text(encoding="utf-8"))
        if is_alive(found["process"]) is not False:
            return str(found["address"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return f"http://127.0.0.1:{DEFAULT_PORT}"


def compare_url(address: str, search: str, compare_id: str | None) -> str:
    """The runs of a search side by side, in the group it joined if it did."""
    return f"{address}/compare/{quote(compare_id or f'search:{search}', safe=':')}"


def job_url(address: str, run_id: str) -> str:
    return f"{address}/run?id={quote(run_id)}"


def leave_address(root: Path, address: str) -> Path | None:
    """Write the address down and return where, or None when there is no cache folder to write to."""
    path = _file(root)
    try:
        write_file(path, json.dumps({"address": address, "process": process_identity()}))
    except OSError:
        return None
    return path


def _file(root: Path) -> Path:
    return cache_dir() / "ui" / f"{root_key(root)}.json"
