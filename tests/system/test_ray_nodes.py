"""A training on the nodes of a real Ray, some of which are lost and one of which comes later."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Self

import psutil
import pytest
from tests.machine import patience, wait_until
from tests.system.ray_head import Head, Node, further_node, is_alive, running_head

from operant.errors import UsageError
from operant.tracking import Run

# Ray's own code warns on start and shutdown; that is not what is tested here.
pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs operant[ray]"),
    pytest.mark.clusters,
    pytest.mark.long,
]


@pytest.fixture
def head() -> Iterator[Head]:
    """A head with room for more than the workers of a training, with this process as a driver."""
    import ray

    with running_head(num_cpus=4, resources={}) as found:
        ray.init(address=found.address, _node_ip_address="127.0.0.2", log_to_driver=False)
        try:
            yield found
        finally:
            ray.shutdown()


def workers_of(node: Head | Node) -> list[psutil.Process]:
    """The workers of trainings that a node hosts."""
    found = []
    for one in psutil.Process(node.process.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "_WorkerActor" in " ".join(one.cmdline()):
                found.append(one)
    return found


class Training:
    """`operant train cartpole-impala` on a cluster, whose steps take long until it is hurried."""

    def __init__(self, head: Head, place: Path) -> None:
        self._slow, self._out, self._root = place / "slow", place / "out", place / ".operant"
        self._slow.touch()
        self._root.mkdir()
        words = [sys.executable, "-m", "operant", "train", "cartpole-impala", "workers=2", "engine=ray"]
        words += ["env.id=paced_cartpole:PacedCartPole", f"env.arguments.slow_while={self._slow}"]
        words += ["evaluation.every=10000000", "log.every=200", "--root", str(self._root)]
        own = [str(Path(__file__).parent), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        env = {**os.environ, "RAY_ADDRESS": head.address, "PYTHONPATH": os.pathsep.join(own)}
        with self._out.open("w") as out:
            self.process = subprocess.Popen(words, cwd=place, env=env, stdout=out, stderr=out)

    @property
    def run(self) -> Run:
        return Run(next((self._root / "runs").iterdir()))

    @property
    def said(self) -> str:
        return self._out.read_text()

    def step(self) -> int:
        """The last that was logged."""
        assert self.process.poll() is None, self.said
        time.sleep(0.2)  # reading a run costs something
        with suppress(StopIteration, FileNotFoundError, UsageError):  # there is nothing to read yet
            steps = self.run.scalars("workers/restarts")["step"]
            return int(steps[-1]) if len(steps) else 0
        return 0

    def goes_on(self) -> None:
        """Wait for some more steps."""
        beyond = self.step() + 400
        wait_until(lambda: self.step() > beyond, f"step {beyond}", 60)

    def hurry(self) -> None:
        self._slow.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()


@pytest.mark.timeout(1800)
def test_a_training_goes_on_through_the_loss_of_nodes(head: Head, tmp_path: Path) -> None:
    import ray

    class Other:
        """Another user's actor; in here, so that Ray sends the class itself and imports no module of tests."""

        def is_here(self) -> bool:
            return True

    with further_node(head, "127.0.0.3", num_cpus=1) as second, Training(head, tmp_path) as training:
        wait_until(training.step, "the first steps", 180)
        assert [len(workers_of(head)), len(workers_of(second))] == [1, 1], "they are spread"
        other = ray.remote(num_cpus=3)(Other).remote()
        assert ray.get(other.is_here.remote())  # and leaves no place for a second worker on the head
        lost = second.lose()
        wait_until(lambda: "is replaced" in training.said, "the replacement", 60)
        wait_until(lambda: not is_alive("127.0.0.3"), "the end of the node", 120)
        wait_until(lambda: not any(map(lives, lost)), "the end of its processes", 60)
        wait_until(lambda: "has no place yet" in training.said, "news of who waits", 60)
        training.goes_on()  # though one worker has no place
        with further_node(head, "127.0.0.4", num_cpus=1) as third:
            wait_until(lambda: workers_of(third), "a worker on the node that joined later", 120)
            training.goes_on()
            ray.kill(other)  # there are places on the head again
            lost = third.lose()
            wait_until(lambda: len(workers_of(head)) == 2, "a worker on the node that is left", 180)
            wait_until(lambda: not any(map(lives, lost)), "the end of its processes", 60)
        training.goes_on()
        training.hurry()
        assert training.process.wait(patience(300)) == 0, training.said
        wait_until(lambda: not workers_of(head), "the end of all workers")
    run, told = training.run, [one.text for one in training.run.text()]
    assert run.status == "FINISHED" and run.latest("workers/restarts").value == 2.0
    assert run.latest("evaluation/return").step >= 200_000
    assert sum("is replaced" in one and "127.0.0" in one for one in told) == 2, told


def lives(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
