"""Reads a W&B sweep as a search: `hpo.from_sweep("sweep.yaml", f).run()`."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from operant.errors import ConfigError, unknown
from operant.hpo.expressions import R
from operant.hpo.search import Search
from operant.hpo.values import HyperValue, choice, quniform, randint, randn, uniform

_METHODS = {"grid": "GridSearcher", "random": "RandomSearcher", "bayes": "GpSearcher"}
_TOP = (
    "method", "metric", "parameters", "early_terminate", "run_cap", "program", "command", "name", "description",
    "project", "entity",
)  # fmt: skip
_PARAMETER = ("value", "values", "min", "max", "distribution", "mu", "sigma", "q", "parameters", "probabilities")
_HYPERBAND = ("type", "min_iter", "max_iter", "s", "eta", "strict")
_GOALS = ("minimize", "maximize")


def search_of_sweep(
    source: str | os.PathLike[str] | Mapping[str, Any], function: Callable[..., Any], *, silent: bool = False
) -> Search:
    """A search as a sweep describes it, of a function that gets the sweep's parameters and returns its metric.

    :param source: the YAML file, or what is in it.
    :param function: `f(config)` returns `{metric: value, …}`, or the metric's value itself.
    """
    lines: Any = {}
    file = None
    if isinstance(source, Mapping):
        sweep: Any = source
    else:
        from operant.space import load_yaml_file

        file = str(source)
        sweep, lines = load_yaml_file(Path(source))
    try:
        return _search(sweep, function, silent)
    except ConfigError as error:
        raise (error if file is None else error.located(file, lines)) from None


def _search(sweep: Any, function: Callable[..., Any], silent: bool) -> Search:
    if not isinstance(sweep, Mapping):
        raise ConfigError("a sweep is a mapping with `method`, `metric` and `parameters`")
    _known(sweep, _TOP, "key of a sweep", ())
    method = str(sweep.get("method"))
    if method not in _METHODS:
        raise ConfigError(unknown("method", method, _METHODS), ("method",))
    # As in W&B, only a method that learns needs to know what for; the others just try, and here rank what is returned.
    nameless = method != "bayes" and sweep.get("metric") is None
    metric = {"name": "value"} if nameless else sweep.get("metric") or {}
    _known(metric, ("name", "goal", "target"), "key of metric", ("metric",))
    name, goal = metric.get("name"), metric.get("goal", "minimize")
    if not name:
        raise ConfigError("`metric` needs a `name`: what the function returns", ("metric",))
    if goal not in _GOALS:
        raise ConfigError(unknown("goal", goal, _GOALS), ("metric", "goal"))
    search = Search(function, _METHODS[method], silent=silent).spaces(space_of_parameters(sweep.get("parameters")))
    objective = R.apply(lambda found: _first_number(found) if nameless else _metric_of(found, name), str(name))
    (search.minimize if goal == "minimize" else search.maximize)(objective, name=str(name))
    if metric.get("target") is not None:
        target = float(metric["target"])
        search.stop_when(objective <= target if goal == "minimize" else objective >= target)
    if sweep.get("run_cap") is not None:
        search.max_steps(sweep["run_cap"])
    if sweep.get("early_terminate") is not None:
        search.early_stop(_hyperband(sweep["early_terminate"]))
    return search


def _metric_of(returned: Any, name: Any) -> Any:
    return returned[name] if isinstance(returned, Mapping) else returned


def _first_number(returned: Any) -> Any:
    found = returned.values() if isinstance(returned, Mapping) else [returned]
    return next((one for one in found if hasattr(one, "__float__")), 0.0)


def space_of_parameters(parameters: Any, path: tuple[str | int, ...] = ("parameters",)) -> dict[str, Any]:
    if not isinstance(parameters, Mapping) or not parameters:
        raise ConfigError("`parameters` is a mapping from each parameter to its values", path)
    return {str(name): _parameter(one, (*path, str(name))) for name, one in parameters.items()}


def _parameter(one: Any, path: tuple[str | int, ...]) -> Any:
    if not isinstance(one, Mapping):
        raise ConfigError(f"a parameter has `value`, `values`, or `min` and `max`, and is not {one!r}", path)
    _known(one, _PARAMETER, "key of a parameter", path)
    if "parameters" in one:
        return space_of_parameters(one["parameters"], (*path, "parameters"))
    if "probabilities" in one:
        raise ConfigError("values with different `probabilities` are not searched; leave them out", path)
    kind = one.get("distribution") or _usual(one, path)
    if kind not in _DISTRIBUTIONS:
        raise ConfigError(unknown("distribution", kind, _DISTRIBUTIONS), (*path, "distribution"))
    try:
        return _DISTRIBUTIONS[kind](one)
    except KeyError as error:
        raise ConfigError(f"the distribution {kind!r} needs `{error.args[0]}`", path) from None
    except (TypeError, ValueError) as error:
        raise ConfigError(str(error), path) from None


def _usual(one: Mapping[str, Any], path: tuple[str | int, ...]) -> str:
    """What W&B takes when no distribution is named."""
    if "value" in one:
        return "constant"
    if "values" in one:
        return "categorical"
    if "min" in one and "max" in one:
        return "int_uniform" if all(isinstance(one[end], int) for end in ("min", "max")) else "uniform"
    raise ConfigError("a parameter needs `value`, `values`, or `min` and `max`", path)


def _q(value: HyperValue, one: Mapping[str, Any]) -> HyperValue:
    """Rounded to multiples of q."""
    q = one.get("q", 1)

    def rounded(number: float) -> Any:
        return round(number / q) * q

    return value >> rounded


def _exp(value: HyperValue) -> HyperValue:
    return math.e**value


def _between(one: Mapping[str, Any]) -> HyperValue:
    return uniform(one["min"], one["max"])


def _log_between(one: Mapping[str, Any]) -> HyperValue:
    return _exp(uniform(math.log(one["min"]), math.log(one["max"])))


_DISTRIBUTIONS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "constant": lambda one: one["value"],
    "categorical": lambda one: choice(list(one["values"])),
    "int_uniform": lambda one: randint(one["min"], one["max"]),
    "uniform": _between,
    "q_uniform": lambda one: quniform(one["min"], one["max"], one.get("q", 1)),
    "log_uniform": lambda one: _exp(_between(one)),
    "log_uniform_values": _log_between,
    "q_log_uniform": lambda one: _q(_exp(_between(one)), one),
    "q_log_uniform_values": lambda one: _q(_log_between(one), one),
    "inv_log_uniform": lambda one: 1 / _exp(_between(one)),
    "inv_log_uniform_values": lambda one: 1 / _exp(uniform(-math.log(one["max"]), -math.log(one["min"]))),
    "normal": lambda one: randn(one.get("mu", 0), one.get("sigma", 1)),
    "q_normal": lambda one: _q(randn(one.get("mu", 0), one.get("sigma", 1)), one),
    "log_normal": lambda one: _exp(randn(one.get("mu", 0), one.get("sigma", 1))),
    "q_log_normal": lambda one: _q(_exp(randn(one.get("mu", 0), one.get("sigma", 1))), one),
}


def _hyperband(cfg: Any) -> dict[str, Any]:
    path = ("early_terminate",)
    if not isinstance(cfg, Mapping):
        raise ConfigError(f"`early_terminate` is a mapping with `type: hyperband`, not {cfg!r}", path)
    _known(cfg, _HYPERBAND, "key of early_terminate", path)
    if cfg.get("type") != "hyperband":
        raise ConfigError(unknown("type", cfg.get("type"), ("hyperband",)), (*path, "type"))
    eta = int(cfg.get("eta", 3))
    first = cfg.get("min_iter")
    if first is None:
        if cfg.get("max_iter") is None:
            raise ConfigError("hyperband needs `min_iter`, or `max_iter` and `s`", path)
        first = max(1, int(cfg["max_iter"]) // eta ** int(cfg.get("s", 1)))
    return {"type": "AshaAssessor", "min_step": int(first), "reduction_factor": eta}


def _known(section: Any, known: tuple[str, ...], what: str, path: tuple[str | int, ...]) -> None:
    if not isinstance(section, Mapping):
        raise ConfigError(f"a mapping is expected here, not {section!r}", path)
    for key in section:
        if key not in known:
            raise ConfigError(unknown(what, key, known), (*path, str(key)))
