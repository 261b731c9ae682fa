"""Tree ensembles of scikit-learn that also say how sure they are."""

from __future__ import annotations

from typing import Any

import numpy as np

from operant.searchers._extras import require
from operant.searchers._gp_model import Features
from operant.space import Layout

Array = np.ndarray
KINDS = ("RF", "ET", "GBRT")


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
