"""The count of files on a journey counts what it says."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "journeys.py"


@pytest.fixture(scope="module")
def journeys() -> Any:
    spec = importlib.util.spec_from_file_location("journeys", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_switch_is_counted_once_and_imports_do_not_count(journeys, tmp_path, monkeypatch) -> None:
    package = tmp_path / "travelled"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "first.py").write_text(
        "def begin():\n    for _ in range(3):\n        near()\n        sorted([2, 1], key=far)\n"
        "def near(): pass\n"
        "def far(x):\n    from travelled.second import there\n    return there(x)\n"
    )
    (package / "second.py").write_text("from travelled.third import made\nmade()\ndef there(x): return x\n")
    (package / "third.py").write_text("def made(): pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    from travelled.first import begin  # type: ignore[import-not-found]

    tracer = journeys.Tracer(package)
    tracer.starts = lambda code: code.co_name == "begin"
    with journeys.tracing(tracer):
        begin()
    assert tracer.found() == {"files": ["first.py", "second.py"], "switches": 1}


def test_repeated_lines(journeys) -> None:
    block = [f"x{i} = {i}" for i in range(7)]
    assert journeys.repeated({"a": ["one", *block, "two"], "b": [*block, "three"]}) == 7
    assert journeys.repeated({"a": [*block[:5], "one"], "b": [*block[:5], "two"]}) == 0
    assert journeys.told_lines("import os\n\n# why\nx = 1\n)\n") == ["x = 1"]


def test_a_point_is_followed_to_its_chart(tmp_path: Path) -> None:
    (tmp_path / ".operant").mkdir()
    command = [sys.executable, str(SCRIPT), "--only", "chart"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["switches"] >= len(found["files"]) - 2, "each file but the first of a part is switched to"
    assert {name.split("/")[0] for name in found["files"]} >= {"tracking", "web"}
