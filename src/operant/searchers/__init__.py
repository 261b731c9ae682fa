"""Which configuration comes next: searchers that are asked for proposals and told what came of them."""

from operant.searchers.base_searcher import BaseSearcher, NotReady, Observation, Proposal, Trial
from operant.searchers.batch import BatchSearcher
from operant.searchers.builder import COMMON_KEYS, SEARCHERS, SpellingNote, build_searcher
from operant.searchers.cmaes import CmaEsSearcher
from operant.searchers.evolution import EvolutionSearcher
from operant.searchers.gp import GpSearcher
from operant.searchers.grid import GridSearcher
from operant.searchers.lamcts import LamctsSearcher
from operant.searchers.random import RandomSearcher
from operant.searchers.skopt import SkoptSearcher
from operant.searchers.tpe import TpeSearcher
from operant.searchers.turbo import TurboSearcher

__all__ = [
    "COMMON_KEYS",
    "SEARCHERS",
    "BaseSearcher",
    "BatchSearcher",
    "CmaEsSearcher",
    "EvolutionSearcher",
    "GpSearcher",
    "GridSearcher",
    "LamctsSearcher",
    "NotReady",
    "Observation",
    "Proposal",
    "RandomSearcher",
    "SkoptSearcher",
    "SpellingNote",
    "TpeSearcher",
    "Trial",
    "TurboSearcher",
    "build_searcher",
]
