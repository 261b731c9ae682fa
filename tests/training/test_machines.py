"""A training whose workers are spread over machines (here: over programs that join it)."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from tests.machine import free_port, patience, spawned
from tests.training.test_remote import IMPALA, PPO, config, root

from operant.errors import OperantError, UsageError
from operant.tracking import Run
from operant.training import load_config, train
from operant.training.machines import is_other_machine, join_run, meeting_place, over_nodes

__all__ = ["root"]  # a fixture
SECRET = "between the machines"


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> str:
    place = f"127.0.0.1:{free_port()}"
    monkeypatch.setenv("OPERANT_ADDRESS", place)
    monkeypatch.setenv("OPERANT_SECRET", SECRET)
    return place


@pytest.fixture
def machine(address: str) -> Iterator[psutil.Popen]:
    words = [sys.executable, "-m", "operant", "join", f"tcp://{address}"]
    with psutil.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        yield process
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


class Lost:
    """Looks on, and takes the other machine away once there have been some points."""

    def __init__(self, machine: psutil.Popen) -> None:
        self.machine, self.points, self.workers = machine, 0, list[psutil.Process]()
        self.sentences: list[str] = []

    def said(self, sentence: str) -> None:
        self.sentences.append(sentence)

    def point(self, *_: Any) -> None:
        self.points += 1
        if self.points == 3:
            self.workers = spawned(psutil.Process(self.machine.pid))
            for one in [psutil.Process(self.machine.pid), *self.workers]:
                one.kill()

    def evaluated(self, *_: Any) -> None: ...


@pytest.mark.long
def test_training_goes_on_through_the_loss_of_a_machine(root: Path, machine: psutil.Popen) -> None:
    looking_on = Lost(machine)
    result = train(config(IMPALA, 40_000, num_nodes=2), observer=looking_on, root=root)
    assert len(looking_on.workers) == 1  # one of two workers was there
    assert result.final_return >= 18.0
    said = "\n".join(looking_on.sentences)
    assert "waiting for 1 other machine" in said and "operant join tcp://127.0.0.1:" in said and SECRET not in said
    assert "has joined" in said and "is lost, with 1 workers" in said and "worker 1 is replaced" in said
    assert Run.open(result.run_id, root).latest("workers/restarts").value == 1.0
    assert not spawned()


class Cut:
    """Looks on, and takes the network between the machines away for a while."""

    def __init__(self, device: str, seconds: float) -> None:
        self.device, self.seconds, self.points = device, seconds, 0
        self.thread = threading.Thread(target=self._cut)
        self.sentences: list[str] = []

    def said(self, sentence: str) -> None:
        self.sentences.append(sentence)

    def point(self, *_: Any) -> None:
        self.points += 1
        if self.points == 3:
            self.thread.start()

    def evaluated(self, *_: Any) -> None: ...

    def _cut(self) -> None:
        ip("link", "set", self.device, "down")
        time.sleep(self.seconds)
        ip("link", "set", self.device, "up")


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def second_network() -> Iterator[tuple[str, str, list[str]]]:
    """A machine's network of its own: the device that leads there, our address, and how a command is run there."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root and `ip`")
    name = f"op{os.getpid() % 100_000}"
    try:
        ip("netns", "add", name)
        ip("link", "add", f"{name}a", "type", "veth", "peer", "name", f"{name}b", "netns", name)
    except subprocess.CalledProcessError as error:
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
        pytest.skip(f"no network of its own can be made: {error.stderr}")
    inside = ["ip", "netns", "exec", name]
    try:
        ip("addr", "add", "10.199.77.1/30", "dev", f"{name}a")
        ip("link", "set", f"{name}a", "up")
        ip(*inside[1:], "ip", "addr", "add", "10.199.77.2/30", "dev", f"{name}b")
        for device in (f"{name}b", "lo"):
            ip(*inside[1:], "ip", "link", "set", device, "up")
        yield f"{name}a", "10.199.77.1", inside
    finally:
        ip("netns", "del", name)


