"""`operant harness migrate`: a config of SimHarness's as an experiment of today's, with a line for each change.

The old tree is composed as it was, so that what is written is what it came to; only what differs from the package's own
tree is kept.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from operant._util.dotted import put
from operant.errors import UsageError
from operant.harness.migrating_fires import migrate_environment
from operant.harness.own_words import own_settings
from operant.harness.tree import CONF, LIBRARIES, LIBRARY_GROUPS, Plan, make_plan
from operant.harness.words import GONE, Tree, lookup, take, todays_result, todays_words

_GONE = {
    "run.log_to_file": "outputs of jobs are kept always",
    "debugging.logger_config": "every run is recorded; tensorboard.logdir writes event files as well",
    "aim.log_hydra_config": "settings are recorded always",
    "exploration.exploration_config.warmup_timesteps": "exploration falls from the first step on",
}
_RESOLVERS = {  # SimHarness's own
    "operational_screen_size": lambda size: int(size) * 39,
    "calculate_half": lambda size: int(size) // 2,
    "square": lambda size: int(size) ** 2,
}


def migrate(words: Sequence[str]) -> int:
    """Write the experiment and tell what has changed."""
    parser = argparse.ArgumentParser("operant harness migrate", description=__doc__)
    parser.add_argument("config", type=Path, help="such as simharness2/conf/config.yaml")
    parser.add_argument("--to", type=Path, default=Path("conf"), help="the folder to write to (default: conf)")
    parser.add_argument("--name", help="what the experiment is called (default: as its file)")
    parser.add_argument("--library", choices=LIBRARIES, default="operant", help="who is to train (default: operant)")
    asked = parser.parse_args(words)
    name = asked.name or (asked.config.stem if asked.config.stem != "config" else "simharness")
    target = asked.to / f"{name}.yaml"
    if target.exists():
        raise UsageError(f"{target} exists already; move it away, or give another --name")
    kept, notes = migrated(asked.config, asked.library)
    target.parent.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump({"defaults": ["config", "_self_"], **kept}, sort_keys=False, default_flow_style=None)
    target.write_text(f"# {asked.config.name} of SimHarness, as it runs today.\n{text}", encoding="utf-8")
    sys.stdout.write("".join(f"{line}\n" for line in notes))
    sys.stdout.write(f"wrote {target}\n  operant harness --config-dir {asked.to} -cn {name} cli.mode=train\n")
    return 0


def migrated(config: Path, library: str) -> tuple[Tree, list[str]]:
    """What an experiment says that does what this config did, and a line for each change."""
    if not config.is_file():
        raise UsageError(f"there is no file {config}")
    notes: list[str] = []
    tree = _composed(config, notes)
    put(tree, "algo.library", library)
    for path, why in _GONE.items():
        found, value = take(tree, path)
        if found and value not in (None, {}):
            notes.append(f"{path}: {why}")
    for path, harmless in GONE.items():
        found, value = take(tree, path)
        if found and value not in harmless:
            notes.append(f"{path}: {value!r} is no more with today's libraries")
    _migrate_data_dir(tree, notes)
    notes += migrate_environment(tree, library)
    _drop_results(tree, notes)
    tree, said = todays_words(tree)
    notes += [line for _, line in said]
    if library == "operant" and tree.get("multi_agent"):
        _step_in_one_process(tree, notes)
    ours = _composed(CONF / "config.yaml", [])
    todays_words(ours)
    for group in sorted(set(tree) - {*ours, *LIBRARY_GROUPS}):
        if tree.pop(group):
            notes.append(f"{group}: left out, nobody reads it")
    _drop_what_nobody_takes(tree, library, notes)
    put(tree, "cli.mode", "train")
    make_plan(_merged(ours, tree))  # what is still wrong is told now
    del tree["cli"]
    return _difference(tree, ours), notes


def _composed(config: Path, notes: list[str]) -> Tree:
    """A config as Hydra composes it, in plain values; what cannot be resolved is left out."""
    from hydra import compose, initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf import OmegaConf

    for name, resolver in _RESOLVERS.items():
        OmegaConf.register_new_resolver(name, resolver, replace=True)
    try:
        with initialize_config_dir(str(config.parent.resolve()), version_base=None):
            return dict(_resolved(compose(config.stem), "", notes))
    except HydraException as error:
        raise UsageError(f"{config} cannot be composed: {str(error).splitlines()[0]}") from None


def _resolved(node: Any, prefix: str, notes: list[str]) -> Iterator[tuple[str, Any]]:
    from omegaconf import DictConfig, OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    for key in node:
        path = f"{prefix}{key}"
        if OmegaConf.is_missing(node, key):
            continue
        try:
            value = node[key]
            if not isinstance(value, DictConfig):
                yield str(key), OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
                continue
        except (OmegaConfBaseException, ValueError, TypeError) as error:
            if "hydra:" not in str(OmegaConf.to_container(node, resolve=False)[key]):  # type: ignore[index]
                notes.append(f"{path}: left out, it cannot be resolved ({str(error).splitlines()[0]})")
            continue
        yield str(key), dict(_resolved(value, f"{path}.", notes))


def _migrate_data_dir(tree: Tree, notes: list[str]) -> None:
    """`cli.data_dir` was the folder of a laboratory's network; what is below it goes to the run's own folder."""
    found, place = take(tree, "cli.data_dir")
    if not found:
        return
    notes.append(f"cli.data_dir: left out; what was below {place} goes to runtime.local_dir")
    repo = lookup(tree, "aim.repo")
    if isinstance(repo, str) and repo.startswith(str(place)):
        put(tree, "aim.repo", None)
        notes.append("aim.repo: every run is recorded and on the page; aim.repo=… writes to Aim as well")
    if str(lookup(tree, "run.storage_path") or "").startswith(str(place)):
        take(tree, "run.storage_path")


def _step_in_one_process(tree: Tree, notes: list[str]) -> None:
    """Our own algorithms step environments of several agents themselves, as many of them as runners would have had."""
    runners, each = (lookup(tree, f"rollouts.{key}") for key in ("num_env_runners", "num_envs_per_env_runner"))
    if runners:
        put(tree, "rollouts.num_env_runners", 0)
        put(tree, "rollouts.num_envs_per_env_runner", int(runners) * int(each or 1))
        notes.append(
            f"rollouts.num_env_runners: 0, as several agents are stepped in one process; environments: {runners} × "
            f"{each or 1}"
        )


def _drop_results(tree: Tree, notes: list[str]) -> None:
    conditions = tree.get("stop_conditions") or {}
    for name in list(conditions):
        try:
            todays_result(name)
        except UsageError as error:
            del conditions[name]
            notes.append(f"stop_conditions.{error}")


def _drop_what_nobody_takes(tree: Tree, library: str, notes: list[str]) -> None:
    """Each setting by itself, as the library that is to train checks it; who has which policy is said together."""
    for group in sorted({*LIBRARY_GROUPS} - {"multi_agent"}):
        for key, value in list((tree.get(group) or {}).items()):
            if value is None:
                del tree[group][key]
                continue
            alone = Plan("train", library, str(lookup(tree, "algo.name")), {group: {key: value}})
            try:
                _check(alone)
            except UsageError as error:
                del tree[group][key]
                notes.append(f"{group}.{key}: left out: {str(error).partition('; ')[0]}")


def _check(alone: Plan) -> None:
    if alone.library == "operant":
        own_settings(alone)
        return
    from operant.harness.rllib import check_group

    check_group(alone)


def _merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> Tree:
    merged = dict(under)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _merged(merged[key], value) if both else value
    return merged


def _difference(tree: Mapping[str, Any], ours: Mapping[str, Any]) -> Tree:
    """What a tree says that ours does not."""
    found: Tree = {}
    for key, value in tree.items():
        there = ours.get(key)
        if isinstance(value, Mapping) and isinstance(there, Mapping):
            inner = _difference(value, there)
            if inner:
                found[key] = inner
        elif key not in ours or value != there:
            found[key] = value
    return found
