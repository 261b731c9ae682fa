"""What another assessor would have done with a search that has run: from its journal and runs, without new runs.

The replay is causal. Reports are shown in the order in which they were made, each job's in its own order, and an
assessor sees of a job only what it had reported by then; once it is told to stop, the rest of its reports is never
shown. Ends are shown when they came, and only those of jobs that the assessor let finish.

What it cannot know: a slot that becomes free early would have been given to the next job sooner, and a searcher would
have seen other results. Jobs are therefore replayed as they were, at the times they had; a job that is paused and goes
on later is moved by the length of its pause.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from operant.assessors import ASSESSORS, AssessResult, BaseAssessor, build_assessor
from operant.errors import UsageError, unknown
from operant.registry import accepted_arguments
from operant.schedulers.engine.records import JobRecord
from operant.schedulers.engine.state import SearchState, read_state
from operant.schedulers.planning.rewards import Reports, RewardRule, SeedPlan
from operant.schedulers.views.recorded import job_history, recorded_rule
from operant.status import DONE, Status


@dataclass(frozen=True)
class Curve:
    """One job as it really went."""

    id: str
    number: int
    status: str
    reward: float | None
    reports: Reports
    times: list[float]
    """When each report came, in seconds; never decreasing."""
    ended: float


@dataclass(frozen=True)
class Recording:
    """Everything a replay needs of a search."""

    name: str
    curves: list[Curve]
    state: SearchState
    rule: RewardRule
    notes: list[str] = field(default_factory=list)

    @property
    def maximize(self) -> bool:
        return self.state.maximize

    @property
    def longest(self) -> int:
        return max((len(one.reports) for one in self.curves), default=0)

    @property
    def furthest(self) -> int:
        return max((int(one.reports[-1]["iteration"]) for one in self.curves if one.reports), default=0)


@dataclass(frozen=True)
class ReplayResult:
    """What an assessor would have saved, and at what price."""

    assessor: str
    options: dict[str, Any]
    jobs: int
    stopped: dict[str, int]
    """Job -> after how many of its reports it would have been stopped."""
    steps: int
    steps_saved: int
    seconds: float
    seconds_saved: float
    best: tuple[int, float] | None
    """Number and reward of the best proposal of the search as it was."""
    best_stopped_after: int | None
    """After how many reports the best would have been stopped; None: it would have run to its end."""
    found: tuple[int, float] | None
    """Number of the proposal that would have been the best, and the reward it would have had then."""
    found_real: float | None
    """The reward that this proposal really had at its end."""

    @property
    def best_kept(self) -> bool | None:
        return None if self.best is None else self.best_stopped_after is None

    def to_mapping(self) -> dict[str, Any]:
        def named(pair: tuple[int, float] | None) -> dict[str, Any] | None:
            return None if pair is None else {"number": pair[0], "reward": pair[1]}

        return {
            "assessor": self.assessor,
            "options": self.options,
            "jobs": self.jobs,
            "stopped": self.stopped,
            "steps": self.steps,
            "steps_saved": self.steps_saved,
            "seconds": self.seconds,
            "seconds_saved": self.seconds_saved,
            "best": named(self.best),
            "best_kept": self.best_kept,
            "best_stopped_after": self.best_stopped_after,
            "found": named(self.found),
            "found_real": self.found_real,
        }


def read_recording(folder: Path) -> Recording:
    """Read every job's reports; an error when there are none to judge by."""
    state, _ = read_state(folder)
    rule = recorded_rule(state.opened)
    curves, even, cut = [], 0, 0
    for job in state.jobs.values():
        if job.is_check or job.status not in DONE or job.started is None or job.ended is None:
            continue
        history = job_history(folder, job.id, rule, state)
        if not history:
            continue
        times = _times(history, job, printed=rule.pattern is not None)
        even += rule.pattern is not None
        cut += job.status == Status.STOPPED
        curves.append(Curve(job.id, job.number, job.status, job.reward, history, times, max(times[-1], job.ended)))
    if not curves:
        raise UsageError(
            f"no job of the search {folder.name!r} has recorded {rule.attribute!r} on its way: "
            "there is nothing that an assessor could have judged"
        )
    notes = []
    if even:
        notes.append("printed reports carry no time: they are taken to have come evenly over each job")
    if cut:
        notes.append(f"{cut} jobs were stopped early when the search ran: what they would have reached is not known")
    return Recording(folder.name, curves, state, rule, notes)


def _times(history: Reports, job: JobRecord, *, printed: bool) -> list[float]:
    assert job.started is not None and job.ended is not None
    if printed:
        part = max(0.0, job.ended - job.started) / len(history)
        return [job.started + part * place for place in range(1, len(history) + 1)]
    # Whole milliseconds, or another machine's clock: no report came before its job began.
    times, latest = [], job.started
    for report in history:
        latest = max(latest, report["created"] / 1000)
        times.append(latest)
    return times


def find_assessor(word: str) -> str:
    """The registered name that a user means: `asha`, `AshaAssessor`, `curve_fitting`, `median`."""
    by_short = {_short(name): name for name in ASSESSORS.names}
    if word in ASSESSORS:
        return word
    if _short(word) not in by_short:
        raise UsageError(unknown("assessor", word, [one.lower() for one in by_short]))
    return by_short[_short(word)]


def _short(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "").removesuffix("assessor").removesuffix("stop")


