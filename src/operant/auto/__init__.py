"""From a JSON config to a trained agent with PyTorch Lightning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from operant._lazy import load_when_used

if TYPE_CHECKING:
    from operant.auto.config import (
        check_config,
        generate_algorithm_config,
        generate_env_config,
        generate_training_config,
        get_available_algorithms,
        launch,
        read_config,
        write_config,
    )
    from operant.auto.dataset import DatasetResult, RLDataset
    from operant.auto.datasets import (
        RLGymContActDataset,
        RLGymDataset,
        RLGymDiscActDataset,
        launch_dataset,
        log_video,
    )
    from operant.auto.envs import get_available_environments
    from operant.auto.frames import Frame, frame_class
    from operant.auto.launching import LaunchResult
    from operant.auto.logger import OperantLogger
    from operant.auto.naming import (
        assert_and_get_valid_criterion,
        assert_and_get_valid_lr_scheduler,
        assert_and_get_valid_optimizer,
    )

# torch and Lightning are loaded when a name that needs them is asked for; writing a config needs no Lightning.
_HOMES = {
    "DatasetResult": ".dataset",
    "Frame": ".frames",
    "LaunchResult": ".launching",
    "OperantLogger": ".logger",
    "RLDataset": ".dataset",
    "RLGymContActDataset": ".datasets",
    "RLGymDataset": ".datasets",
    "RLGymDiscActDataset": ".datasets",
    "assert_and_get_valid_criterion": ".naming",
    "assert_and_get_valid_lr_scheduler": ".naming",
    "assert_and_get_valid_optimizer": ".naming",
    "check_config": ".config",
    "frame_class": ".frames",
    "generate_algorithm_config": ".config",
    "generate_env_config": ".config",
    "generate_training_config": ".config",
    "get_available_algorithms": ".config",
    "get_available_environments": ".envs",
    "launch": ".config",
    "launch_dataset": ".datasets",
    "log_video": ".datasets",
    "read_config": ".config",
    "write_config": ".config",
}

__all__ = [
    "DatasetResult",
    "Frame",
    "LaunchResult",
    "OperantLogger",
    "RLDataset",
    "RLGymContActDataset",
    "RLGymDataset",
    "RLGymDiscActDataset",
    "assert_and_get_valid_criterion",
    "assert_and_get_valid_lr_scheduler",
    "assert_and_get_valid_optimizer",
    "check_config",
    "frame_class",
    "generate_algorithm_config",
    "generate_env_config",
    "generate_training_config",
    "get_available_algorithms",
    "get_available_environments",
    "launch",
    "launch_dataset",
    "log_video",
    "read_config",
    "write_config",
]

__getattr__ = load_when_used(
    __name__,
    _HOMES,
    extra=("operant.auto", "auto", ("torch", "gymnasium", "safetensors", "threadpoolctl", "lightning")),
)
