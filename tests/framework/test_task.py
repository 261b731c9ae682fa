from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from typing import Any

import pytest
from tests.machine import patience

from operant.framework import Context, FrameworkError, Task


def test_middleware_run_in_order_and_generators_resume_in_reverse() -> None:
    trace = []

    def first(ctx: Context) -> Generator[None, None, None]:
        trace.append("first")
        yield
        trace.append("first, after")

    class Second:
        def __call__(self, ctx: Context) -> Generator[None, None, None]:
            trace.append("second")
            yield
            trace.append("second, after")

    with Task() as task:
        task.use(first).use(Second()).use(lambda ctx: trace.append("third"))
        task.run(max_step=1)
    assert trace == ["first", "second", "third", "second, after", "first, after"]


def test_ctx_is_new_in_every_pass_and_counts() -> None:
    seen = []

    def middleware(ctx: Context) -> None:
        seen.append((ctx.total_step, "leftover" in ctx, ctx.setdefault("train_iter", 0)))
        ctx.leftover = True
        ctx.train_iter += 1
        ctx.keep("train_iter")

    with Task() as task:
        task.use(middleware)
        last = task.run(max_step=3)
    assert seen == [(0, False, 0), (1, False, 1), (2, False, 2)]
    assert last.total_step == 2 and last.train_iter == 3


def test_step_makes_one_pass() -> None:
    with Task() as task:
        task.use(lambda ctx: ctx.setdefault("n", ctx.total_step))
        assert [task.step().n for _ in range(3)] == [0, 1, 2]
    with pytest.raises(FrameworkError, match="was stopped"):
        task.step()


def test_forward_sync_backward_renew_by_hand() -> None:
    trace = []

    def wrapped(ctx: Context) -> Generator[None, None, None]:
        trace.append(("forward", ctx.total_step))
        yield
        trace.append(("backward", ctx.total_step))

    with Task() as task:
        for _ in range(2):
            assert task.forward(wrapped).sync().backward().renew() is task
    assert trace == [("forward", 0), ("backward", 0), ("forward", 1), ("backward", 1)]


# -- finish: every loop ends after one full pass that began with it set ------------------------------------

POINTS = ["before the run", "first", "middle", "last", "after yield", "listener", "other thread", "max_step"]


@pytest.mark.parametrize("async_mode", [False, True])
@pytest.mark.parametrize("point", POINTS)
def test_no_save_is_lost_wherever_finish_is_raised(point: str, async_mode: bool) -> None:
    began_with_finish = []
    saved = []

    def raise_at(place: str, ctx: Context) -> None:
        if place == point and ctx.total_step == 2:
            ctx.finish = True

    def first(ctx: Context) -> None:
        began_with_finish.append(ctx.finish)
        raise_at("first", ctx)
        if point == "listener" and ctx.total_step == 2:
            task.emit("enough")
        if point == "other thread" and ctx.total_step == 2:
            thread = threading.Thread(target=lambda: setattr(task, "finish", True))
            thread.start()
            thread.join()

    def middle(ctx: Context) -> Generator[None, None, None]:
        raise_at("middle", ctx)
        yield
        raise_at("after yield", ctx)

    def save(ctx: Context) -> None:
        if ctx.finish:
            saved.append(ctx.total_step)

    with Task(async_mode=async_mode) as task:
        task.on("enough", lambda: setattr(task, "finish", True))
        task.use(first).use(middle, after=first).use(save, after=middle).use(
            lambda ctx: raise_at("last", ctx), after=save
        )
        if point == "before the run":
            task.finish = True
        task.run(max_step=5 if point == "max_step" else 100)

    assert began_with_finish[-1] is True and not any(began_with_finish[:-1])
    last_pass = {"before the run": 0, "max_step": 4}.get(point, 3)
    assert len(began_with_finish) == last_pass + 1
    assert saved[-1] == last_pass


def test_finish_raised_in_the_last_pass_of_max_step_was_already_visible_there() -> None:
    with Task() as task:
        task.use(lambda ctx: setattr(ctx, "finish", True))
        assert task.run(max_step=2).total_step == 1


# -- errors ----------------------------------------


def evaluate() -> Callable[[Context], None]:
    def _evaluate(ctx: Context) -> None:
        if ctx.total_step == 2:
            raise KeyError("reward")

    return _evaluate


@pytest.mark.parametrize("async_mode", [False, True])
def test_an_error_names_the_middleware_and_the_step(async_mode: bool) -> None:
    with pytest.raises(KeyError) as caught, Task(async_mode=async_mode) as task:
        task.use(evaluate())
        task.run(max_step=5)
    assert "in middleware 'evaluate', forward, at total_step 2" in caught.value.__notes__


