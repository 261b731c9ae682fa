"""Writes a search that another tool ran as one of ours: a journal as its controller would have kept, and its runs."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from operant.errors import UsageError
from operant.sites.code import remove_tree
from operant.status import USABLE, Status
from operant.tracking.identity import process_identity
from operant.tracking.journal import Journal, controller_is_alive
from operant.tracking.places import check_run_id
from operant.tracking.recording.recorder import Recorder


@dataclass(frozen=True)
class ForeignTrial:
    """One configuration that was tried, and what came of it; times are in seconds since 1970."""

    number: int
    config: Mapping[str, Any]
    status: str
    """FINISHED, STOPPED (early, by a rule), KILLED or ERROR."""
    started: float
    ended: float
    reward: float | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    reports: Sequence[tuple[int, float, float]] = ()
    """(step, time, value) of each intermediate report, oldest first."""


def write_search(
    folder: Path,
    config: Mapping[str, Any],
    trials: Sequence[ForeignTrial],
    *,
    reward: str,
    maximize: bool,
    source: str,
    force: bool = False,
) -> None:
    """Make the search ``folder`` of ``trials``; when anything goes wrong nothing is left behind."""
    check_run_id(folder.name)
    if len({one.number for one in trials}) != len(trials):
        raise UsageError(f"two trials of {source} have the same number")
    if folder.exists():
        if not force:
            raise UsageError(
                f"there is a search {folder.name!r} already; --force replaces it, --task gives another name"
            )
        if controller_is_alive(folder):
            raise UsageError(f"the search {folder.name!r} is running")
    folder.parent.mkdir(parents=True, exist_ok=True)
    staged = folder.parent / f".import-{secrets.token_hex(6)}"
    try:
        _write_journal(staged, folder.name, config, trials, reward, maximize, source)
        for one in trials:
            if one.reports:
                _write_run(staged / "jobs" / str(one.number) / "run", f"{folder.name}/{one.number}", reward, one)
        if folder.exists():
            aside = folder.with_name(f".replaced-{secrets.token_hex(6)}")
            folder.rename(aside)
            remove_tree(aside)
        staged.rename(folder)
    finally:
        if staged.exists():
            remove_tree(staged)


def _write_journal(
    folder: Path,
    name: str,
    config: Mapping[str, Any],
    trials: Sequence[ForeignTrial],
    reward: str,
    maximize: bool,
    source: str,
) -> None:
    who = process_identity()
    with Journal.open(folder) as journal:
        journal.append(
            "opened",
            name=name,
            config=config,
            digest=f"imported from {source}",
            maximize=maximize,
            reward=reward,
            scalars=[reward],
            compare={},
            origin={"file": None, "source": None, "symlinks": [], "imported": source},
            host=who["host"],
            pid=who["pid"],
            wall=min((one.started for one in trials), default=0.0),
        )
        for kind, record in _records(trials):
            journal.append(kind, **record)
        journal.append(
            "closed",
            status=Status.FINISHED,
            reason=f"imported from {source}",
            wall=max((one.ended for one in trials), default=0.0),
        )


def _records(trials: Sequence[ForeignTrial]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What a controller would have journaled, in the order in which it happened."""
    moments = [(one.started, 0, one.number, one) for one in trials]
    moments += [(max(one.started, one.ended), 1, one.number, one) for one in trials]
    for _, ended, number, one in sorted(moments, key=lambda moment: moment[:3]):
        job = str(number)
        if not ended:
            yield "proposed", {"number": number, "config": dict(one.config)}
            yield "submitting", {"job": job, "number": number, "seed": None, "attempt": 1, "token": ""}
            yield "started", {"job": job, "attempt": 1, "wall": one.started}
            continue
        found = {"reward": one.reward, "started": one.started}
        known = {key: value for key, value in found.items() if value is not None}
        yield "ended", {"job": job, "attempt": 1, "status": one.status, "wall": one.ended, **known}
        yield "observed", {"number": number, "status": one.status, "values": dict(one.values), "reward": one.reward}


def _write_run(folder: Path, run_id: str, tag: str, trial: ForeignTrial) -> None:
    recorder = Recorder(folder, run_id, run_id, role="main", attempt=1, system_metrics=False, collect_provenance=False)
    recorder.record("hparams", params=dict(trial.config), metrics=[tag])
    steps, walls, values = zip(*trial.reports, strict=True)
    recorder.add_array(tag, np.array(steps, "<i8"), np.array(walls, "<f8"), np.array(values, "<f8"))
    recorder.end(Status.FINISHED if trial.status in USABLE else trial.status)
