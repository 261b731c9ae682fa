"""Setting values inside a user's configuration file by editing its text: everything else stays as it was."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from operant.errors import ConfigError, unknown
from operant.space.files import _json, _python, _toml, _yaml
from operant.space.files._node import Node

__all__ = ["FORMATS", "check_paths", "edit_text"]


@dataclass(frozen=True)
class Format:
    parse: Callable[[str], Node]
    dump: Callable[[Any], str]


_YAML = Format(_yaml.parse, _yaml.dump)
FORMATS = {
    ".yaml": _YAML,
    ".yml": _YAML,
    ".json": Format(_json.parse, _json.dump),
    ".toml": Format(_toml.parse, _toml.dump),
    ".py": Format(_python.parse, _python.dump),
}


def edit_text(text: str, values: Mapping[str, Any], file: str | Path) -> str:
    """`text` with the value at each dotted path replaced; `file` says the format by its ending."""
    kind = _format(file)
    tree = _tree(text, Path(file).suffix.lower(), str(file))
    changes = []
    for path, value in values.items():
        node = _find(tree, path, str(file))
        try:
            new = kind.dump(value)
        except ValueError as error:
            raise ConfigError(f"{file}: {path}: {error}", (path,)) from None
        changes.append((node.start, node.end, node.lead + new, path))
    changes.sort(reverse=True)
    for (start, _, _, path), (_, end, _, outer) in itertools.pairwise(changes):
        if end > start:
            raise ConfigError(f"{file}: {outer!r} and {path!r} are the same part of the file; vary only one", (path,))
    for start, end, new, _ in changes:
        text = text[:start] + new + text[end:]
    return text


def check_paths(text: str, paths: list[str], file: str | Path) -> None:
    """Refuse a path that the file does not have, naming the nearest one that it has."""
    tree = _tree(text, Path(file).suffix.lower(), str(file))
    for path in paths:
        _find(tree, path, str(file))


def _format(file: str | Path) -> Format:
    suffix = Path(file).suffix.lower()
    if suffix not in FORMATS:
        raise ConfigError(
            f"values can be set in files that end in {', '.join(FORMATS)}, but this one is {str(file)!r}",
            ("file",),
        )
    return FORMATS[suffix]


# A search writes the same file again and again with other values: its positions are found once.
@lru_cache(maxsize=32)
def _tree(text: str, suffix: str, file: str) -> Node:
    try:
        return _format(file).parse(text)
    except ConfigError:
        raise
    except Exception as error:
        summary = " ".join(str(error).split())
        raise ConfigError(f"{file} cannot be read as {suffix[1:]}: {summary}", ("file",)) from None


def _find(tree: Node, path: str, file: str) -> Node:
    parts = re.sub(r"\[(\d+)\]", r".\1", path).split(".")
    node = _descend(tree, parts)
    if node is None:
        raise ConfigError(unknown(f"key in {file}:", path, _all_paths(tree)), (path,))
    if node.locked is not None:
        raise ConfigError(f"{file}: {path!r} cannot be set: {node.locked}", (path,))
    return node


def _descend(node: Node, parts: list[str]) -> Node | None:
    """The node at a path; a key may itself contain dots, the shortest key that leads on is taken."""
    if not parts:
        return node
    for cut in range(1, len(parts) + 1):
        child = node.children.get(".".join(parts[:cut]))
        found = None if child is None else _descend(child, parts[cut:])
        if found is not None:
            return found
    return None


def _all_paths(node: Node, prefix: str = "") -> list[str]:
    paths = []
    for key, child in node.children.items():
        paths += [prefix + key, *_all_paths(child, f"{prefix}{key}.")]
    return paths
