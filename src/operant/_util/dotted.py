"""Settings in groups, and the same under dotted names: ``{"env": {"id": "x"}}`` and ``{"env.id": "x"}``."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any


def flat(
    values: Mapping[str, Any], prefix: str = "", keep: Collection[str] = (), *, empty: bool = False
) -> dict[str, Any]:
    """Every value under its dotted name; groups in ``keep``, and with ``empty`` those without any, are values too."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and path not in keep and (value or not empty):
            found.update(flat(value, f"{path}.", keep, empty=empty))
        else:
            found[path] = value
    return found


def plain_flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same as a run records its settings: what is neither text nor number nor None becomes text."""
    return {
        path: value if isinstance(value, (str, int, float, bool)) or value is None else str(value)
        for path, value in flat(values, empty=True).items()
    }


def put(tree: dict[str, Any], path: str, value: Any) -> None:
    """Set the value at a dotted path; groups on the way are made."""
    *groups, last = path.split(".")
    for name in groups:
        tree = tree.setdefault(name, {})
    tree[last] = value
