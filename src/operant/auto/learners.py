"""What a Lightning module drives: a training whose passes are one `task.step()` each and whose epochs are episodes."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from operant._util.signing import sign
from operant.auto.config import Plan
from operant.auto.dataset import Creator, DatasetResult, RLDataset
from operant.auto.films import Films
from operant.auto.frames import Frame, frame_class, make_buffer
from operant.auto.parts import Parts, equip, probe, training_config
from operant.errors import UsageError
from operant.framework import Context
from operant.models.loading import import_name
from operant.tracking import SummaryWriter
from operant.training.checkpoints import CheckpointStore, write_weights
from operant.training.collecting import EpisodeLog
from operant.training.config import TrainConfig
from operant.training.sources import Source, make_source
from operant.training.training import Observer, Training

_FAR = 10**12  # environment steps: the limit is in episodes
# Environment steps of one pass, unless the epoch's episodes are done before. Lightning spends about 0.25 ms on a
# training step, as much as A2C on half a rollout of 8 × 5.
_PASS = 256


class Learner(Protocol):
    """One training, as the Lightning module sees it."""

    due: int
    """The episodes after which the epoch is over; a pass need not go on behind them."""

    @property
    def network(self) -> Any: ...
    @property
    def episodes(self) -> int: ...
    @property
    def env_step(self) -> int: ...
    @property
    def training_reward(self) -> float: ...
    @property
    def exact(self) -> bool: ...
    @property
    def replay_folder(self) -> Path: ...
    def middleware(self) -> list[Any]: ...
    def connected(self) -> AbstractContextManager[Any]: ...
    def begin(self) -> None: ...
    def end_epoch(self) -> tuple[float, bool]: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...
    def close(self) -> None: ...


class VectorLearner(Training):
    """A training of `operant.training` whose length is counted in episodes."""

    def __init__(
        self,
        config: TrainConfig,
        test_env: Any,
        plan: Plan,
        parts: Parts,
        writer: SummaryWriter,
        folder: Path,
        observer: Observer | None = None,
    ) -> None:
        self._test_env = test_env
        self._parts = parts
        self._limit = plan.launch.max_episodes
        super().__init__(config, writer, observer)
        self.schedule = equip(self.algorithm, parts)
        probe(self.algorithm, self.env.single_observation_space)
        self.store = CheckpointStore(folder / "model")
        self.films: list[Films] = []
        self.due = self._limit
        self._judged = 0

    @property
    def network(self) -> Any:
        return self.algorithm.network

    @property
    def episodes(self) -> int:
        return self.collector.episodes.count

    @property
    def training_reward(self) -> float:
        return self.collector.episodes.mean_return

    @property
    def replay_folder(self) -> Path:
        return self.store.replay_folder

    @property
    def horizon(self) -> int:
        """How many steps there would be if episodes go on being as long as they were."""
        return round(self.env_step * self._limit / self.episodes) if self.episodes else _FAR

    def _make_source(self) -> Source:
        own = self._parts.buffer
        if self.config.workers and own is None:
            source = super()._make_source()
            source.inexact_reason = "checkpoints are written at the end of an epoch, while workers collect"
            return source
        if self.config.workers:
            raise UsageError(
                "frame_config.replay_buffer is one of your own, which its own process fills: num_processes is 1"
            )
        buffer = None if own is None else make_buffer(self.algorithm, self._parts, self.config.env.num_envs)
        return make_source(self.algorithm, self.collector, self.rng, buffer)

    def middleware(self) -> list[Any]:
        own = [import_name(one) if isinstance(one, str) else one for one in self.config.callbacks]
        shown = [self.source.publish] if self.config.workers else []
        return [self.work, self.log, self.film, *(make(self) for make in own), *shown]

    def connected(self) -> AbstractContextManager[Any]:
        return self.source.connected()

    def begin(self) -> None:
        super().begin()
        self._say_how()

    def work(self, ctx: Context) -> None:
        """Collect and learn, round after round. Writes ``ctx.env_step`` and ``ctx.train_iter``."""
        end = self.env_step + _PASS
        while True:
            self.collect(ctx)
            self.learn(ctx)
            # Workers see new weights at the end of a pass.
            if self.config.workers or self.env_step >= end or self.episodes >= self.due:
                return

    def film(self, ctx: Context) -> None:
        """Keep a film of an episode now and then. Reads ``ctx.env_step``."""
        for films in self.films[:1]:
            films.after(self.episodes, self.env_step, self.algorithm, self.normalizer)

    def end_epoch(self) -> tuple[float, bool]:
        """The mean return in the test environment, and whether it is the best so far."""
        before = self.best
        found = self.evaluate_now()
        self._judged += len(found.returns)
        for films in self.films[1:]:
            films.after(self._judged, self.env_step, self.algorithm, self.normalizer)
        if self.schedule is not None:
            self.schedule.step(found.mean)
        return found.mean, self.best != before

    def _make_evaluation_env(self) -> Any:
        from operant.envs import make_env

        test, seed = self._test_env, self.config.seed + self.config.evaluation.seed
        rows = test.num_envs or min(32, test.episodes)
        env = make_env(test.env_name, rows, seed=seed, wrappers=list(test.wrappers), **test.arguments)
        return env

    def state_dict(self) -> dict[str, Any]:
        films = [one.seen for one in self.films]
        return {**super().state_dict(), "judged": self._judged, "films": films}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._judged = int(state["judged"])
        for films, seen in zip(self.films, state["films"], strict=True):
            films.seen = int(seen)


class DatasetLearner:
    """Plays episodes through a dataset and a frame: the way of environment extensions."""

    def __init__(
        self,
        plan: Plan,
        parts: Parts,
        creator: Creator,
        writer: SummaryWriter,
        folder: Path,
        observer: Observer,
        test_episodes: int,
    ) -> None:
        self.plan = plan
        self.folder = folder
        self.writer = writer
        self.observer = observer
        self.frame: Frame = frame_class(plan.algorithm)(plan, parts)
        self.dataset: Any = creator(self.frame, plan.launch.train_env_config)
        self.test_dataset: Any = creator(self.frame, plan.launch.test_env_config)
        for dataset, key in ((self.dataset, "train_env_config"), (self.test_dataset, "test_env_config")):
            _check_dataset(dataset, key)
        self.frame.build(self.dataset.observation_space, self.dataset.action_space)
        self.module: Any = None
        """The Lightning module, for logs that come with a function of their own."""
        self.log_window = EpisodeLog(100)
        self.best: float | None = None
        self.due = plan.launch.max_episodes
        self._test_episodes = test_episodes
        self._owed = 0.0
        self._store = CheckpointStore(folder / "model")

    @property
    def network(self) -> Any:
        return self.frame.algorithm.network

    @property
    def episodes(self) -> int:
        return self.log_window.count

    @property
    def env_step(self) -> int:
        return self.frame.env_step

    @property
    def training_reward(self) -> float:
        return self.log_window.mean_return

    @property
    def exact(self) -> bool:
        """Whether both datasets can be saved."""
        return all(hasattr(one, "state_dict") for one in (self.dataset, self.test_dataset))

    @property
    def replay_folder(self) -> Path:
        return self._store.replay_folder

    def middleware(self) -> list[Any]:
        return [self.collect, self.learn]

    def connected(self) -> AbstractContextManager[Any]:
        if self.plan.workers:
            raise UsageError("num_processes is for environments that Operant steps itself, not for datasets: it is 1")
        return nullcontext()

    def begin(self) -> None:
        if not self.exact:
            sentence = "resume is inexact: the dataset has no state_dict and load_state_dict"
            self.writer.add_text("log", sentence, 0)
            self.writer.add_tags("inexact")
            self.observer.said(sentence)

    def collect(self, ctx: Context) -> None:
        """Play an episode. Writes ``ctx.episode``."""
        ctx.episode = next(self.dataset)
        if not isinstance(ctx.episode, DatasetResult):
            raise TypeError(f"{type(self.dataset).__name__}.__next__ gave a {type(ctx.episode).__name__}")

    def learn(self, ctx: Context) -> None:
        """Store the episode and update as often as its steps ask. Reads ``ctx.episode``; writes ``ctx.metrics``."""
        episode: DatasetResult = ctx.episode
        frame = self.frame
        frame.progress = min(1.0, self.episodes / self.plan.launch.max_episodes)
        frame.store_episode(episode.observations)
        self.log_window.returns.append(episode.total_reward)
        self.log_window.lengths.append(len(episode))
        self.log_window.count += 1
        ctx.metrics = self._update(len(episode)) if frame.ready else {}
        self._log(episode, ctx.metrics)

    def _update(self, steps: int) -> dict[str, float]:
        if self.frame.buffer is None:
            return self.frame.update()
        self._owed += steps / self.frame.steps_per_update
        count = int(self._owed)
        self._owed -= count
        metrics: dict[str, float] = {}
        for number in range(count):
            self.frame.algorithm.measure = number == count - 1
            metrics = self.frame.update()
        return metrics

    def _log(self, episode: DatasetResult, metrics: dict[str, float]) -> None:
        step = self.env_step
        self.writer.add_scalars({f"train/{key}": value for key, value in metrics.items()}, step)
        self.writer.add_scalar("episodes/return", self.training_reward, step)
        self.writer.add_scalar("episodes/length", float(len(episode)), step)
        for log in episode.logs:
            for name, value in log.items():
                if isinstance(value, tuple) and len(value) == 2 and callable(value[1]):
                    value[1](self.module, name, value[0])
                else:
                    self.writer.add_scalar(name, float(value), step)

    def end_epoch(self) -> tuple[float, bool]:
        """The mean total reward of test episodes, without noise, and whether it is the best so far."""
        with self.frame.without_noise():
            results = [next(self.test_dataset) for _ in range(self._test_episodes)]
        mean = float(np.mean([one.total_reward for one in results]))
        self.writer.add_scalar("evaluation/return", mean, self.env_step)
        for result in results:
            for log in result.logs:
                for name, value in log.items():
                    if isinstance(value, tuple) and len(value) == 2 and callable(value[1]):
                        value[1](self.module, f"test_{name}", value[0])
        best = self.best is None or mean > self.best
        if best:
            self.best = mean
            self._keep_policy(mean)
        self.frame.update_lr_scheduler(mean)
        return mean, best

    def _keep_policy(self, mean_return: float) -> None:
        """Keep the policy where `operant view` looks for the best one."""
        env = self.test_dataset.viewed_in
        about: dict[str, Any] = {"step": self.env_step, "return": mean_return, "config": None, "normalizer": None}
        if env is None:
            about["unseen"] = (
                f"it learned from the episodes of {type(self.test_dataset).__name__}, which does not say in what "
                "environment they can be watched (`viewed_in`)"
            )
        else:
            about["config"] = training_config(self.plan, self.frame.parts, env).to_mapping()
            about["signature"] = sign(about["config"])
        write_weights(self.writer.run_dir / "best" / "weights.safetensors", self.frame.algorithm.weights(), about)

    def state_dict(self) -> dict[str, Any]:
        state = {
            "frame": self.frame.state_dict(),
            "episodes": self.log_window.state_dict(),
            "best": self.best,
            "owed": self._owed,
            "datasets": [one.state_dict() if self.exact else None for one in (self.dataset, self.test_dataset)],
        }
        if self.frame.buffer is not None:
            state["replay"] = self.frame.buffer.save_chunks(self.replay_folder)
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.frame.load_state_dict(state["frame"])
        self.log_window.load_state_dict(state["episodes"])
        self.best = None if state["best"] is None else float(state["best"])
        self._owed = float(state["owed"])
        for dataset, saved in zip((self.dataset, self.test_dataset), state["datasets"], strict=True):
            if saved is not None:
                dataset.load_state_dict(saved)
        if self.frame.buffer is not None:
            self.frame.buffer.load(self.replay_folder, state["replay"])

    def close(self) -> None:
        self.dataset.close()
        self.test_dataset.close()


def _check_dataset(dataset: Any, key: str) -> None:
    if not isinstance(dataset, RLDataset):
        raise TypeError(f"the dataset creator gave a {type(dataset).__name__} for {key}; it must be an RLDataset")
    if dataset.observation_space is None or dataset.action_space is None:
        raise TypeError(f"{type(dataset).__name__} must set observation_space and action_space in its __init__")
