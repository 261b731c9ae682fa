"""One training from one config: a task of middleware that collects, learns, logs, evaluates and saves."""

from __future__ import annotations

import math
import sys
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from operant._util.signing import sign
from operant.algorithms import Algorithm
from operant.data import prune_chunks
from operant.envs import make_env
from operant.envs.making import why_not_found_again
from operant.errors import UsageError
from operant.framework import Context, StepTimer, Task
from operant.tracking import SummaryWriter
from operant.training.apart import Asked, EvaluatedApart
from operant.training.arithmetic import quick_arithmetic
from operant.training.checkpoints import CheckpointStore, write_weights
from operant.training.collecting import Collector
from operant.training.config import TrainConfig
from operant.training.doctor import Doctor, thread_warning, unlearnt_warning
from operant.training.evaluating import Evaluation, evaluate, film
from operant.training.interrupts import Interrupts, resume_command
from operant.training.making import counting_alike, drawable, make_algorithm
from operant.training.normalizing import make_normalizer
from operant.training.plugins import Recording, find_plugin
from operant.training.sources import Source, make_source


class Observer(Protocol):
    """Who is told how the training goes."""

    def said(self, sentence: str) -> None: ...
    def point(self, step: int, steps_per_second: float, mean_return: float) -> None: ...
    def evaluated(self, step: int, evaluation: Evaluation, best: bool) -> None: ...


class Silent:
    """An observer that tells nobody, unless the training waits for somebody (`Training.say`)."""

    def said(self, sentence: str) -> None: ...
    def point(self, step: int, steps_per_second: float, mean_return: float) -> None: ...
    def evaluated(self, step: int, evaluation: Evaluation, best: bool) -> None: ...


@dataclass(frozen=True)
class TrainResult:
    """What came of a training."""

    run_id: str
    folder: Path
    steps: int
    seconds: float
    mean_return: float
    """Of the last training episodes."""
    best_return: float
    """The best mean return of an evaluation."""
    best_step: int
    final_return: float
    """The mean return of the last evaluation."""
    evaluations: tuple[tuple[int, float], ...] = ()
    train_iter: int = 0
    """Rounds of learning: rollouts, or gradient steps from replay."""
    exact: bool = True
    warnings: tuple[str, ...] = field(default=())


