"""What a process does that collects for the one that learns: take the newest weights, act, send what came of it.

An actor holds a policy and environments, nothing that only learning needs. What it sends is one message, so that the
learner gets whole trajectories or nothing of them.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any, cast

import numpy as np

from operant.algorithms import find_algorithm
from operant.algorithms.contracts import DataSpec, Policy
from operant.data.trees import tree_stack
from operant.envs import make_env
from operant.framework import Context, Task
from operant.framework.parallel.router import Router
from operant.framework.parallel.standalone import current_router
from operant.training.arithmetic import quick_arithmetic
from operant.training.collecting import Collector, Rollout
from operant.training.config import TrainConfig
from operant.training.normalizing import make_normalizer

QUEUE = "trajectories"
# Steps of each environment in a message for replay: fewer cost more messages, more make the policy older. A sequence
# does not go beyond a message, nor does an n-step return.
_CHUNK = 16
_SEQUENCES = 4
_EPISODES_BETWEEN_MESSAGES = 1_000_000


def in_rounds(config: TrainConfig, spec: DataSpec) -> bool:
    """Whether workers wait for new weights after each message: they must, or they are asked to."""
    return config.schedule == "lockstep" or (spec.source == "fresh" and spec.lag == 0)


def environments_of(config: TrainConfig, spec: DataSpec, index: int) -> int:
    """How many of the environments worker `index` has, at least one; replay takes the same number from each."""
    share, rest = divmod(config.env.num_envs, config.workers)
    if spec.source == "replay":
        return max(1, math.ceil(config.env.num_envs / config.workers))
    return max(1, share + (index < rest))


def queue_size(config: TrainConfig) -> int:
    """Messages that wait for the learner at most, beside the one that each worker holds."""
    return max(1, config.workers)


def shard_queue(shard: int) -> str:
    """Where a shard of replay takes trajectories."""
    return f"replay/{shard}"


def collect_for_learner(config: TrainConfig) -> None:
    """The main function of a worker, and of the shards of replay, whose numbers follow those of the workers."""
    here = current_router.get()
    if here is not None and (here.node_id or 0) > config.workers:
        from operant.training.shards import hold_replay

        hold_replay(config)
        return
    with quick_arithmetic(), Task(labels="collect") as task:
        actor = _Actor(task, config)
        for middleware in (actor.take_weights, actor.collect, actor.send):
            task.use(middleware)
        try:
            task.run()
        finally:
            actor.collector.env.close()


class _Actor:
    def __init__(self, task: Task, config: TrainConfig) -> None:
        router = cast(Router, task.router)
        self.task = task
        self.config = config
        self.index = router.node_id - 1
        life = router.spec.incarnation
        algorithm, _ = find_algorithm(config.algorithm["name"])
        spec = algorithm.data_spec(config.algorithm_settings)
        rows = environments_of(config, spec, self.index)
        # Every worker and every life of it has random numbers of its own.
        seeds = np.random.SeedSequence([config.seed, self.index, life, 12]).generate_state(2)
        settings = config.env
        env = make_env(
            settings.id, rows, seed=int(seeds[0]), wrappers=list(settings.wrappers), **dict(settings.arguments)
        )
        tell_of_steps(env, router)
        self.policy: Policy = algorithm.make_policy(
            env.single_observation_space,
            env.single_action_space,
            config.algorithm_settings,
            replace(config.model, device="cpu"),
            config.seed,
        )
        self.spec = self.policy.data
        if hasattr(self.policy, "explore_as"):
            self.policy.explore_as(self.index, config.workers)
        self.normalizer = make_normalizer(settings, self.policy, rows)
        if self.normalizer is not None:
            self.normalizer.defer()
        rng = np.random.default_rng([int(seed) for seed in seeds])
        self.collector = Collector(
            env, self.policy, normalizer=self.normalizer, rng=rng, window=_EPISODES_BETWEEN_MESSAGES
        )
        self._rollout: Rollout | None = None
        self._waits = in_rounds(config, self.spec)
        self._version = -1
        self._work: Any = None
        self._began = time.perf_counter()
        self._queue = task.queue(QUEUE, queue_size(config), host=0)
        shards = range(config.replay_shards)
        self._shards = [task.queue(shard_queue(n), queue_size(config), host=config.workers + 1 + n) for n in shards]
        self._sent = self.index
        task.expose("state", self.state_dict)
        saved = task.call(0, "begin", self.index) if life == 0 else None
        if saved is None:
            self.collector.reset(int(seeds[1]))
        else:
            self.load_state_dict(saved)

    def state_dict(self) -> dict[str, Any]:
        """What the collector goes on from, and whoever makes gradients here: its optimizer and random numbers."""
        state = self.collector.state_dict()
        return {**state, "learner": cast(Any, self.policy).state_dict()} if self.spec.digested else state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        state = dict(state)
        learner = state.pop("learner", None)
        if learner is not None:
            cast(Any, self.policy).load_state_dict(learner)
        self.collector.load_state_dict(state)

    def take_weights(self, ctx: Context) -> None:
        """Act by the newest weights; in rounds, wait for them."""
        view = self.task.parallel_ctx
        while not ctx.finish:
            version = view.get("version", -1)
            if version > self._version:
                self._version = version
                self.policy.load_weights(view["weights"])
                self.policy.set_progress(*view["progress"])
                if self.normalizer is not None:
                    self.normalizer.load_scales(view["scales"])
                self._work = view.get("work")
                return
            if self._version >= 0 and not self._waits:
                self.policy.set_progress(*view["progress"])
                return
            newer = view.wait_newer()
            if newer is None:
                return
            view = newer

    def collect(self, ctx: Context) -> None:
        """Act. Writes ``ctx.data``."""
        if ctx.finish:
            return
        spec, collector, before = self.spec, self.collector, self.collector.env_step
        if spec.source == "replay":
            ctx.data = tree_stack(collector.trajectory(_steps_of_a_message(spec)))
        elif spec.unit == "step":
            self._rollout = self._rollout or Rollout(collector, spec.count)
            rollout = self._rollout.collect()
            ctx.data = cast(Any, self.policy).digest(rollout) if spec.digested else rollout
        elif spec.unit == "episode":
            ctx.data = collector.whole_episodes(_share(spec.count, self.config.workers, self.index))
        else:
            ctx.data = collector.candidate_returns(self._work[self.index])
        ctx.steps = collector.env_step - before

    def send(self, ctx: Context) -> None:
        """Put what was collected into the learner's queue; waits while that is full. Reads ``ctx.data``."""
        if ctx.get("data") is None:
            return
        episodes, now = self.collector.episodes, time.perf_counter()
        message = {
            "index": self.index,
            "version": self._version,
            "steps": ctx.steps,
            "data": ctx.data,
            "returns": list(episodes.returns),
            "lengths": list(episodes.lengths),
            "unseen": None if self.normalizer is None else self.normalizer.take_unseen(),
            "seconds": now - self._began,
        }
        episodes.returns.clear()
        episodes.lengths.clear()
        if self._shards:  # one after the other; the learner only hears of it
            self._sent += 1
            self._shards[self._sent % len(self._shards)].put(message.pop("data"))
        self._queue.put(message)
        self._began = now


def _share(count: int, workers: int, index: int) -> int:
    """Of so many episodes, those of one worker."""
    return count // workers + (index < count % workers)


def _steps_of_a_message(spec: DataSpec) -> int:
    return max(_CHUNK, _SEQUENCES * (spec.burn_in + spec.length) if spec.unit == "sequence" else 0)


def tell_of_steps(env: Any, router: Router) -> None:
    """Count each step as a sign of life: a rollout may take longer than a worker may be silent."""
    step, alive = env.step, router.supervisor.pass_made

    def counted(actions: Any) -> Any:
        alive(0)
        return step(actions)

    env.step = counted
