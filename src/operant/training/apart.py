"""Evaluations in a process of their own, while the training goes on: the role `evaluate`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

from operant.envs import make_env
from operant.errors import UsageError
from operant.framework import Parallel, RemoteError, Task, WorkerDied
from operant.framework.errors import FrameworkError
from operant.framework.parallel.router import Router
from operant.training.arithmetic import quick_arithmetic
from operant.training.config import TrainConfig
from operant.training.evaluating import Evaluation, evaluate
from operant.training.making import make_policy
from operant.training.normalizing import make_normalizer

_TRIES = 3  # of one evaluation, when the process that plays it dies
_COMES_BACK = 120.0  # seconds


@dataclass(frozen=True)
class Asked:
    """A policy that is to be evaluated."""

    step: int
    weights: dict[str, Any]
    normalizer: dict[str, Any] | None


class EvaluatedApart:
    """Hands policies to the process that evaluates; what comes back is taken when it is there."""

    def __init__(self, config: TrainConfig, say: Callable[[str], None]) -> None:
        self._config = config
        self._say = say
        self._router: Router | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._under_way: deque[tuple[Asked, Future[Evaluation]]] = deque()
        self._news: list[str] = []

    @contextmanager
    def connected(self) -> Iterator[None]:
        """A context with the process in it."""
        try:
            beside = Parallel.beside(
                1,
                serve_evaluations,
                self._config.for_workers(),
                engine=cast(Any, self._config.engine),
                labels={0: ["learn"], 1: ["evaluate"]},
                on_restart=lambda _, why: self._news.append(f"the process that evaluates is replaced: {why}"),
            )
        except TypeError as error:
            raise UsageError(f"a process that evaluates cannot be given this config: {error}") from None
        with ThreadPoolExecutor(1, thread_name_prefix="operant-evaluate") as self._thread, beside as self._router:
            yield

    def begin(self, asked: Asked) -> None:
        assert self._thread is not None
        self._under_way.append((asked, self._thread.submit(self._play, asked)))

    def take(self, wait: bool) -> Iterator[tuple[Asked, Evaluation]]:
        """What has been evaluated, in the order in which it was asked for; with `wait` all of it."""
        while self._news:
            self._say(self._news.pop(0))
        while self._under_way and (wait or self._under_way[0][1].done()):
            asked, found = self._under_way.popleft()
            yield asked, found.result()

    def _play(self, asked: Asked) -> Evaluation:
        router = self._router
        assert router is not None
        for left in reversed(range(_TRIES)):
            try:
                router.wait_until(lambda: 1 in router.peers, _COMES_BACK)
                returns, lengths, agents = router.call(1, "evaluate", (asked.weights, asked.normalizer), {}, None)
                return Evaluation(tuple(returns), tuple(lengths), agents)
            except RemoteError:
                raise
            except (WorkerDied, FrameworkError):
                if not left:
                    raise
        raise AssertionError


def serve_evaluations(config: TrainConfig) -> None:
    """The main function of the process that evaluates."""
    settings = config.evaluation
    seed = config.seed + settings.seed
    rows = settings.num_envs or min(32, settings.episodes)
    arguments = {**config.env.arguments, **settings.arguments}
    env = make_env(config.env.id, rows, seed=seed, wrappers=list(config.env.wrappers), **arguments)
    policy = make_policy(env, replace(config, device="cpu"))
    normalizer = make_normalizer(config.env, policy, rows)

    def play(weights: dict[str, Any], scales: dict[str, Any] | None) -> tuple[list[float], list[int], Any]:
        policy.load_weights(weights)
        if normalizer is not None and scales is not None:
            normalizer.load_scales([scales["obs"], scales["return"]])
        with quick_arithmetic():
            found = evaluate(policy, env, settings.episodes, seed, normalizer=normalizer)
        return list(found.returns), list(found.lengths), found.agents

    try:
        with Task(labels="evaluate") as task:
            task.expose("evaluate", play)
            task.router.wait_until(lambda: task.finish)
    finally:
        env.close()
