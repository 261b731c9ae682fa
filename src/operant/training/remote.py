"""Sources whose data others collect: workers beside the process that learns put whole trajectories into its queue.

In rounds (data that must be fresh, or ``schedule: lockstep``) every worker sends one message for each version of the
weights, and the learner takes them in the order of the workers: nothing depends on timing. Otherwise the learner takes
what comes first; what is older than the algorithm allows is dropped and counted.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np

from operant.algorithms.contracts import Algorithm, Metrics, PopulationAlgorithm
from operant.data.batches import add_step, episode_batch, merge_rollouts, take_rows
from operant.errors import OperantError, UsageError
from operant.framework import Context, Parallel, Standalone
from operant.framework.parallel.queues import QueueSettings, TaskQueue
from operant.framework.parallel.router import Router
from operant.training.actors import QUEUE, collect_for_learner, environments_of, in_rounds, queue_size
from operant.training.collecting import Collector, only
from operant.training.config import TrainConfig
from operant.training.machines import placement, started
from operant.training.sources import Source, learn_from_replay, make_replay

Message = dict[str, Any]
_PATIENCE = 0.25  # seconds in a pass that waits for data: then somebody may want to stop it, or a new worker weights
_FAILURES = 3  # of one worker in a row, without a message between them


class Remote(Source):
    """Fresh data of workers."""

    def __init__(
        self, algorithm: Algorithm, collector: Collector, rng: np.random.Generator, config: TrainConfig
    ) -> None:
        super().__init__(algorithm, collector, rng)
        self.config = config
        self.in_rounds = in_rounds(config, self.spec)
        self.version = 0
        """Rounds of learning so far: what weights are known by."""
        self.restarts = 0
        self.dropped = 0
        if getattr(algorithm.settings, "noise", None) in ("ou", "parameter"):
            self.inexact_reason = "noise that goes on from step to step is the workers' own, and is not saved"
        if not self.in_rounds:
            self.inexact_reason = "workers send what they collect whenever it is ready (schedule=lockstep has rounds)"
        self._router: Router | None = None
        self._queue: TaskQueue | None = None
        self._shown = -1  # the version that workers may have
        self._weights: Any = None
        self._work: list[Any] | None = None
        self._taken: list[Message] = []
        self._total = 1
        self._news: list[str] = []
        self._failures: dict[int, list[str]] = defaultdict(list)
        self._lags: list[int] = []
        self._rates: dict[int, float] = {}
        self._saved: dict[int, Any] = {}  # states of workers, of the checkpoint that is resumed
        self._states: tuple[int, list[Any]] | None = None

    # -- the workers -------------------------------------------------------------------------------------------------
    @property
    def steps_per_round(self) -> int:
        return 0

    def describe(self) -> list[str]:
        rows = [environments_of(self.config, self.spec, index) for index in range(self.config.workers)]
        how = "in rounds" if self.in_rounds else "without waiting for each other"
        return [f"{len(rows)} workers collect {how}, with {', '.join(map(str, rows))} environments"]

    @contextmanager
    def connected(self) -> Iterator[Standalone | None]:
        config = self.config
        roles = ["learn", *["collect"] * config.workers, *["replay"] * config.replay_shards]
        try:
            beside = Parallel.beside(
                len(roles) - 1,
                collect_for_learner,
                config.for_workers(),
                **placement(config, self.say, lambda news: self._news.append(news)),
                labels={node: [role] for node, role in enumerate(roles)},
                topology="mesh" if config.replay_shards else "star",
                stall_timeout=config.silence,
                on_restart=self._restarted,
            )
        except TypeError as error:
            raise UsageError(f"workers cannot be given this config: {error}") from None
        with started(beside, self.news) as router:
            self._router = router
            self._queue = router.queue(QUEUE, QueueSettings(queue_size(config), "block", 0))
            router.expose("begin", self._saved.get)
            yield router

    def _restarted(self, node: int, why: str) -> None:
        """A worker is replaced (in the supervisor's thread)."""
        self.restarts += 1
        self._failures[node - 1].append(why)
        self._news.append(f"worker {node - 1} is replaced: {why.splitlines()[-1] if 'raised' in why else why}")
        if self.in_rounds and not self.inexact_reason:
            self.inexact_reason = "a worker was replaced, and its environments began anew"

    def news(self) -> list[str]:
        said, self._news = self._news, []
        return said

    def publish(self, ctx: Context) -> None:
        """Show the workers weights, and what else they go on with. Writes what `_Actor.take_weights` reads."""
        if self._shown != self.version:
            self._shown = self.version
            self._weights = self.algorithm.weights()
            if self.spec.unit == "candidate":
                drawn = cast(PopulationAlgorithm, self.algorithm).candidates(self.spec.count, self.collector.rng)
                self._work = np.array_split(drawn, self.config.workers)
        normalizer = self.collector.normalizer
        ctx.version, ctx.weights, ctx.work = self.version, self._weights, self._work
        ctx.progress = (self.collector.env_step, self._total)
        ctx.scales = None if normalizer is None else normalizer.scales()

    # -- collecting --------------------------------------------------------------------------------------------------
    def collect(self, total_steps: int) -> Any:
        """What has come, once it is enough for a round; otherwise None, after a moment."""
        self._total = total_steps
        for index, reasons in list(self._failures.items()):
            if len(reasons) >= _FAILURES:
                raise OperantError(f"worker {index} failed {len(reasons)} times in a row; the last time: {reasons[-1]}")
        if self._shown < 0:
            return None
        deadline = time.perf_counter() + _PATIENCE
        while not self._enough():
            message = self._next(deadline - time.perf_counter())
            if message is None:
                return None
            self._take(message)
        taken, self._taken = sorted(self._taken, key=lambda one: one["index"]), []
        for message in taken:
            self._count(message)
        self.algorithm.set_progress(self.collector.env_step, total_steps)
        if self.in_rounds and self.collector.env_step >= total_steps:
            self._fetch_states()  # workers end now; a longer training may want to go on
        return self._assembled(taken)

    def _next(self, seconds: float) -> Message | None:
        assert self._queue is not None
        try:
            message: Message | None = self._queue.get(max(0.0, seconds))
        except TimeoutError:
            return None
        return message

    def _enough(self) -> bool:
        apart = self.spec.digested and not self.in_rounds
        return len(self._taken) >= (1 if apart else self.config.workers)

    def _take(self, message: Message) -> None:
        lag = self.version - message["version"]
        self._failures.pop(message["index"], None)
        self._rates[message["index"]] = message["steps"] / max(1e-9, message["seconds"])
        twice = self.in_rounds and any(one["index"] == message["index"] for one in self._taken)
        if twice or lag > self._longest_lag:
            self.dropped += 1
            if not self.in_rounds:
                self._count(message)  # these steps were made, though nothing is learned from them
            return
        self._lags.append(lag)
        self._taken.append(message)

    @property
    def _longest_lag(self) -> float:
        return 0 if self.in_rounds else self.spec.lag

    def _count(self, message: Message) -> None:
        collector, log = self.collector, self.collector.episodes
        collector.env_step += message["steps"]
        log.returns.extend(message["returns"])
        log.lengths.extend(message["lengths"])
        log.count += len(message["returns"])
        if collector.normalizer is not None and message["unseen"] is not None:
            collector.normalizer.absorb(message["unseen"])

    def _assembled(self, taken: list[Message]) -> Any:
        data = [one["data"] for one in taken]
        if self.spec.digested:
            return data
        if self.spec.unit == "step":
            return merge_rollouts(data)
        if self.spec.unit == "episode":
            return only(episode_batch([episode for one in data for episode in one]), self.spec.fields)
        assert self._work is not None
        returns, lengths = (np.concatenate(part) for part in zip(*data, strict=True))
        batch = {"candidate": np.concatenate(self._work), "return": returns, "length": lengths}
        return only(batch, self.spec.fields)

    def learn(self, batch: Any, total_steps: int, measure: bool = True) -> Metrics:
        if batch is None:
            return {}
        metrics: Metrics = {}
        for one in batch if self.spec.digested else [batch]:
            metrics = super().learn(one, total_steps, measure)
        self.version += 1
        return metrics

    # -- saying ------------------------------------------------------------------------------------------------------
    def figures(self) -> Metrics:
        lags, self._lags = self._lags or [0], []
        waiting = 0 if self._queue is None else self._queue.qsize()
        return {
            "workers/lag": float(np.mean(lags)),
            "workers/lag_max": float(max(lags)),
            "workers/queue": waiting / queue_size(self.config),
            "workers/dropped": float(self.dropped),
            "workers/restarts": float(self.restarts),
            **{f"workers/{index}/steps_per_second": rate for index, rate in sorted(self._rates.items())},
        }

    # -- saving ------------------------------------------------------------------------------------------------------
    @property
    def settled(self) -> bool:
        return not self.in_rounds or self._shown != self.version  # between rounds every worker waits

    def save(self, folder: Path) -> dict[str, Any]:
        if not self.in_rounds or not self.settled:
            return {"workers": {"version": self.version}}
        return {"workers": {"version": self.version, "states": self._fetch_states()}}

    def _fetch_states(self) -> list[Any]:
        """Of every worker, which in rounds waits for the next weights by now; [] where one is missing."""
        if self._states is not None and self._states[0] == self._shown:
            return self._states[1]
        states: list[Any] = []
        if self._router is not None and self._shown >= 0:
            try:
                for node in range(1, self.config.workers + 1):
                    states.append(self._router.call(node, "state", (), {}, self.config.silence))
            except (RuntimeError, TimeoutError) as error:  # it is being replaced
                self._news.append(f"the state of worker {len(states)} could not be saved: {error}")
                states = []
        self._states = (self._shown, states)
        return states

    def load(self, folder: Path, state: dict[str, Any]) -> None:
        saved = state.get("workers", {})
        self.version = int(saved.get("version", 0))
        states = saved.get("states", [])
        if len(states) == self.config.workers:
            self._saved = dict(enumerate(states))
        elif self.in_rounds:
            self.inexact_reason = "the workers begin anew: their number has changed, or their states were not saved"


class RemoteReplay(Remote):
    """Replay that workers fill: for so many of their steps so many batches, as in one process."""

    def __init__(
        self, algorithm: Algorithm, collector: Collector, rng: np.random.Generator, config: TrainConfig
    ) -> None:
        super().__init__(algorithm, collector, rng, config)
        each = environments_of(config, self.spec, 0)
        self.buffer = make_replay(self.spec, each)
        rows = each * config.workers
        self._round = max(1, -(-self.spec.every // rows)) * rows  # environment steps
        self._owed = 0
        self._drawn = 0

    @property
    def _longest_lag(self) -> float:
        return 0 if self.in_rounds else np.inf

    def _enough(self) -> bool:
        return len(self._taken) >= (self.config.workers if self.in_rounds else 1)

    def _assembled(self, taken: list[Message]) -> int:
        for message in taken:
            for t in range(len(message["data"]["reward"])):
                add_step(self.buffer, take_rows(message["data"], t))
        return sum(message["steps"] for message in taken)

    def learn(self, batch: Any, total_steps: int, measure: bool = True) -> Metrics:
        if batch is None:
            return {}
        self.version += 1
        if self.collector.env_step < self.spec.starts:
            return {}
        rounds, self._owed = divmod(self._owed + batch, self._round)
        updates = rounds * (self.spec.updates or self._round)
        metrics: Metrics = {}
        for number in range(updates):
            self.algorithm.measure = measure and number == updates - 1
            metrics = self._update() or metrics
        self.train_iter += updates
        self._drawn += updates * self.spec.batch
        return metrics

    def _update(self) -> Metrics:
        return learn_from_replay(self.algorithm, self.buffer, self.rng)

    def figures(self) -> Metrics:
        return super().figures() | {"replay/ratio": self._drawn / max(1, self.collector.env_step)}

    def save(self, folder: Path) -> dict[str, Any]:
        state = super().save(folder)
        state["workers"] |= {"owed": self._owed, "drawn": self._drawn}
        return {**state, "replay": self.buffer.save_chunks(folder)}

    def load(self, folder: Path, state: dict[str, Any]) -> None:
        super().load(folder, state)
        self._owed, self._drawn = (int(state["workers"][name]) for name in ("owed", "drawn"))
        self.buffer.load(folder, state["replay"])


def make_remote_source(
    algorithm: Algorithm, collector: Collector, rng: np.random.Generator, config: TrainConfig
) -> Remote:
    """The source that an algorithm asks for, with workers that collect."""
    if algorithm.data.source == "dataset":
        raise UsageError(
            f"{config.algorithm['name']} learns from recorded data: there is nothing to collect, workers=0"
        )
    if config.replay_shards:
        from operant.training.shards import ShardedReplay

        return ShardedReplay(algorithm, collector, rng, config)
    kind = RemoteReplay if algorithm.data.source == "replay" else Remote
    return kind(algorithm, collector, rng, config)
