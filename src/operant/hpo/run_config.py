"""The program of one task: a DI-engine style config file with one trial's values put into its `main_config`.

`python -m operant.hpo.run_config FOLDER` runs `FOLDER/config.py`, a copy of the user's file as it is. What stands
before `if __name__ == "__main__":` runs first, then the values are set, then the rest runs; no text is rewritten.
With `--check` it ends there: do the values fit?
Where easydict or DI-engine are not installed, Operant stands in for them.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import math
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from operant.errors import UsageError, nearest

TASK_NAME = "task.json"
RESULT_NAME = "result.pkl"
# A key that is not there may be a default of DI-engine's; one that is nearly there is a slip.
_NEARLY = 0.8


def main(folder: Path, *, only_check: bool = False) -> None:
    task = json.loads((folder / TASK_NAME).read_bytes())
    source = Path(task["source"])
    sys.path.insert(0, str(source.parent))
    sys.argv = [str(source)]
    _stand_in()
    before, rest = _halves((folder / "config.py").read_text(encoding="utf-8"), str(source))
    module = types.ModuleType("__main__")
    module.__file__ = str(source)
    sys.modules["__main__"] = module
    exec(compile(before, str(source), "exec"), module.__dict__)
    main_config = module.__dict__.get("main_config")
    if not isinstance(main_config, Mapping):
        raise UsageError(f"{source}: `main_config` must be a mapping of settings, not {main_config!r}")
    apply_values(main_config, {**task["values"], "exp_name": task["exp_name"]})
    if only_check:
        return
    if rest.body:
        exec(compile(rest, str(source), "exec"), module.__dict__)
    else:
        pipeline = importlib.import_module("ding.entry").serial_pipeline
        pipeline((main_config, module.__dict__.get("create_config")), seed=0)


def _halves(text: str, name: str) -> tuple[ast.Module, ast.Module]:
    tree = ast.parse(text, name)
    place = next((i for i, one in enumerate(tree.body) if is_main_block(one)), len(tree.body))
    return ast.Module(tree.body[:place], []), ast.Module(tree.body[place:], [])


def is_main_block(statement: ast.stmt) -> bool:
    """Whether it is `if __name__ == "__main__":`, either way round."""
    if not isinstance(statement, ast.If) or not isinstance(statement.test, ast.Compare):
        return False
    sides = [statement.test.left, *statement.test.comparators]
    names = {one.id for one in sides if isinstance(one, ast.Name)}
    texts = {one.value for one in sides if isinstance(one, ast.Constant)}
    return names == {"__name__"} and texts == {"__main__"}


def apply_values(config: Any, values: Mapping[str, Any], place: str = "main_config") -> None:
    """Set values in a nested configuration, level by level."""
    for key, value in values.items():
        there = f"{place}[{key!r}]"
        if key not in config:
            hint = nearest(key, [one for one in config if _alike(key, str(one))])
            if hint:
                raise UsageError(f"{place} has no key {key!r}{hint}")
        if isinstance(value, Mapping) and isinstance(config.get(key), Mapping):
            apply_values(config[key], value, there)
        elif isinstance(value, list) and _same_places(value, config.get(key)):
            for i, one in enumerate(value):
                if isinstance(one, Mapping) and isinstance(config[key][i], Mapping):
                    apply_values(config[key][i], one, f"{there}[{i}]")
                else:
                    config[key][i] = one
        else:
            config[key] = value


def _same_places(value: list[Any], there: Any) -> bool:
    return isinstance(there, list) and len(there) == len(value)


def _alike(one: str, other: str) -> bool:
    import difflib

    return difflib.SequenceMatcher(None, one.lower(), other.lower()).ratio() >= _NEARLY


def _stand_in() -> None:
    """Give config files what they import, where it is not installed."""
    if importlib.util.find_spec("easydict") is None:
        easydict = types.ModuleType("easydict")
        easydict.EasyDict = EasyDict  # type: ignore[attr-defined]
        sys.modules["easydict"] = easydict
    if importlib.util.find_spec("ding") is None:
        ding, entry = types.ModuleType("ding"), types.ModuleType("ding.entry")
        entry.serial_pipeline = serial_pipeline  # type: ignore[attr-defined]
        entry.serial_pipeline_onpolicy = serial_pipeline  # type: ignore[attr-defined]
        ding.entry = entry  # type: ignore[attr-defined]
        sys.modules.update({"ding": ding, "ding.entry": entry})


class EasyDict(dict[str, Any]):
    """A dict whose keys are attributes, down to the last level."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__()
        for key, value in dict(*args, **named).items():
            self[key] = value

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, _easy(value))

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"there is no key {name!r}{nearest(name, self)}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


def _easy(value: Any) -> Any:
    if isinstance(value, dict) and not isinstance(value, EasyDict):
        return EasyDict(value)
    if isinstance(value, (list, tuple)):
        return type(value)(_easy(one) for one in value)
    return value


def serial_pipeline(
    input_cfg: tuple[Mapping[str, Any], Mapping[str, Any]],
    seed: int = 0,
    env_setting: Any = None,
    model: Any = None,
    max_train_iter: float | None = None,
    max_env_step: float | None = None,
    dynamic_seed: bool | None = None,
) -> Any:
    """DI-engine's entry, done by Operant's training."""
    for name, given in (("env_setting", env_setting), ("model", model), ("max_train_iter", max_train_iter)):
        if given is not None and given != math.inf:
            raise UsageError(f"serial_pipeline({name}=…) needs DI-engine itself, which is not installed")
    train = importlib.import_module("operant.training").serial_pipeline  # torch and all: only now
    limit = {} if max_env_step is None else {"max_env_step": int(max_env_step)}
    return train(input_cfg, seed=seed, **limit)  # it leaves <exp_name>/result.pkl behind


if __name__ == "__main__":
    # As an imported module: the file that is run becomes `__main__` itself.
    from operant.hpo.run_config import main as run

    run(Path(sys.argv[1]), only_check="--check" in sys.argv)
