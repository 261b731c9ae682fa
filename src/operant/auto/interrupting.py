"""Signals that reach a launch: the same as for `operant train`, by a callback of Lightning's."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from operant.tracking import SummaryWriter
from operant.training.interrupts import Interrupts

__all__ = ["SaveOnSignal", "Stopped"]


class Stopped(Exception):
    """Ends a fit where it is: stopping it the usual way would evaluate and count an epoch that is not over."""


class SaveOnSignal(Callback):
    """Between two passes, saves ``model/last.ckpt`` if a signal asked for it, and ends if it asked for that."""

    def __init__(self, folder: Path) -> None:
        self.interrupts = Interrupts()
        self._folder = folder

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.interrupts.__enter__()  # after Lightning has set its own handlers, so that ours count

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.interrupts.__exit__()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self.interrupts.__exit__()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self.interrupts.take_request():
            trainer.save_checkpoint(self._folder / "model" / "last.ckpt")
            if self.interrupts.stopped_by is not None:
                raise Stopped

    def say(self, writer: SummaryWriter, step: int, root: str | Path | None) -> str:
        """What was saved and how to go on; it is recorded too."""
        config, checkpoint = self._folder / "config" / "config.json", self._folder / "model" / "last.ckpt"
        command = ["operant", "auto", "launch", "--config", str(config), "--checkpoint", str(checkpoint)]
        command += [] if root is None else ["--root", str(root)]
        sentence = f"saved at step {step:,}; go on with: {shlex.join(command)}"
        writer.add_text("log", sentence, step)
        return sentence
