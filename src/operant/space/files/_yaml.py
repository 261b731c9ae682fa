"""Positions in YAML, from the composed tree; aliases are replaced where they are used,
not where they point.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import yaml

from operant.space.files._node import Node

_ALIAS = re.compile(r"\s*:?\s*(\*[^\s,\]}]+)")
_PROPERTIES = re.compile(r"(?:[&!]\S*\s+)*")


def parse(text: str) -> Node:
    root = Node(0, len(text))
    for document in yaml.compose_all(text, Loader=yaml.SafeLoader):
        if document is not None:
            for key, child in _node(text, document).children.items():
                root.children.setdefault(key, child)
    return root


def _node(text: str, node: yaml.Node) -> Node:
    start, end = node.start_mark.index, node.end_mark.index
    children: dict[str, Node] = {}
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            children[str(key.value)] = _value(text, key.end_mark.index, value)
            if key.tag == "tag:yaml.org,2002:merge":
                _add_merged(children, children.pop(str(key.value)))
    elif isinstance(node, yaml.SequenceNode):
        after = start
        for place, item in enumerate(node.value):
            children[str(place)] = _value(text, after, item)
            after = children[str(place)].end
    lead = ""
    properties = _PROPERTIES.match(text, start, end)
    if properties is not None and properties.end() > start:
        lead = "".join(word + " " for word in properties.group().split() if word.startswith("&"))
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and children:
        # A flow value must be indented deeper than its key; a block sequence need not be.
        lead += " "
        end = max(child.end for child in children.values() if child.locked is None or child.end <= end)
    elif isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"):
        end = start + len(text[start:end].rstrip())
    if start == end:
        lead = " " if text[start - 1 : start] in (":", "-") else ""
    return Node(start, end, children, lead)


def _value(text: str, after: int, value: yaml.Node) -> Node:
    if value.start_mark.index >= after:
        return _node(text, value)
    # The composer hands out the anchored node itself for an alias; the alias stands right after the key.
    alias = _ALIAS.match(text, after)
    if alias is None:
        return Node(after, after, locked="it is an alias in a place that cannot be edited; write the value out")
    return Node(alias.start(1), alias.end(1), _lock(_node(text, value).children))


def _add_merged(children: dict[str, Node], merged: Node) -> None:
    for key, child in _lock(merged.children).items():
        children.setdefault(key, child)


def _lock(children: dict[str, Node]) -> dict[str, Node]:
    why = "it comes from another part of the file by an alias; write it out where it is meant"
    return {key: Node(n.start, n.end, _lock(n.children), n.lead, why) for key, n in children.items()}


def dump(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(dump(one) for one in value)}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{dump(key)}: {dump(one)}' for key, one in value.items())}}}"
    if isinstance(value, str) and not value.isprintable():
        # Line ends of any kind are written as escapes: their meaning would depend on the indentation.
        return str(yaml.safe_dump(value, default_style='"', width=math.inf)).strip()
    # As an element of a list, so that a text is quoted where it must be inside brackets.
    return str(yaml.safe_dump([value], default_flow_style=True, width=math.inf, allow_unicode=True)).strip()[1:-1]
