"""`pavi.compare`: which searches' runs are looked at together."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any

from operant.errors import ConfigError
from operant.schedulers.engine.control import View
from operant.schedulers.planning.plan import SearchPlan
from operant.tracking.places import check_run_id, safe_part

__all__ = ["join_compare", "list_compares"]


def join_compare(workdir: Path, plan: SearchPlan, view: View) -> None:
    """Put the search into a new group by ``name``, or into an existing one by ``id``, and say which."""
    if not plan.compare:
        return
    store = workdir.parent.parent / "compares"
    if "id" in plan.compare:
        path = store / f"{check_run_id(plan.compare['id'])}.json"
        if not path.exists():
            known = ", ".join(sorted(one.stem for one in store.glob("*.json"))) or "none"
            raise ConfigError(
                f"there is no group {plan.compare['id']!r}; there are: {known}", ("pavi", "compare", "id")
            )
        group: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    else:
        name = plan.compare["name"]
        group = _group_of(store, name, workdir.name) or {"name": name, "searches": []}
        group.setdefault("id", f"{safe_part(name) or 'compare'}-{secrets.token_hex(3)}")
        path = store / f"{group['id']}.json"
    if workdir.name not in group["searches"]:
        group["searches"].append(workdir.name)
    store.mkdir(parents=True, exist_ok=True)
    staged = path.with_suffix(".staged")
    staged.write_text(json.dumps(group), encoding="utf-8")
    staged.replace(path)
    plan.compare = {"name": str(group["name"]), "id": str(group["id"])}
    view.note(f"its runs are in the group {group['name']!r}, id {group['id']}")


def list_compares(root: Path) -> list[dict[str, Any]]:
    """All groups: id, name and searches of each."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted((root / "compares").glob("*.json"))]


def _group_of(store: Path, name: str, search: str) -> dict[str, Any] | None:
    """The group that this search joined by that name before; a resumed search makes no second one."""
    for path in store.glob("*.json"):
        group: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if group["name"] == name and search in group["searches"]:
            return group
    return None
