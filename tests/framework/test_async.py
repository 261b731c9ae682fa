from __future__ import annotations

import threading
from collections.abc import Generator

import pytest
from tests.machine import patience

from operant.framework import Context, Task


def test_middleware_overlap_and_meet_at_the_end_of_the_pass() -> None:
    barrier = threading.Barrier(2, timeout=patience(20))
    seen_at_the_end = []

    def collect(ctx: Context) -> None:
        barrier.wait()
        ctx.collected = True

    def evaluate(ctx: Context) -> Generator[None, None, None]:
        barrier.wait()
        yield
        seen_at_the_end.append(ctx.collected)

    with Task(async_mode=True) as task:
        task.use(collect).use(evaluate)
        task.run(max_step=5)
    assert seen_at_the_end == [True] * 5


@pytest.mark.parametrize("n_workers", [1, 2, 8])
def test_declared_order_holds_for_every_number_of_workers(n_workers: int) -> None:
    def collect(ctx: Context) -> None:
        ctx.data = ctx.total_step

    def train(ctx: Context) -> None:
        ctx.trained = ctx.data + 1

    def log(ctx: Context) -> None:
        logged.append((ctx.trained, ctx.evaluated))

    def evaluate(ctx: Context) -> None:
        ctx.evaluated = True

    logged: list[tuple[int, bool]] = []
    with Task(async_mode=True, n_async_workers=n_workers) as task:
        task.use(evaluate)
        task.use(collect)
        task.use(train, after=collect)
        task.use(log, after=["train", evaluate])
        task.run(max_step=50)
    assert logged == [(step + 1, True) for step in range(50)]


def test_after_something_unknown_is_an_error_that_names_the_known() -> None:
    with Task(async_mode=True) as task:
        task.use(lambda ctx: None, filter_labels="node.*", after=None)
        with pytest.raises(ValueError, match=r"after 'collect', which is not in use yet \(in use: none\)"):
            task.use(lambda ctx: None, after="collect")


def test_after_a_middleware_that_runs_on_another_worker_is_no_constraint() -> None:
    def collect(ctx: Context) -> None:
        raise AssertionError("filtered out")

    done = []
    with Task(async_mode=True) as task:
        task.use(collect, filter_labels=["node.1"])
        task.use(lambda ctx: done.append(ctx.total_step), after=collect)
        task.run(max_step=2)
    assert done == [0, 1]


def test_an_error_surfaces_in_its_own_step_and_skips_what_depends_on_it() -> None:
    ran = []

    def fails(ctx: Context) -> None:
        if ctx.total_step == 3:
            raise OSError("disk full")

    def depends(ctx: Context) -> None:
        ran.append(("depends", ctx.total_step))

    def free(ctx: Context) -> None:
        ran.append(("free", ctx.total_step))

    with pytest.raises(OSError, match="disk full") as caught, Task(async_mode=True) as task:
        task.use(fails).use(depends, after=fails).use(free)
        task.run(max_step=10)
    assert any("at total_step 3" in note for note in caught.value.__notes__)
    assert ("depends", 3) not in ran and ("free", 3) in ran and ("free", 4) not in ran


def test_two_errors_of_one_pass_are_both_told() -> None:
    def one(ctx: Context) -> None:
        raise ValueError("one")

    def two(ctx: Context) -> None:
        raise KeyError("two")

    with pytest.raises(ValueError, match="one") as caught, Task(async_mode=True) as task:
        task.use(one).use(two)
        task.run(max_step=1)
    assert any("KeyError('two')" in note for note in caught.value.__notes__)


def test_threads_end_with_the_task() -> None:
    before = threading.active_count()
    for _ in range(5):
        with Task(async_mode=True) as task:
            task.use(lambda ctx: None)
            task.use(task.parallel(lambda ctx: None, lambda ctx: None))
            task.run(max_step=2)
    assert threading.active_count() == before


@pytest.mark.parametrize("form", ["async", "parallel"])
def test_a_failure_ends_those_who_wait_and_surfaces(form: str) -> None:
    waiting = threading.Event()

    def wait(ctx: Context) -> None:
        waiting.set()
        task.wait_for("never")

    def fail(ctx: Context) -> None:
        waiting.wait(20)
        raise ZeroDivisionError("the true reason")

    with Task(async_mode=form == "async") as task:
        if form == "async":
            task.use(wait).use(fail)
        else:
            task.use(task.parallel(wait, fail))
        with pytest.raises(ZeroDivisionError, match="the true reason"):
            task.run(max_step=3)
        assert task.wait_for("never", timeout=0.01) is None  # the next wait is not ended by it
