"""After every event, folding the journal gives the live state: whatever happens, in simulated time."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.schedulers.scenarios import REALS, awkward, config, simulated

from operant.schedulers import NaiveScheduler, Scheduler
from operant.schedulers.engine.live_state import LiveState
from operant.schedulers.engine.records import JobRecord, ProposalRecord
from operant.schedulers.engine.state import SearchState
from operant.sites import Simulation, Submission
from operant.status import UNDER_WAY
from operant.tracking.journal import JournalReader

ASHA = {"type": "AshaAssessor", "min_step": 1, "reduction_factor": 2, "max_step": 4, "rest": "pause"}
MEDIAN = {"type": "MedianStopAssessor", "start_step": 1}


class Died(Exception):
    """The controller dies here, without a word."""


def plain(value: Any) -> Any:
    """A status is a text."""
    return str(value) if isinstance(value, str) else value


def told(state: SearchState) -> dict[str, Any]:
    """All that a journal can say of a search; what only a controller knows is told apart below."""
    return {
        "jobs": [[plain(getattr(job, name)) for name in JobRecord.__slots__] for job in state.jobs.values()],
        "proposals": [
            [plain(getattr(one, name)) for name in ProposalRecord.__slots__] for one in state.proposals.values()
        ],
        "observed": state.observed,
        "best": None if state.best is None else state.best.number,
        "tries": state.tries,
        "messages": state.messages,
        "limits": state.limits,
        "checks": {number: {**one, "type": None} for number, one in state.checks.items()},
        "paused": state.paused,
        "stopping": state.stopping and state.stopping["reason"],
        "seconds": round(state.seconds_before, 6),
    }


class Fold:
    """Somebody who reads the journal as it is written."""

    def __init__(self, folder: Path) -> None:
        self.reader = JournalReader(folder)
        self.state = SearchState()

    def read(self) -> SearchState:
        return self.state.fold_all(line for _, _, line in self.reader.poll_lines())


def compare(state: LiveState, follower: Fold) -> None:
    state.commit()
    fold = follower.read()
    live, expected = told(state), told(fold)
    for what in expected:
        assert repr(live[what]) == repr(expected[what]), what  # as text: what is no number equals nothing
    best = fold.best
    assert best is None or best is fold.ranking()[0]
    # The queues, as far as the journal knows of them.
    assert {attempt.job.token for attempt in state.running.values()} == {
        job.token for job in fold.jobs.values() if job.status in UNDER_WAY
    }
    open_ones = {one.number for one in fold.proposals.values() if one.status is None and not one.filtered}
    assert open_ones <= set(state.trials)
    for job in state.waiting:
        assert (job.id in fold.jobs) == (job.attempt > 0)


def checked(scheduler: Scheduler, events: list[str]) -> Scheduler:
    """Compare after each event, and whenever slots were filled."""
    handle, dispatch, follower = scheduler._handle, scheduler._dispatcher.dispatch, Fold(scheduler.folder)

    def after(call: Callable[..., None], what: str) -> Callable[..., None]:
        def called(*arguments: Any) -> None:
            call(*arguments)
            events.append(what)
            compare(scheduler.state, follower)

        return called

    scheduler._handle = after(handle, "event")  # type: ignore[method-assign]
    scheduler._dispatcher.dispatch = after(dispatch, "dispatch")  # type: ignore[method-assign]
    return scheduler


def behaviour(seed: int) -> Callable[[Submission], Simulation]:
    """Each attempt does something else, the same each time it is asked."""

    def behave(job: Submission) -> Simulation:
        rng = random.Random(f"{seed} {job.job_id} {job.attempt}")
        value = float(rng.randrange(8))
        reports = [(0.3 * step, "acc", step, value + step) for step in range(rng.randrange(6))]
        kind = rng.choice(["good", "good", "good", "fails", "hangs", "tells nothing", "is slow to end"])
        if kind == "fails":
            return Simulation(rng.uniform(0.1, 2.0), code=1, error=rng.choice([None, "ValueError"]), reports=reports)
        if kind == "hangs":
            return Simulation(never_ends=True, reports=reports)
        slow = 1.5 if kind == "is slow to end" else 0.0
        values = {} if kind == "tells nothing" else {"acc": value, "loss": 1.0}
        return Simulation(rng.uniform(0.1, 3.0), values, reports=reports, ignores_cancel_for=slow)

    return behave


def plans() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {"parallel_size": st.integers(1, 4), "stop_criterion": st.just({"time_limits_per_job": "4s"})},
        optional={
            "max_retries": st.integers(0, 2),
            "no_report_timeout": st.just("2s"),
            "assessor": st.sampled_from([ASHA, MEDIAN]),
            "filter_criterion": st.just("x > 6"),
            "seeds": st.integers(2, 3),
            "final_check": st.just({"top": 2, "seeds": 2}),
        },
    )


MESSAGES = st.dictionaries(
    st.floats(0.1, 8.0),
    st.sampled_from(
        [
            {"type": "pause"},
            {"type": "resume"},
            {"type": "limits", "parallel_size": 3},
            {"type": "limits", "max_tries": 4},
            {"type": "limits", "max_tries": "many"},
            {"type": "note", "text": "a note"},
            {"type": "stop", "jobs": ["1", "2", "3-s0"]},
            {"type": "stop"},
        ]
    ),
    max_size=3,
)


@settings(max_examples=20, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(plan=plans(), messages=MESSAGES, seed=st.integers(0, 10**6), dies=st.none() | st.floats(0.1, 10.0))
def test_folding_the_journal_gives_the_live_state(
    plan: dict[str, Any], messages: dict[float, dict[str, Any]], seed: int, dies: float | None
) -> None:
    plan = {**plan, "retry_delay": 1}
    if "seeds" in plan and plan["seeds"] == 3:
        plan["racing"] = True
    last = {9.0: {"type": "resume"}}  # else nothing would ever end it
    cfg = config(plan, {"optimize_mode": "minimize"} if seed % 2 else None)
    with TemporaryDirectory() as place:
        folder, events = Path(place) / "s", list[str]()
        first = checked(simulated(folder, cfg, behaviour(seed), {**messages, **last}), events)
        if dies is not None:

            def die() -> list[object]:
                raise Died

            first.clock.plan(dies, die)  # type: ignore[attr-defined]
            first._abandon = first._close = lambda: None  # type: ignore[method-assign]
        try:
            first.run()
        except Died:
            second = checked(simulated(folder, cfg, behaviour(seed), last, resume=True), events)
            second.run()
        assert events


def test_folding_the_journal_gives_the_live_state_of_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finish, count, follower = LiveState.finish_inline, 0, Fold(tmp_path / "s")

    def finished(self: LiveState, *arguments: Any) -> None:
        nonlocal count
        finish(self, *arguments)
        count += 1
        compare(self, follower)

    monkeypatch.setattr(LiveState, "finish_inline", finished)
    searcher = {"type": "RandomSearcher", "seed": 5}
    cfg = config({"stop_criterion": {"max_tries": 40}}, searcher, search_args=REALS)
    NaiveScheduler(tmp_path / "s", cfg, function=awkward, source=tmp_path).run()
    assert count >= 10


def test_a_state_that_nobody_holds_is_freed_at_once() -> None:
    """A server folds many; with a cycle in each, all their jobs would wait for the garbage collector."""
    records: list[dict[str, Any]] = [{"type": "opened", "config": {}}]
    records += [{"type": "proposed", "number": number, "config": {"x": number}} for number in range(3)]
    gc.disable()
    try:
        state = SearchState().fold_all(records)
        assert len(state.proposals) == 3
        gone = weakref.ref(state)
        del state
        assert gone() is None
    finally:
        gc.enable()
