"""Presets of `operant train` as configs of the launcher."""

from __future__ import annotations

from typing import Any

from operant.settings import to_mapping
from operant.training.machin import to_machin
from operant.training.targets import load_config

__all__ = ["config_of_preset"]


def config_of_preset(name: str) -> dict[str, Any]:
    """The algorithm, its settings, networks and environment as a preset has them."""
    config = load_config(name)
    model = {
        key: value for key, value in to_mapping(config.model).items() if key in ("hidden", "activation", "orthogonal")
    }
    env = to_mapping(config.env)
    train = {"env_name": env.pop("id"), **{key: value for key, value in env.items() if value}}
    test = {key: train[key] for key in ("env_name", "arguments", "wrappers") if key in train}
    return {
        "frame": config.algorithm["name"].upper(),
        "frame_config": {**to_machin(config.algorithm_settings), "model": model},
        "train_env_config": train,
        "test_env_config": test,
    }
