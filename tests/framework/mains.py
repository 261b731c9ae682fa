"""The functions that parallel tests run in their workers; workers import them from here."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from operant.framework import Context, Task

WAIT = 240.0
"""Seconds that a wait may take on the slowest of machines; each ends as soon as it may."""


def return_node_id(factor: int = 1) -> int:
    with Task() as task:
        assert task.router.is_active and task.router.node_id is not None
        return task.router.node_id * factor


def train_and_evaluate(n_steps: int) -> dict[str, Any]:
    """The last step of the tutorial in docs/task.md: evaluate in another process, on the values of train."""
    import numpy as np

    evaluated: list[tuple[int, float]] = []
    saved: list[int] = []
    with Task() as task:

        def evaluate(ctx: Context) -> None:
            last = evaluated[-1][0] if evaluated else -1
            if task.router.is_active:
                view = task.parallel_ctx
                while not ctx.finish:
                    if view.get("state_dict") is not None and view.get("train_iter") > last:
                        break
                    view = view.wait_newer(timeout=WAIT) or view
                if ctx.finish:
                    return
                state, train_iter = view.state_dict, view.train_iter
            else:
                state, train_iter = ctx.state_dict, ctx.train_iter
            assert (state["w"] == train_iter).all()
            evaluated.append((train_iter, float(state["w"][0])))
            if train_iter >= n_steps:
                ctx.finish = True

        def train(ctx: Context) -> None:
            ctx.setdefault("train_iter", 0)
            ctx.train_iter += 1
            ctx.keep("train_iter")
            ctx.state_dict = {"w": np.full(100_000, ctx.train_iter, dtype=np.float64)}
            if ctx.finish:
                saved.append(ctx.train_iter)

        task.use(train, filter_labels=["standalone", "node.0"])
        task.use(evaluate, filter_labels=["standalone", "node.1"])
        task.run()
    return {"evaluated": evaluated, "saved": saved}


def tell_peers_and_labels() -> tuple[list[int], list[str], bool]:
    with Task() as task:
        peers = sorted(task.router.peers)
        task.counter("seen").add()
        task.router.wait_until(lambda: not peers or task.counter("seen").value == 3, WAIT)
        return peers, sorted(task.labels), task.match_labels("learner")


def exchange_events(n_events: int) -> list[Any]:
    """Node 0 tells numbers; the others say when they have them all."""
    with Task() as task:
        heard: list[Any] = []
        done: list[int] = []
        task.on("number", lambda value, **extra: (heard.append((value, extra)), task.router.notify()))
        task.on("done", lambda node: (done.append(node), task.router.notify()))
        if task.router.node_id == 0:
            for number in range(n_events):
                task.emit("number", number, only_remote=True)
            task.emit("number", "here", only_local=True)
            task.emit("number", "everywhere", unit="ms")
            assert task.router.wait_until(lambda: len(done) == 2, WAIT)
        else:
            assert task.router.wait_until(lambda: len(heard) == n_events + 1, WAIT)
            task.emit("done", task.router.node_id)
        return heard


def early_event() -> list[int]:
    """An event that comes before the listener's loop has begun waits for it."""
    heard: list[int] = []
    with Task() as task:
        if task.router.node_id == 0:
            task.emit("early", 7)
            task.queue("go").put(True)
            task.router.wait_until(lambda: task.finish, WAIT)
        else:
            task.queue("go").get(timeout=WAIT)
            task.on("early", lambda value: heard.append(value))
            task.use(lambda ctx: setattr(ctx, "finish", bool(heard)))
            task.run()
    return heard


def failing_listener() -> None:
    with Task() as task:
        if task.router.node_id == 0:
            task.emit("bad")
        else:
            task.on("bad", lambda: 1 / 0)
        task.run(end_others=False)


