from __future__ import annotations

import pytest

from operant.framework import Context, Task, match_labels
from operant.framework.parallel.standalone import Standalone


def test_a_task_alone_is_standalone() -> None:
    assert Task().labels == {"standalone"}
    with Task(async_mode=True, labels=["gpu"]) as task:
        assert task.labels == {"standalone", "async", "gpu"}


def test_labels_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPERANT_LABELS", "collector, big-memory")
    assert Task(labels="gpu,debug").labels == {"standalone", "collector", "big-memory", "gpu", "debug"}


@pytest.mark.parametrize(
    ("globs", "expected"),
    [
        (["standalone"], True),
        ("node.*", False),
        (["node.1", "stand*"], True),
        ([], False),
        ("x, standalone", True),
    ],
)
def test_filter_labels_decide_what_is_in_use(globs: str | list[str], expected: bool) -> None:
    ran = []

    def middleware(ctx: Context) -> None:
        ran.append(True)

    with Task() as task:
        task.use(middleware, filter_labels=globs)
        task.run(max_step=1)
        assert task.match_labels(globs) is expected
    assert bool(ran) is expected


def test_a_worker_is_called_by_its_number() -> None:
    router = Standalone()
    router.node_id = 3
    router.labels = frozenset({"rack.7"})
    task = Task(router=router)
    assert task.labels == {"distributed", "node.3", "rack.7"}
    assert match_labels(task.labels, "node.[1-3]") and not match_labels(task.labels, "node.[12]")
