from __future__ import annotations

import threading

import pytest
from tests.machine import patience

from operant.framework import Context, FrameworkError, Parallel, Task


def test_on_once_off() -> None:
    heard: list[tuple[str, object]] = []
    with Task() as task:

        def always(value: int, *, key: str = "") -> None:
            heard.append(("always" + key, value))

        task.on("e", always)
        task.once("e", lambda value, **_: heard.append(("once", value)))
        task.emit("e", 1)
        task.emit("e", 2, key="!")
        task.off("e", always)
        task.emit("e", 3)
    assert heard == [("always", 1), ("once", 1), ("always!", 2)]


def test_off_without_a_listener_forgets_all() -> None:
    heard: list[int] = []
    with Task() as task:
        task.on("e", heard.append)
        task.on("e", heard.append)
        task.off("e")
        task.emit("e", 1)
    assert heard == []


def test_a_listener_may_listen_again_while_it_is_called() -> None:
    heard: list[int] = []
    with Task() as task:

        def again(value: int) -> None:
            heard.append(value)
            task.once("e", again)

        task.once("e", again)
        for value in range(3):
            task.emit("e", value)
    assert heard == [0, 1, 2]


def test_only_local_and_only_remote() -> None:
    heard: list[int] = []
    with Task() as task:
        task.on("e", heard.append)
        task.emit("e", 1, only_local=True)
        task.emit("e", 2, only_remote=True)
        with pytest.raises(ValueError, match="reaches nobody"):
            task.emit("e", 3, only_local=True, only_remote=True)
    assert heard == [1]


def test_wait_for_returns_the_arguments() -> None:
    with Task() as task:
        asked = threading.Event()

        def answer() -> None:
            asked.wait()
            # The waiter registers right after `asked`; whoever is too early tries again.
            while not done.is_set():
                task.emit("answer", 42, unit="ms")

        done = threading.Event()
        thread = threading.Thread(target=answer)
        thread.start()
        asked.set()
        received = task.wait_for("answer", timeout=patience(30))
        done.set()
        thread.join()
    assert received == ((42,), {"unit": "ms"})


def test_wait_for_gives_up_in_time_or_at_finish() -> None:
    with Task() as task:
        assert task.wait_for("never", timeout=0.01) is None
        with pytest.raises(TimeoutError, match="'never' did not come"):
            task.wait_for("never", timeout=0.01, ignore_timeout_exception=False)
        threading.Timer(0.01, lambda: setattr(task, "finish", True)).start()
        assert task.wait_for("never", timeout=patience(30), ignore_timeout_exception=False) is None


def test_a_local_listener_that_fails_fails_the_emitter() -> None:
    def fails() -> None:
        raise ValueError("no")

    def middleware(ctx: Context) -> None:
        task.emit("e")

    with pytest.raises(ValueError), Task() as task:
        task.on("e", fails)
        task.use(middleware)
        task.run(max_step=1)


def test_what_di_engine_has_and_operant_has_not_is_refused_with_the_way_to_go() -> None:
    with Task() as task:
        with pytest.raises(FrameworkError, match="wait_newer"):
            task.on("sync_parallel_ctx", print)
        with pytest.raises(FrameworkError, match="wait_newer"):
            task.wait_for("sync_parallel_ctx", timeout=0)
    with pytest.raises(FrameworkError, match="router"):
        Parallel()
