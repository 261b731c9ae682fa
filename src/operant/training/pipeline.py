"""`serial_pipeline`: a whole training from DI-engine's pair of configs, in one call."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from operant.training.config import TrainConfig
from operant.training.dialects import from_di_engine
from operant.training.entry import train
from operant.training.targets import read_target
from operant.training.training import Observer, TrainResult

__all__ = ["serial_pipeline"]


def serial_pipeline(
    input_cfg: tuple[Mapping[str, Any], Mapping[str, Any]] | str | Path,
    seed: int = 0,
    max_env_step: int = 1_000_000,
    *,
    observer: Observer | None = None,
    root: str | Path | None = None,
) -> TrainResult:
    """Train as ``(main_config, create_config)``, or a file that defines both, says: until ``stop_value`` or the end.

    >>> serial_pipeline((main_config, create_config), seed=0).best_return
    """
    if isinstance(input_cfg, (str, Path)):
        names = read_target(str(input_cfg))
        input_cfg = (names["main_config"], names["create_config"])
    main, create = input_cfg
    values = from_di_engine(main, create)
    values |= {"seed": seed, "total_steps": max_env_step, "log": {"every": 1000}, "checkpoint": {"every": 20_000}}
    return train(TrainConfig.from_mapping(values), observer=observer, root=root)