def queue_round(mode: str, n_items: int) -> Any:
    """Workers 1 and 2 put arrays, node 0 takes them all."""
    import numpy as np

    with Task() as task:
        queue = task.queue("data", maxsize=3, mode=mode)  # type: ignore[arg-type]
        node = task.router.node_id
        if node == 0:
            if mode == "drop_oldest":
                assert task.wait_for("all put", timeout=WAIT) is not None
                assert queue.qsize() == 3
                return [queue.get()[1] for _ in range(3)], queue.dropped
            items = [queue.get(timeout=WAIT) for _ in range(2 * n_items)]
            assert all((array == number).all() for _, number, array in items)
            return [(source, number) for source, number, _ in items]
        if mode == "drop_oldest":
            if node == 1:
                for number in range(n_items):
                    assert queue.put((node, number, None))
                dropped = queue.dropped
                task.emit("all put")
                return dropped
            return None
        for number in range(n_items):
            assert queue.put((node, number, np.full(20_000, number)), timeout=WAIT)
        return None


def queue_limits() -> list[str]:
    """Time-outs at both ends of a queue, here and on its host, and the end of waiting at finish."""
    told = []
    with Task() as task:
        queue = task.queue("q", maxsize=1, host=0)
        try:
            queue.get(timeout=0.05)
        except TimeoutError as error:
            told.append(str(error))
        task.counter("empty seen").add()
        task.router.wait_until(lambda: task.counter("empty seen").value == 2, WAIT)
        if task.router.node_id == 1:
            assert queue.put("first")
            try:
                queue.put("second", timeout=0.05)
            except TimeoutError as error:
                told.append(str(error))
            assert queue.qsize() == 1
            task.finish = True
            told.append(f"put at finish: {queue.put('third')}")
        else:
            task.router.wait_until(lambda: task.finish, WAIT)
            told.append(f"get at finish: {queue.get()}, {queue.get()}")
            told.append(f"put at finish: {queue.put('x')}, {queue.put('y')}")
    return told


def count(n: int) -> Any:
    with Task() as task:
        counter = task.counter("env_step")
        for _ in range(n):
            counter.add(2)
        assert task.router.wait_until(lambda: counter.value == 3 * 2 * n, WAIT)
        task.counter("seen").add()
        task.router.wait_until(lambda: task.counter("seen").value == 3, WAIT)
        return counter.value, counter.own, len(counter.per_writer())


def call_each_other() -> Any:
    import numpy as np

    with Task() as task:
        task.expose("double", lambda array: 2 * array)
        task.expose("fail", lambda: {}["missing"])
        answers: list[Any] = []
        if task.router.node_id == 0:
            big = np.arange(100_000)
            answers.append(bool((task.call(1, "double", big) == 2 * big).all()))
            answers.append(task.call("node.2", "double", 21, timeout=WAIT))
            for peer, name in ((1, "fail"), (1, "unknown"), ("node.*", "double"), (9, "double")):
                try:
                    task.call(peer, name)
                except Exception as error:
                    answers.append(f"{type(error).__name__}: {error}")
            task.finish = True
        task.router.wait_until(lambda: task.finish, WAIT)
        return answers


def snapshots(n_steps: int) -> Any:
    """Node 0 writes small and large values; the others read them, whole and private."""
    import numpy as np

    with Task() as task:
        node = task.router.node_id
        if node == 0:
            task.share("state", "unread", "step", "whose")

            def write(ctx: Context) -> None:
                step = ctx.total_step
                ctx.state = {"a": np.full(50_000, step), "b": [np.full((100, 100), step)]}
                ctx.unread = np.zeros(1_000_000)
                ctx.step = step
                ctx.secret = "not shared"
                ctx.whose = 0

            task.use(write)
            task.run()
            publisher = task.router._publisher  # type: ignore[attr-defined]
            return task.ctx.total_step + 1, publisher.n_published, sorted(publisher._large)

        seen: list[int] = []

        def read(ctx: Context) -> None:
            ctx.whose = node
            view = task.parallel_ctx.wait_newer(WAIT)
            if view is None or "step" not in view.peer(0):
                return
            origin = view.peer(0)
            state = origin.state
            step = origin.step
            assert (state["a"] == step).all() and (state["b"][0] == step).all(), "torn"
            state["a"][:] = -1
            assert (view.peer(0).state["a"] == -1).all()
            assert "secret" not in view and "unread" in view and view.peer(5).get("step", "none") == "none"
            seen.append(step)
            if len(seen) == n_steps and node == 1:
                ctx.finish = True

        task.use(read)
        task.run()
        return seen


