"""Limits of jobs, and those of a search that may be changed while it runs, and stay changed when it is gone on with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from operant._util.checks import whole_number
from operant._util.units import parse_bytes, parse_duration
from operant.errors import ConfigError
from operant.schedulers.criteria.stops import parse_tries
from operant.sites.base import Limits

if TYPE_CHECKING:
    from operant.schedulers.planning.plan import SearchPlan


LIMITS: dict[str, Callable[[Any], Any]] = {
    "parallel_size": lambda value: whole_number(value, "parallel_size", 1),
    "max_tries": parse_tries,
    "time_limits": lambda value: parse_duration(value, ("time_limits",), bare_unit="h"),
}
"""What a `limits` message may change, and how it is read."""


def parse_limits(scheduler: Mapping[str, Any], seconds: float | None) -> Limits:
    """What one job may use."""
    memory = scheduler.get("memory_limit")
    grace = parse_duration(scheduler.get("grace_period", 5), ("grace_period",), bare_unit="s")
    return Limits(
        seconds=seconds,
        memory_bytes=None if memory is None else parse_bytes(memory, ("memory_limit",)),
        output_bytes=parse_bytes(scheduler.get("output_limit", 16 << 20), ("output_limit",)),
        grace_seconds=5.0 if grace is None else grace,
    )


def limits_of(plan: SearchPlan) -> dict[str, Any]:
    """The limits as the plan has them now."""
    rules = plan.stop.rules
    return {"parallel_size": plan.parallel_size, "max_tries": rules.max_tries, "time_limits": rules.time_limits}


def set_limit(plan: SearchPlan, name: str, value: Any) -> None:
    """Another limit from now on; the value has been read already."""
    if name == "parallel_size":
        plan.parallel_size = value
    else:
        setattr(plan.stop.rules, name, value)


def last_valid(told: Mapping[str, Sequence[Any]], name: str, otherwise: Any) -> Any:
    """What messages made of a limit: the last of its values that can be."""
    for value in reversed(told.get(name, ())):
        try:
            return LIMITS[name](value)
        except ConfigError:
            continue
    return otherwise
