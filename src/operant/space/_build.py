"""From the `search_args` list of a search's YAML to a space."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from operant.errors import ConfigError, unknown
from operant.space._containers import Dict, File
from operant.space._leaves import Categorical, Int, Leaf, Nested, Real

_KEYS = {
    "Categorical": ("type", "name", "data", "when"),
    "Nested": ("type", "name", "data", "when"),
    "Int": ("type", "name", "data", "low", "high", "step", "log", "when"),
    "Real": ("type", "name", "data", "low", "high", "step", "log", "when"),
    "File": ("type", "name", "file", "place_holder", "search_args", "args", "when"),
}


class DuplicateArgument(UserWarning):
    """An argument was given twice; the later one counts."""


def build_space(search_args: Sequence[Mapping[str, Any]]) -> Dict:
    """The space that a list of arguments describes;
    a mistake is a `ConfigError` whose path starts in the list.
    """
    space = Dict(_build_parts(search_args, inside_file=None))
    try:
        _ = space.layout
    except ConfigError as error:
        raise place_argument_error(error, search_args) from None
    return space


def _build_parts(search_args: Any, inside_file: str | None) -> dict[str, Any]:
    if not isinstance(search_args, (list, tuple)) or not search_args:
        raise ConfigError(f"a list of arguments is expected here, not {search_args!r}")
    parts: dict[str, Any] = {}
    for place, spec in enumerate(search_args):
        try:
            name, part = _build_one(spec, inside_file)
        except ConfigError as error:
            raise error.under(place) from None
        _drop_earlier(parts, name, part, inside_file)
        parts[name] = part
    return parts


def _build_one(spec: Any, inside_file: str | None) -> tuple[str, Any]:
    if not isinstance(spec, Mapping):
        raise ConfigError(f"an argument is a mapping with `type`, `name` and `data`, not {spec!r}")
    kind = spec.get("type")
    if kind is None:
        raise ConfigError(f"`type` is missing; known are {', '.join(_KEYS)}", ("type",))
    if not isinstance(kind, str) or kind not in _KEYS:
        raise ConfigError(unknown("type", kind, _KEYS), ("type",))
    for key in spec:
        if key not in _KEYS[kind]:
            raise ConfigError(unknown(f"key of {kind}", key, _KEYS[kind]), (str(key),))
    if kind == "File":
        if inside_file is not None:
            raise ConfigError("a File cannot be inside another File", ("type",))
        return _build_file(spec)
    leaf = _LEAVES[kind](spec)
    if isinstance(leaf, Nested):
        return str(spec.get("name", "+".join(leaf.keys))), leaf
    return _name(spec), leaf


def _name(spec: Mapping[str, Any]) -> str:
    name = spec.get("name")
    if not isinstance(name, (str, int)) or isinstance(name, bool) or name == "":
        raise ConfigError("`name` is missing: the argument's name as in the template", ("name",))
    return str(name)


def _data(spec: Mapping[str, Any]) -> Any:
    if "data" not in spec:
        raise ConfigError("`data` is missing", ("data",))
    data = spec["data"]
    if not isinstance(data, (list, tuple)):
        raise ConfigError(f"`data` must be a list, not {data!r}", ("data",))
    if not data:
        raise ConfigError("`data` is empty: there is nothing to choose from", ("data",))
    return data


def _ends(spec: Mapping[str, Any]) -> Any:
    if "low" not in spec and "high" not in spec:
        return _data(spec)
    if "data" in spec or "low" not in spec or "high" not in spec:
        raise ConfigError("give either `data: [low, high]`, or both `low` and `high`", ("low",))
    return [spec["low"], spec["high"]]


def _build_number(cls: type[Int] | type[Real], spec: Mapping[str, Any]) -> Leaf:
    log = spec.get("log", False)
    if not isinstance(log, bool):
        raise ConfigError(f"`log` is true or false, not {log!r}", ("log",))
    return cls(_ends(spec), step=spec.get("step"), log=log, when=spec.get("when"))


_LEAVES: dict[str, Callable[[Mapping[str, Any]], Leaf]] = {
    "Categorical": lambda spec: Categorical(_data(spec), when=spec.get("when")),
    "Nested": lambda spec: Nested(_data(spec), when=spec.get("when")),
    "Int": lambda spec: _build_number(Int, spec),
    "Real": lambda spec: _build_number(Real, spec),
}


def _build_file(spec: Mapping[str, Any]) -> tuple[str, File]:
    name = _name(spec)
    if "search_args" in spec and "args" in spec:
        raise ConfigError("`search_args` and `args` are two names for the same list; give one of them", ("args",))
    inner = "args" if "args" in spec else "search_args"
    file = spec.get("file")
    if not isinstance(file, str) or not file:
        raise ConfigError("`file` is missing: the configuration file to set values in", ("file",))
    try:
        parts = _build_parts(spec.get(inner), inside_file=name)
    except ConfigError as error:
        raise error.under(inner) from None
    holder = spec.get("place_holder")
    return name, File(file, parts, place_holder=None if holder is None else str(holder), when=spec.get("when"))


def _drop_earlier(parts: dict[str, Any], name: str, part: Any, inside_file: str | None) -> None:
    """Of two arguments with one name the later counts: the earlier one would only multiply equal jobs."""
    claimed = set(part.keys) if isinstance(part, Nested) else {name}
    for earlier_name, earlier in list(parts.items()):
        owned = set(earlier.keys) if isinstance(earlier, Nested) else {earlier_name}
        for twice in sorted(owned & claimed):
            shown = twice if inside_file is None else f"{inside_file}({twice})"
            warnings.warn(
                f"the argument {shown!r} is given twice; the later one counts",
                DuplicateArgument,
                stacklevel=2,
            )
        if not owned & claimed:
            continue
        del parts[earlier_name]
        rest = earlier.without(claimed) if isinstance(earlier, Nested) else None
        if rest is not None:
            parts["+".join(rest.keys)] = rest


def place_argument_error(error: ConfigError, search_args: Sequence[Mapping[str, Any]]) -> ConfigError:
    """The same mistake by the argument's place in the list, `(2, "step")`, instead of its flat name."""
    flat = str(error.path[0]) if error.path else ""
    for place, spec in enumerate(search_args):
        inner = "args" if "args" in spec else "search_args"
        for deep, one in enumerate(spec.get(inner, ())):
            if flat == f"{spec.get('name')}({one.get('name', '+'.join(_row_keys(one)))})":
                return ConfigError(error.message, (place, inner, deep, *error.path[1:]))
        if flat == spec.get("name", "+".join(_row_keys(spec))):
            return ConfigError(error.message, (place, *error.path[1:]))
    return error


def _row_keys(spec: Mapping[str, Any]) -> list[str]:
    if spec.get("type") != "Nested":
        return []
    return list(dict.fromkeys(str(key) for row in spec["data"] for key in row))
