"""Notes and tags of runs on a server: said on either side, each kept once, the latest counts."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.machine import patience
from tests.tracking.serving import Server

from operant import Run, SummaryWriter
from operant.cli import main
from operant.tracking.journal.inbox import collect_messages, post_message
from operant.tracking.places import run_dir
from operant.tracking.remote.client import Client, RefusedError
from operant.tracking.remote.send import say_of_run, spool_root

pytest.importorskip("uvicorn", reason="operant[web] is not installed")
pytestmark = pytest.mark.usefixtures("server")


@pytest.fixture
def far(server: Server) -> str:
    """A run that is whole on the server."""
    with SummaryWriter("far", tags=["first"], system_metrics=False) as writer:
        writer.add_scalar("x", 1.0, 0)
    return writer.run_id


def waiting(server: Server) -> list[Path]:
    return sorted(path for path in spool_root(server.uri).rglob("inbox/*") if path.is_file())


def told(server: Server, run_id: str) -> tuple[str, list[str]]:
    run = Run.open(run_id, server.root)
    return run.note, run.tags


def test_what_is_said_here_is_on_the_server_at_once(
    server: Server,
    far: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["runs", "note", far, "too slow", "--add", "second", "--remove", "first"]) == 0
    assert capsys.readouterr().out == f"{far}: noted on 127.0.0.1:{server.port}\n"
    assert told(server, far) == ("too slow", ["second"])
    assert not (spool_root(server.uri) / "runs" / far).exists()
    assert main(["runs", "note", "nowhere", "x"]) == 1
    assert "there is no run 'nowhere' on this machine nor on" in capsys.readouterr().err
    assert main(["runs", "note", far]) == 1 and "give a text, or tags" in capsys.readouterr().err


def test_a_run_on_this_machine_is_noted_here(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OPERANT_TRACKING_URI")
    with SummaryWriter("near", system_metrics=False) as writer:
        writer.add_scalar("x", 1.0, 0)
    assert main(["runs", "note", "near", "mine", "--add", "a", "--add", "b"]) == 0
    run = Run.open(writer.run_id)
    assert (run.note, run.tags) == ("mine", ["a", "b"])
    assert main(["runs", "note", "near", ""]) == 0 and Run.open(writer.run_id).note == ""
    assert main(["runs", "note", "other", "x"]) == 1 and "there is no run 'other'" in capsys.readouterr().err
    assert main(["runs", "note", "near", "--add", "x" * 201]) == 1 and "a tag is a text of" in capsys.readouterr().err


def test_the_latest_word_counts_whichever_side_said_it(
    server: Server,
    far: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    there = run_dir(server.root, far)
    server.kill()
    assert main(["runs", "note", far, "here, first", "--add", "mine", "--remove", "first"]) == 0
    assert "does not answer" in (said := capsys.readouterr().out) and "`operant sync` sends it" in said
    post_message(there, {"type": "note", "text": "there, later"})
    post_message(there, {"type": "tags", "add": ["first"], "remove": ["mine"]})
    server.start()
    assert main(["sync"]) == 0 and f"sent 1 run\n  {far}" in capsys.readouterr().out
    assert told(server, far) == ("there, later", ["first"])
    assert waiting(server) == []
    server.kill()
    assert main(["runs", "note", far, "here, last"]) == 0
    server.start()
    assert main(["sync"]) == 0
    assert told(server, far) == ("here, last", ["first"])
    names = [one.path.name for one in collect_messages(there)]
    assert main(["sync"]) == 0 and [one.path.name for one in collect_messages(there)] == names


def test_what_is_said_of_a_run_under_way_goes_with_it(server: Server) -> None:
    server.kill()
    with SummaryWriter("under-way", system_metrics=False) as writer:
        writer.add_scalar("x", 1.0, 0)
        writer.flush()
        assert "the note waits in" in say_of_run(server.uri, writer.run_id, [{"type": "note", "text": "watch it"}])
        server.start()
    assert told(server, writer.run_id) == ("watch it", [])
    assert not (spool_root(server.uri) / "runs" / writer.run_id).exists()


def test_a_note_on_a_run_the_server_has_nothing_of_waits(server: Server) -> None:
    folder = run_dir(spool_root(server.uri), "young")
    post_message(folder, {"type": "note", "text": "early"})
    assert main(["sync"]) == 0
    assert len(collect_messages(folder)) == 1 and not run_dir(server.root, "young").exists()


def test_what_the_server_will_never_take_is_put_aside(
    server: Server,
    far: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    folder = run_dir(spool_root(server.uri), far)
    post_message(folder, {"type": "stop"})
    post_message(folder, {"type": "note", "text": "good"})
    (folder / "inbox" / "damaged.json").write_text("{")
    assert main(["sync"]) == 0
    assert told(server, far)[0] == "good"
    assert any("is not sent" in record.message for record in caplog.records)
    assert len(waiting(server)) == 2 and all(path.name.startswith(".refused-") for path in waiting(server))


def test_what_no_server_takes(server: Server, far: str) -> None:
    name = f"{1:020d}-0123abcd.json"
    good = json.dumps({"type": "note", "text": "x", "smuggled": 1}).encode()
    with Client(server.uri, server.token) as client:
        for wrong in ("../../x.json", ".x.json", "1-0123abcd.json", name[:-5], f"{name}\n", ""):
            with pytest.raises(RefusedError, match="400"):
                client.send_message(far, wrong, good)
        bodies: list[object] = [
            [], 1, {"type": "stop"}, {"type": "note"}, {"type": "note", "text": "x" * (1 << 17)},
            {"type": "tags"}, {"type": "tags", "add": [""]}, {"type": "tags", "add": ["x"] * 101},
        ]  # fmt: skip
        for body in (*(json.dumps(one).encode() for one in bodies), b"{", b"[" * 100_000, b'"' + b"x" * (2 << 20)):
            with pytest.raises(RefusedError, match="400"):
                client.send_message(far, name, body)
        for run_id in ("../x", "a/b/c"):
            with pytest.raises(RefusedError, match="400"):
                client.send_message(run_id, name, good)
        with pytest.raises(RefusedError, match="422: there is no such run"):
            client.send_message("nowhere", name, good)
        client.send_message(far, name, good)
        client.send_message(far, name, good)
    (stored,) = (run_dir(server.root, far) / "inbox").iterdir()
    assert json.loads(stored.read_text()) == {"type": "note", "text": "x"}
    assert not run_dir(server.root, "nowhere").exists()


def kill_both_ends(server: Server, run_id: str, seed: int, messages: int) -> None:
    """Whoever is killed at whatever moment, each message is on the server once, and nothing else is."""
    rng = random.Random(seed)
    folder = run_dir(spool_root(server.uri), run_id)
    names = [post_message(folder, {"type": "tags", "add": [f"{seed}-{n}"]}).name for n in range(messages)]
    there = run_dir(server.root, run_id)
    before = {one.path.name for one in collect_messages(there)}
    for _ in range(4):
        sync = subprocess.Popen([sys.executable, "-m", "operant", "sync"], stdout=subprocess.DEVNULL)
        arrived = rng.randrange(messages)
        while sync.poll() is None and len(collect_messages(there)) < len(before) + arrived:
            time.sleep(0.005)
        if rng.random() < 0.5:
            server.kill()
            sync.wait(60)
            server.start()
        else:
            sync.send_signal(signal.SIGKILL)
            sync.wait(60)
    assert main(["sync"]) == 0
    assert [one.path.name for one in collect_messages(there) if one.path.name not in before] == names
    assert waiting(server) == []
    assert set(told(server, run_id)[1]) >= {f"{seed}-{n}" for n in range(messages)}


def test_killed_on_either_end_nothing_is_lost(server: Server, far: str) -> None:
    kill_both_ends(server, far, seed=0, messages=60)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 13))
def test_killed_on_either_end_many_times(server: Server, far: str, seed: int) -> None:
    kill_both_ends(server, far, seed, messages=200)


def test_a_program_that_was_killed_leaves_its_notes_to_sync(server: Server) -> None:
    server.kill()
    script = "import os\nfrom operant import SummaryWriter\nw = SummaryWriter('dead', system_metrics=False)\n"
    script += "w.add_scalar('x', 1.0, 0)\nw.flush()\nprint(w.run_id, flush=True)\nos.kill(os.getpid(), 9)"
    ended = subprocess.run(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, timeout=patience(60), check=False
    )
    run_id = ended.stdout.strip()
    assert "waits" in say_of_run(server.uri, run_id, [{"type": "note", "text": "it died"}])
    server.start()
    assert main(["sync"]) == 0
    assert told(server, run_id)[0] == "it died" and Run.open(run_id, server.root).latest("x") is not None
    assert not any(os.scandir(spool_root(server.uri) / "runs"))
