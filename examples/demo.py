"""What `make demo` shows: runs are recorded, listed, exported; PPO learns CartPole; a search of 12 jobs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent


def say(text: str) -> None:
    print(f"\n\033[1m== {text}\033[0m" if sys.stdout.isatty() else f"\n== {text}", flush=True)


def run(*words: str) -> None:
    print("$", " ".join(words).replace(f"{HERE}{os.sep}", "examples/"), flush=True)
    program = [sys.executable, *words[1:]] if words[0] == "python" else [sys.executable, "-m", *words]
    subprocess.run(program, check=True)


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="operant-demo-"))
    os.chdir(folder)
    say(f"A project of its own, in {folder}")
    run("operant", "init")
    say("An agent learns to balance a pole, and records its run")
    for seed in (2, 1):
        run("python", str(HERE / "tracking" / "hill_climb.py"), "--seed", str(seed))
    say("All runs, and one of them")
    run("operant", "runs")
    run("operant", "runs", "show", "last")
    say("The same run for TensorBoard")
    run("operant", "export", "last", "--to", "tensorboard", "--out", "board")
    say("A real one: PPO learns CartPole until it holds the pole for 475 steps")
    run("operant", "train", "cartpole-ppo", "evaluation.stop_value=475")
    say("A search: 12 jobs, two at a time, each a small real training")
    shutil.copytree(HERE / "search", folder / "search")
    os.chdir(folder / "search")
    run("operant", "search", "--task", "mnist", "search_config.yaml")
    run("operant", "show", "--task", "mnist")
    say("Done. Three to type next")
    print(f"cd {folder} && source {Path(sys.executable).parent / 'activate'}    # once: puts `operant` on the PATH")
    print("operant ui                                    the page: the runs and the search above")
    print("operant train pendulum-ppo --seeds 0..2       another task, three seeds; `operant train --list` has more")
    print("operant train --eject cartpole-ppo            a preset as a file of yours, to change it")


if __name__ == "__main__":
    main()
