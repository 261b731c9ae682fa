"""Positions in Python configuration files, from the syntax tree; the file is never executed."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from typing import Any

from operant.space.files._node import Node


class _Text:
    def __init__(self, text: str) -> None:
        self.lines = text.splitlines(keepends=True)
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line))

    def place(self, line: int, column: int) -> int:
        # ast counts columns in bytes of UTF-8.
        characters = len(self.lines[line - 1].encode()[:column].decode())
        return self.starts[line - 1] + characters

    def span(self, node: ast.expr) -> tuple[int, int]:
        end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
        return self.place(node.lineno, node.col_offset), self.place(end_line, end_column)


def parse(text: str) -> Node:
    # str.splitlines also splits at form feeds and the like; ast counts only real line ends.
    root = Node(0, len(text))
    _read_statements(_Text(text), ast.parse(text).body, root)
    return root


def _read_statements(text: _Text, statements: list[ast.stmt], into: Node) -> None:
    for statement in statements:
        if isinstance(statement, ast.ClassDef):
            inner = Node(0, 0, locked="it is a class")
            _read_statements(text, statement.body, inner)
            into.children[statement.name] = inner
        elif isinstance(statement, ast.Assign):
            for target in statement.targets:
                _put(into, _target_path(target), _node(text, statement.value))
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            _put(into, _target_path(statement.target), _node(text, statement.value))


def _put(into: Node, path: list[str] | None, node: Node) -> None:
    if not path:
        return
    for key in path[:-1]:
        into = into.children.setdefault(key, Node(0, 0, locked="it is not assigned as a whole"))
    into.children[path[-1]] = node


def _target_path(target: ast.expr) -> list[str] | None:
    """`cfg.model["lr"]` as `["cfg", "model", "lr"]`; None for targets that no dotted path can name."""
    if isinstance(target, ast.Name):
        return [target.id]
    if isinstance(target, ast.Attribute):
        inner = _target_path(target.value)
        return None if inner is None else [*inner, target.attr]
    if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
        inner = _target_path(target.value)
        return None if inner is None else [*inner, str(target.slice.value)]
    return None


def _node(text: _Text, value: ast.expr) -> Node:
    start, end = text.span(value)
    node = Node(start, end)
    if isinstance(value, ast.Dict):
        for key, one in zip(value.keys, value.values, strict=True):
            if isinstance(key, ast.Constant):
                node.children[str(key.value)] = _node(text, one)
    elif isinstance(value, (ast.List, ast.Tuple)):
        node.children = {str(place): _node(text, one) for place, one in enumerate(value.elts)}
    elif isinstance(value, ast.Call):
        # EasyDict(dict(lr=1)), Config({...}): what wraps a mapping is looked through.
        if len(value.args) == 1:
            node.children.update(_node(text, value.args[0]).children)
        for keyword in value.keywords:
            if keyword.arg is not None:
                node.children[keyword.arg] = _node(text, keyword.value)
    return node


def dump(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    if isinstance(value, list):
        return f"[{', '.join(dump(one) for one in value)}]"
    if isinstance(value, tuple):
        return f"({', '.join(dump(one) for one in value)}{',' if len(value) == 1 else ''})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key!r}: {dump(one)}' for key, one in value.items())}}}"
    return repr(value)
