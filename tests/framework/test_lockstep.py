from __future__ import annotations

import mains
import pytest

from operant.framework import Parallel, WorkerDied


def test_a_run_in_lockstep_repeats_bit_by_bit() -> None:
    run = Parallel.runner(3, topology="mesh", schedule="lockstep")
    first = run(mains.in_lockstep, 12, seed=1)
    assert first == run(mains.in_lockstep, 12, seed=1)
    assert first != run(mains.in_lockstep, 12, seed=2)
    kinds = {entry[0] for log in first for entry in log if isinstance(entry, tuple)}
    assert {"heard", "got", "called"} <= kinds


def test_a_loop_that_polls_passes_its_turn_on() -> None:
    run = Parallel.runner(2, schedule="lockstep")
    first = run(mains.poll_like_di_engine, 5)
    assert len(first[1]) == 5 and first == run(mains.poll_like_di_engine, 5)


def test_time_limits_run_out_when_nobody_can_move() -> None:
    host, other = Parallel.runner(2, schedule="lockstep")(mains.queue_limits)
    assert host[0] == other[0] == "queue 'q' stayed empty for 0.05 s"


def test_workers_that_all_wait_are_told_so() -> None:
    with pytest.raises(WorkerDied, match=r"every worker waits for another: node\.0 for queue 'never': get"):
        Parallel.runner(2, schedule="lockstep")(mains.wait_for_each_other)
