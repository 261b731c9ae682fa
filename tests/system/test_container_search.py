"""A whole search in real containers."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from tests.sites.test_container import PYTHON, SETTINGS, containers, podman
from tests.system.cluster_search import Search, same_proposals_here_and_at, survive

__all__ = ["podman"]


@pytest.mark.usefixtures("podman")
def test_every_job_is_accounted_for_once_though_the_controller_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    site = {"type": "container", **SETTINGS, "volumes": [*SETTINGS["volumes"], f"{tmp_path}:{tmp_path}"]}
    search = Search(folder, 50, json.dumps(site), PYTHON)
    survive(search, lambda job: subprocess.run(["podman", "kill", job], check=True, capture_output=True))
    assert not [one for one in containers() if one.startswith("operant-try-")]


@pytest.mark.usefixtures("podman")
def test_the_example_makes_the_same_proposals_here_and_there(tmp_path: Path) -> None:
    same_proposals_here_and_at({"type": "container", **SETTINGS}, tmp_path / "project", PYTHON)
