"""Environments of the launcher. A module is one if it has `generate_env_config` and `launch`.

Found by name: those shipped here, entry points of the group ``operant.auto.envs``, and any module by its import path.
"""

from __future__ import annotations

import importlib
from importlib.metadata import entry_points
from types import ModuleType

from operant.errors import UsageError, nearest
from operant.importing import modules_from_here

__all__ = ["find_environment", "get_available_environments"]

ENTRY_POINTS = "operant.auto.envs"
_SHIPPED = ("openai_gym",)
_NEEDED = ("generate_env_config", "launch")


def get_available_environments() -> list[str]:
    """The names that `env` may have, beside import paths."""
    return sorted({*_SHIPPED, *(point.name for point in entry_points(group=ENTRY_POINTS))})


def find_environment(name: str) -> ModuleType:
    """The module of an environment."""
    if name in _SHIPPED:
        return importlib.import_module(f"{__name__}.{name}")
    for point in entry_points(group=ENTRY_POINTS):
        if point.name == name:
            return _checked(point.load(), name)
    try:
        with modules_from_here():
            module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # the module is there; something that it imports is not
        known = get_available_environments()
        raise UsageError(
            f"there is no environment module {name!r}{nearest(name, known)}; known: {', '.join(known)}, "
            f"entry points of {ENTRY_POINTS!r}, and modules by their import path"
        ) from None
    return _checked(module, name)


def _checked(module: ModuleType, name: str) -> ModuleType:
    missing = [one for one in _NEEDED if not callable(getattr(module, one, None))]
    if missing:
        raise UsageError(f"the module {name!r} is no environment: it has no function {' and no '.join(missing)}")
    return module
