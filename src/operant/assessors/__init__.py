"""Is this job still worth its cost: assessors that judge jobs under way by what they have reported."""

from operant.assessors.asha import AshaAssessor
from operant.assessors.base_assessor import AssessResult, BaseAssessor, Report
from operant.assessors.builder import ASSESSORS, build_assessor
from operant.assessors.curve_fitting import CurveFittingAssessor
from operant.assessors.hyperband import HyperbandAssessor
from operant.assessors.median import MedianStopAssessor

__all__ = [
    "ASSESSORS",
    "AshaAssessor",
    "AssessResult",
    "BaseAssessor",
    "CurveFittingAssessor",
    "HyperbandAssessor",
    "MedianStopAssessor",
    "Report",
    "build_assessor",
]
