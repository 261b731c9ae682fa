"""Every assessor passes the contract."""

from __future__ import annotations

from operant.assessors import build_assessor
from operant.testing import AssessorContract


class Built(AssessorContract):
    cfg: dict = {}  # noqa: RUF012

    def build(self, **options):
        return build_assessor({**self.cfg, **options})


class TestMedianStop(Built):
    cfg = {"type": "MedianStopAssessor", "start_step": 3}  # noqa: RUF012


class TestCurveFitting(Built):
    cfg = {"type": "CurveFittingAssessor", "epoch_num": 20, "start_step": 6, "gap": 4}  # noqa: RUF012


class TestAsha(Built):
    cfg = {"type": "AshaAssessor", "min_step": 2}  # noqa: RUF012


class TestAshaWithPause(Built):
    cfg = {"type": "AshaAssessor", "min_step": 2, "rest": "pause"}  # noqa: RUF012


class TestHyperband(Built):
    cfg = {"type": "HyperbandAssessor", "max_step": 20}  # noqa: RUF012
