"""How busy the machine is while a run goes on: CPU, memory, GPUs."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

_GPU_QUERY = (
    "nvidia-smi",
    "--query-gpu=utilization.gpu,memory.used,memory.total",
    "--format=csv,noheader,nounits",
)


class SystemSampler:
    """Measures the machine and this process; the numbers are percent and GiB, named ``system/…``."""

    def __init__(self) -> None:
        import psutil

        self._psutil: Any = psutil
        self._process = psutil.Process()
        self._has_gpu = shutil.which(_GPU_QUERY[0]) is not None
        # The first answer of these two is meaningless: they measure since the call before.
        psutil.cpu_percent()
        self._process.cpu_percent()

    def sample(self) -> dict[str, float]:
        memory = self._psutil.virtual_memory()
        found = {
            "system/cpu_percent": float(self._psutil.cpu_percent()),
            "system/memory_percent": float(memory.percent),
            "system/process_cpu_percent": float(self._process.cpu_percent()),
            "system/process_memory_gib": self._process.memory_info().rss / 2**30,
        }
        if self._has_gpu:
            found.update(self._gpus())
        return found

    def _gpus(self) -> dict[str, float]:
        try:
            done = subprocess.run(_GPU_QUERY, capture_output=True, text=True, timeout=5, check=True)
            rows = [[float(cell) for cell in line.split(",")] for line in done.stdout.splitlines() if line.strip()]
        except (OSError, ValueError, subprocess.SubprocessError):
            self._has_gpu = False  # a driver that does not answer is not asked every few seconds
            return {}
        found = {}
        for index, (busy, used, total) in enumerate(rows):
            found[f"system/gpu{index}_percent"] = busy
            found[f"system/gpu{index}_memory_gib"] = used / 1024
            found[f"system/gpu{index}_memory_percent"] = 100 * used / total if total else 0.0
        return found
