"""Results of any trial of Ray Tune or RLlib, recorded as runs of Operant's; films of RLlib's episodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.tune.experiment import Trial
from ray.tune.logger import LoggerCallback

from operant._util.dotted import plain_flat
from operant.harness.results import FILM, STEPS, films_of, flatten
from operant.tracking import SummaryWriter

_STEPS = (STEPS, "timesteps_total", "training_iteration")
"""Results that may be the x axis; the first that a result has."""


class OperantLoggerCallback(LoggerCallback):
    """A callback for `RunConfig(callbacks=[OperantLoggerCallback()])`: one run for each trial, with its config.

    Numbers are scalars under their names joined with slashes, lists of numbers histograms, films of episodes GIFs.

    Args:
        root: where runs are kept; by default as everywhere (docs/tracking.md).
        tags: of each run.
    """

    def __init__(self, root: str | Path | None = None, tags: tuple[str, ...] = ("tune",)) -> None:
        self.root = None if root is None else str(Path(root).absolute())
        self.tags = tags
        self._writers: dict[str, SummaryWriter] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_writers": {}}

    def log_trial_start(self, trial: Trial) -> None:
        if trial.trial_id not in self._writers:
            settings = plain_flat(dict(trial.config))
            # The trial runs elsewhere: what this machine is busy with says nothing about it.
            self._writers[trial.trial_id] = SummaryWriter(
                str(trial), config=settings, root=self.root, tags=self.tags, system_metrics=False
            )

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        self.log_trial_start(trial)
        writer = self._writers[trial.trial_id]
        numbers, lists = flatten(result)
        step = int(next((numbers[name] for name in _STEPS if name in numbers), iteration))
        writer.add_scalars(numbers, step)
        for tag, values in lists.items():
            writer.add_histogram(tag, values, step)
        for tag, film in films_of(result):
            writer.add_video(tag, film, step, fps=10)

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        writer = self._writers.pop(trial.trial_id, None)
        if writer is None:
            return
        try:
            if failed:
                raise RuntimeError(f"trial {trial.trial_id} failed")
        except RuntimeError as error:
            writer.__exit__(RuntimeError, error, None)
        else:
            writer.close()


class OperantRLlibCallback(RLlibCallback):
    """A callback for `AlgorithmConfig.callbacks(OperantRLlibCallback)`: a film of one episode of each sampling.

    It is in the results as ``…/episode_film`` (frames [T, H, W, C]), where `OperantLoggerCallback` and the harness take
    it from. Environments must be made with ``render_mode="rgb_array"``.

    Args:
        frames: the most of a film; the rest of the episode is left out.
        evaluations_only: whether only episodes of evaluations are filmed.
    """

    def __init__(self, frames: int = 500, evaluations_only: bool = True) -> None:
        super().__init__()
        self.frames = frames
        self.evaluations_only = evaluations_only
        self._film: list[np.ndarray[Any, Any]] = []
        self._filmed: Any = None
        """The episode that is filmed."""

    def on_episode_start(self, *, episode: Any, env_runner: Any = None, env: Any = None, **about: Any) -> None:
        wanted = not self.evaluations_only or bool(getattr(env_runner.config, "in_evaluation", False))
        if wanted and self._filmed is None:
            self._filmed, self._film = episode.id_, []
            self._draw(env, int(about.get("env_index", 0)))

    def on_episode_step(self, *, episode: Any, env: Any = None, **about: Any) -> None:
        if self._filmed == episode.id_:
            self._draw(env, int(about.get("env_index", 0)))

    def on_episode_end(self, *, episode: Any, env: Any = None, metrics_logger: Any = None, **about: Any) -> None:
        if self._filmed != episode.id_:
            return
        if self._film:
            metrics_logger.log_value(FILM, np.stack(self._film), reduce="item_series")
        self._film, self._filmed = [], None

    def _draw(self, env: Any, index: int) -> None:
        if len(self._film) < self.frames:
            rows = getattr(env.unwrapped, "envs", None)
            picture = (env if rows is None else rows[index]).render()
            if picture is not None:
                self._film.append(np.asarray(picture, np.uint8))
