"""Searchers compared on functions of known difficulty: linear policies on MuJoCo, and formulas."""

from operant.benchmark.comparing import Outcome, run_search
from operant.benchmark.functions import FORMULAS, MUJOCO, THRESHOLDS, Function, make_function, search_args

__all__ = ["FORMULAS", "MUJOCO", "THRESHOLDS", "Function", "Outcome", "make_function", "run_search", "search_args"]
