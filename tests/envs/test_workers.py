"""Workers start from any script, once, and end with their trainer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from tests.machine import patience

from operant.envs import make_env
from operant.envs.workers import WorkerVectorEnv

SCRIPT = """
import os, sys
with open("imported", "a") as file:
    file.write(f"{__name__}\\n")
import gymnasium, numpy as np
from operant.envs import make_env

class Room(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}
    def step(self, action):
        return np.full(2, os.getpid(), np.float32), 0.0, False, False, {}

def main():
    env = make_env(TARGET, 4, workers=4)
    env.reset()
    env.step(np.zeros(4, int))
    print("stepped", flush=True)
    if "wait" in sys.argv:
        input()
    env.close()
"""


def run_script(folder: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(text)
    command = [sys.executable, "script.py", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=patience(300))


def test_a_script_is_imported_once_for_all_workers(tmp_path: Path) -> None:
    text = SCRIPT.replace("TARGET", "Room") + "\nif __name__ == '__main__':\n    main()\n"
    done = run_script(tmp_path, text)
    assert done.stdout == "stepped\n", done.stderr
    assert (tmp_path / "imported").read_text().split() == ["__main__", "__mp_main__"]


def test_a_script_whose_environment_lies_elsewhere_is_not_imported_and_needs_no_guard(tmp_path: Path) -> None:
    done = run_script(tmp_path, SCRIPT.replace("TARGET", "'CartPole-v1'") + "\nmain()\n")
    assert done.stdout == "stepped\n", done.stderr
    assert (tmp_path / "imported").read_text().split() == ["__main__"]


def test_a_script_without_a_guard_is_told_so(tmp_path: Path) -> None:
    done = run_script(tmp_path, SCRIPT.replace("TARGET", "Room") + "\nmain()\n")
    assert done.returncode == 1
    assert "put what it does under `if __name__ == '__main__':`" in done.stderr
    assert (tmp_path / "imported").read_text().split() == ["__main__", "__mp_main__"]


def test_workers_end_with_their_trainer_and_not_by_signals(tmp_path: Path) -> None:
    text = SCRIPT.replace("TARGET", "Room") + "\nif __name__ == '__main__':\n    main()\n"
    (tmp_path / "script.py").write_text(text)
    process = subprocess.Popen(
        [sys.executable, "script.py", "wait"], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None and process.stdin is not None
    assert process.stdout.readline() == b"stepped\n"
    children = _descendants(process.pid)
    assert len(children) == 5
    for pid in children:
        os.kill(pid, signal.SIGTERM)
    time.sleep(0.1)
    assert _descendants(process.pid) == children
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()
    for _ in range(1000):
        if not any(_alive(pid) for pid in children):
            return
        time.sleep(0.02)
    raise AssertionError("workers outlived their trainer")


def _descendants(pid: int) -> list[int]:
    found = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        found += [int(child), *_descendants(int(child))]
    return found


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_workers_that_do_not_pay_say_so() -> None:
    env = make_env("CartPole-v1", 2, workers=2, seed=0)
    assert isinstance(env, WorkerVectorEnv)
    env.reset()
    assert env.advice == ""
    for _ in range(201):
        env.step(np.zeros(2, int))
    assert env.advice.startswith("env.workers=2 makes the environments slower") and "env.workers=0" in env.advice
    env.close()
