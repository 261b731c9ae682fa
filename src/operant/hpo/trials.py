"""The user's function as every site calls it: with a configuration and the number of the trial."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from operant.errors import UsageError
from operant.hpo.shape import Shape
from operant.sites import Submission
from operant.sites.function import Call

__all__ = ["call_of", "with_task_id"]

Function = Callable[[Any, int], Any]


def call_of(function: Callable[..., Any], shape: Shape) -> Call:
    """How a site calls it for a job."""
    call, build = with_task_id(function), shape.build

    def call_job(job: Submission) -> Any:
        return call(build(job.config), int(job.job_id) + 1)

    return call_job


def with_task_id(function: Callable[..., Any]) -> Function:
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
