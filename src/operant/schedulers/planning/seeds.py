"""Seeds as an axis: each proposal several times, its reward over all of them, and who need not run them all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from operant._util.checks import is_whole, whole_number
from operant._util.statistics import iqm, mean, paired_worse
from operant.errors import ConfigError, unknown

__all__ = ["SeedPlan"]

RACE_ALPHA = 0.1
_FEWEST_FOR_TEST = 2


@dataclass(frozen=True)
class SeedPlan:
    """Which seeds each proposal runs, and how their rewards become one.

    When racing, seeds are run in their order. After two of them a proposal is dropped as soon as a paired test
    against the best proposal, which has run them all, says that it is worse.
    """

    seeds: tuple[int | None, ...] = (None,)
    reduce: str = "mean"
    racing: bool = False
    check_top: int = 0
    check_seeds: tuple[int, ...] = ()
    maximize: bool = True

    @classmethod
    def parse(cls, seeds: Any, reduce: Any, racing: Any, final_check: Any, optimize_mode: str) -> SeedPlan:
        chosen = _parse_seeds(seeds)
        if reduce is not None and reduce not in ("mean", "iqm", "min"):
            raise ConfigError(unknown("seed_reward", reduce, ("mean", "iqm", "min")), ("seed_reward",))
        if racing not in (None, True, False):
            raise ConfigError(f"`racing` is true or false, not {racing!r}", ("racing",))
        if racing and len(chosen) < _FEWEST_FOR_TEST + 1:
            raise ConfigError("racing needs at least 3 `seeds`", ("racing",))
        top, held_out = _parse_check(final_check, chosen)
        return cls(chosen, reduce or "mean", bool(racing), top, held_out, optimize_mode == "maximize")

    def first(self) -> tuple[int | None, ...]:
        """The seeds that start with the proposal."""
        return self.seeds[:_FEWEST_FOR_TEST] if self.racing else self.seeds

    def reward(self, rewards: Sequence[float]) -> float:
        if self.reduce == "iqm":
            return iqm(rewards)
        if self.reduce == "min":
            # The worst seed, whichever way is worse.
            return min(rewards) if self.maximize else max(rewards)
        return mean(rewards)

    def loses(self, rewards: Mapping[int | None, float], incumbent: Mapping[int | None, float] | None) -> bool:
        """Whether a proposal with these rewards by seed should run no further ones."""
        if not self.racing or incumbent is None:
            return False
        shared = [seed for seed in rewards if seed in incumbent]  # one of its jobs, once paused, may run again
        if len(shared) < _FEWEST_FOR_TEST:
            return False
        sign = 1.0 if self.maximize else -1.0
        ours, theirs = ([sign * one[seed] for seed in shared] for one in (rewards, incumbent))
        return paired_worse(ours, theirs, RACE_ALPHA)


def _parse_seeds(seeds: Any) -> tuple[int | None, ...]:
    if seeds is None:
        return (None,)
    if is_whole(seeds, 1):
        return tuple(range(seeds))
    good = isinstance(seeds, (list, tuple)) and seeds and all(is_whole(one) for one in seeds)
    if not good:
        raise ConfigError(f"`seeds` is a list of whole numbers such as [0, 1, 2], not {seeds!r}", ("seeds",))
    if len(set(seeds)) != len(seeds):
        raise ConfigError(f"`seeds` names a seed twice: {seeds!r}", ("seeds",))
    return tuple(seeds)


def _parse_check(check: Any, seeds: Sequence[int | None]) -> tuple[int, tuple[int, ...]]:
    if not check:
        return 0, ()
    if not isinstance(check, Mapping):
        raise ConfigError(f"`final_check` is a mapping such as {{top: 3, seeds: 5}}, not {check!r}", ("final_check",))
    for key in check:
        if key not in ("top", "seeds"):
            raise ConfigError(unknown("key of final_check", key, ("top", "seeds")), ("final_check", str(key)))
    top = whole_number(check.get("top", 3), "top", 1, ("final_check", "top"))
    count = whole_number(check.get("seeds", 5), "seeds", 1, ("final_check", "seeds"))
    # Held out: seeds that the search has not seen.
    first = 1 + max((one for one in seeds if one is not None), default=999)
    return top, tuple(range(first, first + count))
