"""Several processes that learn together: each acts in its share of the environments, and each update is that of all.

Every learner has the same weights, draws the same minibatches over the rows of all rollouts side by side, and takes
its own rows of each; gradients are summed, so that all make the step that one learner with all rows would make. The
first of them is the training itself, which logs, evaluates and saves; the others know only the sums.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np

from operant.algorithms import find_algorithm
from operant.algorithms.contracts import Algorithm, Array, Metrics
from operant.envs import make_env
from operant.errors import OperantError, UsageError
from operant.framework import Context, Parallel, Standalone, Task, TotalBroken
from operant.framework.parallel.router import Router
from operant.training.actors import tell_of_steps
from operant.training.arithmetic import quick_arithmetic
from operant.training.collecting import Collector, Rollout
from operant.training.config import TrainConfig
from operant.training.machines import placement, started
from operant.training.normalizing import Normalizer, make_normalizer
from operant.training.sources import Source, learn_from

_TOLD = 32  # of the episodes that ended in a learner's rollout, the returns and lengths that the first one hears of
_FAILURES = 3  # deaths without a round between them
_WINDOW = 1_000_000
_LOOK_AGAIN = 0.05  # seconds, while the first learner has yet to find out that somebody died


def environments_of_learner(config: TrainConfig, rank: int) -> int:
    """How many of the environments a learner has."""
    share, rest = divmod(config.env.num_envs, config.learners)
    return share + (rank < rest)


class _Member:
    """What all learners do in a round, in the same order; only the first has a training around it."""

    def __init__(self, rank: int, algorithm: Any, collector: Collector, config: TrainConfig) -> None:
        self.rank, self.size = rank, config.learners
        self.algorithm, self.collector, self.config = algorithm, collector, config
        self.router: Router | None = None
        self.env_step = 0
        self.rollout = Rollout(collector, algorithm.data.count)
        if collector.normalizer is not None:
            collector.normalizer.defer()
        algorithm.team = self

    def total(self, values: Array) -> Array:
        assert self.router is not None
        return cast(Array, self.router.sums.total(values))

    def collect(self, total_steps: int) -> tuple[Any, Array]:
        """A rollout of this learner's environments, and what all say of theirs, one row for each learner."""
        self.algorithm.set_progress(self.env_step, total_steps)
        log = self.collector.episodes
        before = log.count
        batch = self.rollout.collect()
        ended = min(_TOLD, log.count - before)
        said = [np.array([log.count - before, ended]), np.zeros(_TOLD), np.zeros(_TOLD)]
        if ended:
            said[1][:ended], said[2][:ended] = list(log.returns)[-ended:], list(log.lengths)[-ended:]
        normalizer = self.collector.normalizer
        unseen = [] if normalizer is None else [_flat(one) for one in normalizer.take_unseen()]
        row = np.concatenate([*said, *unseen])
        table = np.zeros((self.size, len(row)))
        table[self.rank] = row
        table = self.total(table)
        if normalizer is not None:
            for one in table[:, 2 + 2 * _TOLD :]:
                _absorb(normalizer, one)
        self.env_step += self.algorithm.data.count * self.config.env.num_envs
        return batch, table

    def learn(self, batch: Any) -> Metrics:
        return dict(learn_from(self.algorithm, batch)[0])

    def state(self) -> dict[str, Any]:
        """What all learners have in common."""
        normalizer = self.collector.normalizer
        scales = None if normalizer is None else normalizer.scales()
        return {"algorithm": self.algorithm.state_dict(), "scales": scales, "env_step": self.env_step}

    def load_state(self, state: dict[str, Any]) -> None:
        self.algorithm.load_state_dict(state["algorithm"])
        self.env_step = int(state["env_step"])
        if self.collector.normalizer is not None:
            self.collector.normalizer.load_scales(state["scales"])
            self.collector.normalizer.defer()


def _flat(moments: dict[str, Any] | None) -> Array:
    if moments is None:
        return np.zeros(0)
    return np.concatenate([[moments["count"]], np.ravel(moments["mean"]), np.ravel(moments["variance"])])


def _absorb(normalizer: Normalizer, row: Array) -> None:
    """Count in what one learner saw: `_flat` of each kind of moments, one behind the other."""
    unseen: list[dict[str, Any] | None] = []
    for moments in (normalizer.obs_moments, normalizer.return_moments):
        if moments is None:
            unseen.append(None)
            continue
        size, shape = moments.mean.size, moments.mean.shape
        mean, variance = (row[1 + at * size : 1 + (at + 1) * size].reshape(shape) for at in (0, 1))
        unseen.append({"count": float(row[0]), "mean": mean, "variance": variance})
        row = row[1 + 2 * size :]
    normalizer.absorb(unseen)