class Training:
    """Everything one training holds. `run` makes it; `resume` goes on from a checkpoint first."""

    def __init__(self, config: TrainConfig, writer: SummaryWriter, observer: Observer | None = None) -> None:
        self.config = config
        self.writer = writer
        self.recording = Recording(writer)
        self.observer = observer or Silent()
        self.warnings: list[str] = []
        self._plain_config = config.to_mapping()
        self._signature = sign(self._plain_config)
        began = time.perf_counter()
        # Where others collect, one environment here tells the spaces.
        rows = 1 if config.workers else -(-config.env.num_envs // config.learners)
        self.env = self._make_env(rows, config.seed, config.env.workers)
        self._env_seconds = time.perf_counter() - began
        self.algorithm: Algorithm = make_algorithm(self.env, config)
        if config.env.normalize_obs and not self.algorithm.takes_scaled:
            raise UsageError("env.normalize_obs scales what is seen, but not what was recorded: switch it off")
        self.normalizer = make_normalizer(config.env, self.algorithm, rows)
        rng = np.random.default_rng([config.seed, 4])
        self.collector = Collector(
            self.env, self.algorithm, normalizer=self.normalizer, rng=rng, window=config.log.window
        )
        self.rng = np.random.default_rng([config.seed, 3])
        self.source = self._make_source()
        self.source.say = self.say
        self.apart = EvaluatedApart(config, self.say) if config.evaluation.process else None
        if self.apart is not None and config.evaluation.stop_value is not None:
            self.source.inexact_reason = self.source.inexact_reason or "it ends when an evaluation elsewhere says so"
        self.store = CheckpointStore(writer.run_dir / "checkpoints", config.checkpoint.keep)
        self.doctor = Doctor(self.algorithm.entropy_limit, patience=100)
        self.evaluations: list[tuple[int, float]] = []
        self.best: tuple[int, float] | None = None
        self.done = False
        self.interrupts = Interrupts()
        self._interrupted = ""
        self._advised = False
        self.metrics: dict[str, float] = {}
        self._evaluation_env: Any = None
        self._every = {
            "log": config.log.every or max(1, config.total_steps // 200),
            "evaluate": config.evaluation.every or max(1, config.total_steps // 20),
            "checkpoint": config.checkpoint.every or max(1, config.total_steps // 10),
        }
        self._last = dict.fromkeys(self._every, 0)
        self._began = time.perf_counter()
        self._began_at = 0

    # -- making ------------------------------------------------------------------------------------------------------
    def _make_env(self, num_envs: int, seed: int, workers: int, **other: Any) -> Any:
        env, wrappers = self.config.env, list(self.config.env.wrappers)
        return make_env(env.id, num_envs, seed=seed, workers=workers, wrappers=wrappers, **{**env.arguments, **other})

    def _make_source(self) -> Source:
        if self.config.workers:
            from operant.training.remote import make_remote_source

            return make_remote_source(self.algorithm, self.collector, self.rng, self.config)
        if self.config.learners > 1:
            from operant.training.together import Together

            return Together(self.algorithm, self.collector, self.rng, self.config)
        return make_source(self.algorithm, self.collector, self.rng)

    # -- the loop ----------------------------------------------------------------------------------------------------
    @property
    def env_step(self) -> int:
        return self.collector.env_step

    @property
    def exact(self) -> bool:
        """Whether a resumed training equals one that was never interrupted."""
        return bool(self.env.exact) and not self.source.inexact_reason

    @property
    def train_iter(self) -> int:
        """Rounds of learning: rollouts, or gradient steps from replay."""
        return self.source.train_iter

    @property
    def horizon(self) -> int:
        """The environment steps that schedules are measured by."""
        return self.config.total_steps

    def begin(self) -> None:
        """Reset the environments; a resumed training has its state instead."""
        self.collector.reset(self.config.seed)

    def run(self) -> TrainResult:
        """Train to the end (or to the stop value) and say what came of it."""
        self._began, self._began_at = time.perf_counter(), self.env_step
        left = max(0, self.config.total_steps - self.env_step)
        # Where nobody knows how many steps a round takes, it is the last one that says so: see `collect`.
        rounds = math.ceil(left / self.source.steps_per_round) if self.source.steps_per_round else math.inf
        timer_every = 20 if self.config.workers else 1
        if math.isfinite(rounds):
            timer_every = max(1, int(min(rounds // 50, 2000)))
        try:
            with (
                quick_arithmetic(),
                self.interrupts,
                nullcontext() if self.apart is None else self.apart.connected(),
                self.source.connected() as router,
                Task(router=router) as task,
            ):
                self._began = time.perf_counter()  # workers have started
                for logger in self.config.loggers:
                    self.recording.add_logger(find_plugin("logger", logger)(self))
                self._say_how()
                task.use_step_wrapper(StepTimer(timer_every, 1, writer=self.recording, show=None))
                for middleware in (self.collect, self.learn, self.log, self.evaluate, self.checkpoint):
                    task.use(middleware)
                for callback in self.config.callbacks:
                    task.use(find_plugin("callback", callback)(self))
                if self.config.workers:
                    task.use(self.source.publish)
                if left:
                    task.run(max_step=rounds)
        finally:
            self.close()
        if self._interrupted:
            self.interrupts.end(self._interrupted)
        return self._result()

    def close(self) -> None:
        """Release the environments and the loggers."""
        self.env.close()
        if self._evaluation_env is not None:
            self._evaluation_env.close()
        self.recording.close()

    def collect(self, ctx: Context) -> None:
        """Act in the environments. Writes ``ctx.env_step``, and ``ctx.batch`` where data are fresh."""
        if self.done:
            return
        batch = self.source.collect(self.horizon)
        for sentence in self.source.news():
            self.say(sentence)
        if batch is not None:
            ctx.batch = batch
        ctx.env_step = self.env_step
        if not self.source.steps_per_round and self.env_step >= self.config.total_steps:
            ctx.finish = True

    def learn(self, ctx: Context) -> None:
        """Improve the policy. Reads ``ctx.batch``; writes ``ctx.train_iter``."""
        if self.done:
            return
        metrics = self.source.learn(ctx.get("batch"), self.horizon, self._is_due("log", ctx))
        if metrics:
            self.metrics = metrics
        ctx.train_iter = self.train_iter

    def log(self, ctx: Context) -> None:
        """Record what is known at this step, and let the doctor look at it."""
        if self.done or not self._is_due("log", ctx):
            return
        step = self.env_step
        self._last["log"] = step
        episodes = self.collector.episodes
        rate = (step - self._began_at) / max(1e-9, time.perf_counter() - self._began)
        values = {f"train/{key}": value for key, value in self.metrics.items()} | self.source.figures()
        values |= {"time/steps_per_second": rate, "episodes/count": float(episodes.count)}
        if episodes.returns:
            values |= {"episodes/return": episodes.mean_return, "episodes/length": episodes.mean_length}
        self.recording.add_scalars(values, step)
        self.observer.point(step, rate, episodes.mean_return)
        if self.config.doctor:
            if self.env.advice and not self._advised:
                self._advised = True
                self._warn(self.env.advice)
            for sentence in self.doctor.look(self.metrics, episodes.mean_return, step / self.horizon):
                self._warn(sentence)

    def evaluate(self, ctx: Context) -> None:
        """Evaluate the policy on seeds of its own; keep the best one. Sets ``ctx.finish`` at the stop value."""
        if self.done:
            return
        found: list[float] = []
        if self._is_due("evaluate", ctx):
            if self.apart is None:
                found = [self.evaluate_now().mean]
            else:
                self._last["evaluate"] = self.env_step
                self.apart.begin(self._asked())
        found += self._evaluated_apart(wait=bool(ctx.finish))
        if not found:
            return
        stop = self.config.evaluation.stop_value
        if stop is not None and max(found) >= stop:
            self.say(
                f"stopped at step {self.env_step}: the mean return {max(found):.4g} has reached stop_value {stop:g}"
            )
            self._save()
            self.done = True
            ctx.finish = True

    def evaluate_now(self) -> Evaluation:
        """Play evaluation episodes, record it, and keep the policy if it is the best so far."""
        self._last["evaluate"] = self.env_step
        return self._judge(self._asked(), self.evaluation(self.config.evaluation.episodes))

    def _asked(self) -> Asked:
        scales = None if self.normalizer is None else self.normalizer.state_dict()
        return Asked(self.env_step, self.algorithm.weights(), scales)

    def _evaluated_apart(self, wait: bool) -> list[float]:
        """The means of what another process has evaluated by now; with `wait`, of all that it was given."""
        return [] if self.apart is None else [self._judge(*one).mean for one in self.apart.take(wait)]

    def _judge(self, asked: Asked, found: Evaluation) -> Evaluation:
        """Record an evaluation, and keep the policy if it is the best so far."""
        step = asked.step
        self.evaluations.append((step, found.mean))
        # What several agents get together may always be the same, as in games; then the newest are the best.
        best = self.best is None or found.mean > self.best[1] or (bool(found.agents) and found.mean == self.best[1])
        values = {"return": found.mean, "deviation": found.deviation, "length": float(np.mean(found.lengths))}
        values |= {f"agents/{agent}/return": value for agent, value in found.agents.items()}
        self.recording.add_scalars({f"evaluation/{key}": value for key, value in values.items()}, step)
        if self.config.evaluation.frames:
            self.writer.add_video("evaluation/episode", self._film(), step, fps=10)
        if best:
            self.best = (step, found.mean)
            self._save_weights(self.writer.run_dir / "best" / "weights.safetensors", found.mean, asked)
        self.observer.evaluated(step, found, best)
        return found

    def checkpoint(self, ctx: Context) -> None:
        """Save everything, so that the training can go on from here exactly."""
        if not (self.source.settled or ctx.finish):
            return  # soon
        asked = self.interrupts.take_request()
        if self.done or not (asked or self._is_due("checkpoint", ctx)):
            return
        self._save()
        self.done = bool(ctx.finish)
        if self.interrupts.stopped_by is not None and not self.done:
            command = resume_command(self.writer.run_id, self.writer.run_dir)
            self._interrupted = f"saved at step {self.env_step:,}; go on with: {command}"
            self.recording.add_text("log", self._interrupted, self.env_step)
            self.done = True
            ctx.finish = True

    def _save(self) -> None:
        self._last["checkpoint"] = self.env_step
        self._evaluated_apart(wait=True)
        state = self.state_dict()
        self.store.save(self.env_step, state)
        if "replay" in state:
            prune_chunks(self.store.replay_folder, self.store.replay_manifests())

    def _is_due(self, what: str, ctx: Context) -> bool:
        every = self._every[what]
        return bool(ctx["finish"]) or self.collector.env_step // every > self._last[what] // every

    # -- evaluating --------------------------------------------------------------------------------------------------
    def evaluation(self, episodes: int) -> Evaluation:
        """Greedy episodes from starts that depend on the seeds alone, so that evaluations compare."""
        if self._evaluation_env is None:
            self._evaluation_env = counting_alike(self._make_evaluation_env(), self.env)
        self.source.before_evaluation()
        seed = self.config.seed + self.config.evaluation.seed
        return evaluate(self.algorithm, self._evaluation_env, episodes, seed, normalizer=self.normalizer)

    def _film(self) -> list[Any]:
        settings = self.config.evaluation
        seed = self.config.seed + settings.seed
        return film(self.algorithm, self._evaluation_env, seed, settings.frames, normalizer=self.normalizer)

    def _make_evaluation_env(self) -> Any:
        settings = self.config.evaluation
        rows = settings.num_envs or min(32, settings.episodes)
        workers = min(self.config.env.workers, rows)
        arguments = drawable(self.env, settings.arguments) if settings.frames else settings.arguments
        return self._make_env(rows, self.config.seed + settings.seed, workers, **arguments)

    def _save_weights(self, path: Path, mean_return: float, asked: Asked) -> None:
        about = {
            "step": asked.step,
            "return": mean_return,
            "config": self._plain_config,
            "signature": self._signature,
            "normalizer": asked.normalizer,
        }
        write_weights(path, asked.weights, about)

    # -- saying ------------------------------------------------------------------------------------------------------
    def _say_how(self) -> None:
        where = "" if self.algorithm.device == "cpu" else f" on {self.algorithm.device}"
        self.say(f"networks: {self.algorithm.path}{where}")
        if self.config.env.workers:
            self.say(f"environments in {self.config.env.workers} workers, started in {self._env_seconds:.1f} s")
        for sentence in self.source.describe():
            self.say(sentence)
        self.say(f"torch threads: {torch.get_num_threads()} (small networks are fastest with one)")
        if not self.exact:
            self.say(f"resume is inexact: {self.source.inexact_reason or self.env.inexact_reason}")
            self.writer.add_tags("inexact")
        unnamed = why_not_found_again(self.config.env.id)
        if unnamed:
            self.say(f"this run cannot be resumed: {unnamed}")
            self.writer.add_tags("not-resumable")
        for warning in (
            thread_warning(torch.get_num_threads()),
            unlearnt_warning(self.algorithm.data, self.config.total_steps),
        ):
            if warning:
                self._warn(warning)

    def say(self, sentence: str, waits: bool = False) -> None:
        """Into the log of the run, and to who looks on; what it waits for is written where nobody does."""
        self.recording.add_text("log", sentence, self.env_step)
        self.observer.said(sentence)
        if waits and isinstance(self.observer, Silent):
            sys.stderr.write(f"{sentence}\n")

    def _warn(self, sentence: str) -> None:
        self.warnings.append(sentence)
        self.recording.add_text("doctor", sentence, self.env_step)
        self.observer.said(f"doctor: {sentence}")

    def _result(self) -> TrainResult:
        step, mean = self.best or (0, float("nan"))
        return TrainResult(
            run_id=self.writer.run_id,
            folder=self.writer.run_dir,
            steps=self.env_step,
            seconds=time.perf_counter() - self._began,
            mean_return=self.collector.episodes.mean_return,
            best_return=mean,
            best_step=step,
            final_return=self.evaluations[-1][1] if self.evaluations else float("nan"),
            evaluations=tuple(self.evaluations),
            train_iter=self.train_iter,
            exact=self.exact,
            warnings=tuple(self.warnings),
        )

    # -- saving ------------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {
            "config": self._plain_config,
            "signature": self._signature,
            "exact": self.exact,
            "algorithm": self.algorithm.state_dict(),
            "collector": self.collector.state_dict(),
            "rng": self.rng.bit_generator.state,
            "doctor": self.doctor.state_dict(),
            "evaluations": self.evaluations,
            "best": self.best,
            "train_iter": self.train_iter,
            "metrics": self.metrics,
            "last": self._last,
            "done": self.done,
        }
        if self._evaluation_env is not None:
            # A wrapper may remember one evaluation in the next (running scales do).
            state["evaluation_env"] = self._evaluation_env.save_state()
        return state | self.source.save(self.store.replay_folder)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.algorithm.load_state_dict(state["algorithm"])
        self.collector.load_state_dict(state["collector"])
        self.rng.bit_generator.state = state["rng"]
        self.doctor.load_state_dict(state["doctor"])
        self.evaluations = [(int(step), float(mean)) for step, mean in state["evaluations"]]
        self.best = None if state["best"] is None else (int(state["best"][0]), float(state["best"][1]))
        self.source.train_iter = int(state["train_iter"])
        self.metrics = dict(state["metrics"])
        self._last = {key: int(state["last"][key]) for key in self._last}
        if "evaluation_env" in state:
            self._evaluation_env = counting_alike(self._make_evaluation_env(), self.env)
            self._evaluation_env.load_state(state["evaluation_env"])
        self.source.load(self.store.replay_folder, state)
