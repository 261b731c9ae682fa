"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from operant._util.files import replacing, write_file


def test_a_file_takes_the_place_of_the_former_one(tmp_path: Path) -> None:
    target = tmp_path / "new" / "a.json"
    write_file(target, "é1", sync=True)
    write_file(target, b"2")
    assert target.read_bytes() == b"2" and list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_fails_leaves_nothing_behind(tmp_path: Path, kind: str) -> None:
    write_file(tmp_path / "a", "before")
    with pytest.raises(KeyboardInterrupt), replacing(tmp_path / "a") as staged:
        if kind == "folder":
            staged.mkdir()
            staged = staged / "inside"
        staged.write_text("half")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == [tmp_path / "a"] and (tmp_path / "a").read_text() == "before"


def test_synced_means_on_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[bool] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append((tmp_path / "a").exists()))
    write_file(tmp_path / "a", "x")
    assert synced == []
    (tmp_path / "a").unlink()
    write_file(tmp_path / "a", "x", sync=True)
    assert synced == [False]


def test_long_names_leave_room_for_the_ending(tmp_path: Path) -> None:
    target = tmp_path / ("n" * 255)
    write_file(target, "x")
    assert target.read_text() == "x"
