"""Every searcher passes the contract."""

from __future__ import annotations

from operant.searchers import build_searcher
from operant.testing import SearcherContract
from operant.testing.searchers import FINITE, MIXED, ROWS


class Built(SearcherContract):
    kind = ""
    options: dict = {}  # noqa: RUF012

    def build(self, search_args, **options):
        return build_searcher({"type": self.kind, **self.options, **options}, search_args)


class TestRandom(Built):
    kind = "RandomSearcher"


class TestSobol(Built):
    kind = "RandomSearcher"
    options = {"sampling": "sobol"}  # noqa: RUF012


class TestLatinHypercube(Built):
    kind = "RandomSearcher"
    options = {"sampling": "lhs", "block": 8}  # noqa: RUF012


class TestGrid(Built):
    kind = "GridSearcher"
    spaces = (FINITE, [arg for arg in MIXED if arg["type"] != "Real" or "step" in arg])


class TestBatch(Built):
    kind = "BatchSearcher"
    spaces = (ROWS,)
    finite = ROWS


class TestEvolution(Built):
    kind = "EvolutionSearcher"
    options = {"population_size": 8}  # noqa: RUF012


class TestTpe(Built):
    kind = "TpeSearcher"


class TestCmaEs(Built):
    kind = "CmaEsSearcher"


class TestGp(Built):
    kind = "GpSearcher"
    options = {"n_initial_points": 6, "n_candidates": 50, "n_starts": 1}  # noqa: RUF012
    trials = 18


class TestSkopt(Built):
    kind = "SkoptSearcher"
    options = {  # noqa: RUF012
        "n_initial_points": 6,
        "acq_optimizer_kwargs": {"n_points": 100, "n_restarts_optimizer": 1},
    }
    trials = 18


class TestSkoptExtraTrees(Built):
    kind = "SkoptSearcher"
    options = {"base_estimator": "ET", "n_initial_points": 8, "acq_func": "EI"}  # noqa: RUF012
    trials = 11


class TestLamcts(Built):
    kind = "LamctsSearcher"
    options = {"ninits": 8, "leaf_size": 6}  # noqa: RUF012


class TestLamctsTurbo(Built):
    kind = "LamctsSearcher"
    options = {"ninits": 8, "leaf_size": 6, "solver": "turbo"}  # noqa: RUF012
    trials = 18


class TestLamctsGp(Built):
    kind = "LamctsSearcher"
    options = {"ninits": 8, "leaf_size": 6, "solver": "gp"}  # noqa: RUF012
    trials = 18


class TestTurbo(Built):
    kind = "TurboSearcher"
    options = {"n_initial_points": 6}  # noqa: RUF012
    trials = 16
