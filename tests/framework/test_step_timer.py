from __future__ import annotations

import threading
from collections.abc import Generator, Mapping

import pytest

from operant.framework import Context, StepTimer, Task


class Recorder:
    def __init__(self) -> None:
        self.rows: list[tuple[int, dict[str, float]]] = []

    def add_scalars(self, values: Mapping[str, float], step: int) -> None:
        self.rows.append((step, dict(values)))


def train(ctx: Context) -> None:
    pass


def around(ctx: Context) -> Generator[None, None, None]:
    threading.Event().wait(0.002)
    yield
    threading.Event().wait(0.004)


def test_a_table_and_scalars_every_print_per_step_passes() -> None:
    shown: list[str] = []
    run = Recorder()
    with Task() as task:
        task.use_step_wrapper(StepTimer(print_per_step=2, writer=run, show=shown.append))
        task.use(train).use(around)
        task.run(max_step=5)
    assert len(shown) == 2
    assert [step for step, _ in run.rows] == [1, 3]
    assert set(run.rows[0][1]) == {"time/train", "time/around", "time/step"}
    lines = shown[0].splitlines()
    assert [line.split()[0] for line in lines] == ["step", "train", "around", "step"]


def test_both_parts_of_a_generator_are_one_time_and_the_step_holds_all() -> None:
    timer = StepTimer(show=None)
    with Task() as task:
        task.use_step_wrapper(timer)
        task.use(train).use(around)
        task.run(max_step=3)
    assert [len(times) for times in timer.records.values()] == [3, 3, 3]
    assert min(timer.records["around"]) >= 6.0
    means = timer.means()
    assert means["around"] >= 6.0 and means["step"] >= means["around"] > means["train"]


def test_two_middleware_of_one_name_stay_apart() -> None:
    timer = StepTimer(show=None)
    with Task() as task:
        task.use_step_wrapper(timer)
        task.use(train).use(lambda ctx: None).use(train)
        task.run(max_step=2)
    assert set(timer.means()) == {"train", "<lambda>", "train #2", "step"}


def test_errors_pass_through_with_the_name() -> None:
    def fails(ctx: Context) -> Generator[None, None, None]:
        yield
        raise ValueError("late")

    with pytest.raises(ValueError) as caught, Task() as task:
        task.use_step_wrapper(StepTimer(show=None))
        task.use(fails)
        task.run(max_step=1)
    assert caught.value.__notes__ == ["in middleware 'fails', after its yield, at total_step 0"]


def test_windows_must_be_positive() -> None:
    with pytest.raises(ValueError, match="from 1 up"):
        StepTimer(print_per_step=0)
