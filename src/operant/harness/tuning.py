"""`cli.mode: tune`: a search over the values of a tree that are spaces, each trial one training of that tree."""

from __future__ import annotations

import copy
import json
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from operant._util.dotted import put
from operant._util.files import write_file
from operant.errors import ConfigError, KeyPath, UsageError, nearest, path_text
from operant.harness.tree import Plan, given, whole
from operant.harness.words import Tree, todays_result
from operant.schedulers.engine.control import View
from operant.schedulers.engine.scheduler import Outcome
from operant.schedulers.naive_scheduler import NaiveScheduler
from operant.status import Status
from operant.tracking.journal.journal import JOURNAL_NAME
from operant.tracking.places import find_root

SPACES = ("Real", "Int", "Categorical")
TUNE_KEYS = ("engine", "num_samples", "metric", "mode", "searcher", "assessor", "parallel", "site")
ENGINES = ("operant", "ray")
# SimHarness's words in `tunables` -> a space and whether it is logarithmic.
_TUNABLES = {
    "loguniform": ("Real", True),
    "uniform": ("Real", False),
    "random": ("Int", False),
    "randint": ("Int", False),
}


def spaces_of(tree: Tree) -> dict[str, Tree]:
    """The spaces of a tree by their dotted paths: values in it that are spaces, and those under `tunables`."""
    found = dict(_spaces(tree, ""))
    for group, values in (tree.get("tunables") or {}).items():
        if not isinstance(values or {}, Mapping):
            raise UsageError(f"tunables.{group} is a group of spaces, got {values!r:.80}")
        for name, space in (values or {}).items():
            found[f"{group}.{name}"] = _tunable(f"tunables.{group}.{name}", space)
    return found


def _spaces(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Tree]]:
    for key, value in values.items():
        path = f"{prefix}{key}"
        if path == "tunables" or not isinstance(value, Mapping):
            continue
        if {"type", "data"} <= set(value) <= {"type", "data", "log", "step"}:
            yield path, _checked(path, dict(value))
        else:
            yield from _spaces(value, f"{path}.")


def _checked(path: str, space: Tree) -> Tree:
    kind, data = str(space["type"]), space["data"]
    if kind not in SPACES:
        raise UsageError(f"{path}.type is {kind!r}{nearest(kind, SPACES)}; it is {', '.join(SPACES)}")
    if not isinstance(data, list) or not data:
        raise UsageError(f"{path}.data is a list, of two ends or of choices, got {data!r:.80}")
    return space


def _tunable(path: str, space: Any) -> Tree:
    if not isinstance(space, Mapping) or "type" not in space:
        raise UsageError(f"{path} is a space such as {{type: loguniform, values: [1e-5, 1e-2]}}, got {space!r}")
    kind, data = str(space["type"]), space.get("values", space.get("data"))
    if data is None and {"lower", "upper"} <= set(space):
        data = [space["lower"], space["upper"]]
    if not isinstance(data, list) or not data:
        raise UsageError(f"{path} has no values: a list, of two ends or of choices")
    if kind in SPACES:
        return {"type": kind, "data": data, **{key: space[key] for key in ("log", "step") if key in space}}
    if kind == "choice":
        return {"type": "Categorical", "data": data}
    if kind not in _TUNABLES:
        known = (*_TUNABLES, "choice", *SPACES)
        raise UsageError(f"{path}.type is {kind!r}{nearest(kind, known)}; it is one of {', '.join(known)}")
    name, log = _TUNABLES[kind]
    return {"type": name, "data": data, **({"log": True} if log else {})}


def with_values(tree: Tree, values: Mapping[str, Any]) -> Tree:
    """The tree of one trial: spaces replaced by values, to be trained."""
    chosen = copy.deepcopy(tree)
    for path, value in values.items():
        put(chosen, path, value)
    chosen.pop("tunables", None)
    chosen.pop("tune", None)
    put(chosen, "cli.mode", "train")
    return chosen


def first_values(spaces: Mapping[str, Tree]) -> Tree:
    """One value of each space, to check the rest of a tree with; of numbers with a point one that is not whole."""
    return {path: _first_value(space) for path, space in spaces.items()}


def _first_value(space: Tree) -> Any:
    first, last = space["data"][0], space["data"][-1]
    inside = space["type"] == "Real" and all(isinstance(one, (int, float)) for one in (first, last))
    return first + 0.382 * (last - first) if inside else first


