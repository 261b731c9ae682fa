"""What the jobs of a search reported, read back from their folders by the rule that the search was begun with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from operant.errors import OperantError
from operant.schedulers.engine.state import SearchState
from operant.schedulers.planning.rewards import JobReader, RewardRule


def recorded_rule(opened: Mapping[str, Any]) -> RewardRule:
    """The rule by which reports became rewards, from the record that opened the search."""
    task, searcher = _section(opened, "task"), _section(opened, "searcher")
    reduce, pattern = (
        searcher.get(key) if searcher.get(key) is not None else task.get(key) for key in ("reward", "pattern")
    )
    return RewardRule.parse(str(opened.get("reward", "acc")), reduce, pattern)


def job_reader(folder: Path, job_id: str, rule: RewardRule) -> JobReader:
    """Reads what a job reports, wherever it does so: its run, its output, or its TensorBoard files."""
    job = folder / "jobs" / job_id
    return JobReader(job, job / "work", rule)


def job_history(folder: Path, job_id: str, rule: RewardRule, state: SearchState) -> list[dict[str, Any]]:
    """What a job that has ended reported, as assessors take it: a function's reports are in the journal, a program's
    in its folder. Empty if there is nothing, or nothing that can be read."""
    reported = state.reports.get(job_id)
    if reported is not None:
        return [{"iteration": step, "value": value, "created": round(wall * 1000)} for step, value, wall in reported]
    reader = job_reader(folder, job_id, rule)
    try:
        reader.refresh(ended=True)
    except (OperantError, OSError):
        return []
    return reader.history()


def _section(opened: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    config = opened.get("config")
    section = config.get(name) if isinstance(config, Mapping) else None
    return section if isinstance(section, Mapping) else {}
