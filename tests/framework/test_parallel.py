from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import mains
import pytest
from tests.machine import patience

from operant.framework import Parallel, WorkerDied


def test_results_come_back_in_order() -> None:
    assert Parallel.runner(3, topology="star")(mains.return_node_id, factor=10) == [0, 10, 20]
    assert Parallel.runner(2, node_ids=5)(mains.return_node_id) == [5, 6]


@pytest.mark.parametrize(
    ("topology", "linked"),
    [("star", [[1, 2], [0], [0]]), ("mesh", [[1, 2], [0, 2], [0, 1]]), ("alone", [[], [], []])],
)
def test_topologies_and_labels(topology: Any, linked: list[list[int]]) -> None:
    told = Parallel.runner(3, topology=topology, labels={0: "learner"})(mains.tell_peers_and_labels)
    assert [peers for peers, _, _ in told] == linked
    assert [labels for _, labels, _ in told] == [
        ["distributed", "learner", "node.0"],
        ["distributed", "node.1"],
        ["distributed", "node.2"],
    ]
    assert [is_learner for _, _, is_learner in told] == [True, False, False]


def test_one_worker_is_the_calling_process() -> None:
    (result,) = Parallel.runner(1)(mains.train_and_evaluate, 5)
    assert [train_iter for train_iter, _ in result["evaluated"]][:5] == [1, 2, 3, 4, 5]
    assert result["saved"][-1] == 6


def test_evaluate_in_another_process_as_in_di_engine() -> None:
    trained, evaluated = Parallel.runner(2, topology="star")(mains.train_and_evaluate, 50)
    iterations = [train_iter for train_iter, _ in evaluated["evaluated"]]
    assert iterations == sorted(set(iterations)) and iterations[-1] >= 50
    assert all(train_iter == weight for train_iter, weight in evaluated["evaluated"])
    assert not trained["evaluated"] and trained["saved"]


def test_a_slow_evaluate_that_is_split_off_no_longer_slows_the_loop() -> None:
    trained, evaluated = Parallel.runner(2, topology="star")(mains.evaluate_throughout, 20)
    assert not trained and evaluated and all(evaluated)


def test_a_loop_that_polls_as_in_di_engine() -> None:
    assert len(Parallel.runner(2)(mains.poll_like_di_engine, 5)[1]) == 5


def test_events_cross_in_order_and_reach_whom_they_should() -> None:
    told, *heard = Parallel.runner(3, topology="star")(mains.exchange_events, 2_000)
    assert told == [("here", {}), ("everywhere", {"unit": "ms"})]
    for one in heard:
        assert one == [(number, {}) for number in range(2_000)] + [("everywhere", {"unit": "ms"})]


def test_an_event_before_the_loop_begins_is_not_lost() -> None:
    assert Parallel.runner(2)(mains.early_event) == [[], [7]]


def test_a_listener_that_fails_fails_its_own_loop() -> None:
    with pytest.raises(WorkerDied, match=r"node\.1 raised") as caught:
        Parallel.runner(2)(mains.failing_listener)
    assert "ZeroDivisionError" in str(caught.value) and "listener of the event 'bad'" in str(caught.value)


def test_a_blocking_queue_loses_nothing_and_keeps_the_order_of_each_writer() -> None:
    received, *_ = Parallel.runner(3, topology="star")(mains.queue_round, "block", 50)
    assert sorted(received) == [(source, number) for source in (1, 2) for number in range(50)]
    for source in (1, 2):
        assert [number for other, number in received if other == source] == list(range(50))


def test_a_queue_that_drops_its_oldest_counts_them() -> None:
    (newest, dropped), seen_by_writer, _ = Parallel.runner(3, topology="star")(mains.queue_round, "drop_oldest", 10)
    assert newest == [7, 8, 9] and dropped == 7 and seen_by_writer == 7


