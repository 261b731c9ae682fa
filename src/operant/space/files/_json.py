"""Positions in JSON, by a scanner that lets the standard decoder read whatever has nothing inside."""

from __future__ import annotations

import json
import re
from typing import Any

from operant.space.files._node import Node

_SPACE = re.compile(r"\s*")
_DECODER = json.JSONDecoder()


def parse(text: str) -> Node:
    json.loads(text)
    return _scan(text, _skip(text, 0))


def _scan(text: str, start: int) -> Node:
    opening = text[start]
    if opening not in "{[":
        return Node(start, _DECODER.raw_decode(text, start)[1])
    children: dict[str, Node] = {}
    at = _skip(text, start + 1)
    while text[at] not in "}]":
        key = str(len(children))
        if opening == "{":
            key, at = _DECODER.raw_decode(text, at)
            at = _skip(text, _skip(text, at) + 1)
        children[key] = _scan(text, at)
        at = _skip(text, children[key].end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return Node(start, at + 1, children)


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


def dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
