"""Where data come from, and the rhythm of learning from them: one table, keyed by ``DataSpec.source``.

A source is made for an algorithm and a collector. `collect` and `learn` are called in turn, by `operant train`, by
Lightning and by middleware alike; loops that collect by themselves call `learn_from_replay` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from operant.algorithms.base import recorded_actions
from operant.algorithms.contracts import Algorithm, DataSpec, ForeseeingAlgorithm, Metrics, PopulationAlgorithm
from operant.algorithms.errors import DivergedError, explain_divergence
from operant.data import PrioritizedReplayBuffer, ReplayBuffer
from operant.data.batches import add_step, episode_batch, read_transitions, sample_batch, take_rows
from operant.envs.parallel import ParallelVectorEnv
from operant.errors import UsageError
from operant.framework import Context, Standalone
from operant.training.collecting import Collector, Rollout, only


class Source:
    """What learns from fresh data: a round is a rollout, some episodes or some candidates, and then it is forgotten."""

    def __init__(self, algorithm: Algorithm, collector: Collector, rng: np.random.Generator) -> None:
        self.algorithm = algorithm
        self.collector = collector
        self.rng = rng
        self.spec = algorithm.data
        self.train_iter = 0
        """Calls of `learn`."""
        self.say: Callable[..., None] = lambda _, **__: None
        """Into the log at once, from the training's own thread; what can wait are `news`."""
        self.inexact_reason = ""
        """Why a resumed training may differ, if not by its environments."""
        if self.spec.unit == "candidate" and collector.normalizer is not None:
            collector.normalizer.defer()  # candidates of one round are compared on one scale
        self._rollout = Rollout(collector, self.spec.count) if self.spec.unit == "step" else None

    @property
    def steps_per_round(self) -> int:
        """Environment steps from one call of `learn` to the next; 0: that is known only afterwards."""
        return self.spec.count * self.collector.env.num_envs if self.spec.unit == "step" else 0

    def describe(self) -> list[str]:
        """Sentences for the log."""
        return []

    def collect(self, total_steps: int) -> Any:
        """Act; returns what to learn from, where that is fresh."""
        self.algorithm.set_progress(self.collector.env_step, total_steps)
        if self._rollout is not None:
            return self._rollout.collect()
        if self.spec.unit == "episode":
            return only(episode_batch(self.collector.whole_episodes(self.spec.count)), self.spec.fields)
        candidates = cast(PopulationAlgorithm, self.algorithm).candidates(self.spec.count, self.collector.rng)
        returns, lengths = self.collector.candidate_returns(candidates)
        if self.collector.normalizer is not None:
            self.collector.normalizer.absorb(self.collector.normalizer.take_unseen())
        return only({"candidate": candidates, "return": returns, "length": lengths}, self.spec.fields)

    def learn(self, batch: Any, total_steps: int, measure: bool = True) -> Metrics:
        """Improve the policy; returns what to log if it is to be measured."""
        self.algorithm.measure = measure
        metrics, _ = learn_from(self.algorithm, batch)
        self.train_iter += 1
        return dict(metrics)

    @property
    def settled(self) -> bool:
        """Whether the training can be saved now so that it goes on exactly."""
        return True

    def connected(self) -> AbstractContextManager[Standalone | None]:
        """A context around the training, for what else has to run; gives the router of its task."""
        return nullcontext()

    def before_evaluation(self) -> None:
        """Called before policies are evaluated."""

    def publish(self, ctx: Context) -> None:
        """The end of a pass: show others what to go on with."""

    def news(self) -> list[str]:
        """Sentences for the log since the last call."""
        return []

    def figures(self) -> Metrics:
        """What to log beside the metrics of learning."""
        return {}

    def save(self, folder: Path) -> dict[str, Any]:
        """What lies in replay, written to a folder; {} where nothing does."""
        return {}

    def load(self, folder: Path, state: dict[str, Any]) -> None: ...


