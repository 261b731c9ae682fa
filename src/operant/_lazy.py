"""Packages whose public names are loaded when they are first used."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

from operant.errors import MissingExtraError

__all__ = ["load_when_used"]


def load_when_used(
    package: str, homes: Mapping[str, str], *, extra: tuple[str, str, Collection[str]] | None = None
) -> Callable[[str], Any]:
    """A module ``__getattr__`` for ``package`` that finds each name of ``homes`` in the module given there.

    A home that begins with a dot is within the package. ``extra`` is (what needs it, the extra's name, its packages):
    when one of those is missing, that is said in one sentence.
    """

    def __getattr__(name: str) -> Any:
        try:
            home = homes[name]
        except KeyError:
            raise AttributeError(f"module {package!r} has no attribute {name!r}") from None
        try:
            module = importlib.import_module(home, package)
        except ModuleNotFoundError as error:
            if extra is not None and error.name in extra[2]:
                raise MissingExtraError(extra[0], extra[1]) from None
            raise
        return getattr(module, name)

    return __getattr__