class Together(Source):
    """The first learner: for the training it is a source as in one process."""

    def __init__(
        self, algorithm: Algorithm, collector: Collector, rng: np.random.Generator, config: TrainConfig
    ) -> None:
        super().__init__(algorithm, collector, rng)
        self._rollout = None  # it is the member's
        if not hasattr(algorithm, "team"):
            raise UsageError("learners is for environments with one agent")
        if "state" in self.spec.fields:
            raise UsageError("learners is for policies without memory: their rows are shared out one by one")
        self.config = config
        self.restarts = 0
        self._member = _Member(0, algorithm, collector, config)
        self._life = 0
        self._start: tuple[int, Any] = (-1, None)  # the life that the others can know of, and what it begins with
        self._news: list[str] = []
        self._failures: list[str] = []
        self._saved: dict[int, Any] = {}  # states of the others, of the checkpoint that is resumed

    @property
    def steps_per_round(self) -> int:
        return 0  # a round whose learner dies is made again

    def describe(self) -> list[str]:
        rows = [environments_of_learner(self.config, rank) for rank in range(self.config.learners)]
        return [f"{len(rows)} learners make each update together, with {', '.join(map(str, rows))} environments"]

    @contextmanager
    def connected(self) -> Iterator[Standalone | None]:
        config = self.config
        others = range(1, config.learners)
        try:
            beside = Parallel.beside(
                config.learners - 1,
                learn_along,
                config.for_workers(),
                **placement(config, self.say, lambda news: self._news.append(news)),
                labels={rank: ["learn", *(["collect"] if rank else [])] for rank in (0, *others)},
                stall_timeout=config.silence,
                on_restart=self._restarted,
            )
        except TypeError as error:
            raise UsageError(f"learners cannot be given this config: {error}") from None
        with started(beside, self.news) as router:
            self._member.router = router
            router.expose("begin", self._saved.get)
            router.expose("start", self._tell_start)
            try:
                yield router
            finally:
                router.sums.break_off()

    def _restarted(self, node: int, why: str) -> None:
        """A learner is replaced (in the supervisor's thread)."""
        self.restarts += 1
        self._failures.append(why)
        self._news.append(f"learner {node} is replaced: {why.splitlines()[-1] if 'raised' in why else why}")
        self.inexact_reason = self.inexact_reason or "a learner was replaced, and its environments began anew"

    def news(self) -> list[str]:
        said, self._news = self._news, []
        return said

    def _begin_life(self) -> None:
        assert self._member.router is not None
        self._start = (self._life, self._member.state())
        self._member.router.sums.begin(self._life)

    def _tell_start(self, known: int) -> tuple[int, Any] | None:
        """The newest life, and what all begin it with; None where the one who asks knows of it."""
        return self._start if self._start[0] > known else None

    def collect(self, total_steps: int) -> Any:
        if len(self._failures) >= _FAILURES:
            raise OperantError(f"learners died {len(self._failures)} times in a row; the last: {self._failures[-1]}")
        if self._start[0] != self._life:
            self._begin_life()
        member, log = self._member, self.collector.episodes
        self._before = member.state()
        try:
            batch, table = member.collect(total_steps)
        except TotalBroken:
            self._begin_again()
            return None
        for one in table[1:]:
            ended = int(one[1])
            log.count += int(one[0])
            log.returns.extend(one[2 : 2 + ended].tolist())
            log.lengths.extend(int(length) for length in one[2 + _TOLD : 2 + _TOLD + ended])
        self.collector.env_step = member.env_step
        return batch

    def learn(self, batch: Any, total_steps: int, measure: bool = True) -> Metrics:
        if batch is None:
            return {}
        self.algorithm.measure = measure
        try:
            metrics = self._member.learn(batch)
        except TotalBroken:
            self._begin_again()
            return {}
        self._failures.clear()
        self.train_iter += 1
        return metrics

    def _begin_again(self) -> None:
        """Somebody died: back to where the round began; the steps that were made in it are not counted."""
        self._member.load_state(self._before)
        self.collector.env_step = self._member.env_step
        self._life += 1

    def figures(self) -> Metrics:
        return {"workers/restarts": float(self.restarts)}

    # -- saving ------------------------------------------------------------------------------------------------------
    def save(self, folder: Path) -> dict[str, Any]:
        states: list[Any] = []
        router = self._member.router
        if router is not None and self._start[0] == self._life:
            try:
                for node in range(1, self.config.learners):
                    states.append(router.call(node, "state", (self.env_step,), {}, self.config.silence))
            except (RuntimeError, TimeoutError) as error:  # it is being replaced
                self._news.append(f"the state of learner {len(states) + 1} could not be saved: {error}")
                states = []
        return {"learners": states}

    @property
    def env_step(self) -> int:
        return self._member.env_step

    def load(self, folder: Path, state: dict[str, Any]) -> None:
        self._member.env_step = self.collector.env_step
        if self.collector.normalizer is not None:
            self.collector.normalizer.defer()
        states = state.get("learners", [])
        if len(states) == self.config.learners - 1:
            self._saved = dict(enumerate(states, start=1))
        else:
            self.inexact_reason = "the other learners begin anew: their states were not saved"


