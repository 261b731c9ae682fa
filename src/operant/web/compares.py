"""Groups of runs that are looked at together, each with an address that stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from operant.errors import UsageError
from operant.tracking.reading.compares import add_to_compare, list_compares, new_compare
from operant.web.answers import Ask, NotFound
from operant.web.desk import LOOK_SECONDS, Desk

__all__ = ["add", "create", "describe", "every"]

MOST_RUNS = 1000
LONGEST_NAME = 200
_SEARCH = "search:"


def every(desk: Desk, ask: Ask) -> Any:
    return {"compares": sorted(list_compares(desk.root).values(), key=lambda one: str(one["name"]))}


def describe(desk: Desk, ask: Ask) -> Any:
    """One group with its runs: those of its searches, and those added by id. `search:NAME` is a search's own."""
    compare_id = ask.path["id"]
    if compare_id.startswith(_SEARCH):
        name = compare_id.removeprefix(_SEARCH)
        desk.searches.open(name)
        return {"id": compare_id, "name": name, "searches": [name], "runs": _runs_of(desk, [name], [])}
    group = _find(desk.root, compare_id)
    return {**group, "runs": _runs_of(desk, group["searches"], group["runs"])}


def create(desk: Desk, ask: Ask) -> Any:
    name = ask.given("name", str, "compare").strip()
    if not name or len(name) > LONGEST_NAME:
        raise UsageError(f"a group has a name of 1 to {LONGEST_NAME} characters")
    group = new_compare(desk.root, name, searches=_known_searches(desk, ask), runs=_known_runs(desk, ask))
    return {"id": group["id"]}


def add(desk: Desk, ask: Ask) -> Any:
    group = _find(desk.root, ask.path["id"])
    runs = _known_runs(desk, ask)
    if len({*group["runs"], *runs}) > MOST_RUNS:
        raise UsageError(f"a group has at most {MOST_RUNS} runs")
    add_to_compare(desk.root, group, searches=_known_searches(desk, ask), runs=runs)
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


def _find(root: Path, compare_id: str) -> dict[str, Any]:
    found = list_compares(root).get(compare_id)
    if found is None:
        raise NotFound(f"there is no group {compare_id[:80]!r}")
    return found
