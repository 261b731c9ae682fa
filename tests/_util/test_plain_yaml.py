"""YAML in bounded memory and time."""

from __future__ import annotations

from pathlib import Path

import pytest

from operant._util.plain_yaml import parse_yaml, read_yaml
from operant.errors import UsageError

LAUGHS = "a: &a [x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefghij", "bcdefghijk", strict=True)
)


def test_what_is_sound_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a: &x [1, 2]\nb: *x\n", encoding="utf-8")
    assert read_yaml(tmp_path / "a.yaml") == {"a": [1, 2], "b": [1, 2]}
    assert parse_yaml("", "it") is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (LAUGHS, r"aliases .* in it repeat more than 100,000 values"),
        ("&a [*a]", "aliases"),
        ("[" * 2000, "nested too deeply"),
        ("x: " + "9" * 5000, "a value in it cannot be read"),
        ("when: 2026-99-99", "a value in it cannot be read"),
        ("a: [", "it is no YAML"),
        ("!!python/object:os.system x", "it is no YAML"),
    ],
)
def test_whatever_is_wrong_is_a_sentence(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as error:
        parse_yaml(text, "it")
    assert "\n" not in str(error.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_bytes(b"a: \xff")
    with pytest.raises(UsageError, match=r"not UTF-8 text \(byte 3\)"):
        read_yaml(tmp_path / "b.yaml")
    with pytest.raises(UsageError, match="No such file"):
        read_yaml(tmp_path / "c.yaml")
