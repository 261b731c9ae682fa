"""The regression benchmark compares two work trees, and says when one of them cannot do a row."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def regress(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "benchmarks" / "regress.py", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def fake_tree(folder: Path, seconds: float) -> Path:
    """A tree whose `import operant` takes so much CPU time."""
    (folder / "src" / "operant").mkdir(parents=True)
    spin = f"import time\nwhile time.process_time() < {seconds}: pass\n"
    (folder / "src" / "operant" / "__init__.py").write_text(spin, encoding="utf-8")
    return folder


def test_rows_run_in_both_trees() -> None:
    done = regress(ROOT, ROOT, "--quick", "--rows", "inline,processes,resume")
    assert done.returncode == 0, done.stdout + done.stderr
    for row in ("inline", "processes", "resume"):
        figures = rf"^\| {row} \|.*\| [\d.]+ \| [\d.]+ \| \*\*[\d.]+\*\* \|"
        assert re.search(figures, done.stdout, re.MULTILINE), done.stdout


def test_a_slower_tree_is_below_the_bar_and_a_faster_one_is_not(tmp_path: Path) -> None:
    light, heavy = fake_tree(tmp_path / "light", 0.0), fake_tree(tmp_path / "heavy", 0.05)
    slower = regress(light, heavy, "--rows", "import", "--rounds", "1")
    assert slower.returncode == 1 and "below 0.95" in slower.stdout
    faster = regress(heavy, light, "--quick", "--rows", "import", "--rounds", "1")
    assert faster.returncode == 0 and "below" not in faster.stdout, faster.stdout


def test_a_row_that_a_tree_cannot_do_is_told(tmp_path: Path) -> None:
    done = regress(ROOT, fake_tree(tmp_path / "empty", 0.0), "--quick", "--rows", "inline,import")
    assert done.returncode == 1
    assert "failed in empty: ModuleNotFoundError" in done.stdout
    assert "| import | import operant: 2 times |" in done.stdout, "the rows after it run"


def test_what_is_no_tree_and_no_row_is_said(tmp_path: Path) -> None:
    assert "is no work tree of Operant" in regress(tmp_path, ROOT).stderr
    assert "no row is called 'ppoo'" in regress(ROOT, ROOT, "--rows", "ppoo").stderr
