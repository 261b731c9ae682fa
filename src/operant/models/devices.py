"""Where networks live: ``auto``, ``cpu``, ``cuda``, ``cuda:1`` or ``mps``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from operant.errors import UsageError

if TYPE_CHECKING:
    import torch


def check_device_name(name: str) -> None:
    """Refuse what names no device, without a look at this machine."""
    if not re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", name):
        raise UsageError(f"device is auto, cpu, cuda, cuda:N (a number) or mps, not {name!r}")


def choose_device(name: str, *, fused: bool = False) -> torch.device:
    """The device of a name; one that is not there is an error.

    ``auto`` is a GPU where there is one, except for networks that have a ``fused`` form: small ones are faster so.
    """
    import torch

    check_device_name(name)
    kind, _, number = name.partition(":")
    if kind == "auto":
        if fused:
            return torch.device("cpu")
        kind = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    elif kind == "cuda":
        there = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if int(number or 0) >= there:
            what = "none that this torch can use" if not there else f"{there}, numbered from 0"
            raise UsageError(f"device={name} needs a CUDA GPU, and here there is {what}; use device=cpu or device=auto")
    elif kind == "mps" and not torch.backends.mps.is_available():
        raise UsageError("device=mps needs an Apple GPU that this torch can use; use device=cpu or device=auto")
    return torch.device(kind, int(number)) if number else torch.device(kind)
