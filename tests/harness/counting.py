"""A callback of RLlib's that a config names."""

from __future__ import annotations

from typing import Any

from ray.rllib.callbacks.callbacks import RLlibCallback


class Counting(RLlibCallback):
    def on_episode_end(self, *, metrics_logger: Any = None, **about: Any) -> None:
        metrics_logger.log_value("counted", 1, reduce="sum")
