"""One training from one config: presets, the loop, evaluation, checkpoints, exact resume."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from operant.errors import MissingExtraError

if TYPE_CHECKING:
    from operant.training.checkpoints import CheckpointError, CheckpointStore
    from operant.training.config import TrainConfig
    from operant.training.entry import resume, train
    from operant.training.evaluating import Evaluation, evaluate
    from operant.training.targets import list_presets, load_config
    from operant.training.training import Observer, Training, TrainResult

_HOMES = {
    "CheckpointError": "checkpoints",
    "CheckpointStore": "checkpoints",
    "Evaluation": "evaluating",
    "Observer": "training",
    "TrainConfig": "config",
    "TrainResult": "training",
    "Training": "training",
    "evaluate": "evaluating",
    "list_presets": "targets",
    "load_config": "targets",
    "resume": "entry",
    "train": "entry",
}

__all__ = [
    "CheckpointError",
    "CheckpointStore",
    "Evaluation",
    "Observer",
    "TrainConfig",
    "TrainResult",
    "Training",
    "evaluate",
    "list_presets",
    "load_config",
    "resume",
    "train",
]


def __getattr__(name: str) -> Any:
    try:
        home = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module 'operant.training' has no attribute {name!r}") from None
    try:
        return getattr(importlib.import_module(f"operant.training.{home}"), name)
    except ModuleNotFoundError as error:
        if error.name in ("torch", "gymnasium", "safetensors"):
            raise MissingExtraError("training", "rl") from None
        raise
