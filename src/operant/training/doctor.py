"""Warnings in words when a training looks ill: what was seen, and what usually helps."""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Mapping
from typing import Any

from operant.algorithms import DataSpec


class Doctor:
    """Looks at each point of the log; says each thing once.

    :param entropy_limit: what the entropy could be at most (discrete actions), or None.
    :param patience: points over which the return must have stayed the same to be called flat.
    """

    def __init__(self, entropy_limit: float | None = None, patience: int = 100) -> None:
        self._entropy_limit = entropy_limit
        self._returns: deque[float] = deque(maxlen=patience)
        self._unexplained = 0
        self._exploded = 0
        self._said: set[str] = set()

    def look(self, metrics: Mapping[str, float], mean_return: float, progress: float) -> list[str]:
        """New warnings, each a sentence."""
        found: list[str] = []
        entropy = metrics.get("entropy", math.nan)
        if self._entropy_limit and entropy < 0.01 * self._entropy_limit and progress < 0.5:
            found += self._once(
                "entropy",
                f"the entropy of the policy has collapsed to {entropy:.2g} before half of the training: it hardly "
                "explores any more. A larger entropy_weight (of SAC target_entropy) or a smaller learning rate usually "
                "helps",
            )
        kl = metrics.get("approx_kl", math.nan)
        self._exploded = self._exploded + 1 if kl > 0.2 else 0
        if self._exploded >= 3:
            found += self._once(
                "kl",
                f"the policy moves far in each update (KL {kl:.2g}, three times in a row): fewer epochs, a smaller "
                "learning rate or target_kl usually help",
            )
        explained = metrics.get("explained_variance", math.nan)
        self._unexplained = self._unexplained + 1 if explained < 0.0 else 0
        if self._unexplained >= 30 and progress > 0.2:
            found += self._once(
                "value",
                f"the value function has explained nothing of the returns for {self._unexplained} points: a larger "
                "learning rate, scaled rewards or a larger network may help",
            )
        if not math.isnan(mean_return):
            self._returns.append(mean_return)
        if len(self._returns) == self._returns.maxlen and max(self._returns) - min(self._returns) < 1e-9:
            found += self._once(
                "flat",
                f"the mean return has been {mean_return:.4g} for {len(self._returns)} points: nothing is being "
                "learned, or nothing is left to learn",
            )
        return found

    def _once(self, key: str, sentence: str) -> list[str]:
        if key in self._said:
            return []
        self._said.add(key)
        return [sentence]

    def state_dict(self) -> dict[str, Any]:
        return {
            "returns": list(self._returns),
            "unexplained": self._unexplained,
            "exploded": self._exploded,
            "said": sorted(self._said),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._returns.extend(state["returns"])
        self._unexplained = int(state["unexplained"])
        self._exploded = int(state["exploded"])
        self._said = set(state["said"])


def thread_warning(threads: int) -> str | None:
    """Whether threads of one process will get in each other's way."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if threads > 1 and load > 1.5 * cores:
        return (
            f"torch uses {threads} threads while {load:.0f} programs want the {cores} cores: small networks lose up to "
            "forty times by that. OMP_NUM_THREADS=1 helps"
        )
    return None


def unlearnt_warning(data: DataSpec, total_steps: int) -> str | None:
    """Whether a training ends before its first round of learning."""
    if data.source == "replay" and data.starts >= total_steps:
        return (
            f"learning begins after {data.starts:,} steps and the training ends after {total_steps:,}: nothing will be "
            "learnt. A smaller algorithm.learning_starts or a larger total_steps helps"
        )
    return None
