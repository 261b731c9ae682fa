"""A search space in the shape of the configuration: nested dicts, lists and tuples, in which values may vary."""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from operant.errors import UsageError
from operant.hpo.arguments import Argument, check_budget, make_argument, thinned
from operant.hpo.values import HyperValue
from operant.sites import Submission
from operant.sites.function import Call
from operant.space import Dict


class Shape:
    """Flat for searchers and the journal (`policy.learn.lr`, `layers[0]`), nested for the function."""

    def __init__(self, nested: Any, axes: Mapping[str, Argument] | None = None) -> None:
        self.nested = nested
        found = dict(_walk(nested, ""))
        if not found:
            raise UsageError(
                "there is nothing to search: spaces(…) has no uniform, quniform, choice, randint or randn in it"
            )
        self.axes = dict(axes) if axes is not None else {name: make_argument(value) for name, value in found.items()}
        self.space = Dict({name: argument.leaf for name, argument in self.axes.items()})
        finishers = {name: argument.finish for name, argument in self.axes.items()}
        self._build = _builder(nested, "", finishers)
        self._finishers = {name: finish for name, finish in finishers.items() if finish is not None}
        self._changed = {name: finish for name, finish in self._finishers.items() if self.axes[name].then}

    def build(self, flat: Mapping[str, Any]) -> Any:
        """The configuration that the function gets; every call makes new containers."""
        return self._build(flat)

    def finished(self, flat: Mapping[str, Any]) -> Mapping[str, Any]:
        """By flat name what the function gets: 64 where `2 ** randint(4, 6)` was searched as 6."""
        found = dict(flat)
        for name, finish in self._finishers.items():
            try:
                found[name] = finish(flat[name])
            except (
                Exception
            ):  # the user's own code, which has failed the trial before; what was searched is left to tell
                continue
        return found

    def shown(self, flat: Mapping[str, Any]) -> dict[str, Any] | None:
        """What of :meth:`finished` is another plain value than the one that was searched."""
        if not self._changed:
            return None
        found: dict[str, Any] = {}
        for name, finish in self._changed.items():
            with contextlib.suppress(Exception):  # the user's own code; the trial says what is wrong with it
                value = finish(flat[name])
                value = value.item() if isinstance(value, np.generic) else value
                if isinstance(value, (bool, int, float, str)) and value != flat[name]:
                    found[name] = value
        return found or None

    def describe(self) -> list[dict[str, Any]]:
        return [{"name": name, **argument.describe()} for name, argument in self.axes.items()]

    def gridded(self, max_steps: int | None) -> Shape:
        """The same shape with so few values on each argument that all combinations are at most `max_steps`."""
        axes = list(self.axes.values())
        if any(math.isinf(argument.size) for argument in axes):
            check_budget(max_steps)
        counts = _split([argument.size for argument in axes], [argument.is_choice for argument in axes], max_steps)
        thin = [thinned(argument, count) for argument, count in zip(axes, counts, strict=True)]
        return Shape(self.nested, dict(zip(self.axes, thin, strict=True)))


def _split(sizes: list[int | float], is_choice: list[bool], budget: int | None) -> list[int]:
    """How many values each argument of a grid gets.

    Choices come first, because what lies between two of them is unknown; then whatever has few values; what is
    continuous shares the rest. Within each kind the argument that has fewest values gets the next one.
    """
    if budget is None or math.prod(sizes) <= budget:
        return [int(size) for size in sizes]
    counts = [1] * len(sizes)
    kinds = (
        [i for i, choice in enumerate(is_choice) if choice],
        [i for i, choice in enumerate(is_choice) if not choice and math.isfinite(sizes[i])],
        [i for i, size in enumerate(sizes) if math.isinf(size)],
    )
    for kind in kinds:
        if not kind:
            continue
        share = int((budget / math.prod(counts)) ** (1 / len(kind)) * (1 + 1e-12))
        for i in kind:
            counts[i] = int(min(max(share, 1), sizes[i]))
        grows = True
        while grows:
            grows = False
            for i in sorted(kind, key=lambda i: counts[i]):
                if counts[i] < sizes[i] and math.prod(counts) // counts[i] * (counts[i] + 1) <= budget:
                    counts[i] += 1
                    grows = True
                    break
    return counts


