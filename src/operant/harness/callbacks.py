"""Results of any trial of Ray Tune or RLlib, recorded as runs of Operant's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.logger import LoggerCallback

from operant._util.dotted import plain_flat
from operant.harness.results import flatten
from operant.tracking import SummaryWriter

_STEPS = ("num_env_steps_sampled_lifetime", "timesteps_total", "training_iteration")
"""Results that may be the x axis; the first that a result has."""


class OperantLoggerCallback(LoggerCallback):
    """A callback for `RunConfig(callbacks=[OperantLoggerCallback()])`: one run for each trial, with its config.

    Numbers are scalars under their names joined with slashes, lists of numbers histograms.

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
