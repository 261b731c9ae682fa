"""What ends a search, and what is dropped before it runs."""

from operant.schedulers.criteria.filters import (
    FILTER_CRITERIONS,
    BaseFilterCriterion,
    ExpressionFilter,
    build_filter_criterion,
)
from operant.schedulers.criteria.stops import (
    STOP_CRITERIONS,
    BaseStopCriterion,
    NaiveStopCriterion,
    StopCriteria,
    build_stop_criterion,
    get_current_time,
)

__all__ = [
    "FILTER_CRITERIONS",
    "STOP_CRITERIONS",
    "BaseFilterCriterion",
    "BaseStopCriterion",
    "ExpressionFilter",
    "NaiveStopCriterion",
    "StopCriteria",
    "build_filter_criterion",
    "build_stop_criterion",
    "get_current_time",
]
