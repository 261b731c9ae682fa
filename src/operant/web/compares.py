"""Groups of runs that are looked at together, each with an address that stays."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any

from operant.errors import UsageError
from operant.tracking.places import safe_part
from operant.web.answers import Ask, NotFound
from operant.web.desk import LOOK_SECONDS, Desk

__all__ = ["add", "create", "describe", "every"]

MOST_RUNS = 1000
LONGEST_NAME = 200
_SEARCH = "search:"


def every(desk: Desk, ask: Ask) -> Any:
    return {"compares": sorted(_stored(desk.root).values(), key=lambda one: str(one["name"]))}


def describe(desk: Desk, ask: Ask) -> Any:
    """One group with its runs: those of its searches, and those added by id. `search:NAME` is a search's own."""
    compare_id = ask.path["id"]
    if compare_id.startswith(_SEARCH):
        name = compare_id.removeprefix(_SEARCH)
        desk.searches.open(name)
        return {"id": compare_id, "name": name, "searches": [name], "runs": _runs_of(desk, [name], [])}
    group = _find(desk.root, compare_id)
    searches, runs = group.get("searches", []), group.get("runs", [])
    return {"id": group["id"], "name": group["name"], "searches": searches, "runs": _runs_of(desk, searches, runs)}


def create(desk: Desk, ask: Ask) -> Any:
    name = ask.given("name", str, "compare").strip()
    if not name or len(name) > LONGEST_NAME:
        raise UsageError(f"a group has a name of 1 to {LONGEST_NAME} characters")
    group = {
        "id": f"{safe_part(name) or 'compare'}-{secrets.token_hex(3)}",
        "name": name,
        "searches": _known_searches(desk, ask),
        "runs": _known_runs(desk, ask),
    }
    _write(desk.root, group)
    return {"id": group["id"]}


def add(desk: Desk, ask: Ask) -> Any:
    group = _find(desk.root, ask.path["id"])
    for key, more in (("runs", _known_runs(desk, ask)), ("searches", _known_searches(desk, ask))):
        group[key] = list(dict.fromkeys([*group.get(key, []), *more]))
    if len(group["runs"]) > MOST_RUNS:
        raise UsageError(f"a group has at most {MOST_RUNS} runs")
    _write(desk.root, group)
    return {"id": group["id"]}


def _runs_of(desk: Desk, searches: list[str], runs: list[str]) -> list[str]:
    desk.table.refresh(LOOK_SECONDS)
    known = {row.id for row in desk.table.rows()}
    found: list[str] = []
    for name in searches:
        try:
            search, lock = desk.searches.open(name)
        except NotFound:
            continue  # removed since; the group is still good for the others
        with lock:
            found += [f"{name}/{job.id}" for job in search.jobs()]
    return [run_id for run_id in dict.fromkeys([*found, *runs]) if run_id in known]


def _known_runs(desk: Desk, ask: Ask) -> list[str]:
    """Runs by id, or by name: of several of one name all."""
    asked = ask.texts("runs", MOST_RUNS)
    if not asked:
        return []
    desk.table.refresh()
    rows = desk.table.rows()
    ids = {row.id for row in rows}
    named: dict[str, list[str]] = {}
    for row in rows:
        named.setdefault(row.name, []).append(row.id)
    found: list[str] = []
    for one in asked:
        if one not in ids and one not in named:
            raise NotFound(f"there is no run {one[:80]!r}")
        found += [one] if one in ids else named[one]
    return list(dict.fromkeys(found))


def _known_searches(desk: Desk, ask: Ask) -> list[str]:
    known = desk.searches.names()
    asked = ask.texts("searches", 100)
    for one in asked:
        if one not in known:
            raise NotFound(f"there is no search {one[:80]!r}")
    return list(dict.fromkeys(asked))


def _stored(root: Path) -> dict[str, dict[str, Any]]:
    """All groups by id. The id decides, not a path: what a client sends only picks from these."""
    found = {}
    for path in (root / "compares").glob("*.json"):
        try:
            group = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(group, dict) and group.get("id") == path.stem:
            found[path.stem] = {"searches": [], "runs": [], **group}
    return found


def _find(root: Path, compare_id: str) -> dict[str, Any]:
    found = _stored(root).get(compare_id)
    if found is None:
        raise NotFound(f"there is no group {compare_id[:80]!r}")
    return found


def _write(root: Path, group: dict[str, Any]) -> None:
    store = root / "compares"
    store.mkdir(parents=True, exist_ok=True)
    staged = store / f".{secrets.token_hex(8)}.part"
    staged.write_text(json.dumps(group), encoding="utf-8")
    staged.replace(store / f"{group['id']}.json")