@pytest.mark.long
def test_a_cut_of_ten_seconds_heals(
    root: Path, second_network: tuple[str, str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    device, host, inside = second_network
    place = f"{host}:{free_port()}"
    monkeypatch.setenv("OPERANT_ADDRESS", place)
    monkeypatch.setenv("OPERANT_SECRET", SECRET)
    cut = Cut(device, 10.0)
    words = [*inside, sys.executable, "-m", "operant", "join", f"tcp://{place}"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as machine:
        # In rounds everybody waits for the worker that is out of reach.
        settings = config(PPO, 16_384, num_nodes=2, silence=patience(60.0), log={"every": 256})
        began = time.monotonic()
        result = train(settings, observer=cut, root=root)
        cut.thread.join()
        assert time.monotonic() - began > 10.0
        assert machine.wait(patience(30)) == 0, machine.stderr and machine.stderr.read()
    assert Run.open(result.run_id, root).latest("workers/restarts").value == 0.0
    assert not any("is lost" in one for one in cut.sentences) and result.steps >= 16_384
    assert not spawned()


@pytest.mark.long
def test_a_machine_that_helped_ends_with_the_run(root: Path, machine: psutil.Popen) -> None:
    result = train(config(IMPALA, 4_000, num_nodes=2), root=root)
    assert result.steps >= 4_000
    assert machine.wait(patience(30)) == 0
    assert "joined the run" in machine.stderr.read()


def test_what_is_missing_is_said(address: str, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    with pytest.raises(UsageError, match="an address is tcp://host:port"):
        join_run("somewhere", print)
    with pytest.raises(UsageError, match="workers or learners to spread over them"):
        load_config("cartpole-impala", ["num_nodes=2"])
    monkeypatch.delenv("OPERANT_SECRET")
    with pytest.raises(UsageError, match="a secret that all of them know"):
        train(config(IMPALA, 1_000, num_nodes=2), root=root)
    with pytest.raises(UsageError, match="set OPERANT_SECRET"):
        join_run(f"tcp://{address}", print)
    monkeypatch.setenv("OPERANT_SECRET", "another")
    monkeypatch.setattr("operant.training.machines.WAIT_FOR_MACHINES", 0.1)
    with pytest.raises(OperantError, match="could not join"):
        join_run(f"tcp://{address}", print)


@pytest.mark.parametrize("where", [{"num_nodes": 2}, {"engine": "ray"}], ids=str)
def test_a_model_of_the_program_itself_is_refused(
    where: dict[str, Any], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = type("Own", (torch.nn.Linear,), {"__module__": "__main__"})
    monkeypatch.setattr(sys.modules["__main__"], "Own", own, raising=False)
    model = {"actor": own, "critic": own, "arguments": {"in_features": 4, "out_features": 2}}
    with pytest.raises(UsageError, match=r"Own stands in the program that was started.*such as `nets\.Own`"):
        train(config(IMPALA, 1_000, model=model, **where), root=root)


def test_what_a_training_waits_for_is_said_to_whoever_calls_it(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPERANT_SECRET", "of-all")
    monkeypatch.setattr("operant.training.remote.started", lambda *_: pytest.fail("enough"))
    with pytest.raises(pytest.fail.Exception, match="enough"):
        train(config(IMPALA, 1_000, num_nodes=2), root=root)
    assert "run there: operant join tcp://" in capsys.readouterr().err


def test_under_slurm_the_first_learns_and_the_others_join(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {
        "SLURM_PROCID": "1",
        "SLURM_NTASKS": "2",
        "SLURM_STEP_NODELIST": "n[1-2]",
        "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
    }
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    assert is_other_machine(2, "local") and not is_other_machine(1, "local") and not is_other_machine(2, "ray")
    assert meeting_place(os.environ) == "tcp://n1:50515"
    monkeypatch.setenv("SLURM_PROCID", "0")
    assert not is_other_machine(2, "local")


def test_a_job_of_a_site_with_several_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPERANT_SECRET", "")
    monkeypatch.delenv("OPERANT_SECRET")
    two = load_config("cartpole-impala", ["workers=2", "num_nodes=2"])
    assert over_nodes(load_config("cartpole-impala", []), "local") == ("local", [])
    on_ray = load_config("cartpole-impala", ["workers=2", "num_nodes=2", "engine=ray"])
    assert over_nodes(on_ray, "ray") == ("ray", [])
    assert over_nodes(two, {"type": "slurm"})[1][:3] == ["srun", "--nodes=2", "--ntasks=2"]
    assert len(os.environ.pop("OPERANT_SECRET")) == 32
    with pytest.raises(UsageError, match="a job of the site 'container' has one node"):
        over_nodes(two, {"type": "container"})


def test_a_job_of_several_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPERANT_SECRET", raising=False)
    two = load_config("cartpole-impala", ["workers=2", "num_nodes=2"])
    join = f"{sys.executable} -m operant join"
    assert over_nodes(two, "kubernetes") == ({"type": "kubernetes", "nodes": 2, "join": join}, [])
    given = {"type": "kubernetes", "nodes": 2, "join": "operant join", "image": "lab:3"}
    assert over_nodes(two, given) == (given, [])
    assert "OPERANT_SECRET" not in os.environ  # the site makes one for each job
    with pytest.raises(UsageError, match="asks for 2 nodes, and `nodes` of the site is 3"):
        over_nodes(two, {"type": "kubernetes", "nodes": 3})
    with pytest.raises(UsageError, match="asks for 1 nodes, and `nodes` of the site is 2"):
        over_nodes(load_config("cartpole-impala", []), given)
