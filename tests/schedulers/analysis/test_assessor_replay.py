"""Replays: nobody sees the future, what is saved adds up, and whether the best is lost is told."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path
from typing import Any

import pytest

from operant.assessors import AssessResult, BaseAssessor
from operant.assessors.builder import ASSESSORS
from operant.errors import ConfigError, UsageError
from operant.schedulers.analysis.assessor_replay import Curve, find_assessor, read_recording, replay
from operant.schedulers.exchange.foreign import ForeignTrial, write_search

CONFIG: dict[str, Any] = {
    "task": {"search_args": [{"type": "Int", "name": "x", "data": [0, 1000]}]},
    "searcher": {"type": "RandomSearcher", "reward_attribute": "acc"},
}


def make_search(folder: Path, curves: list[list[float]], starts: list[float] | None = None, **options: Any) -> Path:
    """A search whose jobs report once a second, one job a second after the other unless said otherwise."""
    trials = []
    for number, values in enumerate(curves):
        begin = 1000.0 + (starts[number] if starts is not None else number)
        reports = [(step, begin + step + 1, value) for step, value in enumerate(values)]
        trials.append(
            ForeignTrial(
                number,
                {"x": number},
                "FINISHED",
                begin,
                begin + len(values) + 0.5,
                values[-1],
                {"acc": values[-1]},
                reports,
            )
        )
    options = {"config": CONFIG, "reward": "acc", "maximize": True, "source": "a test", **options}
    write_search(folder / "s", trials=trials, **options)
    return folder / "s"


class Spy(BaseAssessor):
    """Remembers in which order it was asked, and stops whom it is told to."""

    calls: list[tuple[Any, ...]] = []  # noqa: RUF012

    def __init__(self, stop: str = "", after: int = 0, optimize_mode: str = "maximize") -> None:
        super().__init__(optimize_mode)
        self.stop, self.after = stop, after

    def assess_job(self, job_id: Any, history: Any) -> AssessResult:
        self.calls.append((job_id, len(history), history[-1]["value"]))
        return AssessResult.Bad if job_id == self.stop and len(history) >= self.after else AssessResult.Good

    def job_end(self, job_id: Any) -> None:
        self.calls.append((job_id, "end"))


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> type[Spy]:
    monkeypatch.setitem(ASSESSORS._classes, "Spy", Spy)
    monkeypatch.setattr(Spy, "calls", [])
    return Spy


def test_reports_come_in_the_order_in_which_they_were_made(tmp_path: Path, spy: type[Spy]) -> None:
    recording = read_recording(make_search(tmp_path, [[0.1, 0.2, 0.3], [0.5, 0.6]], [0.0, 0.75]))
    result = replay(recording, "Spy", {})
    assert spy.calls == [
        ("0", 1, 0.1), ("1", 1, 0.5), ("0", 2, 0.2), ("1", 2, 0.6), ("0", 3, 0.3), ("1", "end"), ("0", "end"),
    ]  # fmt: skip
    assert result.stopped == {} and result.steps == 5 and result.steps_saved == 0 and result.seconds_saved == 0
    assert result.seconds == pytest.approx(6.0) and result.best == (1, 0.6) and result.best_kept is True


def test_a_stopped_job_is_never_heard_of_again(tmp_path: Path, spy: type[Spy]) -> None:
    recording = read_recording(make_search(tmp_path, [[0.1, 0.2, 0.3, 0.9], [0.5, 0.6]], [0.0, 0.75]))
    result = replay(recording, "Spy", {"stop": "0", "after": 2})
    assert [call for call in spy.calls if call[0] == "0"] == [("0", 1, 0.1), ("0", 2, 0.2)]
    assert result.stopped == {"0": 2} and result.steps_saved == 2
    assert result.seconds_saved == pytest.approx(2.5)  # it would have ended at 4.5, and was stopped at 2
    assert result.best == (0, 0.9) and result.best_kept is False and result.best_stopped_after == 2
    assert result.found == (1, 0.6) and result.found_real == 0.6


def test_at_its_last_report_nothing_is_left_to_stop(tmp_path: Path, spy: type[Spy]) -> None:
    recording = read_recording(make_search(tmp_path, [[0.1, 0.2], [0.5, 0.6]]))
    assert replay(recording, "Spy", {"stop": "0", "after": 2}).stopped == {}
    assert ("0", "end") in spy.calls


@pytest.mark.parametrize("name", ["asha", "hyperband", "median"])
@pytest.mark.parametrize("seed", range(4))
def test_no_verdict_depends_on_what_came_later(tmp_path: Path, name: str, seed: int) -> None:
    draw = random.Random(seed)
    levels = [draw.random() for _ in range(15)]
    curves = [[level + draw.random() / 4 + step / 20 for step in range(12)] for level in levels]
    recording = read_recording(make_search(tmp_path, curves, [draw.random() * 20 for _ in curves]))
    whole = replay(recording, name, _given(name))
    assert whole.stopped  # the case is not empty
    for moment in (1005.0, 1012.0, 1020.0):
        known = [_until(one, moment) for one in recording.curves if one.times[0] <= moment]
        part = replay(dataclasses.replace(recording, curves=known), name, _given(name))
        seen = {one.id: len(one.reports) for one in known}
        # A stop at the last report that is known cannot be told from a job that has nothing more to do.
        assert part.stopped == {job: n for job, n in whole.stopped.items() if n < seen.get(job, 0)}


def _until(curve: Curve, moment: float) -> Curve:
    """What had been seen of a job at a moment."""
    count = sum(at <= moment for at in curve.times)
    ended = curve.ended <= moment
    return dataclasses.replace(
        curve,
        reports=curve.reports[:count],
        times=curve.times[:count],
        ended=curve.ended if ended else moment,
        status=curve.status if ended else "KILLED",
    )


def _given(name: str) -> dict[str, Any]:
    return {"max_step": 12} if name == "hyperband" else {}


def test_minimising_turns_everything_round(tmp_path: Path) -> None:
    curves = [[5.0, 4.0, 3.0, 2.0], [5.0, 5.0, 5.0, 5.0], [9.0, 9.0, 9.0, 9.0]]
    recording = read_recording(make_search(tmp_path, curves, maximize=False))
    result = replay(recording, "median", {})
    assert result.options["optimize_mode"] == "minimize"
    assert set(result.stopped) == {"2"} and result.best == (0, 2.0) and result.best_kept is True


def test_a_pause_that_ends_moves_the_rest_of_the_job(tmp_path: Path) -> None:
    # Two weak jobs wait at the first rung; the strong one that follows makes room for the better of them.
    curves = [[0.5] * 6, [0.2] * 6, [0.1] * 6, [0.05] * 6]
    result = replay(read_recording(make_search(tmp_path, curves)), "asha", {"rest": "pause", "reduction_factor": 2})
    assert "0" not in result.stopped and result.best_kept is True
    # Job 1 waits at the first rung, goes on when the fourth job has reported, and then waits at the second for good.
    assert result.stopped == {"1": 2, "2": 1, "3": 1} and result.steps_saved == 4 + 5 + 5


def test_printed_reports_are_spread_over_their_job(tmp_path: Path) -> None:
    config = {**CONFIG, "task": {**CONFIG["task"], "pattern": "acc: {value}"}}
    folder = make_search(tmp_path, [[0.7], [0.8]], config=config)
    (folder / "jobs" / "0" / "stdout").write_text("acc: 0.5\nacc: 0.6\nacc: 0.7\n")
    recording = read_recording(folder)
    (curve,) = recording.curves
    assert [one["value"] for one in curve.reports] == [0.5, 0.6, 0.7]
    assert curve.times == pytest.approx([1000.5, 1001.0, 1001.5])
    assert "evenly" in recording.notes[0]


def test_mistakes(tmp_path: Path) -> None:
    recording = read_recording(make_search(tmp_path / "a", [[0.1, 0.2]]))
    with pytest.raises(UsageError, match="did you mean 'asha'"):
        replay(recording, "ashaa")
    with pytest.raises(ConfigError, match="did you mean 'reduction_factor'"):
        replay(recording, "asha", {"reduction_facto": 3})
    write_search(
        tmp_path / "b" / "s",
        CONFIG,
        [ForeignTrial(0, {"x": 1}, "FINISHED", 0.0, 1.0, 0.5)],
        reward="acc",
        maximize=True,
        source="x",
    )
    with pytest.raises(UsageError, match="has recorded 'acc' on its way"):
        read_recording(tmp_path / "b" / "s")


def test_short_names() -> None:
    for word, name in {
        "asha": "AshaAssessor",
        "AshaAssessor": "AshaAssessor",
        "curve_fitting": "CurveFittingAssessor",
        "curve-fitting": "CurveFittingAssessor",
        "median": "MedianStopAssessor",
        "hyperband": "HyperbandAssessor",
    }.items():
        assert find_assessor(word) == name
