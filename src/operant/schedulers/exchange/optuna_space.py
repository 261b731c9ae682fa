"""A search space as Optuna's distributions, and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from operant._util.checks import is_number
from operant.errors import OperantError
from operant.space import Categorical, Container, Int, Leaf, Nested, Real, build_space

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

_PLAIN = (bool, int, float, str, type(None))


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

    def params(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return {name: _text(value) if name in self.as_json else value for name, value in config.items()}

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


def _leaves(search_args: Any) -> dict[str, Leaf | list[Any]]:
    """Each setting by its flat name: its leaf, or the values that the rows of a ``Nested`` give it."""
    try:
        space: Container = build_space(search_args)
    except (OperantError, TypeError, AttributeError):  # spaces that a program makes as it goes are in no file
        return {}
    found: dict[str, Leaf | list[Any]] = {}
    for argument in space.layout.arguments:
        if isinstance(argument.leaf, Nested):
            for key, flat in argument.row_names:
                found[flat] = [row[key] for row in argument.leaf.data if key in row]
        else:
            found[argument.name] = argument.leaf
    return found


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
        steps = {one.step for one in spans}
        if len(kinds) == 1 and steps not in ({None}, {1}):
            argument["step"] = steps.pop()
        if all(one.log for one in spans):
            argument["log"] = True
        found.append(argument)
    return found
