"""Registries: classes by name, so that a configuration can say `type:
RandomSearcher` and users can add their own.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, overload

from operant.errors import ConfigError, unknown

C = TypeVar("C", bound=Callable[..., Any])


class Registry:
    """Classes of one kind by name.

    A class is added by the decorator `register_module`, or by an installed package through an entry point of
    `entry_point_group`; entry points are read only when a name is asked for that nobody registered by then, and a class
    that is only named (`declare`, an entry point) is imported when it is asked for.
    """

    def __init__(self, name: str, entry_point_group: str | None = None) -> None:
        self.name = name
        self.entry_point_group = entry_point_group
        self._classes: dict[str, Callable[..., Any]] = {}
        self._declared: dict[str, str] = {}  # name -> `package.module:Class`
        self._aliases: dict[str, tuple[str, str | None]] = {}
        self._entry_points_read = False

    @overload
    def register_module(self, name: C) -> C: ...

    @overload
    def register_module(self, name: str | None = None, *, force: bool = False) -> Callable[[C], C]: ...

    def register_module(self, name: Any = None, *, force: bool = False) -> Any:
        """Decorator, with or without parentheses: `@SEARCHERS.register_module()`;
        `force` replaces a taken name.
        """
        if callable(name):
            return self._add(name, None, force)
        return lambda cls: self._add(cls, name, force)

    def _add(self, cls: C, name: str | None, force: bool) -> C:
        key = name or cls.__name__
        taken = _origin(self._classes[key]) if key in self._classes else self._declared.get(key)
        # A file of the user's that is imported twice defines the same class anew: that is no conflict.
        if taken is not None and not force and taken != _origin(cls):
            raise ConfigError(
                f"{self.name} {key!r} is already registered by {taken.partition(':')[0]}; choose another name or "
                f"say register_module(force=True)"
            )
        self._classes[key] = cls
        return cls

    def declare(self, name: str, target: str) -> None:
        """Name a class without importing it: `package.module:Class`."""
        self._declared[name] = target

    def alias(self, name: str, target: str, note: str | None = None) -> None:
        """Accept another spelling of a registered name; `note` is what `resolve` hands back for the user."""
        self._aliases[name] = (target, note)

    def resolve(self, name: str) -> tuple[str, str | None]:
        """The registered name behind an alias, and the note that goes with the alias."""
        return self._aliases.get(name, (name, None))

    @property
    def names(self) -> list[str]:
        """All registered names, those of installed packages included."""
        self._read_entry_points()
        return sorted({*self._classes, *self._declared})

    def __contains__(self, name: object) -> bool:
        key, _ = self.resolve(str(name))
        return key in self._classes or key in self._declared or key in self.names

    def get(self, name: str) -> Callable[..., Any]:
        key, _ = self.resolve(name)
        if key not in self:
            raise ConfigError(unknown(self.name, name, [*self.names, *self._aliases]), ("type",))
        if key not in self._classes:
            self._classes[key] = self._load(key, self._declared[key])
        return self._classes[key]

    def _load(self, name: str, target: str) -> Callable[..., Any]:
        module, _, attribute = target.partition(":")
        try:
            found: Any = importlib.import_module(module)
            for part in attribute.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError) as error:
            if module.partition(".")[0] == "operant":
                raise
            raise ConfigError(f"the {self.name} {name!r} cannot be loaded from {target}: {error}", ("type",)) from error
        return found  # type: ignore[no-any-return]

    def build(self, cfg: Mapping[str, Any], *args: Any, default_type: str | None = None) -> Any:
        """Make what `cfg` describes: `type` names the class, all other keys are its keyword arguments."""
        if not isinstance(cfg, Mapping):
            raise ConfigError(f"a {self.name} is described by a mapping with a `type`, not by {cfg!r}")
        options = dict(cfg)
        kind = options.pop("type", default_type)
        if kind is None:
            raise ConfigError(f"`type` is missing; known are {', '.join(self.names)}", ("type",))
        if not isinstance(kind, str):
            raise ConfigError(f"`type` must be the name of a {self.name}, not {kind!r}", ("type",))
        cls = self.get(kind)
        check_arguments(cls, options, f"key of {self.resolve(kind)[0]}", given=len(args))
        return cls(*args, **options)

    def _read_entry_points(self) -> None:
        if self._entry_points_read or self.entry_point_group is None:
            return
        self._entry_points_read = True
        from importlib.metadata import entry_points

        for point in entry_points(group=self.entry_point_group):
            if point.name not in self._classes:
                self._declared.setdefault(point.name, point.value)


def accepted_arguments(cls: Callable[..., Any], skip: int = 0) -> tuple[list[str], list[str], bool]:
    """Names that may be given by keyword, those that must be, and whether any other name is taken as well."""
    parameters = [
        p for p in inspect.signature(cls).parameters.values() if p.kind is not inspect.Parameter.VAR_POSITIONAL
    ]
    takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
    named = [p for p in parameters if p.kind is not inspect.Parameter.VAR_KEYWORD][skip:]
    required = [p.name for p in named if p.default is inspect.Parameter.empty]
    return [p.name for p in named], required, takes_any


def check_arguments(cls: Callable[..., Any], options: Iterable[str], what: str, given: int = 0) -> None:
    """Refuse a keyword that `cls` does not take, naming the nearest that it does, and a missing one."""
    allowed, required, takes_any = accepted_arguments(cls, given)
    options = list(options)
    if not takes_any:
        for key in options:
            if key not in allowed:
                raise ConfigError(unknown(what, key, allowed), (key,))
    for key in required:
        if key not in options:
            raise ConfigError(f"the {what} {key!r} is missing", (key,))


def _origin(cls: Callable[..., Any]) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"
