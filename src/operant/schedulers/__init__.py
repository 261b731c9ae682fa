"""Runs searches: the loop, its criteria, and everything that is read from a search's YAML.

Names are loaded when they are first used: commands that only look at a search load none of this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from operant._lazy import load_when_used

if TYPE_CHECKING:
    from operant.assessors import build_assessor
    from operant.schedulers.criteria import (
        FILTER_CRITERIONS,
        STOP_CRITERIONS,
        BaseFilterCriterion,
        BaseStopCriterion,
        build_filter_criterion,
        build_stop_criterion,
        get_current_time,
    )
    from operant.schedulers.engine.scheduler import Outcome, Scheduler
    from operant.schedulers.job import Job, LocalJob
    from operant.schedulers.mujoco_scheduler import MujocoJob, MujocoScheduler
    from operant.schedulers.naive_scheduler import BaseScheduler, NaiveScheduler
    from operant.schedulers.planning.plan import SearchPlan, load_plan, make_plan

__all__ = [
    "FILTER_CRITERIONS",
    "STOP_CRITERIONS",
    "BaseFilterCriterion",
    "BaseScheduler",
    "BaseStopCriterion",
    "Job",
    "LocalJob",
    "MujocoJob",
    "MujocoScheduler",
    "NaiveScheduler",
    "Outcome",
    "Scheduler",
    "SearchPlan",
    "build_assessor",
    "build_filter_criterion",
    "build_stop_criterion",
    "get_current_time",
    "load_plan",
    "make_plan",
]

_CRITERIA = "operant.schedulers.criteria"
_HOMES = {
    "FILTER_CRITERIONS": _CRITERIA,
    "STOP_CRITERIONS": _CRITERIA,
    "BaseFilterCriterion": _CRITERIA,
    "BaseStopCriterion": _CRITERIA,
    "build_filter_criterion": _CRITERIA,
    "build_stop_criterion": _CRITERIA,
    "get_current_time": _CRITERIA,
    "build_assessor": "operant.assessors",
    "Job": "operant.schedulers.job",
    "LocalJob": "operant.schedulers.job",
    "MujocoJob": "operant.schedulers.mujoco_scheduler",
    "MujocoScheduler": "operant.schedulers.mujoco_scheduler",
    "BaseScheduler": "operant.schedulers.naive_scheduler",
    "NaiveScheduler": "operant.schedulers.naive_scheduler",
    "SearchPlan": "operant.schedulers.planning.plan",
    "load_plan": "operant.schedulers.planning.plan",
    "make_plan": "operant.schedulers.planning.plan",
    "Outcome": "operant.schedulers.engine.scheduler",
    "Scheduler": "operant.schedulers.engine.scheduler",
}

__getattr__ = load_when_used(__name__, _HOMES)
