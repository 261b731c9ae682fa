"""The examples of docs/hpo.md, as a reader would run them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from operant.schedulers.engine.state import read_state
from operant.tracking.places import find_root

EXAMPLES = Path(__file__).parents[2] / "examples" / "hpo"


def run(program: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=False)


def test_a_function() -> None:
    done = run(EXAMPLES / "function.py")
    assert done.returncode == 0, done.stderr
    assert "score" in done.stdout and "finished" in done.stdout and "search-ctl show --task train-" in done.stdout
    folder = next((find_root() / "searches").iterdir())
    state, status = read_state(folder)
    assert status == "FINISHED" and len(state.proposals) <= 40


def test_di_toolkits_local_demo() -> None:
    # A copy with two trainings instead of five, which end as soon as they have learnt a little.
    folder = shutil.copytree(EXAMPLES, "demo")
    program = Path(folder, "local_demo.py")
    program.write_bytes(program.read_bytes().replace(b".max_steps(5)", b".max_steps(2)"))
    template = Path(folder, "template", "cartpole_dqn_config.py")
    template.write_text(
        template.read_text(encoding="utf-8").replace("stop_value=195", "stop_value=30"), encoding="utf-8"
    )
    before = template.read_bytes()
    done = run(program)
    assert done.returncode == 0, done.stderr
    assert "{'policy': {'discount_factor': " in done.stdout and "'eval_value': " in done.stdout
    lines = [line.strip() for line in done.stderr.splitlines()]
    table = lines[len(lines) - 1 - lines[::-1].index("| task_defined  | [0, 1]    |") - 3 :][:15]
    assert table == [
        "+---------------+-----------+",
        "| status        | instances |",
        "+===============+===========+",
        "| task_defined  | [0, 1]    |",
        "+---------------+-----------+",
        "| task_running  | []        |",
        "+---------------+-----------+",
        "| task_waiting  | []        |",
        "+---------------+-----------+",
        "| task_finished | [0, 1]    |",
        "+---------------+-----------+",
        "| task_success  | [0, 1]    |",
        "+---------------+-----------+",
        "| task_abnormal | []        |",
        "+---------------+-----------+",
    ]
    assert template.read_bytes() == before
    assert all(Path(f"cartpole_dqn_hpo-{number}/hpo/result.pkl").is_file() for number in range(2))
