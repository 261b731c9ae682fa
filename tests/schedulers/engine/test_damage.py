"""Damage of a journal: told in every view, kept to its search, and never gone on with unasked."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from tests.schedulers.scenarios import config, simulated

from operant.errors import UsageError
from operant.schedulers.engine.state import read_state
from operant.schedulers.views.journal_text import last_lines
from operant.schedulers.views.live import LiveSearch
from operant.schedulers.views.overview import describe
from operant.sites import Simulation, Submission
from operant.tracking.format.blocks import RECORDS, BlockTail, encode_block, encode_file_header
from operant.tracking.identity import process_identity

JOURNALS = Path(__file__).parents[1] / "journals"


def blocks_of(folder: Path) -> list[Any]:
    return BlockTail(folder / "journal.log").poll()


@pytest.fixture
def search(tmp_path: Path) -> Path:
    """A search that has ended; only its journal and the lease it gave back are left."""
    folder = tmp_path / "searches" / "grid"
    folder.mkdir(parents=True)
    (folder / "journal.log").write_bytes((JOURNALS / "grid.log").read_bytes())
    (folder / "lease.json").write_text('{"epoch": 1, "released": true}')
    return folder


def flip(folder: Path, at: int, mask: int = 0x40) -> None:
    data = bytearray((folder / "journal.log").read_bytes())
    data[at] ^= mask
    (folder / "journal.log").write_bytes(data)


def test_a_sound_journal_is_not_called_damaged(search: Path) -> None:
    assert describe(search)["damage"] is None
    assert LiveSearch(search).summary()["damage"] is None


def test_a_flipped_bit_is_told_wherever_it_is(search: Path) -> None:
    sound = (search / "journal.log").read_bytes()
    expected = describe(search)
    generator = random.Random(4)
    for _ in range(150):
        at = generator.randrange(32, len(sound))
        flip(search, at, 1 << generator.randrange(8))
        found = describe(search)
        damage = found["damage"]
        assert damage is not None and damage.startswith("journal damaged at byte "), at
        block = max(one.offset for one in BlockTail(JOURNALS / "grid.log").poll() if one.offset <= at)
        assert int(damage.split()[4].rstrip(":")) == block
        assert LiveSearch(search).summary()["damage"] == damage
        assert last_lines(search, 5)
        known = {job["id"]: job for job in expected["jobs"]}
        for job in found["jobs"]:  # what is left is as it was, or has less to tell
            assert job["arg_dict"] == known[job["id"]]["arg_dict"]
            assert job["reward"] in (None, known[job["id"]]["reward"])
        (search / "journal.log").write_bytes(sound)


def test_the_count_is_that_of_the_records_that_are_gone(search: Path) -> None:
    first, second, third, fourth = blocks_of(search)[:4]
    flip(search, second.offset + 30)
    missing = third.sequence - second.sequence
    text = describe(search)["damage"]
    assert text.startswith(f"journal damaged at byte {second.offset}: ")
    assert int(text.split()[5]) >= missing > 0 and fourth.sequence > first.sequence


def test_bytes_between_blocks_are_told_though_no_number_is_missing(search: Path) -> None:
    """As where pieces of two files were exchanged, and the numbers of their records happen to fit."""
    data, second = (search / "journal.log").read_bytes(), blocks_of(search)[1]
    (search / "journal.log").write_bytes(data[: second.offset] + b"\0" * 64 + data[second.offset :])
    assert describe(search)["damage"] == f"journal damaged at byte {second.offset}: 1 record unreadable"


def test_a_tail_that_a_kill_cut_short_is_no_damage(search: Path) -> None:
    killed = {**process_identity(), "boot": "another", "epoch": 1, "released": False}
    (search / "lease.json").write_text(json.dumps(killed))
    data = (search / "journal.log").read_bytes()
    last = blocks_of(search)[-1]
    for end in range(last.offset, len(data)):
        (search / "journal.log").write_bytes(data[:end])
        assert describe(search)["damage"] is None, end
    (search / "journal.log").write_bytes(data)
    flip(search, last.offset + 30)  # whole, and wrong: no kill does that
    assert describe(search)["damage"] == f"journal damaged at byte {last.offset}: 1 record unreadable"


def test_a_cut_behind_the_last_word_of_a_controller_is_damage(search: Path) -> None:
    data = (search / "journal.log").read_bytes()
    (search / "journal.log").write_bytes(data[:-9])
    assert "1 record unreadable" in describe(search)["damage"]


def test_an_empty_journal_and_one_without_its_beginning(search: Path) -> None:
    data = (search / "journal.log").read_bytes()
    first, second = blocks_of(search)[:2]
    (search / "journal.log").write_bytes(data[: first.offset] + data[second.offset :])
    found = describe(search)
    assert found["damage"].startswith(f"journal damaged at byte {first.offset}: ") and found["status"] == "FINISHED"
    for nothing in (b"", data[:32], data[:7]):
        (search / "journal.log").write_bytes(nothing)
        found = describe(search)
        assert (found["status"], found["jobs"]) == ("ERROR", [])
        assert found["damage"] == "journal damaged: it is empty, though the search has run"
    (search / "journal.log").unlink()
    (search / "journal.log").mkdir()
    assert describe(search)["damage"].startswith("journal damaged: it cannot be read (")


VALUES: list[Any] = [None, True, 10**400, float("nan"), "../../x", [[1]], {"a": {}}]


def test_records_of_wrong_kinds_are_passed_over(search: Path) -> None:
    """Checksums fit, as in an archive that somebody made: each field of each record in turn holds all sorts."""
    records: list[dict[str, Any]] = []
    for name in ("function", "seeds_racing", "messages", "hpo_inline"):
        seen = set()
        for block in BlockTail(JOURNALS / f"{name}.log").poll():
            for line in str(block.payload, "ascii").split("\n"):
                record = json.loads(line)
                if record["type"] not in seen:
                    seen.add(record["type"])
                    records.append(record)
    opened = next(one for one in records if one["type"] == "opened")
    for record in records:
        for key in record:
            for value in VALUES:
                lines = [opened, {"type": "proposed", "epoch": 1, "number": 0, "config": {"x": 1.0}}]
                lines += [{"type": "submitting", "epoch": 1, "job": "0", "number": 0, "attempt": 1, "token": "t"}]
                lines += [{**record, key: value}]
                text = "\n".join(map(json.dumps, lines)).encode()
                head = encode_file_header(2, 0, 0)
                (search / "journal.log").write_bytes(head + encode_block(RECORDS, 0, text))
                found = describe(search)
                assert all("/" not in job["id"] for job in found["jobs"])
                json.dumps(found)
                live = LiveSearch(search)
                live.summary()
                last_lines(search, 9)


def test_what_is_no_record_is_counted(search: Path) -> None:
    head = encode_file_header(2, 0, 0)
    for payload in (b"{", b"[1]\n2\nnull", b"[" * 100_000, b"\xff", b'{"type": 5}', b'{"number": 1}'):
        (search / "journal.log").write_bytes(head + encode_block(RECORDS, 0, payload))
        assert describe(search)["damage"].startswith("journal damaged at byte 32: "), payload[:20]


def behave(job: Submission) -> Simulation:
    return Simulation(1.0, {"acc": float(job.config["x"])})


def test_a_resume_says_what_is_lost_and_asks_once(tmp_path: Path) -> None:
    folder, plan = tmp_path / "s", config({"stop_criterion": {"max_tries": 6}})
    simulated(folder, plan, behave).run()
    proposed = [one for one in blocks_of(folder) if b'"proposed"' in bytes(one.payload)]
    flip(folder, proposed[1].offset + 40)
    before = (folder / "journal.log").read_bytes()
    with pytest.raises(UsageError, match=r"journal damaged at byte \d+: .* lost .*--force goes on without them"):
        simulated(folder, plan, behave, resume=True).run()
    assert (folder / "journal.log").read_bytes() == before
    longer = config({"stop_criterion": {"max_tries": 8}})
    assert simulated(folder, longer, behave, resume=True, force=True).run().status == "FINISHED"
    state, _ = read_state(folder)
    assert state.damage and len(state.jobs) == len({job.number for job in state.jobs.values()})
    simulated(folder, longer, behave, resume=True).run()  # who was told is not asked again


def test_a_damaged_last_block_is_kept_until_somebody_goes_on(tmp_path: Path) -> None:
    folder, plan = tmp_path / "s", config({"stop_criterion": {"max_tries": 3}})
    simulated(folder, plan, behave).run()
    flip(folder, blocks_of(folder)[-1].offset + 40)
    before = (folder / "journal.log").read_bytes()
    with pytest.raises(UsageError, match="1 record unreadable"):
        simulated(folder, plan, behave, resume=True).run()
    assert (folder / "journal.log").read_bytes() == before
    simulated(folder, plan, behave, resume=True, force=True).run()
    assert describe(folder)["damage"] is None


@pytest.mark.parametrize(
    "content", ["[" * 50_000, "5", '{"epoch": "x", "pid": {}, "released": 3}', '{"epoch": -1}', ""]
)
def test_a_lease_of_wrong_kinds_is_nobodys(tmp_path: Path, content: str) -> None:
    folder, plan = tmp_path / "s", config({"stop_criterion": {"max_tries": 3}})
    simulated(folder, plan, behave).run()
    (folder / "lease.json").write_text(content)
    assert describe(folder)["status"] == "FINISHED"
    simulated(folder, plan, behave, resume=True).run()


def test_messages_of_wrong_kinds_do_not_end_a_search(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    inbox = folder / "inbox"
    inbox.mkdir(parents=True)
    contents = ["[" * 50_000, "5", '{"type": 5}', '{"type": "stop", "jobs": 7}', '{"type": "limits", "max_tries": {}}']
    contents += ['{"type": "tags", "add": 3}', '{"type": "note", "text": []}', '{"type": "limits", "time_limits": []}']
    for number, content in enumerate(contents):
        (inbox / f"{number:020d}-00000000.json").write_text(content)
    (inbox / "folder.json").mkdir()
    os.mkfifo(inbox / "pipe.json")
    assert simulated(folder, config({"stop_criterion": {"max_tries": 3}}), behave).run().status == "FINISHED"
    assert describe(folder)["damage"] is None
    LiveSearch(folder).summary()


@pytest.mark.parametrize("name", ["journal.log", "lease.json"])
@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_what_is_no_file_is_neither_waited_for_nor_read_without_end(search: Path, name: str, kind: str) -> None:
    (search / name).unlink()
    if kind == "pipe":
        os.mkfifo(search / name)
    elif kind == "folder":
        (search / name).mkdir()
    else:
        (search / name).symlink_to("/dev/zero")
    damage = describe(search)["damage"]
    assert bool(damage) == (name == "journal.log")
