"""Which proposals are dropped before they cost anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from operant._util.conditions import Condition
from operant.errors import ConfigError
from operant.registry import Registry

FILTER_CRITERIONS = Registry("filter criterion", "operant.filter_criterions")


class BaseFilterCriterion:
    """Says of a proposal whether to drop it before it runs."""

    def filter(self, job: Any) -> bool:
        """True drops the job. Called once for each proposal, after it is in the journal and before it costs a try;
        the settings are in ``job.arg_dict``, and the job has no seed and no status that means anything yet."""
        raise NotImplementedError


@FILTER_CRITERIONS.register_module()
class ExpressionFilter(BaseFilterCriterion):
    """Drops what fits a condition such as ``batch-size >= 512 and config(epochs) > 4``."""

    def __init__(self, expression: str, names: Iterable[str] = ()) -> None:
        self.expression = expression
        self._names = list(names)
        self._parsed: Condition | None = Condition(expression, self._names) if self._names else None

    def filter(self, job: Any) -> bool:
        if self._parsed is None:
            return Condition(self.expression, job.arg_dict)(job.arg_dict)
        return self._parsed(job.arg_dict)


class AnyFilter(BaseFilterCriterion):
    """Drops what any of several criteria drops."""

    def __init__(self, criteria: Sequence[BaseFilterCriterion]) -> None:
        self.criteria = list(criteria)

    def filter(self, job: Any) -> bool:
        return any(criterion.filter(job) for criterion in self.criteria)


def build_filter_criterion(cfg: Any, names: Iterable[str] = ()) -> BaseFilterCriterion | None:
    """A condition (a text), a mapping with a ``type``, or a list of these; None for nothing at all.

    ``names`` are the arguments there are, so that a misspelt one is found before anything runs.
    """
    if cfg is None:
        return None
    if isinstance(cfg, str):
        return ExpressionFilter(cfg, names)
    if isinstance(cfg, Mapping):
        if "type" not in cfg and "expression" in cfg:
            cfg = {"type": "ExpressionFilter", **cfg}
        if cfg.get("type") == "ExpressionFilter":
            cfg = {**cfg, "names": list(names)}
        built: BaseFilterCriterion = FILTER_CRITERIONS.build(cfg)
        return built
    if isinstance(cfg, Sequence):
        criteria = []
        for place, one in enumerate(cfg):
            try:
                criterion = build_filter_criterion(one, names)
            except ConfigError as error:
                raise error.under(place) from None
            if criterion is not None:
                criteria.append(criterion)
        return AnyFilter(criteria)
    raise ConfigError(f"a filter is a condition or a mapping with a `type`, not {cfg!r}")
