"""How good a policy is: greedy episodes on environments and seeds of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from operant.envs.vector import VectorEnv
from operant.training.normalizing import Normalizer

__all__ = ["Evaluation", "evaluate", "greedy_or_sampled"]


@dataclass(frozen=True)
class Evaluation:
    """Returns and lengths of whole episodes."""

    returns: tuple[float, ...]
    lengths: tuple[int, ...]

    @property
    def mean(self) -> float:
        return float(np.mean(self.returns))

    @property
    def deviation(self) -> float:
        return float(np.std(self.returns))


def evaluate(
    algorithm: Any,
    env: VectorEnv,
    episodes: int,
    seed: int,
    *,
    normalizer: Normalizer | None = None,
    explore: bool = False,
) -> Evaluation:
    """Play `episodes` episodes from starts that the seed decides.

    Every environment plays the same number (the first ones one more if it does not divide): taking whichever end
    first would favour short episodes.
    """
    rng = np.random.default_rng([seed, 2])
    rows = env.num_envs
    quota = np.full(rows, episodes // rows)
    quota[: episodes % rows] += 1
    returns: list[list[float]] = [[] for _ in range(rows)]
    lengths: list[list[int]] = [[] for _ in range(rows)]
    obs = env.reset(seed)
    left = int(quota.sum())
    while left:
        adapted = algorithm.adapter.adapt(obs)
        if normalizer is not None:
            adapted = normalizer.observe(adapted, learn=False)
        mask = env.action_mask
        if mask is None:
            mask = algorithm.adapter.mask(obs, None)
        step = env.step(greedy_or_sampled(algorithm, adapted, mask, rng if explore else None))
        obs = step.obs
        ended = step.info.get("episodes")
        if ended is not None:
            for row, value, length in zip(ended.env, ended.returns, ended.lengths, strict=True):
                if len(returns[row]) < quota[row]:
                    returns[row].append(float(value))
                    lengths[row].append(int(length))
                    left -= 1
    return Evaluation(
        tuple(value for one in returns for value in one), tuple(value for one in lengths for value in one)
    )


def greedy_or_sampled(algorithm: Any, adapted: Any, mask: Any, rng: np.random.Generator | None) -> Any:
    if algorithm.data.kind == "rollout":
        rows = len(next(iter(adapted.values()))) if isinstance(adapted, dict) else len(adapted)
        noise = None if rng is None else algorithm.head.noise(rng, 1, rows)[0]
        return algorithm.draw(adapted, noise, mask)[0]
    return algorithm.draw(adapted, rng, mask)
