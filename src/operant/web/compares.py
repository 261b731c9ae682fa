"""Groups of runs that are looked at together, each with an address that stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from operant.errors import UsageError
from operant.tracking.reading.compares import add_to_compare, list_compares, new_compare
from operant.web.answers import ApiRequest, NotFound, TooLarge
from operant.web.app_state import LOOK_SECONDS, AppState

MOST_RUNS = 1000
LONGEST_NAME = 200
_SEARCH = "search:"


def every(app: AppState, request: ApiRequest) -> Any:
    return {"compares": sorted(list_compares(app.root).values(), key=lambda one: str(one["name"]))}


def describe(app: AppState, request: ApiRequest) -> Any:
    """One group with its runs: those of its searches, and those added by id. `search:NAME` is a search's own."""
    compare_id = request.path["id"]
    if compare_id.startswith(_SEARCH):
        name = compare_id.removeprefix(_SEARCH)
        app.searches.open(name)
        return {"id": compare_id, "name": name, "searches": [name], "runs": _runs_of(app, [name], [])}
    group = _find(app.root, compare_id)
    return {**group, "runs": _runs_of(app, group["searches"], group["runs"])}


def create(app: AppState, request: ApiRequest) -> Any:
    name = request.given("name", str, "compare").strip()
    if not name or len(name) > LONGEST_NAME:
        raise UsageError(f"a group has a name of 1 to {LONGEST_NAME} characters")
    group = new_compare(app.root, name, searches=_known_searches(app, request), runs=_known_runs(app, request))
    return {"id": group["id"]}


def add(app: AppState, request: ApiRequest) -> Any:
    group = _find(app.root, request.path["id"])
    runs = _known_runs(app, request)
    if len({*group["runs"], *runs}) > MOST_RUNS:
        raise UsageError(f"a group has at most {MOST_RUNS} runs")
    add_to_compare(app.root, group, searches=_known_searches(app, request), runs=runs)
    return {"id": group["id"]}


def scores(app: AppState, request: ApiRequest) -> Any:
    """Runs of the same name and other seeds as groups: IQM, and how surely each is better than the first."""
    from operant.training.comparing import score_figures

    groups, ranges, best = _scored(app, request)
    return {"groups": score_figures(groups, ranges, best), "ranges": ranges}


def score_picture(app: AppState, request: ApiRequest) -> Any:
    """The same as charts."""
    from starlette.responses import Response

    from operant.plotting.vector import svg_file
    from operant.training.comparing import score_charts

    groups, ranges, best = _scored(app, request)
    drawn = svg_file(score_charts(groups, ranges, best), " and ".join(group.name for group in groups))
    return Response(drawn, media_type="image/svg+xml")


def _scored(app: AppState, request: ApiRequest) -> Any:
    from operant.training.comparing import group_by_name, score_ranges

    asked = set(request.words("runs"))
    if len(asked) > MOST_RUNS:
        raise TooLarge(f"at most {MOST_RUNS} runs are compared")
    best = request.query.get("judged") == "best"
    app.table.refresh(LOOK_SECONDS)
    rows = [row for row in app.table.rows() if row.id in asked]
    key = ("scores", tuple(sorted((row.id, row.status) for row in rows)))
    groups = app.remembered(key, lambda: group_by_name(app.root, rows))
    return groups, score_ranges(groups, {}, best), best


def _runs_of(app: AppState, searches: list[str], runs: list[str]) -> list[str]:
    app.table.refresh(LOOK_SECONDS)
    known = {row.id for row in app.table.rows()}
    found: list[str] = []
    for name in searches:
        try:
            search, lock = app.searches.open(name)
        except NotFound:
            continue  # removed since; the group is still good for the others
        with lock:
            found += [f"{name}/{job.id}" for job in search.jobs()]
    return [run_id for run_id in dict.fromkeys([*found, *runs]) if run_id in known]


def _known_runs(app: AppState, request: ApiRequest) -> list[str]:
    """Runs by id, or by name: of several of one name all."""
    asked = request.texts("runs", MOST_RUNS)
    if not asked:
        return []
    app.table.refresh()
    rows = app.table.rows()
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


def _known_searches(app: AppState, request: ApiRequest) -> list[str]:
    known = app.searches.names()
    asked = request.texts("searches", 100)
    for one in asked:
        if one not in known:
            raise NotFound(f"there is no search {one[:80]!r}")
    return list(dict.fromkeys(asked))


def _find(root: Path, compare_id: str) -> dict[str, Any]:
    found = list_compares(root).get(compare_id)
    if found is None:
        raise NotFound(f"there is no group {compare_id[:80]!r}")
    return found
