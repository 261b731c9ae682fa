"""What sites and schedulers agree on: a token names its job and attempt, an exit file is whole or not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from operant.sites import make_token, parse_token, read_exit


@pytest.mark.parametrize(("job", "attempt"), [("0", 1), ("check-3", 12)])
def test_a_token_names_its_job_and_attempt_and_no_two_are_alike(job: str, attempt: int) -> None:
    one, other = (make_token(job, attempt, secret) for secret in ("aa", "bb"))
    assert parse_token(one) == parse_token(other) == (job, attempt)
    assert one != other


def test_an_exit_file_is_read_once_it_is_whole(tmp_path: Path) -> None:
    assert read_exit(tmp_path, 1) is None
    (tmp_path / "exit-1.json").write_text('{"code": 3', encoding="utf-8")
    assert read_exit(tmp_path, 1) is None, "half a file is none"
    (tmp_path / "exit-1.json").write_text('{"code": 3}', encoding="utf-8")
    assert read_exit(tmp_path, 1) == {"code": 3}
    assert read_exit(tmp_path, 2) is None
