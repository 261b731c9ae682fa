"""Groups of runs that are looked at together, a small file each: a search may name one (`pavi.compare`), the page makes
them, and both read and write them here."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from operant._util.files import write_file
from operant.errors import ConfigError
from operant.tracking.places import safe_part


def list_compares(root: Path) -> dict[str, dict[str, Any]]:
    """All groups by id, each with `id`, `name`, `searches` and `runs`. A client's id only picks from these: it is never
    made a path."""
    found = {}
    for path in sorted((root / "compares").glob("*.json")):
        try:
            group = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(group, dict) and group.get("id") == path.stem:
            found[path.stem] = {"searches": [], "runs": [], **group}
    return found


def new_compare(root: Path, name: str, *, searches: list[str], runs: list[str]) -> dict[str, Any]:
    group = {"id": f"{safe_part(name) or 'compare'}-{secrets.token_hex(3)}", "name": name}
    return _write(root, {**group, "searches": searches, "runs": runs})


def add_to_compare(root: Path, group: Mapping[str, Any], *, searches: list[str], runs: list[str]) -> dict[str, Any]:
    """The group with these too; what is in it already is not added again."""
    both = {"searches": [*group["searches"], *searches], "runs": [*group["runs"], *runs]}
    return _write(root, {**group, **{key: list(dict.fromkeys(ids)) for key, ids in both.items()}})


def join_compare(root: Path, search: str, wanted: Mapping[str, str]) -> dict[str, Any]:
    """Put a search into a new group by ``name``, or into an existing one by ``id``; one that is gone on with stays in
    the group that it made."""
    known = list_compares(root)
    if "id" not in wanted:
        for group in known.values():
            if group["name"] == wanted["name"] and search in group["searches"]:
                return group
        return new_compare(root, wanted["name"], searches=[search], runs=[])
    if wanted["id"] not in known:
        there = ", ".join(known) or "none"
        raise ConfigError(f"there is no group {wanted['id']!r}; there are: {there}", ("pavi", "compare", "id"))
    return add_to_compare(root, known[wanted["id"]], searches=[search], runs=[])


def leave_compares(root: Path, search: str) -> None:
    """Take a search that is removed out of its groups."""
    for group in list_compares(root).values():
        if search in group["searches"]:
            _write(root, {**group, "searches": [one for one in group["searches"] if one != search]})


def _write(root: Path, group: dict[str, Any]) -> dict[str, Any]:
    write_file(root / "compares" / f"{group['id']}.json", json.dumps(group))
    return group
