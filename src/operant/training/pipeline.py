"""`serial_pipeline`: a whole training from DI-engine's pair of configs, in one call."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from operant._util.files import write_file
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

    Where ``main_config`` has an ``exp_name``, what came of it is left in ``<exp_name>/result.pkl`` too, as DI-engine
    does: that is where a search over config files looks for it.

    >>> serial_pipeline((main_config, create_config), seed=0).best_return
    """
    if isinstance(input_cfg, (str, Path)):
        names = read_target(str(input_cfg))
        input_cfg = (names["main_config"], names["create_config"])
    main, create = input_cfg
    values = from_di_engine(main, create)
    values |= {"seed": seed, "total_steps": max_env_step, "log": {"every": 1000}, "checkpoint": {"every": 20_000}}
    result = train(TrainConfig.from_mapping(values), observer=observer, root=root)
    if "exp_name" in main:
        _leave_result(Path(main["exp_name"]), result, main.get("env", {}).get("stop_value"))
    return result


def _leave_result(folder: Path, result: TrainResult, stop_value: float | None) -> None:
    """Plain numbers under DI-engine's names; the file appears whole."""
    found = {
        "stop": stop_value is not None and result.best_return >= stop_value,
        "env_step": result.steps,
        "train_iter": result.train_iter,
        "eval_value": result.final_return,
        "best_eval_value": result.best_return,
        "seconds": result.seconds,
    }
    write_file(folder / "result.pkl", pickle.dumps(found))
