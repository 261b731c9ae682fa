"""What every searcher has: numbering, results, no duplicates, determinism, and a `get_config` layer."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import numpy as np

from operant import status
from operant._util.checks import whole_number
from operant.errors import ConfigError, unknown
from operant.space import Config, Container, build_space

USABLE, UNDER_WAY = status.USABLE, status.OPEN
FAILED = status.FAILED | {status.Status.FILTERED}
FINAL = USABLE | FAILED

_MODES = ("maximize", "minimize")
# Spaces up to this size keep a shuffled list of all configurations once random draws find nothing new.
_MOST_SHUFFLED = 1_000_000
_DRAWS = 30
_MANY_DRAWS = 100_000
MOST_AT_ONCE = 1_000_000
"""Points that a setting may ask for at once: more would take gigabytes, and hours."""


# Not frozen, though nobody changes one: setting the fields of a frozen one takes three times as long, and there are
# two for each trial.
@dataclass(slots=True)
class Proposal:
    """One configuration that a searcher wants tried. Everything in it is JSON, so a journal can keep it."""

    number: int
    config: dict[str, Any]
    budget: float | None = None
    parent: int | None = None
    # What the searcher wants to be given back by `restore`: its own bookkeeping, and why this was proposed.
    notes: dict[str, Any] | None = None
    # Settings that a job gets with another value than the one that was searched; for whoever looks on.
    shown: dict[str, Any] | None = None

    @property
    def extras(self) -> dict[str, Any]:
        """What there is beside the number and the configuration."""
        if self.budget is None and self.parent is None and self.notes is None and self.shown is None:
            return {}
        found = {"budget": self.budget, "parent": self.parent, "notes": self.notes, "shown": self.shown}
        return {key: value for key, value in found.items() if value is not None}


@dataclass(slots=True)
class Observation:
    """What came of a proposal, by scalar name; `seed` is None for a result over all seeds."""

    number: int
    seed: int | None = None
    attempt: int = 1
    status: str = status.Status.FINISHED
    values: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Trial:
    """A proposal with what is known about it. `score` is the reward turned so that higher is better."""

    number: int
    config: dict[str, Any]
    parent: int | None = None
    notes: dict[str, Any] | None = None
    # "pending", "finished" (there is a score) or "failed" (there will be none).
    state: str = "pending"
    score: float = math.nan
    # Scores by seed, where there are several.
    by_seed: dict[int | None, float] | None = None
    # How often a searcher has learnt of it: more than once where a job of it was run again.
    told: int = 0


class NotReady(RuntimeError):
    """With `lag`, a proposal was asked for before all results that it must see were there."""


class BaseSearcher:
    """Makes proposals and learns from observations. Any number of proposals may be pending.

    A subclass overrides `_propose`, and `_learn` when it keeps a model up to date. A subclass in the style of
    GML's HPO overrides `get_config` instead and finds its results in `_results`.

    Args:
        search_space: what may vary, or the `search_args` list that describes it.
        reward_attribute: the scalar to optimise.
        optimize_mode: `maximize` or `minimize`.
        seed: with the number of a proposal, the only source of randomness.
        lag: proposal n sees exactly the results of proposals up to n - lag; see `ready`.
    """

    looks_at_results = True
    """False of a searcher that proposes the same whatever came of earlier proposals."""
    show: Callable[[Config], dict[str, Any] | None] | None = None
    """Set by whoever makes other values of a configuration before a job gets them: those that differ."""

    reward_attribute = "acc"
    optimize_mode = "maximize"
    seed = 0

    def __init__(
        self,
        search_space: Container | Sequence[Mapping[str, Any]],
        reward_attribute: str = "acc",
        optimize_mode: str = "maximize",
        seed: int = 0,
        lag: int | None = None,
    ) -> None:
        self.space: Container = search_space if isinstance(search_space, Container) else build_space(search_space)
        self.configure(reward_attribute, optimize_mode, seed, lag)
        self.trials: dict[int, Trial] = {}
        self._next_number = 0
        self._seen: set[Hashable] = set()
        self._keyed: tuple[Config | None, Hashable] = (None, None)
        # A tuple of nothing but numbers and texts also costs the garbage collector nothing.
        self._values_of = itemgetter(*self.space.names) if self.space.layout.told_apart_by_values else None
        self._held: dict[int, list[Observation]] = {}
        self._applied_up_to = -1
        self._pending: dict[int, Trial] = {}
        self._best: Trial | None = None
        self._shuffled: np.ndarray | None = None
        self._shuffled_at = 0
        # Rewards by pickled configuration, for searchers that override `get_config`.
        self._results: dict[bytes, float] = {}
        self._result_keys: dict[int, bytes] = {}
        self._recorded: set[Hashable] = set()

    def configure(
        self,
        reward_attribute: str | None = None,
        optimize_mode: str | None = None,
        seed: int | None = None,
        lag: int | None = None,
    ) -> None:
        """Set what all searchers have in common; None leaves a setting as it is."""
        if reward_attribute is not None:
            self.reward_attribute = str(reward_attribute)
        if optimize_mode is not None:
            if optimize_mode not in _MODES:
                raise ConfigError(unknown("optimize_mode", optimize_mode, _MODES), ("optimize_mode",))
            self.optimize_mode = optimize_mode
        if seed is not None:
            given: Any = seed
            self.seed = whole_number(int(given) if isinstance(given, np.integer) else given, "seed", 0)
        self.lag = whole_number(lag, "lag", 1) if lag is not None else getattr(self, "lag", None)

    # -- the contract ----------------------------------------------------------------------------------------

    def propose(self) -> Proposal | None:
        """The next configuration to try; None when the space has no new one.

        Called when a slot is free, `ready()` says so, and no criterion has ended the search; after None only once an
        observation has come.
        """
        number = self._next_number
        if self.lag is not None:
            if not self.ready():
                raise NotReady(
                    f"proposal {number} must see the results up to {number - self.lag} (lag {self.lag}), "
                    f"but {self._applied_up_to + 1} has not ended; ask `ready()` first"
                )
            self._apply_held(number)
        proposal = self._propose(number)
        if proposal is not None:
            self._next_number = number + 1
            self._remember(proposal)
            if self.show is not None:
                proposal.shown = self.show(proposal.config)
        return proposal

    def ready(self) -> bool:
        """False while `lag` asks for results that are not there yet; without `lag` always True."""
        if self.lag is None:
            return True
        last = self._next_number - self.lag
        return all(number in self._held for number in range(self._applied_up_to + 1, last + 1))

    def observe(self, observation: Observation) -> None:
        """Learn what came of a proposal. Statuses of jobs under way are taken note of by ignoring them.

        Called once for each proposal, in the order in which they end: when all its seeds are done, or a filter dropped
        it; a second time when a job of it that had failed or paused was run again.
        """
        number, status = observation.number, observation.status
        if number not in self.trials:
            raise ValueError(f"observation of proposal {number}, which was never proposed")
        if status not in FINAL:
            if status not in UNDER_WAY:
                raise ValueError(unknown("status", status, FINAL | UNDER_WAY))
            return
        if self.lag is None or number <= self._applied_up_to:
            self._apply(observation)
        else:
            self._held.setdefault(number, []).append(observation)

    def restore(self, observations: Iterable[Observation], proposals: Iterable[Proposal] = ()) -> None:
        """Take over a recorded search: all its proposals, then its observations in the order they were made.

        Called once, before the first `propose`, of a search that is gone on with.
        No model is fitted here; that happens when the next proposal needs one.
        """
        for proposal in proposals:
            self._next_number = max(self._next_number, proposal.number + 1)
            self._remember(proposal)
        if type(self)._propose is BaseSearcher._propose:
            self._recorded = set(self._seen)
        for observation in observations:
            self.observe(observation)
        self._apply_held(self._next_number - 1)

    # -- what subclasses use ---------------------------------------------------------------------------------

    def _propose(self, number: int) -> Proposal | None:
        """Make proposal `number`, in `propose`. The default asks `get_config`, as those of GML's HPO have it."""
        while (config := self.get_config()) is not None:
            flat = self.space.flatten(config)
            key = self._key(flat)
            if key in self._recorded:
                # A restored `get_config` begins anew: what it gave before is in the record already.
                self._recorded.remove(key)
                continue
            self._result_keys[number] = pickle.dumps(config)
            return Proposal(number, flat)
        return None

    def _learn(self, trial: Trial) -> None:
        """Called once when a trial ends, in the order of observation, and again (`trial.told` counts) if its score
        changes.
        """

    def rng(self, number: int) -> np.random.Generator:
        """The random numbers of proposal `number`."""
        return np.random.default_rng([self.seed, number])

    def is_new(self, config: Config) -> bool:
        key = self._key(config)
        self._keyed = (config, key)  # what is new is mostly proposed next, and then remembered by its key
        return key not in self._seen

    def _key(self, config: Config) -> Hashable:
        """What two configurations share exactly when they are the same; cheaper than the space's text."""
        if self._values_of is not None:
            key: Hashable = self._values_of(config)
            return key
        key = (*config, *config.values(), *map(type, config.values()))
        try:
            hash(key)
        except TypeError:  # a list or a mapping among the values
            key = self.space.key(config)
        return key

    @property
    def exhausted(self) -> bool:
        """Whether every configuration of a finite space has been proposed."""
        return len(self._seen) >= self.space.size

    def fresh(
        self, rng: np.random.Generator, draw: Callable[[np.random.Generator], Config] | None = None
    ) -> Config | None:
        """A configuration that was never proposed, by `draw` where it finds one; None when there is none."""
        if self.exhausted:
            return None
        for make in (draw or self.space.sample, self.space.sample):
            for _ in range(_DRAWS):
                config = make(rng)
                if self.is_new(config):
                    return config
        return self._first_unseen(rng)

    def _first_unseen(self, rng: np.random.Generator) -> Config | None:
        if math.isinf(self.space.size):
            # A continuous argument may be active only in a rare corner of the space.
            for _ in range(_MANY_DRAWS):
                config: Config = self.space.sample(rng)
                if self.is_new(config):
                    return config
            raise RuntimeError(f"{_MANY_DRAWS} random draws from a continuous space gave nothing new")
        everything = self.space.data
        size = int(self.space.size)
        if size <= _MOST_SHUFFLED:
            if self._shuffled is None:
                # Independent of when it is made, so that a restored search goes on as it would have.
                self._shuffled = np.random.default_rng([self.seed, 0x5EED]).permutation(size)
            while self._shuffled_at < size:
                config = everything[int(self._shuffled[self._shuffled_at])]
                if self.is_new(config):
                    return config
                self._shuffled_at += 1
            return None
        start = int(rng.integers(size))
        for step in range(size):
            config = everything[(start + step) % size]
            if self.is_new(config):
                return config
        return None

    @property
    def pending(self) -> list[Trial]:
        """Trials without a result, oldest first."""
        return list(self._pending.values())

    @property
    def best(self) -> Trial | None:
        """The finished trial with the best reward so far; of equals the earliest."""
        return self._best

    def reward(self, trial: Trial) -> float:
        """A trial's score with the sign that the user knows."""
        return trial.score if self.optimize_mode == "maximize" else -trial.score

    # -- searchers of GML's HPO ------------------------------------------------------------------------------

    def get_config(self) -> Any:
        """The next configuration shaped like the space, or None; `propose` without its number."""
        if type(self)._propose is BaseSearcher._propose:
            raise NotImplementedError(f"{type(self).__name__} must override get_config or _propose")
        proposal = self.propose()
        return None if proposal is None else self.space.structure(proposal.config)

    def _reward_while_pending(self) -> float:
        """What stands in `_results` until a configuration's reward is known: the worst there is."""
        return -math.inf if self.optimize_mode == "maximize" else math.inf

    # -- inside ----------------------------------------------------------------------------------------------

    def _remember(self, proposal: Proposal) -> None:
        number, config = proposal.number, proposal.config
        self.trials[number] = self._pending[number] = Trial(number, config, proposal.parent, proposal.notes)
        known, key = self._keyed
        self._seen.add(key if known is config else self._key(config))

    def _apply_held(self, number: int) -> None:
        if self.lag is None:
            return
        # In the order of proposal: what is seen must not depend on which job was faster.
        while self._applied_up_to < number - self.lag and self._applied_up_to + 1 in self._held:
            self._applied_up_to += 1
            for observation in self._held.pop(self._applied_up_to):
                self._apply(observation)

    def _apply(self, observation: Observation) -> None:
        trial = self.trials[observation.number]
        self._pending.pop(trial.number, None)
        score = self._score(observation)
        if math.isnan(score):
            # A seed that failed does not undo what other seeds have shown.
            if trial.state == "pending":
                trial.state = "failed"
                trial.told += 1
                self._learn(trial)
            return
        if trial.by_seed is None:
            trial.by_seed = {observation.seed: score}
            trial.score = score
        else:
            trial.by_seed[observation.seed] = score
            trial.score = sum(trial.by_seed.values()) / len(trial.by_seed)
        trial.state = "finished"
        best = self._best
        if best is trial:
            finished = (one for one in self.trials.values() if one.state == "finished")
            self._best = max(finished, key=lambda one: (one.score, -one.number))
        elif best is None or trial.score > best.score or (trial.score == best.score and trial.number < best.number):
            self._best = trial
        if type(self)._propose is BaseSearcher._propose:
            self._results[self._result_key(trial)] = self.reward(trial)
        trial.told += 1
        self._learn(trial)

    def _score(self, observation: Observation) -> float:
        """The reward, higher better; NaN for whatever cannot be learnt from."""
        if observation.status in FAILED:
            return math.nan
        value = observation.values.get(self.reward_attribute, math.nan)
        if not math.isfinite(value):
            return math.nan
        return float(value) if self.optimize_mode == "maximize" else -float(value)

    def _result_key(self, trial: Trial) -> bytes:
        if trial.number not in self._result_keys:
            self._result_keys[trial.number] = pickle.dumps(self.space.structure(trial.config))
        return self._result_keys[trial.number]