def share_everything() -> Any:
    import warnings

    import numpy as np

    with Task() as task, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if task.router.node_id == 0:

            def write(ctx: Context) -> None:
                ctx.big = np.zeros(300_000)
                ctx.small = 1
                ctx.handle = open
                ctx.generator = (i for i in "ab")

            task.use(write)
            task.run(max_step=20)
            return [str(warning.message) for warning in caught]
        view = task.parallel_ctx
        while view is not None and "small" not in view:
            view = view.wait_newer(WAIT)
        task.run()
        return sorted(task.parallel_ctx.keys())


def fail_on(node: int, how: str) -> None:
    import os
    import signal
    import time

    with Task() as task:

        def work(ctx: Context) -> None:
            if task.router.node_id != node or ctx.total_step < 3:
                time.sleep(0.001)
                return
            if how == "raise":
                raise ValueError("the reward is not a number")
            if how == "exit":
                os._exit(7)
            if how == "hang":
                time.sleep(3600)
            if how == "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
                return
            os.kill(os.getpid(), signal.SIGKILL)

        task.use(work)
        task.run()


class Tally:
    def __init__(self) -> None:
        self.n = 0
        self.weights: Any = None

    def state_dict(self) -> dict[str, Any]:
        return {"n": self.n, "weights": self.weights}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.n, self.weights = state["n"], state["weights"]


def die_and_go_on(node: int, deaths: list[int], n_steps: int, how: str) -> Any:
    """The worker `node` dies in the passes `deaths`, once each; it must not lose a count."""
    import os
    import signal
    from pathlib import Path

    import numpy as np

    tally = Tally()
    steps: list[int] = []
    with Task() as task:
        task.register("tally", tally)

        def work(ctx: Context) -> None:
            steps.append(ctx.total_step)
            mark = Path(os.environ["MARKS"]) / f"{ctx.total_step}"
            if task.router.node_id == node and ctx.total_step in deaths and not mark.exists():
                mark.touch()
                if how == "raise":
                    raise RuntimeError("once")
                os.kill(os.getpid(), signal.SIGKILL)
            tally.n += 1
            tally.weights = np.full(50_000, tally.n)
            task.counter("passes").add()

        task.use(work)
        task.run(max_step=n_steps, end_others=False)
        assert (tally.weights == tally.n).all()
        assert task.router.wait_until(lambda: task.counter("passes").value == 2 * n_steps, WAIT)
        task.counter("seen").add()
        task.router.wait_until(lambda: task.counter("seen").value == 2, WAIT)
        return tally.n, steps[0], task.router.spec.incarnation  # type: ignore[attr-defined]


