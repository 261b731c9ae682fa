"""What a composed config does: `run(cfg)`, within a program that Hydra started."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from operant.errors import OperantError, UsageError
from operant.harness.tree import Origins, Plan, make_plan
from operant.harness.words import Tree

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from operant.harness.results import Heard, Report
    from operant.training.training import Observer


def run(cfg: DictConfig, observer: Observer | None = None, root: str | Path | None = None) -> Any:
    """Do what a composed config says: the `Report` of a training, the `Outcome` of a search, or what was `Viewed`."""
    from operant.harness.errors import HarnessError

    try:
        return run_tree(_values(cfg), _origins(), observer, root)
    except OperantError as error:
        raise HarnessError(str(error)) from error


def _values(cfg: DictConfig) -> Tree:
    from omegaconf import OmegaConf
    from omegaconf.errors import InterpolationResolutionError, MissingMandatoryValue

    try:
        tree: Any = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    except MissingMandatoryValue as error:
        key = error.full_key
        hint = ": train, tune or view" if key == "cli.mode" else ""
        raise UsageError(f"{key} has no value{hint}; say {key}=… on the command line or in a config") from None
    except InterpolationResolutionError as error:
        raise UsageError(f"{error.full_key} cannot be resolved: {str(error).splitlines()[0]}") from None
    return dict(tree)


def run_tree(
    tree: Tree,
    origins: Origins | None = None,
    observer: Observer | None = None,
    root: str | Path | None = None,
    heard: Heard | None = None,
) -> Any:
    """The same of a tree in plain values.

    :param heard: gets the result of each iteration of a training.
    """
    plan = make_plan(tree, origins)
    for line in plan.said:
        sys.stderr.write(f"operant: {line}\n")
    if plan.mode == "view":
        from operant.harness.viewing import view

        return view(plan, root)
    return _tune(plan, root) if plan.mode == "tune" else _train(plan, observer, root, heard)


def _train(plan: Plan, observer: Observer | None, root: str | Path | None, heard: Heard | None) -> Report:
    if plan.library == "rllib":
        from operant.harness.rllib import train_rllib

        return train_rllib(plan, observer, root, heard)
    from operant.harness.own import train_own

    return train_own(plan, observer, root, heard)


def _tune(plan: Plan, root: str | Path | None) -> Any:
    from operant.harness.tuning import first_values, spaces_of, tune, with_values
    from operant.schedulers.views.display import make_view

    # What every trial would fall over is found before the first one.
    sample = make_plan(with_values(plan.tree, first_values(spaces_of(plan.tree))), plan.origins)
    if sample.library == "operant":
        from operant.harness.own import own_config

        own_config(sample)
    else:
        from operant.framework.parallel.ray_engine import prepare_ray
        from operant.harness.rllib import algorithm_config

        prepare_ray()
        algorithm_config(sample)
    return tune(plan, make_view(), root)


def _origins() -> Origins:
    """The files and words that Hydra composed the config of."""
    from hydra.core.hydra_config import HydraConfig

    if not HydraConfig.initialized():
        return Origins()
    settings = HydraConfig.get()
    folders = [Path(one.path) for one in settings.runtime.config_sources if one.schema == "file"]
    found: list[tuple[str, Path]] = []
    for folder in reversed(folders):
        found.append(("", folder / "config.yaml"))
        for group, choice in settings.runtime.choices.items():
            if choice is not None and not group.startswith("hydra"):
                found.append((group.replace("/", "."), folder / group / f"{choice}.yaml"))
        found.append(("", folder / f"{settings.job.config_name}.yaml"))
    return Origins(tuple(found), tuple(settings.overrides.task))