def learn_along(config: TrainConfig) -> None:
    """The main function of every learner but the first."""
    with quick_arithmetic(), Task(labels="learn") as task:
        peer = _Peer(task, config)
        task.use(peer.round)
        try:
            task.run()
        finally:
            peer.member.collector.env.close()


class _Peer:
    """A learner that follows the first: it makes the same updates, and tells nobody but by the sums."""

    def __init__(self, task: Task, config: TrainConfig) -> None:
        router = cast(Router, task.router)
        self.task, self.config = task, config
        rank, life = router.node_id, router.spec.incarnation
        kind, _ = find_algorithm(config.algorithm["name"])
        rows = environments_of_learner(config, rank)
        seeds = np.random.SeedSequence([config.seed, rank, life, 13]).generate_state(2)
        env = make_env(
            config.env.id, rows, seed=int(seeds[0]), wrappers=list(config.env.wrappers), **dict(config.env.arguments)
        )
        tell_of_steps(env, router)
        algorithm = kind(
            env.single_observation_space,
            env.single_action_space,
            config.algorithm_settings,
            config.model,
            config.seed,
        )
        algorithm.measure = False
        normalizer = make_normalizer(config.env, algorithm, rows)
        rng = np.random.default_rng([int(seed) for seed in seeds])
        collector = Collector(env, algorithm, normalizer=normalizer, rng=rng, window=_WINDOW)
        self.member = _Member(rank, algorithm, collector, config)
        self.member.router = router
        self._life = -1
        self._known = -1
        self._state: tuple[int, Any] = (-1, None)
        task.expose("state", self._tell_state)
        saved = task.call(0, "begin", rank) if life == 0 else None
        if saved is None:
            collector.reset(int(seeds[1]))
        else:
            collector.load_state_dict(saved)

    def _tell_state(self, env_step: int) -> Any:
        """Where this learner's environments are after so many steps of all; it may be on its way to the next round."""
        found = self.task.router.wait_until(lambda: self._state[0] == env_step, self.config.silence)
        if not found:
            raise RuntimeError(f"this learner is at step {self._state[0]}, not at {env_step}")
        return self._state[1]

    def round(self, ctx: Context) -> None:
        """One rollout and one update with the others; first, where a life begins, what they begin with."""
        member = self.member
        if self._life < 0 and not self._begin(ctx):
            return
        if member.env_step >= self.config.total_steps:
            sums = cast(Router, self.task.router).sums
            self.task.router.wait_until(lambda: sums.is_over)  # until the first one has saved what it wants
            return
        try:
            batch, _ = member.collect(self.config.total_steps)
            member.learn(batch)
        except TotalBroken:
            self._life = -1
            return
        self._keep_state()

    def _keep_state(self) -> None:
        member = self.member
        member.collector.episodes.returns.clear()
        member.collector.episodes.lengths.clear()
        self._state = (member.env_step, member.collector.state_dict())
        self.task.router.notify()

    def _begin(self, ctx: Context) -> bool:
        sums = cast(Router, self.task.router).sums
        while not ctx.finish:
            found = self.task.call(0, "start", self._known)
            if found is not None:
                self._life = self._known = found[0]
                self.member.load_state(found[1])
                sums.begin(self._life)
                self._keep_state()
                return True
            self.task.router.wait_until(lambda: ctx.finish, _LOOK_AGAIN)
        return False
