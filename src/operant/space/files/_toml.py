"""Positions in TOML, by a scanner of its own: the standard reader checks the text but gives no positions."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Mapping
from typing import Any

from operant.space.files._node import Node

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACES = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_BARE_VALUE = re.compile(r"[^,\]}#\r\n]*")
_STRINGS = (
    re.compile(r'"""(?:\\.|[^\\])*?"{3,5}', re.DOTALL),
    re.compile(r"'''.*?'{3,5}", re.DOTALL),
    re.compile(r'"(?:\\.|[^"\\\n])*"'),
    re.compile(r"'[^'\n]*'"),
)


def parse(text: str) -> Node:
    tomllib.loads(text)
    root = Node(0, len(text))
    table = root
    at = _after(_BLANK, text, 0)
    while at < len(text):
        if text.startswith("[[", at):
            keys, at = _keys(text, at + 2)
            parent = _descend(root, keys[:-1])
            many = parent.children.setdefault(keys[-1], Node(at, at))
            table = many.children.setdefault(str(len(many.children)), Node(at, at))
            at += 2
        elif text[at] == "[":
            keys, at = _keys(text, at + 1)
            table = _descend(root, keys)
            at += 1
        else:
            keys, at = _keys(text, at)
            value = _scan(text, _after(_SPACES, text, at + 1))
            _descend(table, keys[:-1]).children[keys[-1]] = value
            at = value.end
        at = _after(_BLANK, text, at)
    return root


def _descend(node: Node, keys: list[str]) -> Node:
    for key in keys:
        node = node.children.setdefault(key, Node(node.start, node.start, locked="it is a table of its own"))
        if node.children and all(name.isdigit() for name in node.children) and node.start == node.end:
            # `[a.b]` after `[[a]]` is inside the newest element of a.
            newest = str(len(node.children) - 1)
            node = node.children.get(newest, node)
    return node


def _keys(text: str, at: int) -> tuple[list[str], int]:
    keys: list[str] = []
    while True:
        at = _after(_SPACES, text, at)
        bare = _BARE_KEY.match(text, at)
        if bare is not None:
            keys.append(bare.group())
            at = bare.end()
        else:
            end = _string_end(text, at)
            keys.append(next(iter(tomllib.loads(text[at:end] + "=0"))))
            at = end
        at = _after(_SPACES, text, at)
        if text[at : at + 1] != ".":
            return keys, at
        at += 1


def _scan(text: str, start: int) -> Node:
    opening = text[start]
    if opening in "\"'":
        return Node(start, _string_end(text, start))
    if opening not in "[{":
        end = _after(_BARE_VALUE, text, start)
        return Node(start, start + len(text[start:end].rstrip()))
    node = Node(start, start)
    at = _after(_BLANK, text, start + 1)
    while text[at] not in "]}":
        if opening == "{":
            keys, at = _keys(text, at)
            value = _scan(text, _after(_SPACES, text, at + 1))
            _descend(node, keys[:-1]).children[keys[-1]] = value
        else:
            value = _scan(text, at)
            node.children[str(len(node.children))] = value
        at = _after(_BLANK, text, value.end)
        if text[at] == ",":
            at = _after(_BLANK, text, at + 1)
    node.end = at + 1
    return node


def _string_end(text: str, at: int) -> int:
    for pattern in _STRINGS:
        found = pattern.match(text, at)
        if found is not None:
            return found.end()
    raise AssertionError(f"the reader accepted a string at {at} that the scanner does not know")


def _after(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return at if found is None else found.end()


def dump(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(dump(one) for one in value)}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_dump_key(str(key))} = {dump(one)}' for key, one in value.items())}}}"
    if isinstance(value, str):
        # TOML's basic strings have JSON's escapes, except that DEL must be escaped too.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    raise ValueError(f"TOML has no form for {value!r}")


def _dump_key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else dump(key)
