"""Attempts: a resumed program's points hide the ones they supersede."""

from __future__ import annotations

from pathlib import Path

import pytest

from operant import Run, SummaryWriter


def record(writer: SummaryWriter, steps: range, value: float) -> None:
    for step in steps:
        writer.add_scalar("x", value, step)


def test_points_behind_the_resumed_step_are_hidden_and_can_be_asked_for() -> None:
    with SummaryWriter("t") as first:
        record(first, range(10), 1.0)
    with SummaryWriter(run=first.run_id, resumed_from=5) as second:
        record(second, range(6, 9), 2.0)
    run = Run.open(first.run_id)
    assert run.attempt == 2
    assert run.scalars("x")["step"].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert run.scalars("x")["value"].tolist() == [1.0] * 6 + [2.0] * 3
    assert len(run.scalars("x", superseded=True)) == 13
    assert run.latest("x").step == 8  # type: ignore[union-attr]
    assert [row["value"] for row in run.history("x")][-1] == 2.0
    assert run.chart("x").count.sum() == 9


def test_tensorboards_purge_step() -> None:
    with SummaryWriter("t") as first:
        record(first, range(10), 1.0)
    with SummaryWriter(run=first.run_id, purge_step=5) as second:
        record(second, range(5, 6), 2.0)
    assert Run.open("last").scalars("x")["value"].tolist() == [1.0] * 5 + [2.0]


def test_resumed_twice_and_within_one_program() -> None:
    with SummaryWriter("t") as writer:
        record(writer, range(10), 1.0)
        writer.resume_from(7)
        record(writer, range(8, 12), 2.0)
        writer.resume_from(3)
        record(writer, range(4, 6), 3.0)
    run = Run.open(writer.run_id)
    assert run.attempt == 3
    assert run.scalars("x")["value"].tolist() == [1.0] * 4 + [3.0] * 2


def test_a_reader_that_was_there_before_hides_them_too() -> None:
    writer = SummaryWriter("t")
    record(writer, range(10), 1.0)
    writer.flush()
    run = Run.open(writer.run_id)
    assert len(run.scalars("x")) == 10
    assert run.chart("x").count.sum() == 10
    writer.resume_from(2)
    record(writer, range(3, 4), 2.0)
    writer.close()
    fresh = run.refresh()
    assert fresh["x"]["step"].tolist() == [3]
    assert run.scalars("x")["step"].tolist() == [0, 1, 2, 3]
    assert run.chart("x").count.sum() == 4


def test_a_job_that_starts_anew_supersedes_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "jobs" / "job-3" / "run"
    monkeypatch.setenv("OPERANT_RUN_DIR", str(folder))
    monkeypatch.setenv("OPERANT_RUN_ID", "search/job-3")
    with SummaryWriter("ignored") as writer:
        assert writer.run_dir == folder
        assert writer.run_id == "search/job-3"
        record(writer, range(5), 1.0)
        writer.resume_from(2)
    monkeypatch.setenv("OPERANT_ATTEMPT", "2")
    with SummaryWriter("ignored") as writer:
        record(writer, range(2), 2.0)
    run = Run(folder)
    assert run.scalars("x")["value"].tolist() == [2.0, 2.0]
    assert run.status == "FINISHED"


def test_another_process_joins_without_superseding() -> None:
    with SummaryWriter("t") as first:
        record(first, range(3), 1.0)
        with SummaryWriter(run=first.run_id) as second:
            second.add_scalar("y", 5.0, 0)
        assert Run.open(first.run_id).status == "RUNNING"
    run = Run.open(first.run_id)
    assert run.attempt == 1
    assert len(run.scalars("x")) == 3
    assert len(run.scalars("y")) == 1
    assert run.status == "FINISHED"
