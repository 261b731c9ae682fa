"""`OperantLogger`: a Lightning logger that records to an Operant run. Any Lightning program can use it.

trainer = Trainer(logger=OperantLogger("my-experiment"))
"""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterable, Mapping
from typing import Any

from lightning.fabric.loggers.logger import rank_zero_experiment
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_only

from operant._util.dotted import plain_flat
from operant.tracking import SummaryWriter


class OperantLogger(Logger):
    """Metrics, settings, pictures, films and text of a Lightning program, in one run.

    :param name: what the run is called.
    :param root: the ``.operant`` folder; by default the nearest one above the current folder.
    :param tags: labels to find the run by.
    :param run: id of an existing run to go on with; with ``resumed_from`` later points of it are superseded.
    :param writer: a writer that is open already; it is then left open.
    """

    def __init__(
        self,
        name: str = "lightning",
        *,
        root: str | os.PathLike[str] | None = None,
        tags: Iterable[str] = (),
        run: str | None = None,
        resumed_from: int | None = None,
        writer: SummaryWriter | None = None,
    ) -> None:
        super().__init__()
        self._name = name
        self._options: dict[str, Any] = {"root": root, "tags": list(tags), "run": run, "resumed_from": resumed_from}
        self._writer = writer
        self._owns = writer is None

    @property
    @rank_zero_experiment
    def experiment(self) -> SummaryWriter:
        """The run's `SummaryWriter`, opened when it is first asked for; processes other than the first get a dummy."""
        if self._writer is None:
            self._writer = SummaryWriter(self._name, **self._options)
        return self._writer

    @property
    def name(self) -> str:
        return self._name

    @property
    def version(self) -> str:
        """The run's id."""
        return str(self.experiment.run_id)

    @property
    def save_dir(self) -> str:
        return str(self.experiment.run_dir)

    @rank_zero_only
    def log_hyperparams(self, params: Mapping[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        values = vars(params) if isinstance(params, Namespace) else params
        self.experiment.add_hparams(plain_flat(values))

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        # Lightning counts epochs as a metric; everything else that is a number goes in.
        self.experiment.add_scalars({key: float(value) for key, value in metrics.items()}, step)

    @rank_zero_only
    def log_image(self, key: str, images: list[Any], step: int | None = None, **kwargs: Any) -> None:
        """Pictures as arrays: channels first, or last with ``dataformats="HWC"``."""
        for number, image in enumerate(images):
            self.experiment.add_image(key if len(images) == 1 else f"{key}/{number}", image, step, **kwargs)

    @rank_zero_only
    def log_video(self, key: str, videos: list[Any], step: int | None = None, **kwargs: Any) -> None:
        """Films: arrays of frames, or paths of GIF files."""
        for number, video in enumerate(videos):
            self.experiment.add_video(key if len(videos) == 1 else f"{key}/{number}", video, step, **kwargs)

    @rank_zero_only
    def log_text(self, key: str, text: str, step: int | None = None) -> None:
        self.experiment.add_text(key, text, step)

    @rank_zero_only
    def save(self) -> None:
        if self._writer is not None:
            self._writer.flush()

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """After a fit the run stays open, for a test that follows; after a failure it ends as such."""
        if self._writer is None:
            return
        if status == "success" or not self._owns:
            self._writer.flush()
        else:
            self._writer.close()
