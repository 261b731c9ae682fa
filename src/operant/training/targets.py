"""What `operant train TARGET key=value …` means: a preset, a YAML, JSON or Python file, and changes to it."""

from __future__ import annotations

import copy
import dataclasses
import json
import logging
import runpy
import sys
import types
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from operant._util.plain_yaml import parse_yaml, read_yaml
from operant.algorithms import ALGORITHMS, find_algorithm
from operant.errors import UsageError, nearest
from operant.training.config import TrainConfig
from operant.training.dialects import from_di_engine, looks_like_di_engine

_LOG = logging.getLogger(__name__)
_PRESETS = Path(__file__).parent / "presets"


def list_presets() -> dict[str, str]:
    """Names of the presets and the first line of each."""
    found = {}
    for path in sorted(_PRESETS.glob("*.yaml")):
        first = path.read_text(encoding="utf-8").partition("\n")[0]
        found[path.stem] = first.lstrip("# ").strip()
    return found


def eject_preset(name: str, folder: Path) -> Path:
    """Copy a preset out, to be edited; an existing file is left alone."""
    source = _preset_path(name)
    target = folder / source.name
    if target.exists():
        raise UsageError(f"{target} exists already; move it away first")
    target.write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    return target


def load_config(target: str | Path | Mapping[str, Any] | TrainConfig, changes: Iterable[str] = ()) -> TrainConfig:
    """The config behind a target, with changes such as ``algorithm.gamma=0.98`` applied."""
    changes = list(changes)
    if isinstance(target, TrainConfig):
        values: dict[str, Any] = target.to_mapping()
    else:
        values = dict(target) if isinstance(target, Mapping) else read_target(str(target))
        if looks_like_di_engine(values):
            values = from_di_engine(values["main_config"], values["create_config"])
        if isinstance(target, str) and (preset := _find_preset(target)):
            values = _for_other_algorithm(preset.stem, values, changes)
    return TrainConfig.from_mapping(apply_changes(values, changes))


def read_target(target: str) -> dict[str, Any]:
    """The mapping in a preset or a file."""
    path = Path(target)
    if path.suffix in (".yaml", ".yml", ".json", ".py"):
        if not path.is_file():
            raise UsageError(f"there is no file {target}")
        if path.suffix == ".py":
            return _read_python(path)
        return _read_mapping(path)
    return _read_mapping(_preset_path(target))


def _find_preset(name: str) -> Path | None:
    """The file of a preset; the words of its name may come in any order, as in ``impala-cartpole``."""
    words = sorted(name.split("-"))
    return next((path for path in _PRESETS.glob("*.yaml") if sorted(path.stem.split("-")) == words), None)


def _preset_path(name: str) -> Path:
    path = _find_preset(name)
    if path is None:
        turned = ["-".join(one.rpartition("-")[::-2]) for one in list_presets()]  # pendulum-sac: sac-pendulum
        raise UsageError(
            f"there is no preset {name!r}{nearest(name, [*list_presets(), *turned])}; `operant train --list` shows "
            "them, and a config file ends in .yaml, .json or .py"
        )
    return path


def _read_mapping(path: Path) -> dict[str, Any]:
    if path.suffix == ".json":
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{path} cannot be read: {error}") from None
    else:
        values = read_yaml(path)
    if not isinstance(values, dict):
        raise UsageError(f"{path} must hold a mapping of settings, not {type(values).__name__}")
    return values


def _read_python(path: Path) -> dict[str, Any]:
    """Run a config file (not its ``__main__`` part) and take ``config``, or ``main_config`` and ``create_config``."""
    stand_in = "easydict" not in sys.modules and _missing("easydict")
    if stand_in:
        module = types.ModuleType("easydict")
        module.EasyDict = _AttributeDict  # type: ignore[attr-defined]
        sys.modules["easydict"] = module
    try:
        names = runpy.run_path(str(path), run_name="operant_config")
    except Exception as error:
        raise UsageError(f"{path} cannot be run: {type(error).__name__}: {error}") from error
    finally:
        if stand_in:
            del sys.modules["easydict"]
    if "main_config" in names and "create_config" in names:
        return {"main_config": names["main_config"], "create_config": names["create_config"]}
    config = names.get("config")
    if isinstance(config, TrainConfig):
        return config.to_mapping()
    if isinstance(config, Mapping):
        return dict(config)
    raise UsageError(f"{path} must define `config`, or `main_config` and `create_config`")


class _AttributeDict(dict[str, Any]):
    """What config files want of ``easydict.EasyDict`` where it is not installed: keys as attributes."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__()
        for key, value in dict(*args, **named).items():
            self[key] = _AttributeDict(value) if isinstance(value, dict) else value

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


def _missing(module: str) -> bool:
    from importlib.util import find_spec

    return find_spec(module) is None


def _for_other_algorithm(preset: str, values: dict[str, Any], changes: Iterable[str]) -> dict[str, Any]:
    """A preset with ``algorithm.name=...``: settings that the other one does not know are nothing the user wrote."""
    given = values["algorithm"]
    written = {key: text.strip() for key, _, text in (one.partition("=") for one in changes)}
    name = written.get("algorithm.name", given["name"])
    if name == given["name"] or name not in ALGORITHMS:
        return values
    known = {"name", *(one.name for one in dataclasses.fields(find_algorithm(name)[1]))}
    foreign = [key for key in given if key not in known and f"algorithm.{key}" not in written]
    if foreign:
        _LOG.warning("what %s does not have is left out of %s: %s", name, preset, ", ".join(foreign))
    kept = {key: value for key, value in given.items() if key not in foreign}
    return {**values, "name": f"{preset.rpartition('-')[0]}-{name}", "algorithm": kept}


def apply_changes(values: Mapping[str, Any], changes: Iterable[str]) -> dict[str, Any]:
    """Set dotted keys: ``evaluation.stop_value=475``; values are read as YAML."""
    result = copy.deepcopy({key: value for key, value in values.items()})
    for change in changes:
        key, equals, text = change.partition("=")
        if not equals or not key:
            raise UsageError(f"{change!r} is no change: write key=value, such as total_steps=50000")
        value = parse_yaml(text, f"the value in {change!r:.200}")
        place = result
        *groups, last = key.split(".")
        for group in groups:
            inner = place.setdefault(group, {})
            if not isinstance(inner, dict):
                raise UsageError(f"{key!r} has no place: {group!r} is not a group of settings")
            place = inner
        place[last] = value
    return result
