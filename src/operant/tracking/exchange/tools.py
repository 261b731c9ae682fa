"""Other people's trackers, loaded when they are needed and installed by whoever needs them."""

from __future__ import annotations

import importlib
from typing import Any

from operant.errors import UsageError


def load_tool(module: str, feature: str, package: str) -> Any:
    """The module, or one line that says what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UsageError(
            f"{feature} needs {error.name or module}, which is not installed: pip install {package}"
        ) from None