def test_time_limits_of_queues_and_their_end_at_finish() -> None:
    host, other = Parallel.runner(2)(mains.queue_limits)
    assert host == [
        "queue 'q' stayed empty for 0.05 s",
        "get at finish: first, None",
        "put at finish: True, False",
    ]
    assert other == [
        "queue 'q' stayed empty for 0.05 s",
        "queue 'q' stayed full (1 items) for 0.05 s",
        "put at finish: False",
    ]


def test_counters_sum_over_all_writers_also_between_leaves() -> None:
    assert Parallel.runner(3, topology="star")(mains.count, 200) == [(1200, 400, 3)] * 3


def test_calls_return_values_and_errors() -> None:
    answers, *_ = Parallel.runner(3)(mains.call_each_other)
    assert answers[:2] == [True, 42]
    assert answers[2].startswith("RemoteError: 'fail' failed on node.1") and "KeyError: 'missing'" in answers[2]
    assert "does not expose 'unknown'; it exposes double, fail" in answers[3]
    assert "'node.*' matches 2 (linked: node.1, node.2)" in answers[4]
    assert "9 matches 0" in answers[5]


def test_snapshots_are_whole_private_and_only_what_is_shared() -> None:
    (n_steps, n_published, large), first, second = Parallel.runner(3, topology="star")(mains.snapshots, 20)
    assert len(first) == 20 and first == sorted(set(first)) and second == sorted(set(second))
    assert large == ["state", "unread"] and n_published <= n_steps


def test_sharing_everything_warns_once_for_each_reason() -> None:
    messages, keys = Parallel.runner(2)(mains.share_everything)
    assert len(messages) == 2, messages
    assert any("2.4 MB in this loop" in message and "task.share" in message for message in messages)
    assert any("ctx.generator does not reach the other workers" in message for message in messages)
    assert {"big", "small", "total_step", "finish", "handle"} <= set(keys) and "generator" not in keys


def test_tasks_that_follow_each_other_do_not_share_their_finish() -> None:
    first, second = Parallel.runner(2)(mains.two_tasks_in_turn)
    assert max(first[0], second[0]) == 2 and max(first[1], second[1]) == 4


def test_an_inner_task_says_what_to_do() -> None:
    assert Parallel.runner(2)(mains.inner_loop) == [3, 3]


def test_main_must_be_importable_and_its_result_sendable() -> None:
    with pytest.raises(TypeError, match="top level of a module"):
        Parallel.runner(2)(lambda: None)
    with pytest.raises(WorkerDied, match=r"what main returned on node\.[01] cannot be sent back"):
        Parallel.runner(2)(mains.unsendable_result)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"topology": "ring"}, "topology is one of 'star', 'mesh', 'alone'; got 'ring'"),
        ({"engine": "spark"}, "engine is one of"),
        ({"node_ids": [1, 1]}, "a node id of its own"),
        ({"ports": [1, 2, 3], "protocol": "tcp", "secret": "s"}, "ports gives 3 numbers for 2 workers"),
        ({"attach_to": ["localhost"], "secret": "s"}, "tcp://host:port or ipc://name"),
        ({"protocol": "tcp"}, "needs a shared secret"),
        ({"attach_to": ["tcp://h:1"]}, "needs a shared secret"),
        ({"labels": {7: "x"}}, r"node ids \[7\]; the run has \[0, 1\]"),
        ({"schedule": "lockstep", "auto_recover": True}, "lockstep is for runs that one supervisor controls"),
        ({"stall_timeout": 0}, "above 0"),
    ],
)
def test_wrong_settings_say_what_would_be_right(
    settings: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPERANT_SECRET", raising=False)
    with pytest.raises(ValueError, match=message):
        Parallel.runner(2, **settings)(mains.return_node_id)


def test_a_main_module_without_a_guard_is_told_what_is_missing(tmp_path: Path) -> None:
    script = tmp_path / "unguarded.py"
    script.write_text("from operant.framework import Parallel\n\n\ndef main(): ...\n\n\nParallel.runner(2)(main)\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=patience(120))
    assert done.returncode != 0
    assert done.stderr.strip().endswith("put the call of Parallel.runner under `if __name__ == '__main__':`")
    assert done.stderr.count("Traceback") == 1  # of the program itself; its workers say nothing