class Replay(Source):
    """What learns from replay: after each `every` environment steps, `updates` batches of what happened before."""

    def __init__(
        self, algorithm: Algorithm, collector: Collector, rng: np.random.Generator, buffer: ReplayBuffer | None = None
    ) -> None:
        super().__init__(algorithm, collector, rng)
        rows = collector.env.num_envs
        self.buffer = make_replay(self.spec, rows) if buffer is None else buffer
        self._steps = max(1, -(-self.spec.every // rows))  # of each environment in a round
        self._keep = collector.each_step(lambda step: add_step(self.buffer, step))

    @property
    def steps_per_round(self) -> int:
        return self._steps * self.collector.env.num_envs

    def describe(self) -> list[str]:
        return [f"prioritised replay: {self.buffer.path}"] if isinstance(self.buffer, PrioritizedReplayBuffer) else []

    def collect(self, total_steps: int) -> None:
        self.collector.run(self._steps, self._keep, total_steps=total_steps)

    def learn(self, batch: Any, total_steps: int, measure: bool = True) -> Metrics:
        if self.collector.env_step < self.spec.starts:
            return {}
        self.algorithm.set_progress(self.collector.env_step, total_steps)
        updates = self.spec.updates or self.steps_per_round
        metrics: Metrics = {}
        for number, drawn in enumerate(replay_batches(self.algorithm, self.buffer, self.rng, updates)):
            self.algorithm.measure = measure and number == updates - 1
            metrics = _learn_and_rate(self.algorithm, self.buffer, drawn)
        self.train_iter += updates
        return metrics

    def save(self, folder: Path) -> dict[str, Any]:
        return {"replay": self.buffer.save_chunks(folder)}

    def load(self, folder: Path, state: dict[str, Any]) -> None:
        self.buffer.load(folder, state["replay"])


class Dataset(Replay):
    """What learns from recorded transitions: nothing is collected, and each update counts as a step."""

    def __init__(self, algorithm: Algorithm, collector: Collector, rng: np.random.Generator) -> None:
        spec = algorithm.data
        if collector.normalizer is not None:
            raise UsageError("env.normalize_obs and env.normalize_reward scale by what is collected; a dataset is not")
        recorded = read_transitions(
            spec.path,
            algorithm.adapter.adapt_recorded,
            n_step=spec.n_step,
            gamma=spec.gamma,
            from_env=partial(recorded_actions, algorithm),
        )
        super().__init__(algorithm, collector, rng, recorded)

    @property
    def steps_per_round(self) -> int:
        return max(1, self.spec.updates)

    def describe(self) -> list[str]:
        return [f"dataset: {len(self.buffer):,} transitions from {self.spec.path}"]

    def collect(self, total_steps: int) -> None:
        self.collector.env_step += self.steps_per_round

    def save(self, folder: Path) -> dict[str, Any]:
        return {}

    def load(self, folder: Path, state: dict[str, Any]) -> None: ...


SOURCES = {"fresh": Source, "replay": Replay, "dataset": Dataset}
"""`DataSpec.source` -> what collects for it and in which rhythm it learns."""


def make_source(
    algorithm: Algorithm, collector: Collector, rng: np.random.Generator, buffer: ReplayBuffer | None = None
) -> Source:
    """The source that an algorithm asks for; `buffer`: replay of one's own."""
    if isinstance(collector.env, ParallelVectorEnv):
        from operant.training.agents import JointReplay, Team, TeamSource

        team: Any = algorithm
        if isinstance(team, Team):
            return TeamSource(team, collector, rng)
        return JointReplay(algorithm, collector, rng, buffer)
    kind = SOURCES[algorithm.data.source]
    return kind(algorithm, collector, rng) if buffer is None else Replay(algorithm, collector, rng, buffer)


def make_replay(spec: DataSpec, num_envs: int, kind: type[ReplayBuffer] = ReplayBuffer) -> ReplayBuffer:
    """The replay that a `DataSpec` describes."""
    sizes: dict[str, Any] = {"n_step": spec.n_step, "gamma": spec.gamma}
    capacity = max(spec.capacity, num_envs)
    if spec.alpha is not None:
        return PrioritizedReplayBuffer(capacity, num_envs, alpha=spec.alpha, **sizes)
    return kind(capacity, num_envs, **sizes)


def learn_from_replay(
    algorithm: Algorithm, buffer: ReplayBuffer, rng: np.random.Generator, size: int | None = None
) -> Metrics:
    """One call of `learn` with a batch from replay; priorities go back."""
    return _learn_and_rate(algorithm, buffer, next(replay_batches(algorithm, buffer, rng, 1, size)))


def replay_batches(
    algorithm: Algorithm, buffer: ReplayBuffer, rng: np.random.Generator, count: int, size: int | None = None
) -> Iterator[dict[str, Any]]:
    """So many batches from replay, each drawn when it is asked for: priorities may have changed. Without priorities
    several are drawn at once, the same ones; what no update changes is then computed for all of these."""
    spec = algorithm.data
    size = size or spec.batch
    length = spec.length if spec.unit == "sequence" else 0
    burn_in = spec.burn_in if length else 0
    for first in range(0, count, spec.ahead):
        together = min(spec.ahead, count - first)
        drawn = sample_batch(buffer, together * size, rng, beta=algorithm.beta, length=length, burn_in=burn_in)
        if together == 1:
            yield drawn
            continue
        drawn |= cast(ForeseeingAlgorithm, algorithm).foresee(drawn)
        for begin in range(0, together * size, size):
            rows = slice(begin, begin + size)
            yield {
                name: part[rows] if isinstance(part, np.ndarray) else take_rows(part, rows)
                for name, part in drawn.items()
            }


def _learn_and_rate(algorithm: Algorithm, buffer: ReplayBuffer, batch: dict[str, Any]) -> Metrics:
    """`learn`, and the priorities that it gives."""
    metrics, priorities = learn_from(algorithm, batch)
    if priorities is not None:
        buffer.update_priorities(batch["index"], priorities, batch["generation"])
    return dict(metrics)


def learn_from(algorithm: Algorithm, batch: Any) -> tuple[Metrics, Any]:
    """`learn`, with whose fault it is when numbers are not finite."""
    try:
        return algorithm.learn(batch)
    except DivergedError:
        raise explain_divergence(batch) from None
