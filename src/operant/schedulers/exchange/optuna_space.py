"""A search space as Optuna's distributions, and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from operant._util.checks import is_number
from operant.errors import OperantError
from operant.space import Categorical, Container, Int, Leaf, Nested, Real, build_space

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

_PLAIN = (bool, int, float, str, type(None))


class Parameters(NamedTuple):
    """What a trial of Optuna's has been given, and what that was drawn from."""

    params: dict[str, Any]
    distributions: dict[str, BaseDistribution]
    user_attrs: dict[str, Any]


class OptunaSpace:
    """Distributions for every setting of a search, wide enough for all configurations that were tried.

    Optuna's choices are plain values that differ under ``==``; where ours do not, they go over as JSON texts, and
    ``as_json`` names those settings.
    """

    def __init__(self, search_args: Any, configs: Sequence[Mapping[str, Any]]) -> None:
        leaves = _leaves(search_args)
        names = [*leaves, *(name for config in configs for name in config if name not in leaves)]
        self.as_json: list[str] = []
        self.distributions: dict[str, BaseDistribution] = {}
        for name in dict.fromkeys(names):
            tried = [config[name] for config in configs if name in config]
            self.distributions[name] = self._distribution(name, leaves.get(name), tried)

    def parameters(self, number: int, config: Mapping[str, Any]) -> Parameters:
        """Those of a trial with this configuration."""
        params = {name: _text(value) if name in self.as_json else value for name, value in config.items()}
        return Parameters(params, {name: self.distributions[name] for name in params}, {})

    def _distribution(self, name: str, leaf: Leaf | list[Any] | None, tried: list[Any]) -> BaseDistribution:
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

        numbers = all(is_number(one) for one in tried)
        whole = numbers and all(isinstance(one, int) for one in tried)
        if isinstance(leaf, (Int, Real)) and numbers:
            low, high, log = min([leaf.low, *tried]), max([leaf.high, *tried]), leaf.log
            fits = all(one in leaf for one in tried) and not log  # Optuna has no steps on a log scale
            if isinstance(leaf, Int) and whole:
                return IntDistribution(int(low), int(high), log=log and low > 0, step=leaf.step if fits else 1)
            return FloatDistribution(low, high, log=log and low > 0, step=leaf.step if fits else None)
        if leaf is None and numbers:
            return (IntDistribution if whole else FloatDistribution)(min(tried), max(tried))
        data = leaf.data if isinstance(leaf, Categorical) else leaf if isinstance(leaf, list) else []
        choices = _distinct([*data, *tried])
        if not _plain_choices(choices):
            self.as_json.append(name)
            choices = [_text(one) for one in choices]
        return CategoricalDistribution(choices)


class AskedParameters:
    """The parameters that the trials of an Optuna objective asked for, with the distributions that Optuna itself would
    have made of them, so that it can go on with the study.

    :param results: by trial what its objective left: ``params``, ``user_attrs`` and ``distributions``, each of them
        ``["float", low, high, step, log]``, ``["int", low, high, step, log]`` or ``["categorical", choices]``.
    """

    def __init__(self, results: Mapping[int, Mapping[str, Any]]) -> None:
        self.as_json: list[str] = []
        self._found = {number: self._parameters(result) for number, result in results.items()}

    def parameters(self, number: int, config: Mapping[str, Any]) -> Parameters:
        """Those that a trial asked for, whatever was proposed; of one that failed nobody knows."""
        return self._found.get(number, Parameters({}, {}, {}))

    def _parameters(self, result: Mapping[str, Any]) -> Parameters:
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

        params = dict(result["params"])
        distributions: dict[str, BaseDistribution] = {}
        for name, (kind, *rest) in result["distributions"].items():
            if kind != "categorical":
                low, high, step, log = rest
                make = IntDistribution if kind == "int" else FloatDistribution
                distributions[name] = make(low, high, step=step, log=log)
                continue
            choices = rest[0]
            if not _plain_choices(choices):
                self.as_json += [name] if name not in self.as_json else []
                choices, params[name] = [_text(one) for one in choices], _text(params[name])
            distributions[name] = CategoricalDistribution(choices)
        return Parameters(params, distributions, dict(result.get("user_attrs") or {}))


def _leaves(search_args: Any) -> dict[str, Leaf | list[Any]]:
    """Each setting by its flat name: its leaf, or the values that the rows of a ``Nested`` give it."""
    try:
        space: Container = build_space(search_args)
    except (OperantError, TypeError, AttributeError):
        try:
            return {one["name"]: leaf for one in search_args if (leaf := _described_leaf(one)) is not None}
        except (OperantError, TypeError, ValueError, AttributeError, KeyError):  # of whatever wrote that journal
            return {}
    found: dict[str, Leaf | list[Any]] = {}
    for argument in space.layout.arguments:
        if isinstance(argument.leaf, Nested):
            for key, flat in argument.row_names:
                found[flat] = [row[key] for row in argument.leaf.data if key in row]
        else:
            found[argument.name] = argument.leaf
    return found


def _described_leaf(argument: Mapping[str, Any]) -> Leaf | None:
    """An argument of a search from Python, as its journal describes it."""
    if argument["type"] == "Categorical":
        return Categorical(argument["data"])
    kind = {"Int": Int, "Real": Real}.get(argument["type"])
    step, log = argument.get("step", 1 if kind is Int else None), argument.get("log", False)
    return None if kind is None else kind(argument["low"], argument["high"], step=step, log=log)


def _distinct(values: Iterable[Any]) -> list[Any]:
    return [json.loads(text) for text in dict.fromkeys(_text(one) for one in values)]


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _plain_choices(choices: Sequence[Any]) -> bool:
    if not all(isinstance(one, _PLAIN) for one in choices):
        return False
    return all(a != b for place, a in enumerate(choices) for b in choices[:place])


def search_args_of(distributions: Sequence[Mapping[str, BaseDistribution]]) -> list[dict[str, Any]]:
    """The `search_args` that hold everything these trials were drawn from."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    by_name: dict[str, list[BaseDistribution]] = {}
    for of_trial in distributions:
        for name, one in of_trial.items():
            if one not in by_name.setdefault(name, []):
                by_name[name].append(one)
    found = []
    for name, kinds in by_name.items():
        if all(isinstance(one, IntDistribution) for one in kinds):
            kind = "Int"
        elif all(isinstance(one, (IntDistribution, FloatDistribution)) for one in kinds):
            kind = "Real"
        else:
            choices = [c for one in kinds if isinstance(one, CategoricalDistribution) for c in one.choices]
            found.append({"type": "Categorical", "name": name, "data": _distinct(choices)})
            continue
        spans: list[Any] = kinds
        argument: dict[str, Any] = {
            "type": kind,
            "name": name,
            "data": [min(one.low for one in spans), max(one.high for one in spans)],
        }
        step = spans[0].step
        if len(kinds) == 1 and step != (1 if kind == "Int" else None):
            argument["step"] = step
        if all(one.log for one in spans):
            argument["log"] = True
        found.append(argument)
    return found
