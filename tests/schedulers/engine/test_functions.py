"""Searches of functions: reports, and the short way through the scheduler, which must leave what the loop leaves."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.schedulers.simulated import config

from operant.schedulers import NaiveScheduler
from operant.schedulers.analysis.assessor_replay import read_recording
from operant.schedulers.analysis.chart_data import intermediate
from operant.schedulers.engine.inline import InlineTrials
from operant.schedulers.engine.state import SearchState, read_state
from operant.schedulers.views.live import LiveSearch
from operant.sites import report
from operant.sites.calls import Pruned, Skip
from operant.tracking.journal import JournalReader, post_message

ARGS = [
    {"type": "Real", "name": "x", "data": [0.0, 1.0]},
    {"type": "Categorical", "name": "k", "data": [1, 1.0, True, "a"]},
]


def awkward(setting: dict[str, Any]) -> Any:
    """Fails, skips itself, gives up early, reports, and returns all that a function may return."""
    place = int(setting["x"] * 1000) % 8
    if place == 0:
        raise ValueError("no such luck")
    if place == 1:
        raise Skip("not this one")
    if place == 2:
        report(0, setting["x"])
        raise Pruned
    if place == 3:
        report(1, setting["x"])
        return None
    if place == 4:
        return {"acc": setting["x"], "loss": 1}
    if place == 5:
        return "a text"
    if place == 6:
        return float("nan")
    return setting["x"]


def run(folder: Path, cfg: dict[str, Any], function: Any, **options: Any) -> Any:
    return NaiveScheduler(folder, cfg, function=function, source=folder.parent, **options).run()


def told(state: SearchState) -> list[Any]:
    """What a state says of a search, without tokens and times."""
    jobs = [
        (one.id, one.number, one.status, one.attempt, repr(one.reward), one.reason, one.error, one.code)
        for one in state.jobs.values()
    ]
    proposals = [
        (one.number, one.config, one.status, repr(one.values), repr(one.reward)) for one in state.proposals.values()
    ]
    reports = {job: [point[:2] for point in points] for job, points in state.reports.items()}
    return [jobs, proposals, state.observed, reports, state.best and state.best.number]


def search(**scheduler: Any) -> dict[str, Any]:
    searcher = {"type": "RandomSearcher", "seed": 5}
    return config({"parallel_size": 1, "max_retries": 0, **scheduler}, searcher, search_args=ARGS)


@pytest.mark.parametrize("options", [{}, {"stop_criterion": {"max_tries": 60, "max_reward": 0.9}}])
def test_the_short_way_leaves_what_the_loop_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    cfg = search(**{"stop_criterion": {"max_tries": 60}, **options})
    short = run(tmp_path / "short", cfg, awkward)
    monkeypatch.setattr(InlineTrials, "run", lambda self: None)
    loop = run(tmp_path / "loop", cfg, awkward)
    assert (short.status, short.reason, short.reward, short.tries) == (
        loop.status,
        loop.reason,
        loop.reward,
        loop.tries,
    )
    assert told(read_state(tmp_path / "short")[0]) == told(read_state(tmp_path / "loop")[0])
    sequences = [entry.sequence for entry in JournalReader(tmp_path / "short").poll()]
    assert sequences == list(range(len(sequences)))


def test_lines_and_the_records_that_they_stand_for_tell_the_same(tmp_path: Path) -> None:
    run(tmp_path / "s", search(stop_criterion={"max_tries": 60}), awkward)
    records = [entry.record for entry in JournalReader(tmp_path / "s").poll()]
    by_records, by_lines = SearchState().fold_all(records), read_state(tmp_path / "s")[0]
    assert told(by_records) == told(by_lines)
    for one, other in zip(by_records.jobs.values(), by_lines.jobs.values(), strict=True):
        assert (one.token, one.started, one.ended, one.snapshot) == (
            other.token,
            other.started,
            other.ended,
            other.snapshot,
        )
    assert by_records.reports == by_lines.reports
    assert by_records.seconds_before == by_lines.seconds_before


def test_what_was_reported_before_ctrl_c_is_kept(tmp_path: Path) -> None:
    def interrupted(setting: dict[str, Any]) -> float:
        report(0, 0.25)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "s", search(stop_criterion={"max_tries": 3}), interrupted)
    state = read_state(tmp_path / "s")[0]
    assert [point[:2] for point in state.reports["0"]] == [(0, 0.25)] and state.jobs["0"].status == "ERROR"


def test_each_end_of_an_awkward_function_counts_as_it_should(tmp_path: Path) -> None:
    run(tmp_path / "s", search(stop_criterion={"max_tries": 80}), awkward)
    state = read_state(tmp_path / "s")[0]
    found = {}
    for job in state.jobs.values():
        place = int(state.proposals[job.number].config["x"] * 1000) % 8
        found[place] = (job.status, job.reason, (job.error or "").partition(":")[0])
        if place in (2, 3, 4, 7):
            assert job.reward == state.proposals[job.number].config["x"]
    assert found == {
        0: ("ERROR", None, "ValueError"),
        1: ("KILLED", "skipped", ""),
        2: ("STOPPED", "pruned", ""),
        3: ("FINISHED", None, ""),
        4: ("FINISHED", None, ""),
        5: ("ERROR", None, "ValueError"),
        6: ("FINISHED", None, ""),
        7: ("FINISHED", None, ""),
    }


def test_an_assessor_ends_a_call_at_its_report_and_sees_them_again_on_resume(tmp_path: Path) -> None:
    steps: dict[float, int] = {}

    def climb(setting: dict[str, Any]) -> float:
        for step in range(1, 10):
            steps[setting["x"]] = step
            report(step, setting["x"] * step)
        return float(setting["x"] * 10)

    assessor = {"type": "MedianStopAssessor", "start_step": 2}
    cfg = config({"parallel_size": 1, "stop_criterion": {"max_tries": 6}, "assessor": assessor})
    cfg["task"]["search_args"] = [{"type": "Categorical", "name": "x", "data": [5, 4, 3, 2, 1, 0, -1, -2]}]
    run(tmp_path / "s", cfg, climb)
    state = read_state(tmp_path / "s")[0]
    statuses = [job.status for job in state.jobs.values()]
    assert statuses[0] == "FINISHED" and statuses.count("STOPPED") >= 3
    stopped = [job for job in state.jobs.values() if job.status == "STOPPED"]
    assert all(steps[state.proposals[job.number].config["x"]] < 9 for job in stopped)
    assert state.reports["0"][0][:2] == (1, 5.0) and len(state.reports["0"]) == 9
    cfg["scheduler"]["stop_criterion"]["max_tries"] = 8
    run(tmp_path / "s", cfg, climb, resume=True, force=True)
    assert [job.status for job in read_state(tmp_path / "s")[0].jobs.values()][6:] == ["STOPPED", "STOPPED"]


def test_who_looks_on_sees_reports_before_the_trial_ends(tmp_path: Path) -> None:
    seen: list[int] = []

    def slow(setting: dict[str, Any]) -> float:
        step = 0
        while not seen and step < 5000:
            step += 1
            time.sleep(0.002)
            report(step, 0.5)
            seen.extend(one.record["step"] for one in reader.poll() if one.record["type"] == "reported")
        return 1.0

    reader = JournalReader(tmp_path / "s")
    run(tmp_path / "s", search(stop_criterion={"max_tries": 1}), slow)
    assert seen


def test_a_stop_from_outside_is_heard_between_two_calls(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    calls = []

    def function(setting: dict[str, Any]) -> float:
        calls.append(setting)
        if len(calls) == 3:
            post_message(folder, {"type": "stop"})
        time.sleep(0.001)
        return 0.0

    outcome = run(folder, search(), function)
    assert outcome.status == "KILLED" and len(calls) >= 3


CONTROLLER = """
import json, os, sys
from operant.schedulers import NaiveScheduler
from operant.schedulers.analysis.chart_data import intermediate
config = json.loads(sys.argv[2])
log = os.open(sys.argv[3], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
def function(setting):
    os.write(log, (repr(setting["x"]) + "\\n").encode())
    return setting["x"]
print("ready", flush=True)
NaiveScheduler(sys.argv[1], config, function=function, source=os.path.dirname(sys.argv[1]), resume=True).run()
"""


def kill_at_random(folder: Path, seed: int, kills: int) -> None:
    rng = random.Random(seed)
    cfg = search(stop_criterion={"max_tries": 100_000})
    calls = folder / "calls"
    command = [sys.executable, "-c", CONTROLLER, str(folder / "s"), json.dumps(cfg), str(calls)]
    for _ in range(kills):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert process.stdout is not None and process.stdout.readline()
        time.sleep(rng.uniform(0.0, 0.15))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        called = calls.read_text().splitlines() if calls.exists() else []
        state = read_state(folder / "s")[0]
        finished = [one for one in state.jobs.values() if one.status == "FINISHED"]
        # What was called is in the journal, and at most the last call has no result there.
        numbers = {repr(one.config["x"]): one.number for one in state.proposals.values()}
        assert set(called) <= set(numbers)
        unfinished = {numbers[one] for one in called} - {one.number for one in finished}
        assert len(unfinished) <= 1
        # Only a call that died is made again: no finished one.
        twice = [one for one, count in Counter(called).items() if count > 1]
        assert len(twice) <= kills and all(state.jobs[str(numbers[one])].attempt > 1 for one in twice)


@pytest.mark.parametrize("seed", [0, 1])
def test_kill_9_between_calls_loses_no_result(tmp_path: Path, seed: int) -> None:
    kill_at_random(tmp_path, seed, 3)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
def test_kill_9_between_calls_fifty_times(tmp_path: Path, seed: int) -> None:
    kill_at_random(tmp_path, seed, 10)


def test_calls_are_heard_of_only_in_order(tmp_path: Path) -> None:
    """A configuration is in the journal before the function gets it."""
    reader = JournalReader(tmp_path / "s")
    known: list[Any] = []

    def function(setting: dict[str, Any]) -> float:
        known.extend(one.record["config"] for one in reader.poll() if one.record["type"] == "proposed")
        assert known[-1] == setting
        return 0.0

    outcome = run(tmp_path / "s", search(stop_criterion={"max_tries": 20}), function)
    assert outcome.reward == 0.0 and len(known) == 20


def test_what_functions_reported_is_there_for_pictures_and_replays(tmp_path: Path) -> None:
    def climb(setting: dict[str, Any]) -> float:
        for step in range(3):
            report(step, setting["x"] * step)
        return float(setting["x"])

    folder = tmp_path / "s"
    run(folder, config({"stop_criterion": {"max_tries": 4}}, {"type": "RandomSearcher"}, search_args=ARGS), climb)
    search = LiveSearch(folder)
    curves = intermediate(search, "acc", lambda job: None)
    assert [one["id"] for one in curves] == [job.id for job in search.jobs()]
    for curve, job in zip(curves, search.jobs(), strict=True):
        x = search.state.proposals[job.number].config["x"]
        assert (curve["steps"], curve["values"]) == ([0, 1, 2], [0.0, x, 2 * x])
    recording = read_recording(folder)
    assert [[one["value"] for one in job.reports] for job in recording.curves] == [one["values"] for one in curves]
    for job in recording.curves:  # reports are told in whole milliseconds, and a call may take less than one
        assert search.state.jobs[job.id].started <= job.times[0]


@pytest.mark.parametrize(
    "searcher",
    [
        {"type": "CmaEsSearcher"},
        {"type": "TurboSearcher"},
        {"type": "GpSearcher", "n_candidates": 50, "n_starts": 1},
        {"type": "LamctsSearcher", "ninits": 8, "leaf_size": 6},
    ],
    ids=lambda one: one["type"],
)
def test_a_searcher_that_is_restored_hears_of_dropped_proposals_where_it_heard_of_them(
    tmp_path: Path, searcher: dict[str, Any]
) -> None:
    args = [{"type": "Real", "name": name, "data": [-5.0, 5.0]} for name in "ab"]

    def search(name: str, tries: int, **options: Any) -> SearchState:
        rules = {"filter_criterion": "a + b > 3", "stop_criterion": {"max_tries": tries}}
        cfg = config(rules, {"seed": 3, **searcher}, search_args=args)
        run(tmp_path / name, cfg, lambda setting: -((setting["a"] - 1) ** 2) - (setting["b"] - 1.9) ** 2, **options)
        return read_state(tmp_path / name)[0]

    whole = search("whole", 40)
    search("parts", 28)
    parts = search("parts", 40, resume=True, force=True)
    assert any(one.filtered for one in whole.proposals.values())
    assert [one.config for one in parts.proposals.values()] == [one.config for one in whole.proposals.values()]
