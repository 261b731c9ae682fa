"""One training from one config: presets, the loop, evaluation, checkpoints, exact resume."""

from __future__ import annotations

from typing import TYPE_CHECKING

from operant._lazy import load_when_used

if TYPE_CHECKING:
    from operant.training.checkpoints import CheckpointError, CheckpointStore
    from operant.training.config import TrainConfig
    from operant.training.evaluating import Evaluation, evaluate
    from operant.training.middleware.collecting import get_epsilon_greedy_fn
    from operant.training.playback import load_policy
    from operant.training.running import resume, train
    from operant.training.serial import (
        AdvancedReplayBuffer,
        BaseLearner,
        BaseSerialEvaluator,
        DQNPolicy,
        SampleCollector,
        SerialPolicy,
        make_envs,
        serial_pipeline,
    )
    from operant.training.targets import list_presets, load_config
    from operant.training.training import Observer, Training, TrainResult

_HOMES = {
    "AdvancedReplayBuffer": ".serial",
    "BaseLearner": ".serial",
    "BaseSerialEvaluator": ".serial",
    "DQNPolicy": ".serial",
    "SampleCollector": ".serial",
    "SerialPolicy": ".serial",
    "make_envs": ".serial",
    "serial_pipeline": ".serial",
    "get_epsilon_greedy_fn": ".middleware.collecting",
    "CheckpointError": ".checkpoints",
    "CheckpointStore": ".checkpoints",
    "Evaluation": ".evaluating",
    "Observer": ".training",
    "TrainConfig": ".config",
    "TrainResult": ".training",
    "Training": ".training",
    "evaluate": ".evaluating",
    "list_presets": ".targets",
    "load_config": ".targets",
    "load_policy": ".playback",
    "resume": ".running",
    "train": ".running",
}

__all__ = [
    "AdvancedReplayBuffer",
    "BaseLearner",
    "BaseSerialEvaluator",
    "CheckpointError",
    "CheckpointStore",
    "DQNPolicy",
    "Evaluation",
    "Observer",
    "SampleCollector",
    "SerialPolicy",
    "TrainConfig",
    "TrainResult",
    "Training",
    "evaluate",
    "get_epsilon_greedy_fn",
    "list_presets",
    "load_config",
    "load_policy",
    "make_envs",
    "resume",
    "serial_pipeline",
    "train",
]

__getattr__ = load_when_used(
    __name__, _HOMES, extra=("training", "rl", ("torch", "gymnasium", "safetensors", "threadpoolctl"))
)
