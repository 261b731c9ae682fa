"""The registry of assessors, and how one is made from its part of a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from operant.registry import Registry

if TYPE_CHECKING:
    from operant.assessors.base_assessor import BaseAssessor

ASSESSORS = Registry("assessor", "operant.assessors")


def build_assessor(cfg: Mapping[str, Any]) -> BaseAssessor:
    """The assessor that `cfg` describes: `type` is a registered name, all other keys are its options."""
    assessor: BaseAssessor = ASSESSORS.build(cfg)
    return assessor
