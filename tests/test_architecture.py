"""What pages of docs/ name is there; no room and no test of a promise is missing."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

import operant

ROOT = Path(__file__).parent.parent
SOURCE = Path(operant.__file__).parent
TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_the_rooms_are_those_of_the_source() -> None:
    listing = re.search(r"```\nsrc/operant/\n(.*?)```", TEXT, re.DOTALL)
    assert listing is not None
    told = set(re.findall(r"^  (\w+)/", listing[1], re.MULTILINE))
    assert told == {one.name for one in SOURCE.iterdir() if (one / "__init__.py").exists()}
    for room in ("schedulers", "tracking"):
        inside = re.search(rf"^  {room}/.*\n((?:    \S.*\n|      .*\n)+)", listing[1], re.MULTILINE)
        assert inside is not None
        found = {one.name for one in (SOURCE / room).iterdir() if (one / "__init__.py").exists()}
        assert set(re.findall(r"^    (\w+)/", inside[1], re.MULTILINE)) == found


def test_every_hop_is_there() -> None:
    hops = re.findall(r"^\| \d+ \| `([\w/]+\.\w+)` `([\w.]+)`", TEXT, re.MULTILINE)
    assert len(hops) > 28
    for file, name in hops:
        text = (SOURCE / file).read_text(encoding="utf-8")
        for part in name.split("."):
            assert re.search(rf"(?:def|class) {part}\b", text), f"{file} has no {part}"


def test_every_file_that_is_named_is_there() -> None:
    for file in re.findall(r"`((?:\w+/)+\w+\.(?:py|js))`", TEXT):
        assert (SOURCE / file).is_file() or (ROOT / file).is_file(), file


def test_the_order_of_imports_is_the_one_that_is_checked() -> None:
    told = re.search(r"`(cli → .*?)`", TEXT, re.DOTALL)
    assert told is not None
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = pyproject["tool"]["importlinter"]["contracts"][0]["layers"]
    assert [re.findall(r"\w+", one) for one in told[1].split("→")] == [re.findall(r"\w+", one) for one in layers]


@pytest.mark.parametrize(("page", "least"), [("security.md", 15), ("sites.md", 20), ("clusters.md", 9)])
def test_every_promise_has_a_test(page: str, least: int) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    table = text.partition("## What happens when\n")[2].partition("\n## ")[0] or text
    lines = [line for line in table.splitlines() if line.startswith("| ")]
    rows = [line.strip("| ").split(" | ") for line in lines if not line.startswith(("| what ", "| fault "))]
    assert len(rows) >= least
    for what, *_, tests in rows:
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", tests)
        assert named, f"no test is named for: {what}"
        for file, name in named:
            found = re.search(rf"^ *def {name}\b", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
            assert found, f"{file}::{name}"


def test_modules_keep_the_conventions() -> None:
    """Each says what it is, and none is long. `__all__` stands in packages, in modules of `operant` itself and in those
    that only give another path to a name."""
    for file in sorted(SOURCE.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        tree = ast.parse(text)
        assert ast.get_docstring(tree) or file.name in ("__main__.py", "_version.py"), f"{file} has no docstring"
        # The job wrapper is one file, so that a node or an image needs nothing but a Python to run it.
        assert text.count("\n") <= 450 or file.relative_to(SOURCE) == Path("sites/wrapper.py"), f"{file} is long"
        listed = any(isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "__all__" for one in tree.body)
        if file.name == "__init__.py":
            gives = any(isinstance(one, ast.ImportFrom) and one.module != "__future__" for one in tree.body)
            assert listed or not gives, f"{file} has no __all__"
        elif any(isinstance(one, ast.FunctionDef | ast.ClassDef) for one in tree.body):
            assert not listed or file.parent == SOURCE, f"{file}: what is public of it stands in its package's __all__"
