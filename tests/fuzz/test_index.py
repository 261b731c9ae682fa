"""The index of runs, which can be thrown away: whatever it holds, the list of runs is right or made anew."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from tests.fuzz.driver import Fuzz, confused, few_or_many
from tests.fuzz.test_segment import record

from operant.tracking.reading.index import Index
from operant.tracking.reading.table import RunTable

TEXTS = ("tags", "params", "last", "state")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("indexed") / ".operant"
    record(root)
    record(root)
    return root


def path_of(root: Path) -> Path:
    path = Index(root).path
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def rows_of(root: Path) -> list[Any]:
    rows = Index(root).rows()
    table = RunTable(root)
    table.refresh()
    json.dumps([[vars(one) for one in rows], [vars(one) for one in table.rows()]]).encode()
    assert len(table.rows()) == len(rows)
    return sorted((vars(one) for one in rows), key=lambda row: str(row["id"]))


def forge(rng: random.Random, data: bytes) -> bytes:
    path = Path("forged.sqlite")
    path.write_bytes(data)
    database = sqlite3.connect(path)
    columns = [one[1] for one in database.execute("pragma table_info(runs)")]
    column = rng.choice(columns)
    (value,) = database.execute(f"select {column} from runs limit 1").fetchone()
    if column in TEXTS and rng.random() < 0.9:
        begin = value.index("{") if column == "state" else 0
        value = value[:begin] + json.dumps(confused(rng, json.loads(value[begin:])))
    else:
        value = rng.choice((None, "", "x", -1, 1e308, b"\0\xff", "caf\u00e9", "9" * 5000))
    try:
        database.execute(f"update runs set {column} = ?", (value,))
        database.commit()
    except sqlite3.Error:
        pass  # the database itself refuses it
    database.close()
    return path.read_bytes()


@few_or_many(120)
def test_indexes(root: Path, tmp_path: Path, tries: int, first: int) -> None:
    path = path_of(root)
    assert len(rows_of(root)) == 2
    sound = [path.read_bytes()]

    def read(_: Path, data: bytes) -> Any:
        for left in path.parent.glob(f"{path.name}-*"):
            left.unlink()
        path.write_bytes(data)
        return rows_of(root)

    Fuzz("index", read, sound, lambda _: False, forge).run(tmp_path, tries, first)
    shutil.rmtree(path.parent)
