"""`launch` and `generate_env_config`: the environment is found by name, the rest is its own affair."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from operant.auto.config import check_config
from operant.auto.envs import find_environment
from operant.errors import MissingExtraError

if TYPE_CHECKING:
    from operant.auto.launching import LaunchResult


def generate_env_config(env: str, config: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Add an environment to a config; what the config has of it already stays."""
    found: dict[str, Any] = find_environment(env).generate_env_config(config)
    return found


def launch(
    config: Mapping[str, Any],
    callbacks: list[Any] | None = None,
    *,
    resume: bool | str | Path = False,
    root: str | Path | None = None,
    progress: bool | None = None,
    say: Callable[[str], None] | None = None,
) -> LaunchResult:
    """Train as a config says, with PyTorch Lightning, and say what came of it.

    Names of models, optimizers, criteria and schedulers may be those of the module that calls this. `callbacks` are
    Lightning's. With `resume=True` a training goes on from the last checkpoint in its root_dir, exactly.

    >>> launch(config).best_reward
    """
    names = sys._getframe(1).f_globals
    try:
        import lightning.pytorch  # noqa: F401
    except ImportError:
        raise MissingExtraError("operant.auto", "auto") from None
    from operant.auto.launching import LaunchOptions, LaunchResult, using
    from operant.auto.parts import prepare_parts, resolve_names

    resolved = resolve_names(config, names) if isinstance(config, Mapping) else config
    plan = check_config(resolved)
    prepare_parts(plan)
    environment = find_environment(plan.launch.env)
    shown = sys.stderr.isatty() if progress is None else progress
    with using(LaunchOptions(resume=resume, root=root, progress=shown, say=say)):
        result = environment.launch(resolved, callbacks)
    if not isinstance(result, LaunchResult):
        raise TypeError(f"{plan.launch.env}.launch gave a {type(result).__name__}; it must return its LaunchResult")
    return result
