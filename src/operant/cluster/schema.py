"""Manifests against the API server's own schema, before anything is sent: it drops unknown keys without a word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from operant.errors import ConfigError, KeyPath, unknown
from operant.sites._kube import Cluster, Object

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}
_ANY_KEY = ("additionalProperties", "x-kubernetes-preserve-unknown-fields")


def check_against_server(cluster: Cluster, objects: Sequence[Object]) -> list[str]:
    """Every key of every object; returns the kinds that the server has no schema for, and so cannot run."""
    definitions = cluster.request("GET", "/openapi/v2").get("definitions") or {}
    by_kind: dict[tuple[str, str], Object] = {}
    for found in definitions.values():
        for one in found.get("x-kubernetes-group-version-kind") or ():
            group = f"{one['group']}/" if one.get("group") else ""
            by_kind[f"{group}{one['version']}", one["kind"]] = found
    missing = []
    for one in objects:
        schema = by_kind.get((one["apiVersion"], one["kind"]))
        if schema is None:
            missing.append(str(one["kind"]))
        else:
            check(one, schema, definitions)
    return missing


def check(found: Object, schema: Mapping[str, Any], definitions: Mapping[str, Any] | None = None) -> None:
    """One object by an OpenAPI schema: unknown keys name the nearest, wrong types and missing keys are told."""
    named = f"{found.get('kind')} {(found.get('metadata') or {}).get('name', '')}".strip()
    try:
        _walk(found, schema, definitions or {}, ())
    except ConfigError as error:
        raise error.under(named) from None


def _walk(value: Any, schema: Mapping[str, Any], definitions: Mapping[str, Any], path: KeyPath) -> None:
    if "$ref" in schema:
        schema = definitions.get(str(schema["$ref"]).rpartition("/")[2]) or {}
    if schema.get("x-kubernetes-int-or-string") or schema.get("format") == "int-or-string":
        return
    kind = schema.get("type")
    right = _TYPES.get(str(kind), (object,))
    if not isinstance(value, right) or (isinstance(value, bool) and kind in ("integer", "number")):
        raise ConfigError(f"this is of type {kind}, not {value!r:.100}", path)
    if isinstance(value, list):
        for number, one in enumerate(value):
            _walk(one, schema.get("items") or {}, definitions, (*path, number))
    elif isinstance(value, dict):
        _walk_keys(value, schema, definitions, path)
    allowed = schema.get("enum")
    if allowed and value not in allowed:
        raise ConfigError(unknown("value", value, allowed), path)


def _walk_keys(value: Object, schema: Mapping[str, Any], definitions: Mapping[str, Any], path: KeyPath) -> None:
    known: Mapping[str, Any] = schema.get("properties") or {}
    others = schema.get("additionalProperties")
    closed = bool(known) and not any(schema.get(word) for word in _ANY_KEY)
    for key, one in value.items():
        if key in known:
            _walk(one, known[key], definitions, (*path, key))
        elif isinstance(others, Mapping):
            _walk(one, others, definitions, (*path, key))
        elif closed:
            raise ConfigError(unknown("key", key, known), (*path, key))
    for key in schema.get("required") or ():
        if key not in value:
            raise ConfigError(f"`{key}` is missing", path)
