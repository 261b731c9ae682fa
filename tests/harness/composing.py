"""Trees as `operant harness` composes them, within a test's own process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from operant.harness.tree import CONF


def composed(name: str = "dqn", *overrides: str, folder: Path = CONF) -> dict[str, Any]:
    with initialize_config_dir(str(folder), version_base=None):
        cfg = compose(name, ["cli.mode=train", "runtime.local_dir=.", *overrides])
    tree: Any = OmegaConf.to_container(cfg, resolve=True)
    return tree
