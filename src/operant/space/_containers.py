"""Containers: spaces made of other spaces. What a search varies is a `Dict`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from operant.errors import ConfigError, unknown
from operant.space._conditions import When
from operant.space._layout import Argument, Config, Layout, check_conditions, make_argument
from operant.space._leaves import Leaf, Nested, Space
from operant.space._product import Product, product_size
from operant.space.files import check_paths, edit_text

Wrap = Callable[[str], str]


class Container(Space):
    """A space with parts. Configurations are flat dicts: `{"batch-size": 512, "config(epochs)": 4}`."""

    def _children(self) -> Iterator[tuple[str, Any, Wrap]]:
        """Each part: its name here, the part, and how names inside it become names here."""
        raise NotImplementedError

    def _arguments(self, wrap: Wrap, inherited: When | None) -> Iterator[Argument]:
        for name, child, inner in self._children():
            if not isinstance(child, Space):
                continue
            when = _both(inherited, None if child.when is None else child.when.seen_from(wrap))
            if isinstance(child, Container):
                yield from child._arguments(_chain(wrap, inner), when)
            elif isinstance(child, Leaf):
                yield replace(make_argument(name, child, wrap), when=when)

    @cached_property
    def layout(self) -> Layout:
        """Arguments, columns and conditions of the flat view."""
        layout = Layout(list(self._arguments(str, None)))
        check_conditions(layout)
        return layout

    @property
    def kwspaces(self) -> dict[str, Leaf]:
        """The flat view: each leaf by its name; a leaf inside a `File` is called `config(epochs)`."""
        return {argument.name: argument.leaf for argument in self.layout.arguments}

    @property
    def names(self) -> tuple[str, ...]:
        """Every key that a flat configuration can have."""
        return self.layout.names

    @property
    def dimensions(self) -> int:
        """How many coordinates a point of the unit cube has: one for each leaf."""
        return len(self.layout.arguments)

    @cached_property
    def data(self) -> Product:
        """All configurations, lazily."""
        return Product(self.layout)

    @cached_property
    def size(self) -> int | float:
        return product_size(self.layout)

    def encode(self, config: Mapping[str, Any]) -> np.ndarray:
        """The point of the unit cube where a flat configuration lies; what is not active lies at 0.5."""
        return self.layout.encode(config)

    def encode_many(self, configs: Sequence[Mapping[str, Any]]) -> np.ndarray:
        return self.layout.encode_many(configs)

    def decode(self, point: Sequence[float] | np.ndarray) -> Config:
        """The flat configuration at a point of the unit cube;
        coordinates of what is not active do not matter.
        """
        return self.layout.decode(point)

    def decode_many(self, points: np.ndarray) -> list[Config]:
        """The flat configurations at these points, one a row."""
        return self.layout.decode_many(points)

    def sample(self, rng: np.random.Generator) -> Config:
        return self.layout.decode(rng.random(self.dimensions))

    def key(self, config: Mapping[str, Any]) -> str:
        """A text that two flat configurations share exactly when they are the same."""
        return self.layout.key(config)

    def contains(self, config: Mapping[str, Any]) -> bool:
        """Whether a flat configuration is one of this space: every value allowed,
        nothing missing or too much.
        """
        return self.layout.contains(config)

    def flatten(self, config: Any) -> Config:
        """A configuration shaped like the space, as `data` of the parts and custom searchers make it,
        as a flat one.
        """
        flat: Config = {}
        self._flatten_into(flat, config, str, "")
        return {name: flat[name] for name in self.names if name in flat}

    def _flatten_into(self, flat: Config, config: Any, wrap: Wrap, place: str) -> None:
        raise NotImplementedError

    def structure(self, config: Mapping[str, Any]) -> Any:
        """A flat configuration shaped like the space: the reverse of `flatten`."""
        return self._structure(config, str)

    def _structure(self, config: Mapping[str, Any], wrap: Wrap) -> Any:
        raise NotImplementedError


def _flatten_child(flat: Config, name: str, child: Any, inner: Wrap, value: Any, wrap: Wrap) -> None:
    if isinstance(child, Container):
        child._flatten_into(flat, value, _chain(wrap, inner), wrap(name))
    elif isinstance(child, Nested):
        if not isinstance(value, Mapping):
            raise ConfigError(f"the value of {wrap(name)!r} is one of its rows, not {value!r}")
        flat.update((wrap(key), one) for key, one in value.items())
    elif isinstance(child, Leaf):
        flat[wrap(name)] = value


def _structure_child(config: Mapping[str, Any], name: str, child: Any, inner: Wrap, wrap: Wrap) -> tuple[bool, Any]:
    if isinstance(child, Container):
        return True, child._structure(config, _chain(wrap, inner))
    if isinstance(child, Nested):
        row = {key: config[wrap(key)] for key in child.keys if wrap(key) in config}
        return bool(row), row
    if isinstance(child, Leaf):
        return wrap(name) in config, config.get(wrap(name))
    return True, child


class Dict(Container):
    """Named parts: `Dict(lr=Real(1e-5, 1e-1, log=True), net=Dict(width=Int(16, 256)))`;
    a plain value is fixed.
    """

    def __init__(
        self,
        parts: Mapping[str, Any] | None = None,
        /,
        *,
        when: Mapping[str, Any] | When | None = None,
        **more: Any,
    ) -> None:
        self._parts: dict[str, Any] = {**(parts or {}), **more}
        self.when = None if when is None else When.parse(when)

    def _children(self) -> Iterator[tuple[str, Any, Wrap]]:
        for name, child in self._parts.items():
            yield name, child, _wrap_for(name, child)

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, name: str) -> Any:
        return self._parts[name]

    def __contains__(self, name: object) -> bool:
        return name in self._parts

    def keys(self) -> list[str]:
        return list(self._parts)

    def items(self) -> list[tuple[str, Any]]:
        return list(self._parts.items())

    def _flatten_into(self, flat: Config, config: Any, wrap: Wrap, place: str) -> None:
        if not isinstance(config, Mapping):
            raise ConfigError(f"the value of {place or 'the space'!r} is a mapping, not {config!r}")
        # Not `self.names`: a part's conditions may ask about arguments that only the whole space has.
        known = {one for argument in self._arguments(str, None) for one in argument.names}
        for name, value in config.items():
            if name in self._parts:
                _flatten_child(flat, name, self._parts[name], _wrap_for(name, self._parts[name]), value, wrap)
            elif name in known:
                flat[wrap(name)] = value
            else:
                raise ConfigError(unknown("argument", name, [*known, *self._parts]), (str(name),))

    def _structure(self, config: Mapping[str, Any], wrap: Wrap) -> dict[str, Any]:
        found = {}
        for name, child, inner in self._children():
            there, value = _structure_child(config, name, child, inner, wrap)
            if there:
                found[name] = value
        return found

    @property
    def files(self) -> dict[str, File]:
        """The `File` arguments by name."""
        return {name: part for name, part in self._parts.items() if isinstance(part, File)}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._parts!r})"


class List(Container):
    """Parts by position: `List([Int(16, 256), Int(16, 256)])`; their names are `layers[0]`, `layers[1]`."""

    def __init__(self, *parts: Any, when: Mapping[str, Any] | When | None = None) -> None:
        given = parts[0] if len(parts) == 1 and isinstance(parts[0], (list, tuple)) else parts
        self._parts = list(given)
        self.when = None if when is None else When.parse(when)

    def _children(self) -> Iterator[tuple[str, Any, Wrap]]:
        for i, child in enumerate(self._parts):
            yield f"[{i}]", child, _wrap_for(f"[{i}]", child)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, index: int) -> Any:
        return self._parts[index]

    def _flatten_into(self, flat: Config, config: Any, wrap: Wrap, place: str) -> None:
        if not isinstance(config, (list, tuple)) or len(config) != len(self._parts):
            raise ConfigError(f"the value of {place or 'the space'!r} is a list of {len(self._parts)}, not {config!r}")
        for (name, child, inner), value in zip(self._children(), config, strict=True):
            _flatten_child(flat, name, child, inner, value, wrap)

    def _structure(self, config: Mapping[str, Any], wrap: Wrap) -> list[Any]:
        return [_structure_child(config, name, child, inner, wrap)[1] for name, child, inner in self._children()]

    def __repr__(self) -> str:
        return f"List({self._parts!r})"


class File(Dict):
    """Values inside a configuration file, by dotted path; the file's text is edited, so comments stay.

    `place_holder` is one more text that the path of the written file replaces in a command template.
    """

    def __init__(
        self,
        file: str | Path,
        parts: Mapping[str, Any],
        *,
        place_holder: str | None = None,
        when: Mapping[str, Any] | When | None = None,
    ) -> None:
        super().__init__(parts, when=when)
        self.file = Path(file)
        self.place_holder = place_holder

    def values(self, name: str, config: Mapping[str, Any]) -> dict[str, Any]:
        """The values by dotted path that a flat configuration of the whole space has for this file."""
        prefix = f"{name}("
        return {
            key[len(prefix) : -1]: value
            for key, value in config.items()
            if key.startswith(prefix) and key.endswith(")")
        }

    @property
    def paths(self) -> list[str]:
        """The dotted paths that are set, whatever their conditions."""
        return [path for argument in self._arguments(str, None) for path in argument.names]

    def check(self, text: str) -> None:
        """Refuse a path that the file does not have, naming the nearest one."""
        check_paths(text, self.paths, self.file)

    def render(self, text: str, values: Mapping[str, Any]) -> str:
        """The text of the file with the values put in, all else untouched."""
        return edit_text(text, values, self.file)


def _chain(outer: Wrap, inner: Wrap) -> Wrap:
    return lambda key: outer(inner(key))


def _wrap_for(name: str, child: Any) -> Wrap:
    if isinstance(child, File):
        return lambda key: f"{name}({key})"
    if isinstance(child, List):
        return lambda key: f"{name}{key}"
    return lambda key: f"{name}.{key}"


def _both(outer: When | None, inner: When | None) -> When | None:
    if outer is None or inner is None:
        return inner or outer
    return When((*outer.tests, *inner.tests))
