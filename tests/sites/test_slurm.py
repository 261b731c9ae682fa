"""Jobs on a real Slurm of two nodes, started and ended here."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.machine import patience
from tests.system.slurm import Slurm, running_slurm

from operant.sites import Site, Submission
from operant.sites.slurm import SlurmSite
from operant.testing import SiteContract


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    with running_slurm() as cluster:
        yield cluster


@pytest.mark.usefixtures("slurm")
class TestSlurmSite(SiteContract):
    patience = patience(60)

    def build(self, folder: Path) -> Site:
        return SlurmSite(folder, poll=0.5, exit_wait=2.0)

    def job(self, token: str, folder: Path, kind: str) -> Submission:
        code = {"good": "pass", "bad": "raise SystemExit(3)", "endless": "import time; time.sleep(600)"}[kind]
        return Submission(token, folder.name, 1, [sys.executable, "-I", "-S", "-c", code], folder, folder)
