"""The journal of a search: numbered, fenced, followed, never half written."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from operant.errors import OperantError
from operant.tracking.format.blocks import BlockTail, decode_records
from operant.tracking.journal import (
    Journal,
    JournalReader,
    Lease,
    LeaseHeldError,
    collect_messages,
    post_message,
    trial_lines,
)
from operant.tracking.journal.damage import is_sound


def records(folder: Path) -> list[tuple[int, int, object]]:
    return [(entry.sequence, entry.epoch, entry.record["n"]) for entry in JournalReader(folder).poll()]


def test_what_was_committed_is_replayed_in_order(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "s") as journal:
        assert [journal.append("counted", n=n) for n in range(5)] == [0, 1, 2, 3, 4]
        journal.commit()
        journal.append("counted", n=5)
    with Journal.open(tmp_path / "s") as journal:
        assert [(entry.sequence, entry.record["n"]) for entry in journal.replay()] == [(n, n) for n in range(6)]
        assert journal.epoch == 2
        assert journal.append("counted", n=6) == 6
        journal.commit(durable=True)
    assert records(tmp_path / "s") == [*((n, 1, n) for n in range(6)), (6, 2, 6)]


def test_a_line_may_stand_for_several_records(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "s") as journal:
        lines = trial_lines.Lines(journal.epoch, "acc")
        journal.append("x", n=0)
        journal.append_line(*lines.begun(3, {"lr": 0.5}, {"parent": 1}))
        journal.commit()
        journal.append_line(*lines.done(3, {"acc": 0.25}, 1.5, 2.5, {"time": 1.0}, [(0, 0.125, 2.0)]))
        assert journal.append("x", n=1) == 7
    expected = [
        {"type": "x", "n": 0},
        {"type": "proposed", "number": 3, "config": {"lr": 0.5}, "parent": 1},
        {"type": "submitting", "job": "3", "number": 3, "seed": None, "attempt": 1, "token": "3/1/1"},
        {"type": "reported", "job": "3", "step": 0, "value": 0.125, "wall": 2.0},
        {"type": "returned", "number": 3, "time": 1.0},
        {"type": "ended", "job": "3", "attempt": 1, "status": "FINISHED", "wall": 2.5, "reward": 0.25, "code": 0}
        | {"started": 1.5},
        {"type": "observed", "number": 3, "status": "FINISHED", "values": {"acc": 0.25}, "reward": 0.25},
        {"type": "x", "n": 1},
    ]
    assert [(one.sequence, one.epoch, one.record) for one in JournalReader(tmp_path / "s").poll()] == [
        (place, 1, record) for place, record in enumerate(expected)
    ]
    with Journal.open(tmp_path / "s") as journal:
        assert [entry.record for entry in journal.replay()] == expected
        assert journal.append("x", n=2) == 8


@pytest.mark.parametrize("reward", [0.25, 3, math.nan, -math.inf])
@pytest.mark.parametrize("value", [0.5, 7, math.nan, "é", None, {"a": [1.5]}])
@pytest.mark.parametrize("more", [{}, {"other": 2.5}])
def test_what_is_put_together_by_hand_reads_as_what_the_encoder_writes(reward: Any, value: Any, more: Any) -> None:
    values = {'a "name"': reward, **more}
    returned = {"time": 1e-7, "value": value}
    line, count = trial_lines.Lines(4, 'a "name"').done(12, values, 1.0, 2.0, returned)
    [found] = decode_records(line.encode("ascii"))
    expected = {"type": "done", "epoch": 4, "number": 12, "values": values, "of": 'a "name"', "wall": 2.0}
    assert repr(found) == repr({**expected, "returned": returned}) and count == trial_lines.records_in(found) == 3


def test_lines_of_an_earlier_version_are_read(tmp_path: Path) -> None:
    """It wrote every report by itself, and with each end when the trial began."""
    with Journal.open(tmp_path / "s") as journal:
        journal.append_line('{"type":"begun","epoch":1,"number":0,"config":{"x":0.5}}', 2)
        journal.append("reported", job="0", step=0, value=0.5, wall=1.75)
        journal.append_line(
            '{"type":"done","epoch":1,"number":0,"values":{"acc":0.5},"of":"acc","started":1.5,"wall":2.0,'
            '"returned":{"time":0.25,"value":0.5}}',
            3,
        )
    entries = list(JournalReader(tmp_path / "s").poll())
    assert [entry.sequence for entry in entries] == list(range(6))
    assert entries[4].record["type"] == "ended" and entries[4].record["started"] == 1.5


def test_a_controller_that_writes_line_after_line_soon_sees_that_it_was_replaced(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "s")
    lease = tmp_path / "s" / "lease.json"
    (tmp_path / "new").write_text(lease.read_text().replace('"epoch": 1', '"epoch": 2'))
    (tmp_path / "new").replace(lease)
    with pytest.raises(OperantError, match="another controller has taken over"):
        while True:
            journal.commit_line('{"type":"x","epoch":1}', 1)
    with pytest.raises(OperantError, match="another controller has taken over"):
        journal.close()


def test_a_reader_follows(tmp_path: Path) -> None:
    reader = JournalReader(tmp_path / "s")
    assert list(reader.poll()) == []
    with Journal.open(tmp_path / "s") as journal:
        for n in range(3):
            journal.append("x", n=n)
            journal.commit()
            assert [entry.record for entry in reader.poll()] == [{"type": "x", "n": n}]
        assert list(reader.poll()) == []


def test_a_second_controller_is_refused_with_host_and_pid(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "s"):
        with pytest.raises(LeaseHeldError, match=f"process {os.getpid()} on host"):
            Journal.open(tmp_path / "s")
        script = (
            "import sys, pathlib\nfrom operant.tracking.journal import *\n"
            "try: Journal.open(pathlib.Path(sys.argv[1]))\nexcept LeaseHeldError as error: print(error)"
        )
        done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "s")], capture_output=True, text=True)
        assert f"'s' is already run by process {os.getpid()}" in done.stdout
    Journal.open(tmp_path / "s").close()


HOLDER = """
import sys, pathlib, os, signal
from operant.tracking.journal import Journal
journal = Journal.open(pathlib.Path(sys.argv[1]))
journal.append("x", n=0)
journal.commit()
print("ready", flush=True)
for line in sys.stdin:
    journal.append("x", n=int(line))
    try:
        journal.commit()
        print("written", flush=True)
    except Exception as error:
        print(error, flush=True)
