"""What MuJoCo's own library offers and its Python module does not hand out."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from pathlib import Path
from typing import Any


def library(mujoco: Any) -> ctypes.CDLL | None:
    """The library that the module `mujoco` has loaded; None where it is not found."""
    folder = Path(mujoco.__file__).parent
    for file in (*folder.glob("libmujoco*"), *folder.glob("mujoco.dll")):
        try:
            return ctypes.CDLL(str(file))
        except OSError:
            continue
    return None


def stop_timers() -> None:
    """Have MuJoCo, if this process has loaded it, no longer time its own functions: up to a fifth of a step.

    The times, `data.timer`, then stay 0. A clock that the user has set, by `mujoco.set_mjcb_time`, goes on.
    """
    mujoco = sys.modules.get("mujoco")
    if mujoco is None or not hasattr(mujoco, "get_mjcb_time") or mujoco.get_mjcb_time() is not None:
        return
    with contextlib.suppress(ValueError):  # a library that has no clock
        if (loaded := library(mujoco)) is not None:
            ctypes.c_void_p.in_dll(loaded, "mjcb_time").value = None
