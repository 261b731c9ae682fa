"""Which GPUs a job sees: whole ones, or a share of one."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from typing import Any

from operant._util.checks import is_number, is_whole
from operant.errors import ConfigError


def visible_gpus() -> list[str]:
    """The GPUs of this machine that this process may use."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [one.strip() for one in named.split(",") if one.strip() and one.strip() != "-1"]
    if shutil.which("nvidia-smi") is None:
        return []
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False, timeout=30)
    return [str(place) for place, _ in enumerate(line for line in listed.stdout.splitlines() if line.startswith("GPU"))]


class GpuPool:
    """Packs jobs onto GPUs: ``per_job`` whole ones each, or (below 1) that share of one."""

    def __init__(self, gpus: Sequence[str], per_job: float) -> None:
        self.per_job = per_job
        self._load: dict[str, float] = dict.fromkeys(gpus, 0.0)
        self._held: dict[str, list[str]] = {}

    @classmethod
    def parse(cls, per_job: Any, gpus: Any, site: str = "local") -> GpuPool | None:
        if per_job is None:
            return None
        if site != "local":
            raise ConfigError(
                f"`gpus_per_job` shares out the GPUs of this machine; those of {site} are asked for in `site`",
                ("gpus_per_job",),
            )
        if not is_number(per_job) or per_job < 0:
            raise ConfigError(f"`gpus_per_job` is a number such as 1, 2 or 0.5, not {per_job!r}", ("gpus_per_job",))
        if per_job == 0:
            return None
        if per_job > 1 and per_job != int(per_job):
            raise ConfigError(f"a job can have whole GPUs or a part of one, not {per_job}", ("gpus_per_job",))
        names = [str(one) for one in gpus] if isinstance(gpus, (list, tuple)) else visible_gpus()
        if is_whole(gpus):
            names = names[:gpus] or [str(place) for place in range(gpus)]
        if len(names) < per_job:
            raise ConfigError(f"a job wants {per_job} GPUs, and this machine shows {len(names)}", ("gpus_per_job",))
        return cls(names, float(per_job))

    def take(self, token: str) -> list[str] | None:
        """GPUs for a job, the least used first; None while there are not enough."""
        share = min(self.per_job, 1.0)
        wanted = max(1, int(self.per_job))
        free = sorted(
            (load, place, name) for place, (name, load) in enumerate(self._load.items()) if load + share <= 1 + 1e-9
        )
        if len(free) < wanted:
            return None
        # The fullest that still fits: whole GPUs stay free for as long as can be.
        chosen = [
            name
            for _, _, name in (free[:wanted] if share == 1 else sorted(free, key=lambda one: (-one[0], one[1]))[:1])
        ]
        for name in chosen:
            self._load[name] += share
        self._held[token] = chosen
        return chosen

    def give_back(self, token: str) -> None:
        for name in self._held.pop(token, ()):
            self._load[name] = max(0.0, self._load[name] - min(self.per_job, 1.0))