"""


def holder(folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def test_the_lease_of_a_killed_controller_is_free_at_once(tmp_path: Path) -> None:
    process = holder(tmp_path / "s")
    process.kill()
    process.communicate()
    with Journal.open(tmp_path / "s") as journal:
        assert journal.epoch == 2
        assert [entry.record["n"] for entry in journal.replay()] == [0]


def test_a_controller_that_wakes_up_after_it_was_replaced_is_fenced_off(tmp_path: Path) -> None:
    """Its lock is gone (here: forced); what it still tries to write is refused, or passed over by readers."""
    process = holder(tmp_path / "s")
    process.send_signal(signal.SIGSTOP)
    lease = tmp_path / "s" / "lease.json"
    stolen = lease.read_text().replace('"epoch": 1', '"epoch": 2')
    (tmp_path / "new").write_text(stolen)
    (tmp_path / "new").replace(lease)
    process.send_signal(signal.SIGCONT)
    out, _ = process.communicate("7\n")
    assert "another controller has taken over" in out
    assert records(tmp_path / "s") == [(0, 1, 0)]


def test_entries_of_an_older_epoch_are_passed_over(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    old = Journal.open(folder)
    old.append("x", n=0)
    old.commit()
    old.lease.release()
    new = Journal.open(folder)
    new.append("x", n=1)
    new.commit()
    old.lease._mark = new.lease._mark  # as if its check had come just before the take-over
    old.append("x", n=99)
    old.commit()
    new.append("x", n=2)
    new.commit()
    assert records(folder) == [(0, 1, 0), (1, 2, 1), (2, 2, 2)]
    new.close()


def test_a_torn_tail_is_cut_and_written_over(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "s") as journal:
        for n in range(3):
            journal.append("x", n=n)
            journal.commit()
    path = tmp_path / "s" / "journal.log"
    path.write_bytes(path.read_bytes()[:-9])
    with Journal.open(tmp_path / "s") as journal:
        assert [entry.record["n"] for entry in journal.replay()] == [0, 1]
        assert journal.append("x", n=7) == 2
    assert [n for _, _, n in records(tmp_path / "s")] == [0, 1, 7]


def test_a_full_disk_writes_nothing_by_halves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    room = [300]

    def write(descriptor: int, data: memoryview) -> int:
        if room[0] <= 0:
            raise OSError(28, "No space left on device")
        done = real(descriptor, data[: room[0]])
        room[0] -= done
        return done

    with Journal.open(tmp_path / "s") as journal:
        journal.append("x", n=0)
        journal.commit()
        monkeypatch.setattr(os, "write", write)
        journal.append("x", n=1, pad="z" * 1000)
        with pytest.raises(OSError, match="No space left"):
            journal.commit()
        assert [n for _, _, n in records(tmp_path / "s")] == [0]
        room[0] = 10**9
        journal.commit()
    assert [n for _, _, n in records(tmp_path / "s")] == [0, 1]


def test_a_closed_journal_takes_nothing(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "s")
    journal.close()
    journal.close()
    journal.append("x", n=0)
    with pytest.raises(OperantError, match="closed"):
        journal.commit()


def test_a_lease_where_the_file_system_has_no_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    def no_locks(*_: object) -> None:
        raise OSError(37, "No locks available")

    process = holder(tmp_path / "s")
    monkeypatch.setattr(fcntl, "lockf", no_locks)
    with pytest.raises(LeaseHeldError, match=str(process.pid)):
        Lease.acquire(tmp_path / "s")
    process.kill()
    process.communicate()
    Lease.acquire(tmp_path / "s").release()


def test_messages_wait_in_order_and_nonsense_is_moved_aside(tmp_path: Path) -> None:
    for number in range(3):
        post_message(tmp_path, {"type": "note", "number": number})
    (tmp_path / "inbox" / "0.json").write_text("not json")
    (tmp_path / "inbox" / "1.json").write_text('["no object"]')
    (tmp_path / "inbox" / "2.json").symlink_to("/etc/passwd")
    found = collect_messages(tmp_path)
    assert [message.content["number"] for message in found] == [0, 1, 2]
    for message in found:
        message.done()
    assert collect_messages(tmp_path) == []


def test_the_usual_forms_of_records_are_judged_as_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    journals = (Path(__file__).parents[1] / "schedulers" / "journals").glob("*.log")
    sound = [line for path in journals for block in BlockTail(path).poll() for line in decode_records(block.payload)]
    odd = [
        None,
        True,
        1,
        0.5,
        float("nan"),
        float("inf"),
        10**400,
        "x",
        [],
        [[0, 1.0]],
        {},
        {"acc": "x"},
        {"acc": 10**400},
    ]
    sound += [{"type": "started", "epoch": 1, "job": "0", "attempt": 1, "wall": 1.5}]
    kinds = {line["type"]: line for line in sound}
    tried = [{**line, key: value} for line in kinds.values() for key in line for value in odd]
    tried += [{**line, key: value} for line in kinds.values() for key in ("wall", "budget", "reports") for value in odd]
    tried += [{key: line[key] for key in line if key != gone} for line in kinds.values() for gone in line]
    found = [is_sound(one) for one in sound + tried]
    monkeypatch.setattr("operant.tracking.journal.damage._USUAL", {})
    assert found == [is_sound(one) for one in sound + tried]
    assert all(found[: len(sound)]) and not all(found)