def lose_a_queue() -> tuple[int, list[str]]:
    """Node 0 dies when two of six items have been taken from the queue that it hosts, one here and one elsewhere."""
    import logging

    said: list[str] = []

    class Listen(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    logging.getLogger("operant.framework.parallel.remote_queues").addHandler(Listen())
    with Task() as task:
        queue, node = task.queue("data", maxsize=8, host=0), task.router.node_id
        task.expose("here", lambda: True)
        if node == 0 and task.router.spec.incarnation == 0:  # type: ignore[attr-defined]
            assert task.router.wait_until(lambda: queue.qsize() == 6, WAIT)
            queue.get()
            task.counter("taken").add()
            assert task.router.wait_until(lambda: task.counter("taken").value == 2, WAIT)
            assert task.call(1, "here") and task.call(2, "here")  # what was sent before has arrived
            os.kill(os.getpid(), signal.SIGKILL)
        elif node:
            for number in range(5 if node == 1 else 1):
                queue.put(number)
            if node == 2:
                assert task.router.wait_until(lambda: task.counter("taken").value == 1, WAIT)
                queue.get()
                task.counter("taken").add()
        assert task.router.wait_until(lambda: queue.lost == 4, WAIT)
        task.counter("seen").add()
        task.router.wait_until(lambda: task.counter("seen").value == 3, WAIT)
        return queue.lost, said


def in_lockstep(n_steps: int, seed: int) -> Any:
    """Everything that can cross, in amounts that depend on what crossed before."""
    import random

    import numpy as np

    log: list[Any] = []
    with Task() as task:
        node = task.router.node_id or 0
        rng = random.Random(seed + node)
        queue = task.queue("q", maxsize=4, mode="drop_oldest")
        task.on("note", lambda *note: log.append(("heard", *note)))
        task.expose("rng", rng.random)

        def work(ctx: Context) -> None:
            ctx.big = np.full(20_000, rng.random())
            for _ in range(rng.randrange(3)):
                queue.put((node, rng.random()))
            if queue.qsize() > 1:
                log.append(("got", queue.get()))
            view = task.parallel_ctx
            log.append((ctx.total_step, view.peers, [float(view.peer(p).big[7]) for p in view.peers]))
            if rng.random() < 0.3:
                task.emit("note", node, ctx.total_step)
            if rng.random() < 0.3 and node and not ctx.finish:
                log.append(("called", task.call(0, "rng")))
            task.counter("c").add(rng.randrange(5))
            log.append(task.counter("c").value)
            if node == 2 and ctx.total_step == n_steps:
                ctx.finish = True

        task.use(work)
        task.run()
    return log


def wait_for_each_other() -> None:
    with Task() as task:
        task.queue("never").get()


def poll_like_di_engine(n: int) -> list[int]:
    """A loop that polls parallel_ctx and sleeps, as DI-engine's tutorial shows it."""
    import time

    seen: list[int] = []
    with Task() as task:

        def poll(ctx: Context) -> None:
            while True:
                if ctx.finish:
                    return
                if task.parallel_ctx.get("step") is not None and task.parallel_ctx.get("step") > (seen or [-1])[-1]:
                    seen.append(task.parallel_ctx.step)
                    break
                time.sleep(0.001)
            if len(seen) >= n:
                ctx.finish = True

        task.use(poll, filter_labels="node.1")
        task.use(lambda ctx: ctx.update(step=ctx.total_step), filter_labels="node.0")
        task.run()
    return seen


def two_tasks_in_turn() -> list[int]:
    steps = []
    for n_steps in (3, 5):
        with Task() as task:
            task.use(lambda ctx: None)
            task.run(max_step=n_steps)
            steps.append(task.ctx.total_step)
    return steps


def inner_loop() -> int:
    from operant.framework import FrameworkError, Standalone

    with Task():
        try:
            Task()
        except FrameworkError as error:
            assert "already serves a task" in str(error)
        with Task(router=Standalone()) as inner:
            inner.use(lambda ctx: None)
            return inner.run(max_step=4).total_step


def unsendable_result() -> Any:
    return lambda: None


def wait_and_mark(folder: str) -> None:
    import os
    from pathlib import Path

    with Task() as task:
        (Path(folder) / str(task.router.node_id)).write_text(str(os.getpid()))
        task.queue("never").get()


def wait_for_the_hung(node: int) -> None:
    import time

    with Task() as task:

        def work(ctx: Context) -> None:
            if task.router.node_id == node and ctx.total_step == 2:
                time.sleep(3600)
            if task.router.node_id != node:
                task.wait_for("never")

        task.use(work)
        task.run()


def write_past_a_stopped_reader(n_steps: int) -> Any:
    """Node 1 stops itself; node 0 makes its passes all the same, and wakes it up again."""
    import os
    import signal
    from pathlib import Path

    import numpy as np

    with Task() as task:
        if task.router.node_id == 1:
            task.emit("pid", os.getpid())
            has_stopped: list[bool] = []
            while not task.finish:
                view = task.parallel_ctx.wait_newer(WAIT)
                if view is not None and view.get("weights") is not None:
                    assert len(np.unique(view.weights)) == 1
                    if not has_stopped:
                        has_stopped.append(True)
                        os.kill(os.getpid(), signal.SIGSTOP)
            return None

        received = task.wait_for("pid", timeout=WAIT)
        assert received is not None
        (pid,), _ = received
        reader_stopped_at: list[int] = []

        def stopped() -> bool:
            return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"

        def write(ctx: Context) -> None:
            ctx.weights = np.full(200_000, ctx.total_step)
            if not reader_stopped_at and stopped():
                reader_stopped_at.append(ctx.total_step)
            if reader_stopped_at and ctx.total_step >= reader_stopped_at[0] + n_steps and not ctx.finish:
                ctx.finish = True

        task.use(write)
        task.run()
        os.kill(pid, signal.SIGCONT)
        publisher = task.router._publisher  # type: ignore[attr-defined]
        made = task.ctx.total_step - reader_stopped_at[0]
        return made, publisher.n_published - reader_stopped_at[0]


def die_while_publishing(n_deaths: int) -> int:
    """Node 0 is killed by a timer while it does nothing but publish; node 1 checks every value."""
    import os
    import random
    import signal
    import threading

    import numpy as np

    n_read = 0
    with Task() as task:
        if task.router.node_id == 0:
            life = task.router.spec.incarnation  # type: ignore[attr-defined]
            if life < n_deaths:
                delay = 0.1 + random.Random(life).random() / 10
                threading.Timer(delay, os.kill, (os.getpid(), signal.SIGKILL)).start()
            task.use(lambda ctx: ctx.update(weights=np.full(500_000, random.random()), life=life))
            task.run()
            return 0

        lives: set[int] = set()

        def read(ctx: Context) -> None:
            nonlocal n_read
            view = task.parallel_ctx.wait_newer(WAIT)
            if view is not None and view.get("weights") is not None:
                assert len(np.unique(view.weights)) == 1, "torn"
                n_read += 1
                lives.add(view.life)
                if max(lives) >= n_deaths:
                    ctx.finish = True

        task.use(read)
        task.run()
    return n_read


def attach_late() -> Any:
    seen: list[Any] = []
    with Task(attach_callback=lambda view: seen.append(view.get("greeting"))) as task:
        if task.router.node_id == 0:
            task.use(lambda ctx: ctx.update(greeting="from node 0"))
            task.run()
            return None
        task.finish = True
    return seen[0]


def write_labels() -> None:
    import os
    from pathlib import Path

    with Task() as task:
        (Path(os.environ["OUT"]) / str(task.router.node_id)).write_text(" ".join(sorted(task.labels)))


def write_peers() -> None:
    import os
    from pathlib import Path

    with Task() as task:
        task.router.wait_until(lambda: len(task.router.peers) == 1, WAIT)
        peers = sorted(task.router.peers)
        task.counter("seen").add()
        task.router.wait_until(lambda: task.counter("seen").value == 2, WAIT)
        path = Path(os.environ["OUT"]) / str(task.router.node_id)
        path.write_text(f"node.{task.router.node_id}: {peers}")


def fail_at_once() -> None:
    1 / 0  # noqa: B018


def evaluate_throughout(n_steps: int) -> list[bool]:
    """The whole training passes during one evaluation: for each evaluation, whether it saw the end."""
    ends: list[bool] = []
    with Task() as task:

        def train(ctx: Context) -> None:
            task.counter("trained").add()

        def evaluate(ctx: Context) -> None:
            ends.append(task.router.wait_until(lambda: task.counter("trained").value == n_steps, WAIT))

        task.use(train, filter_labels=["node.0"])
        task.use(evaluate, filter_labels=["node.1"])
        task.run(max_step=n_steps if task.match_labels(["node.0"]) else float("inf"))
    return ends


def wait_for_finish() -> None:
    with Task() as task:
        assert task.router.wait_until(lambda: task.finish, WAIT)


def raise_finish() -> None:
    with Task() as task:
        task.finish = True


# -- beside a process that goes on -----------------------------------------------------------------------------------


def feed(marks: str, how: str = "") -> None:
    """Put numbers into a queue until the run ends; the first life of node.1 comes to an end as `how` says."""
    with Task() as task:
        queue = task.queue("numbers", 4)
        first = not (Path(marks) / f"{task.router.node_id}").exists()
        (Path(marks) / f"{task.router.node_id}").write_text(str(os.getpid()))

        def put(ctx: Context) -> None:
            if how and first and task.router.node_id == 1 and ctx.total_step == 3:
                if how == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                if how == "stop":
                    os.kill(os.getpid(), signal.SIGSTOP)
                if how == "raise":
                    raise ValueError("no more numbers")
            queue.put((task.router.node_id, ctx.total_step))

        task.use(put)
        task.run()
