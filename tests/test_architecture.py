"""What pages of docs/ name is there; no room and no test of a promise is missing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import operant

SOURCE = Path(operant.__file__).parent
TEXT = (Path(__file__).parent.parent / "docs" / "architecture.md").read_text(encoding="utf-8")


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
    assert len(hops) > 8
    for file, name in hops:
        text = (SOURCE / file).read_text(encoding="utf-8")
        for part in name.split("."):
            assert re.search(rf"(?:def|class) {part}\b", text), f"{file} has no {part}"


def test_every_file_that_is_named_is_there() -> None:
    for file in re.findall(r"`((?:\w+/)+\w+\.(?:py|js))`", TEXT):
        assert (SOURCE / file).is_file(), file


@pytest.mark.parametrize(("page", "least"), [("security.md", 15), ("sites.md", 20)])
def test_every_promise_has_a_test(page: str, least: int) -> None:
    root = Path(__file__).parent.parent
    text = (root / "docs" / page).read_text(encoding="utf-8")
    table = text.partition("## What happens when\n")[2].partition("\n## ")[0] or text
    lines = [line for line in table.splitlines() if line.startswith("| ")]
    rows = [line.strip("| ").split(" | ") for line in lines if not line.startswith(("| what ", "| fault "))]
    assert len(rows) >= least
    for what, *_, tests in rows:
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", tests)
        assert named, f"no test is named for: {what}"
        for file, name in named:
            found = re.search(rf"^ *def {name}\b", (root / file).read_text(encoding="utf-8"), re.MULTILINE)
            assert found, f"{file}::{name}"