def assessor_for(recording: Recording, name: str, options: Mapping[str, Any]) -> tuple[BaseAssessor, dict[str, Any]]:
    """An assessor for this search, and all its options: what it must know of the search is taken from there."""
    full = find_assessor(name)
    allowed, required, takes_any = accepted_arguments(ASSESSORS.get(full))
    chosen = dict(options)
    if "optimize_mode" in allowed or takes_any:
        chosen.setdefault("optimize_mode", "maximize" if recording.maximize else "minimize")
    for key in ("max_step", "epoch_num"):
        if key in required:
            by_iteration = chosen.get("resource") == "iteration"
            chosen.setdefault(key, recording.furthest if by_iteration else recording.longest)
    return build_assessor({"type": full, **chosen}), chosen


def replay(recording: Recording, name: str, options: Mapping[str, Any] | None = None) -> ReplayResult:
    """Show the recorded reports to an assessor and see whom it would have stopped, and when."""
    assessor, chosen = assessor_for(recording, name, options or {})
    stopped, seconds_saved = _judge(recording.curves, assessor)
    curves = {one.id: one for one in recording.curves}
    best = recording.state.best
    best_pair = None if best is None or best.reward is None else (best.number, best.reward)
    ends = [after for job, after in stopped.items() if best is not None and curves[job].number == best.number]
    found, found_real = _found(recording, stopped)
    return ReplayResult(
        assessor=find_assessor(name),
        options=chosen,
        jobs=len(curves),
        stopped=stopped,
        steps=sum(len(one.reports) for one in curves.values()),
        steps_saved=sum(len(curves[job].reports) - after for job, after in stopped.items()),
        seconds=sum(_seconds(recording.state.jobs[job]) for job in curves),
        seconds_saved=seconds_saved,
        best=best_pair,
        best_stopped_after=min(ends, default=None),
        found=found,
        found_real=found_real,
    )


def _judge(curves: Sequence[Curve], assessor: BaseAssessor) -> tuple[dict[str, int], float]:
    """Job -> after how many reports it was stopped; and the seconds of jobs that were saved by it."""
    # (time, order of start, job, place): the place behind the last report is the job's end.
    events = [(one.times[0], start, one, 0) for start, one in enumerate(curves)]
    heapq.heapify(events)
    shown: dict[str, Reports] = {one.id: [] for one in curves}
    late: dict[str, float] = {}
    paused: dict[str, tuple[float, int, Curve, int]] = {}
    stopped: dict[str, int] = {}
    saved = 0.0
    promotions = getattr(assessor, "promotions", tuple)  # a user's own assessor need not know of pauses
    while events:
        now, start, job, place = heapq.heappop(events)
        if place == len(job.reports):
            if job.status == Status.FINISHED:
                assessor.job_end(job.id)
        else:
            shown[job.id].append(job.reports[place])
            answer = assessor.assess_job(job.id, shown[job.id])
            last = place == len(job.reports) - 1
            # At its last report a job has done its work: there is nothing left to stop.
            if answer is AssessResult.Bad and not last:
                stopped[job.id] = place + 1
                saved += job.ended - job.times[place]
                continue
            following = job.ended if last else job.times[place + 1]
            event = (following + late.get(job.id, 0.0), start, job, place + 1)
            if answer is AssessResult.Pause and not last:
                paused[job.id] = (now, *event[1:])
            else:
                heapq.heappush(events, event)
        for going in [one for one in promotions() if one in paused]:
            since, start, job, place = paused.pop(going)
            late[going] = late.get(going, 0.0) + now - since
            following = job.times[place] + late[going]
            heapq.heappush(events, (following, start, job, place))
    for _, _, job, place in paused.values():  # nobody let them go on
        stopped[job.id] = place
        saved += job.ended - job.times[place - 1]
    return stopped, saved


def _found(recording: Recording, stopped: Mapping[str, int]) -> tuple[tuple[int, float] | None, float | None]:
    """What the search would have called its best, and what that one really reached."""
    state, rule = recording.state, recording.rule
    curves = {one.id: one for one in recording.curves}
    reduce = _seed_plan(state)
    by_number: dict[int, list[JobRecord]] = {}
    for job in state.jobs.values():
        if not job.is_check:
            by_number.setdefault(job.number, []).append(job)
    found: tuple[int, float] | None = None
    for proposal in state.proposals.values():
        if proposal.reward is None or proposal.reward != proposal.reward or proposal.raced_out:
            continue
        rewards = []
        for job in by_number.get(proposal.number, ()):
            seen = stopped.get(job.id)
            if seen is not None:
                rewards.append(rule.reward_of([float(one["value"]) for one in curves[job.id].reports[:seen]]))
            else:
                rewards.append(job.reward)
        known = [one for one in rewards if one is not None]
        if not known or len(known) < len(rewards):
            continue
        changed = any(job.id in stopped for job in by_number[proposal.number])
        reward = reduce.reward(known) if changed else proposal.reward
        if found is None or (reward > found[1] if recording.maximize else reward < found[1]):
            found = (proposal.number, reward)
    return found, None if found is None else state.proposals[found[0]].reward


def _seed_plan(state: SearchState) -> SeedPlan:
    config = state.opened.get("config") or {}
    scheduler = config.get("scheduler")
    inside = scheduler.get("seed_reward") if isinstance(scheduler, Mapping) else None
    return SeedPlan(reduce=str(config.get("seed_reward") or inside or "mean"), maximize=state.maximize)


def _seconds(job: JobRecord) -> float:
    return max(0.0, (job.ended or 0.0) - (job.started or 0.0))
