"""What trainings with workers survive; all of it takes long."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from tests.machine import patience, spawned, wait_until
from tests.training.test_remote import IMPALA, PPO, config, same

from operant.framework import Context
from operant.tracking import Run
from operant.training import load_config, resume, train

pytestmark = pytest.mark.long
SOAK = float(os.environ.get("OPERANT_SOAK", "1800"))
"""Seconds; 180 are enough to see whether it would go on."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / ".operant"
    folder.mkdir()
    return folder


def begin(root: Path, settings: dict[str, Any]) -> tuple[subprocess.Popen[bytes], Path, list[int]]:
    """A training in a process of its own, once it has saved a checkpoint; its run and the pids of its workers."""
    file = root.parent / "config.json"
    file.write_text(json.dumps(settings))
    words = [sys.executable, "-m", "operant", "train", str(file), "--quiet", "--root", str(root)]
    process = subprocess.Popen(words)

    def saved() -> list[Path]:
        return list((root / "runs").glob("*/checkpoints/step-*")) if (root / "runs").exists() else []

    wait_until(saved, "a checkpoint", 120)
    pids = [one.pid for one in spawned(psutil.Process(process.pid))]
    assert len(pids) == 2
    return process, saved()[0].parent.parent, pids


def lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_the_learner_is_killed(root: Path) -> None:
    process, run, pids = begin(root, config(IMPALA, 10**7, checkpoint={"every": 2000}))
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    wait_until(lambda: not any(lives(pid) for pid in pids), "the end of the workers")
    newest = max(int(one.name.removeprefix("step-")) for one in (run / "checkpoints").glob("step-*"))
    result = resume(run.name, [f"total_steps={newest + 30_000}", "evaluation.every=10000000"], root=root)
    assert result.steps >= newest + 30_000 and result.final_return >= 18.0
    assert not spawned()


def test_a_signal_ends_the_round_first(root: Path) -> None:
    """What is saved is a round's end, so that what goes on from there is what was never interrupted."""
    settings = config(PPO, 10**6, checkpoint={"every": 512})
    process, run, pids = begin(root, settings)
    process.send_signal(signal.SIGTERM)
    assert process.wait(patience(60)) == 143
    wait_until(lambda: not any(lives(pid) for pid in pids), "the end of the workers")
    newest = max(int(one.name.removeprefix("step-")) for one in (run / "checkpoints").glob("step-*"))
    steps = newest + 1024
    longer = ["evaluation.every=1000000", f"total_steps={steps}"]
    resumed = resume(run.name, longer, root=root)
    whole = train({**settings, "total_steps": steps, "evaluation": {"every": 10**6, "episodes": 16}}, root=root)
    assert resumed.exact and same(whole, resumed)


class Stopper:
    """Looks on, and stops a worker for a while once there have been some points."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.points, self.sentences = seconds, 0, list[str]()

    def said(self, sentence: str) -> None:
        self.sentences.append(sentence)

    def point(self, *_: Any) -> None:
        self.points += 1
        if self.points == 3:
            pid = spawned()[0].pid
            os.kill(pid, signal.SIGSTOP)
            threading.Timer(self.seconds, self._go_on, [pid]).start()

    def _go_on(self, pid: int) -> None:
        if lives(pid):
            os.kill(pid, signal.SIGCONT)

    def evaluated(self, *_: Any) -> None: ...


@pytest.mark.parametrize(("silence", "restarts"), [(4.0, 1), (600.0, 0)], ids=["silent", "cut off for 10 s"])
def test_a_worker_says_nothing(root: Path, silence: float, restarts: int) -> None:
    """In rounds everybody waits for it: it is replaced, or it comes back and nothing was lost."""
    looking_on = Stopper(patience(600.0) if restarts else 10.0)
    allowed = patience(silence) if restarts else silence
    result = train(config(PPO, 4096, silence=allowed, log={"every": 256}), observer=looking_on, root=root)
    assert Run.open(result.run_id, root).latest("workers/restarts").value == restarts
    assert any("stall_timeout" in one for one in looking_on.sentences) == bool(restarts)
    assert result.exact == (not restarts) and not spawned()


class TenKills:
    """Looks on, and kills one worker after the other, a random moment after a point."""

    def __init__(self) -> None:
        self.kills, self.sentences, self._rng = 0, list[str](), random.Random(7)

    def said(self, sentence: str) -> None:
        self.sentences.append(sentence)

    def point(self, *_: Any) -> None:
        if self.kills < 10:
            self.kills += 1
            threading.Timer(self._rng.uniform(0.0, 0.3), self._kill, [self.kills % 2]).start()

    def _kill(self, which: int) -> None:
        found = sorted(one.pid for one in spawned())
        if found:
            os.kill(found[which % len(found)], signal.SIGKILL)

    def evaluated(self, *_: Any) -> None: ...


def test_workers_are_killed_ten_times_at_any_moment(root: Path) -> None:
    killer = TenKills()
    result = train(config(IMPALA, 100_000, log={"every": 4_000}), observer=killer, root=root)
    replaced = [one for one in killer.sentences if "is replaced" in one]
    assert killer.kills == 10 and 5 <= len(replaced) <= 10, replaced  # two may fall into one start
    assert result.steps >= 100_000 and result.final_return >= 18.0
    assert Run.open(result.run_id, root).latest("workers/restarts").value == len(replaced)
    assert not spawned()


@pytest.mark.timeout(SOAK + 900)
def test_soak(root: Path) -> None:
    """Workers are killed every 20 s: memory stays flat, and returns are as without."""
    memory: list[float] = []
    kills = [0]
    began = time.monotonic()

    def look(training: Any) -> Any:
        last = [began]

        def watch(ctx: Context) -> None:
            now = time.monotonic()
            # One that has yet to send anything is left alone: three such deaths in a row end a training.
            if now - last[0] >= 20.0 and not training.source._failures:
                last[0] = now
                memory.append(psutil.Process().memory_info().rss / 1e6)
                found = spawned()
                if found:
                    os.kill(random.choice(found).pid, signal.SIGKILL)
                    kills[0] += 1
            if now - began >= SOAK:
                ctx.finish = True

        return watch

    settings = {
        **load_config("cartpole-impala", []).to_mapping(),
        "total_steps": 10**9,
        "workers": 2,
        "callbacks": [look],
        "evaluation": {"every": 200_000, "episodes": 20},
        "checkpoint": {"every": 10**6},
        "log": {"every": 10**5},
    }
    result = train(settings, root=root)
    run = Run.open(result.run_id, root)
    assert kills[0] - 1 <= run.latest("workers/restarts").value <= kills[0] and kills[0] >= min(3, SOAK / 120.0)
    returns = run.scalars("evaluation/return")["value"]
    assert result.best_return >= 490.0
    assert np.median(returns[len(returns) // 2 :]) >= 475.0, returns.tolist()
    settled = memory[len(memory) // 3 :]
    assert max(settled) - settled[0] < 0.1 * settled[0] + 30.0, memory
    assert not spawned()