def tune(plan: Plan, view: View | None = None, root: str | Path | None = None) -> Outcome:
    """Search as a tree says; a search of the same name that was cut off goes on."""
    spaces = spaces_of(plan.tree)
    if not spaces:
        raise UsageError(
            "cli.mode is tune and nothing in the config is a space; make a value one, such as "
            "training.lr={type: Real, data: [1e-5, 1e-2], log: true}"
        )
    settings = given(plan, "tune")
    for key in settings:
        if key not in TUNE_KEYS:
            raise plan.unknown(f"tune.{key}", TUNE_KEYS, "the harness")
    for key, usual in (("num_samples", 10), ("parallel", 1)):
        whole(plan, f"tune.{key}", usual, least=1)
    engine, place = str(settings.get("engine", "operant")), find_root(root)
    if engine not in ENGINES:
        raise UsageError(f"tune.engine is {engine!r}{nearest(engine, ENGINES)}; it is operant or ray")
    if engine == "ray":
        from operant.harness.tuning_ray import tune_by_ray

        _keep_tree(plan, place / "tune" / _name(plan) / "tree.json")
        return tune_by_ray(plan, spaces, settings, place / "tune" / _name(plan), place)
    folder = place / "searches" / _name(plan)
    cut_off = _cut_off(folder)
    try:
        scheduler = NaiveScheduler(folder, _search(plan, spaces, settings, folder), view=view, resume=cut_off)
    except ConfigError as error:
        raise UsageError(f"{_named(error.path, list(spaces))}: {error.message}") from None
    _keep_tree(plan, folder / "tree.json")
    return scheduler.run()


def _named(path: KeyPath, spaces: list[str]) -> str:
    """Where in the tree a mistake is that was found in the search that is made of it."""
    if path[:2] == ("task", "search_args") and len(path) > 2:
        return path_text((spaces[int(path[2])], *path[3:]))
    return f"tune.{path_text(path)}"


def _keep_tree(plan: Plan, path: Path) -> None:
    """What trials train; those of one search all train the same."""
    tree = copy.deepcopy(plan.tree)
    tree.get("runtime", {}).pop("local_dir", None)  # Hydra's folder is another one at each call
    text = json.dumps(tree, indent=1)
    if path.exists() and path.read_text(encoding="utf-8") != text:
        raise UsageError(
            f"the search {path.parent.name!r} was begun with another config than this one ({path}); "
            "go on with that one, or give this search another name: runtime.name=…"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, text)


def _search(plan: Plan, spaces: Mapping[str, Tree], settings: Tree, folder: Path) -> Tree:
    """The search as `operant search` would read it from a file."""
    words = [sys.executable, "-m", "operant.harness.trial", str(folder / "tree.json")]
    metric, mode = metric_of(settings)
    searcher = searcher_of(settings)
    searcher |= {
        "reward_attribute": metric,
        "reward": mode,
        **({"minimize": True} if mode == "min" else {}),
    }
    search: Tree = {
        "task": {
            "template": " ".join([shlex.join(words), *(f"{path}={{{path}}}" for path in spaces)]),
            "search_args": [{"name": path, **space} for path, space in spaces.items()],
        },
        "searcher": searcher,
        "scheduler": {
            "parallel_size": settings.get("parallel", 1),
            "stop_criterion": {"max_tries": settings.get("num_samples", 10)},
        },
    }
    if settings.get("assessor"):
        search["assessor"] = _typed("assessor", settings["assessor"])
    if settings.get("site"):
        search["site"] = settings["site"]
    return search


def metric_of(settings: Tree) -> tuple[str, str]:
    """The result that a search looks at, and whether its `max` or `min` is wanted."""
    mode = settings.get("mode", "max")
    if mode not in ("max", "min"):
        raise UsageError(f"tune.mode is {mode!r}; it is max or min")
    metric = settings.get("metric", "env_runners/episode_return_mean")
    if not isinstance(metric, str):
        raise UsageError(f"tune.metric is the name of a result (env_runners/episode_return_mean), got {metric!r:.80}")
    return todays_result(metric), mode


def searcher_of(settings: Tree) -> Tree:
    return _typed("searcher", settings.get("searcher", "TpeSearcher"))


def _typed(what: str, said: Any) -> Tree:
    """A part of the search: its name, or a group with its `type` and settings."""
    if not isinstance(said, (str, Mapping)):
        raise UsageError(f"tune.{what} is a name or {{type: …}} with its settings, got {said!r:.80}")
    return {"type": said} if isinstance(said, str) else dict(said)


def _name(plan: Plan) -> str:
    name = given(plan, "runtime").get("name")
    if name and {"/", "\\"} & set(str(name)):
        raise UsageError(f"runtime.name is {name!r}; the name of a search is one of a folder, without slashes")
    if name:
        return str(name)
    # What is searched over is in no name.
    parts = given(plan, "environment").get("env"), given(plan, "algo").get("name")
    words = [one for one in parts if isinstance(one, str)]
    return re.sub(r"[^\w.-]+", "-", "-".join([*words, "tune"]).lower())


def _cut_off(folder: Path) -> bool:
    """Whether a search is there that has not come to its end."""
    if not (folder / JOURNAL_NAME).exists():
        return False
    from operant.schedulers.views.overview import describe

    if describe(folder)["status"] == Status.FINISHED:
        raise UsageError(
            f"the search {folder.name!r} is finished; give this one another name (runtime.name=…), or remove it: "
            f"operant rm --task {shlex.quote(folder.name)}"
        )
    return True
