"""A searcher of one's own: all combinations, the last one first."""

import pickle
from itertools import product

from operant.searchers.base_searcher import BaseSearcher
from operant.searchers.builder import SEARCHERS
from operant.space import Categorical, Dict, Int, List, Real, Space


@SEARCHERS.register_module()
class MySearcher(BaseSearcher):
    def __init__(self, search_space, reward_attribute="acc"):
        for key, value in search_space.kwspaces.items():
            finite = isinstance(value, (Categorical, Int)) or (isinstance(value, Real) and value.step is not None)
            if not finite:
                raise TypeError(f"only what is finite can be enumerated, but {key} is {type(value).__name__}")
        super().__init__(search_space, reward_attribute)
        self._configs = self._build_configs(self.space)

    def _build_configs(self, space):
        if isinstance(space, (Categorical, Int, Real)):
            return space.data
        if isinstance(space, List):
            return [list(values) for values in product(*map(self._build_configs, space))]
        if isinstance(space, Dict):
            keys = list(space)
            parts = [self._build_configs(space[key]) for key in keys]
            return [dict(zip(keys, values, strict=True)) for values in product(*parts)]
        if isinstance(space, Space):
            raise ValueError(f"{type(space).__name__} is not supported")
        return [space]

    def get_config(self):
        """The next configuration, or None when there are no more."""
        if not self._configs:
            return None
        config = self._configs.pop()
        self._results.setdefault(pickle.dumps(config), self._reward_while_pending())
        return config

    def __len__(self):
        return len(self._configs)