def test_an_error_closes_suspended_middleware_in_reverse_order() -> None:
    closed = []

    def holding(name: str) -> Callable[[Context], Generator[None, None, None]]:
        def _holding(ctx: Context) -> Generator[None, None, None]:
            try:
                yield
            finally:
                closed.append(name)

        return _holding

    def fails(ctx: Context) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError), Task() as task:
        task.use(holding("a")).use(holding("b")).use(fails)
        task.run(max_step=1)
    assert closed == ["b", "a"]


def test_a_second_yield_is_an_error() -> None:
    def twice(ctx: Context) -> Generator[None, None, None]:
        yield
        yield

    with pytest.raises(RuntimeError, match="may yield once") as caught, Task() as task:
        task.use(twice)
        task.run(max_step=1)
    assert "'twice'" in caught.value.__notes__[0]


def test_a_middleware_must_be_callable() -> None:
    with Task() as task, pytest.raises(TypeError, match="callable"):
        task.use("collect")  # type: ignore[arg-type]


# -- step wrappers, serial, parallel ----------------------------------------


def test_step_wrappers_wrap_what_is_there_and_what_comes() -> None:
    calls: list[str] = []

    def logged(fn: Callable[[Context], Any]) -> Callable[[Context], Any]:
        def wrapper(ctx: Context) -> Any:
            calls.append("wrapped")
            return fn(ctx)

        return wrapper

    with Task() as task:
        task.use(lambda ctx: calls.append("one"))
        task.use_step_wrapper(logged)
        task.use(lambda ctx: calls.append("two"))
        task.run(max_step=1)
    assert calls == ["wrapped", "one", "wrapped", "two"]


def test_serial_is_one_middleware_with_generators() -> None:
    trace = []

    def part(name: str) -> Callable[[Context], Generator[None, None, None]]:
        def _part(ctx: Context) -> Generator[None, None, None]:
            trace.append(name)
            yield
            trace.append(name.upper())

        return _part

    with Task() as task:
        task.use(task.serial(part("a"), part("b"))).use(part("c"))
        task.run(max_step=1)
    assert trace == ["a", "b", "c", "C", "B", "A"]


def test_parallel_runs_at_the_same_time_also_inside_async_mode() -> None:
    # Three that meet at a barrier can only get through when they run at the same time.
    barrier = threading.Barrier(3, timeout=patience(20))

    def meet(ctx: Context) -> None:
        barrier.wait()

    for async_mode in (False, True):
        with Task(async_mode=async_mode, n_async_workers=1) as task:
            task.use(task.parallel(meet, meet, meet))
            task.run(max_step=3)


# -- registered state ----------------------------------------


class Learner:
    def __init__(self) -> None:
        self.updates = 0

    def state_dict(self) -> dict[str, int]:
        return {"updates": self.updates}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.updates = state["updates"]


def train(learner: Learner) -> Callable[[Context], None]:
    def _train(ctx: Context) -> None:
        learner.updates += 1
        ctx.train_iter = learner.updates
        ctx.keep("train_iter")

    return _train


def test_a_restored_task_goes_on_where_it_was() -> None:
    learner = Learner()
    with Task() as task:
        task.register("learner", learner)
        with pytest.raises(ValueError, match="registered already"):
            task.register("learner", learner)
        task.use(train(learner))
        for _ in range(4):
            task.step()
        state = task.state_dict()

    again = Learner()
    steps = []
    with Task() as task:
        task.load_state_dict(state)
        task.register("learner", again)
        task.use(lambda ctx: steps.append((ctx.total_step, ctx.train_iter))).use(train(again))
        task.run(max_step=6)
    assert again.updates == 6 and steps == [(4, 4), (5, 5)]


# -- two tasks at once ----------------------------------------


def test_two_tasks_in_two_threads_do_not_meet() -> None:
    results = {}

    def loop(name: str, n_steps: int) -> None:
        heard: list[str] = []
        with Task() as task:
            task.on("hello", heard.append)
            task.use(lambda ctx: task.emit("hello", name))
            task.run(max_step=n_steps)
            results[name] = (heard, task.counter("c").value, task.ctx.total_step)

    threads = [threading.Thread(target=loop, args=(name, n)) for name, n in (("a", 50), ("b", 80))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {"a": (["a"] * 50, 0, 49), "b": (["b"] * 80, 0, 79)}
