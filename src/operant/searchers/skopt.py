"""SkoptSearcher: Bayesian optimisation with the options of scikit-optimize's Optimizer, without that
library.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from operant._util.checks import is_number, one_of, positive, whole_number
from operant.errors import ConfigError, unknown
from operant.searchers._acquisition import Acquisition, Maximiser, Model
from operant.searchers._extras import one_thread, require
from operant.searchers._gp_model import Features
from operant.searchers._outputs import Outputs, choose_rows
from operant.searchers._surrogate import BranchExplorer, Surrogate, best_points, promising_points
from operant.searchers._trial_arrays import TrialArrays
from operant.searchers.base_searcher import MOST_AT_ONCE, BaseSearcher, Proposal, Trial
from operant.searchers.builder import SEARCHERS
from operant.searchers.random import Design
from operant.space import Config, Container, Layout

Array = np.ndarray

_ESTIMATORS = ("GP", "RF", "ET", "GBRT", "DUMMY")
_FUNCTIONS = ("EI", "LCB", "PI", "gp_hedge")
_OPTIMIZERS = ("auto", "sampling", "lbfgs")
_HEDGED = ("EI", "LCB", "PI")
_MOST_POINTS = 1000


@SEARCHERS.register_module()
class SkoptSearcher(BaseSearcher):
    """Bayesian optimisation with a choice of models and acquisition functions.

    Args:
        base_estimator: `GP` (Gaussian process), `RF` (random forest), `ET` (extra trees), `GBRT` (gradient
            boosting) or `dummy` (random search); upper or lower case.
        n_initial_points: evenly spread points before the model is used. `n_random_starts` is its older name.
        acq_func: `EI` (expected improvement, the default), `PI` (probability of improvement), `LCB`
            (confidence bound), or `gp_hedge`, which tries all three and comes to prefer those whose proposals
            did well. That makes it greedy: with categories it more often stays at the first good one.
        acq_optimizer: `lbfgs` improves the best candidates along the gradient (only `GP` has one), `sampling`
            takes the best candidate, `auto` is the first of these that is possible.
        random_state: another name of `seed`.
        model_queue_size: accepted; only the newest model is kept, whatever it says.
        acq_func_kwargs: `xi` (by how much to improve, for EI and PI; in standard deviations of the rewards)
            and `kappa` (how many deviations LCB hopes for).
        acq_optimizer_kwargs: `n_points` (candidates), `n_restarts_optimizer` (local searches); `n_jobs` is
            accepted and has no effect.
    """

    def __init__(
        self,
        search_space: Container | Sequence[Mapping[str, Any]],
        reward_attribute: str = "acc",
        optimize_mode: str = "maximize",
        seed: int = 0,
        lag: int | None = None,
        *,
        base_estimator: str = "GP",
        n_random_starts: int | None = None,
        n_initial_points: int = 10,
        acq_func: str = "EI",
        acq_optimizer: str = "auto",
        random_state: int | None = None,
        model_queue_size: int | None = None,
        acq_func_kwargs: Mapping[str, Any] | None = None,
        acq_optimizer_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        if random_state is not None:
            whole_number(random_state, "random_state", least=0)
        super().__init__(
            search_space, reward_attribute, optimize_mode, seed if random_state is None else random_state, lag
        )
        self.base_estimator = one_of(str(base_estimator).upper(), "base_estimator", _ESTIMATORS)
        self.n_initial_points = whole_number(n_initial_points, "n_initial_points", least=0)
        if n_random_starts is not None:
            self.n_initial_points = whole_number(n_random_starts, "n_random_starts", least=0)
        if acq_func in ("EIps", "PIps"):
            raise ConfigError(f"{acq_func} needs the time of each trial, which is not known here", ("acq_func",))
        self.acq_func = one_of(acq_func, "acq_func", _FUNCTIONS)
        self.acq_optimizer = one_of(acq_optimizer, "acq_optimizer", _OPTIMIZERS)
        if self.acq_optimizer == "lbfgs" and self.base_estimator != "GP":
            raise ConfigError(
                f"only the base_estimator GP has a gradient; with {self.base_estimator} use `sampling`",
                ("acq_optimizer",),
            )
        if model_queue_size is not None:
            whole_number(model_queue_size, "model_queue_size", least=1)
        self._read_function_options({} if acq_func_kwargs is None else acq_func_kwargs)
        self._read_optimizer_options({} if acq_optimizer_kwargs is None else acq_optimizer_kwargs)
        self._history = TrialArrays(self.space)
        self._design = Design("sobol", self.space.dimensions, self.seed)
        self._surrogate = Surrogate(self.space, self._history, _MOST_POINTS)
        self._maximiser = Maximiser(self.space.layout)
        self._explorer = BranchExplorer(self.space, self._history, self._maximiser)
        # For gp_hedge: how well the proposals of each function did, as sums of ranks between -1 and 1.
        self._gains = dict.fromkeys(_HEDGED, 0.0)
        self._gained: dict[int, float] = {}  # by each trial, whose score changes where it is run again

    def _read_function_options(self, options: Mapping[str, Any]) -> None:
        _check_keys(options, "acq_func_kwargs", ("xi", "kappa"))
        xi = options.get("xi", 0.0)
        self._xi = 0.0 if is_number(xi) and xi == 0 else positive(xi, "xi")
        self._kappa = positive(options.get("kappa", 1.96), "kappa")

    def _read_optimizer_options(self, options: Mapping[str, Any]) -> None:
        _check_keys(options, "acq_optimizer_kwargs", ("n_points", "n_restarts_optimizer", "n_jobs"))
        self._n_points = whole_number(options.get("n_points", 1000), "n_points", least=2, most=MOST_AT_ONCE)
        restarts = whole_number(options.get("n_restarts_optimizer", 4), "n_restarts_optimizer", least=0)
        self._n_starts = 0 if self.acq_optimizer == "sampling" else restarts

    def _remember(self, proposal: Proposal) -> None:
        super()._remember(proposal)
        if proposal.notes is not None and "fit" in proposal.notes:
            self._surrogate.recall(proposal.notes["fit"])

    def _learn(self, trial: Trial) -> None:
        self._history.add(trial)
        function = (trial.notes or {}).get("acq_func")
        if function in self._gains:
            # The part of all results that this one beat: the same for any scale of rewards.
            scores = self._history.scores
            beaten = float((scores < trial.score).mean()) if trial.state == "finished" else 0.0
            gain = 2 * beaten - 1
            self._gains[function] += gain - self._gained.get(trial.number, 0.0)
            self._gained[trial.number] = gain

    def _propose(self, number: int) -> Proposal | None:
        if self.exhausted:
            return None
        rng = self.rng(number)
        config: Config | None
        notes = None
        if number < self.n_initial_points or np.isfinite(self._history.scores).sum() < 2:
            config = self.space.decode(self._design.point(number))
            if self.is_new(config):
                return Proposal(number, config)
        elif self.base_estimator != "DUMMY":
            function = self._choose_function(rng)
            points = self._best_points(function, rng)
            notes = {"fit": self._surrogate.fit}
            for point in points:
                config = self.space.decode(point)
                if self.is_new(config):
                    return Proposal(number, config, notes={"acq_func": function, **notes})
        config = self.fresh(rng)
        return None if config is None else Proposal(number, config, notes=notes)

    def _choose_function(self, rng: np.random.Generator) -> str:
        if self.acq_func != "gp_hedge":
            return self.acq_func
        gains = np.array([self._gains[name] for name in _HEDGED])
        chances = np.exp(gains - gains.max())
        return str(rng.choice(_HEDGED, p=chances / chances.sum()))

    def _best_points(self, function: str, rng: np.random.Generator) -> list[np.ndarray]:
        with one_thread():
            model, best = self._model(rng)
            candidates = self._maximiser.candidates(rng, self._n_points // 2, best_points(self._history, 5))
            candidates, rows, fixed = self._explorer.choose(rng, candidates)
            # Every second time, or a search would refine one place to its end.
            known = self._history.points if rng.random() < 0.5 else None
            best = best if rows is None or self.base_estimator != "GP" else self._surrogate.best_of(rows)
            acquisition = Acquisition(function, best, self._xi, self._kappa)
            return promising_points(model, acquisition, self._maximiser, candidates, self._n_starts, fixed, known)

    def _model(self, rng: np.random.Generator) -> tuple[Model, float]:
        if self.base_estimator == "GP":
            return self._surrogate.model(self.pending, self.seed)
        outputs = Outputs()
        outputs.learn(self._history.scores)
        rows = choose_rows(self._history.scores, _MOST_POINTS, rng)
        points, y = self._history.points[rows], outputs(self._history.scores[rows])
        best = float(y.max())
        if self.pending:
            # Trees cannot be asked before they are grown: pending trials count as middling.
            waiting = self.space.encode_many([trial.config for trial in self.pending])
            points, y = np.vstack([points, waiting]), np.append(y, np.full(len(waiting), float(np.median(y))))
        forest = Forest(self.space.layout, self.base_estimator)
        forest.fit(points, y, seed=int(rng.integers(2**31)))
        return forest, best


def _check_keys(options: Mapping[str, Any], name: str, known: tuple[str, ...]) -> None:
    if not isinstance(options, Mapping):
        raise ConfigError(f"`{name}` is a mapping, not {options!r}", (name,))
    for key in options:
        if key not in known:
            raise ConfigError(unknown(f"key of {name}", key, known), (name, str(key)))


class Forest:
    """Random forest (`RF`), extra trees (`ET`) or gradient boosting of quantiles (`GBRT`)."""

    def __init__(self, layout: Layout, kind: str, trees: int = 100) -> None:
        self._features = Features(layout)
        self._kind = kind
        self._trees = trees
        self._models: list[Any] = []

    def fit(self, points: Array, y: Array, seed: int) -> None:
        ensemble = require("sklearn.ensemble")
        features = self._features(points)
        if self._kind == "GBRT":
            # A sixth of the values lie below, a sixth above: one standard deviation to each side.
            self._models = [
                ensemble.GradientBoostingRegressor(
                    loss="quantile", alpha=alpha, n_estimators=self._trees // 3, random_state=seed
                )
                for alpha in (0.16, 0.5, 0.84)
            ]
        else:
            make = ensemble.RandomForestRegressor if self._kind == "RF" else ensemble.ExtraTreesRegressor
            # Extra trees without a bootstrap are exact at known points and unsure between them.
            self._models = [make(self._trees, min_samples_leaf=1 if self._kind == "ET" else 2, random_state=seed)]
        for model in self._models:
            model.fit(features, y)

    def predict(self, points: Array) -> tuple[Array, Array]:
        features = self._features(points)
        if self._kind == "GBRT":
            low, middle, high = (model.predict(features) for model in self._models)
            return middle, np.maximum((high - low) / 2, 1e-6)
        # The trees take float32 and would each convert and check it again.
        single = np.ascontiguousarray(features, dtype=np.float32)
        votes = np.array([tree.tree_.predict(single)[:, 0] for tree in self._models[0].estimators_])
        return votes.mean(axis=0), np.maximum(votes.std(axis=0), 1e-6)