def _walk(part: Any, name: str) -> Iterator[tuple[str, HyperValue]]:
    """Every place in the shape that may vary, by its flat name."""
    if isinstance(part, HyperValue):
        yield name or "value", part
    elif isinstance(part, Mapping):
        names = [_join(name, key) for key in part]
        if len(set(names)) < len(names):
            raise UsageError(f"two keys of {name or 'the space'} have the same name: {', '.join(map(repr, part))}")
        for key, child in part.items():
            yield from _walk(child, _join(name, key))
    elif isinstance(part, (list, tuple)):
        for i, child in enumerate(part):
            yield from _walk(child, f"{name}[{i}]")


def _join(name: str, key: Any) -> str:
    # A dot inside a key must not look like two keys.
    text = str(key).replace(".", "\\.")
    return f"{name}.{text}" if name else text


Build = Callable[[Mapping[str, Any]], Any]


def _builder(part: Any, name: str, finishers: Mapping[str, Any]) -> Build:
    """A function that fills the shape; which parts vary is looked up once and not for each trial."""
    if isinstance(part, HyperValue):
        flat = name or "value"
        finish = finishers[flat]
        return (lambda config: config[flat]) if finish is None else (lambda config: finish(config[flat]))
    if isinstance(part, Mapping):
        make = _mapping_maker(part)
        chosen = [(key, _join(name, key)) for key in part]
        if all(isinstance(child, HyperValue) and finishers[_join(name, key)] is None for key, child in part.items()):
            return lambda config: make({key: config[flat] for key, flat in chosen})
        parts = {key: _builder(child, _join(name, key), finishers) for key, child in part.items()}
        return lambda config: make({key: build(config) for key, build in parts.items()})
    if isinstance(part, (list, tuple)):
        items = [_builder(child, f"{name}[{i}]", finishers) for i, child in enumerate(part)]
        if type(part) is list:
            return lambda config: [build(config) for build in items]
        again = part._make if hasattr(part, "_make") else type(part)
        return lambda config: again([build(config) for build in items])
    return lambda config: part


def _mapping_maker(part: Mapping[Any, Any]) -> Callable[[dict[Any, Any]], Any]:
    """The container's own type where it can be made from a dict, as EasyDict and OrderedDict can."""
    kind = type(part)
    if kind is dict:
        return lambda found: found
    try:
        kind({})  # type: ignore[call-arg]
    except Exception:
        return lambda found: found
    return kind


def call_of(function: Callable[..., Any], shape: Shape) -> Call:
    """How a site calls it for a job."""
    call, build = with_task_id(function), shape.build

    def call_job(job: Submission) -> Any:
        return call(build(job.config), int(job.job_id) + 1)

    return call_job


def with_task_id(function: Callable[..., Any]) -> Callable[[Any, int], Any]:
    """The function as one of (config, task_id), whether it wants the second or not."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # some built-in functions tell nothing of themselves
        return lambda config, task_id: function(config)
    places = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    any_number = any(one.kind is one.VAR_POSITIONAL for one in parameters)
    if not places and not any_number:
        raise UsageError(f"{_name_of(function)} takes no argument, but is to be called with a configuration")
    surplus = [one.name for one in places[2:] if one.default is one.empty]
    surplus += [one.name for one in parameters if one.kind is one.KEYWORD_ONLY and one.default is one.empty]
    if surplus:
        raise UsageError(
            f"{_name_of(function)} is called with (config) or (config, task_id), but also needs {', '.join(surplus)}; "
            f"functools.partial can give it that"
        )
    # A second argument with a default is the function's own affair unless it says that it is the task's id.
    wants = len(places) > 1 and (places[1].default is places[1].empty or places[1].name == "task_id")
    if wants or (any_number and len(places) < 2):
        return function
    return lambda config, task_id: function(config)


def _name_of(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", type(function).__qualname__))
