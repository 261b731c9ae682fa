"""`operant harness … cluster=NAME`: which clusters are meant, and what is run there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from operant.cli import harness
from operant.errors import UsageError


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    monkeypatch.chdir(tmp_path)
    found: list[Any] = []

    def submit(spec: Any, address: Any, request: Any) -> int:
        found.append((spec.name, list(request.words), request.folder))
        return 7

    monkeypatch.setattr("operant.cli.cluster.submit_and_follow", submit)
    monkeypatch.setattr(harness, "main", lambda words: found.append(words) or 0)
    return found


def test_a_cluster_of_ours_gets_the_same_words(submitted: list[Any], tmp_path: Path) -> None:
    (tmp_path / "fire.yaml").write_text("name: fire\nimage: lab:1\npython: python3.11\n")
    assert harness.run_words(["-cn", "wildfire", "cli.mode=train", "cluster=fire"]) == 7
    words = ["python3.11", "-m", "operant", "harness", "-cn", "wildfire", "cli.mode=train", "cluster=running"]
    assert submitted == [("fire", words, tmp_path)]


def test_what_the_tree_knows_stays_here(submitted: list[Any], tmp_path: Path) -> None:
    for words in (["cli.mode=train"], ["cli.mode=train", "cluster=running"], ["cluster=local"]):
        assert harness.run_words(words) == 0 and submitted.pop() == words
    (tmp_path / "mine" / "cluster").mkdir(parents=True)
    (tmp_path / "mine" / "cluster" / "lab.yaml").write_text("# @package ray\naddress: ray://head:10001\n")
    words = ["--config-dir", "mine", "cluster=lab"]
    assert harness.run_words(words) == 0 and submitted.pop() == words
    (tmp_path / "conf" / "cluster").mkdir(parents=True)
    (tmp_path / "conf" / "cluster" / "fire.yaml").write_text("name: fire\nimage: lab:1\n")
    assert harness.run_words(["--config-dir=conf", "cluster=fire"]) == 7, "a cluster may be described in the tree"


def test_a_cluster_that_nobody_knows(submitted: list[Any]) -> None:
    with pytest.raises(UsageError, match="there is no cluster 'fir' here"):
        harness.run_words(["cli.mode=train", "cluster=fir"])
    assert submitted == []
