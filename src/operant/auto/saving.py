"""Lightning's checkpoint files: what of ours is in them, and how they are read without running anything.

Such a file is a pickle made by torch. It is only ever loaded with ``weights_only=True``, which knows tensors and plain
values and nothing that could be called.
"""

from __future__ import annotations

import json
import pickle
import shlex
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.plugins.io import TorchCheckpointIO

from operant._util.files import replacing
from operant.data import prune_chunks
from operant.tracking import SummaryWriter
from operant.training.checkpoints import CheckpointError, pack_state, unpack_state
from operant.training.interrupts import Interrupts

KEY = "operant"


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes beside the target and renames, so that a file is there whole or as it was before."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None) -> None:
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target, sync=True) as staged, staged.open("wb") as file:
            torch.save(checkpoint, file)


def pack(step: int, run_id: str, state: dict[str, Any]) -> dict[str, Any]:
    """What goes into a checkpoint file: JSON, and the arrays as the bytes of an npz file."""
    document, content = pack_state(step, state)
    return {
        "run": run_id,
        "step": step,
        "document": document,
        "arrays": torch.from_numpy(np.frombuffer(content, np.uint8)),
    }


def unpack(checkpoint: dict[str, Any], name: str) -> dict[str, Any]:
    """The state in a checkpoint that was loaded."""
    held = checkpoint.get(KEY)
    kinds = {"run": str, "step": int, "document": str, "arrays": torch.Tensor}
    if not isinstance(held, dict) or not all(isinstance(held.get(key), kind) for key, kind in kinds.items()):
        raise CheckpointError(f"{name} was not made by `operant auto launch`: it holds no state of a training")
    return unpack_state(held["document"], held["arrays"].numpy().tobytes(), name, f"the arrays in {name}")


def load_checkpoint_file(path: Path) -> dict[str, Any]:
    """A checkpoint file as tensors and plain values; one that asks for more, or was changed, is refused."""
    try:
        with zipfile.ZipFile(path) as archive:  # torch's own reader passes over the checksums
            changed = archive.testzip()
        if changed is not None:
            raise CheckpointError(f"{path} was changed: the checksum of {changed} differs")
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise CheckpointError(f"there is no checkpoint {path}") from None
    except CheckpointError:
        raise
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"{path} is no checkpoint of tensors and plain values; it was not loaded: {_first_line(error)}"
        ) from None
    except Exception as error:  # torch's reader of pickles fails in many ways
        raise CheckpointError(f"{path} is cut short or no checkpoint: {_first_line(error)}") from None
    if not isinstance(loaded, dict):
        raise CheckpointError(f"{path} holds a {type(loaded).__name__}, not a checkpoint")
    return loaded


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


class ReplayKeeper:
    """Knows which files of replay the checkpoints of some folders still refer to, and removes the others."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[tuple[int, int], Any]] = {}

    def prune(self, folder: Path, current: dict[str, Any], checkpoint_folders: Iterable[Path]) -> None:
        manifests = [current]
        for place in {one.resolve() for one in checkpoint_folders}:
            for path in place.glob("*.ckpt"):
                try:
                    found = self._manifest(path)
                except CheckpointError:
                    return  # nobody knows what it refers to, so nothing is removed
                manifests += [] if found is None else [found]
        prune_chunks(folder, manifests)

    def _manifest(self, path: Path) -> Any:
        try:
            status = path.stat()
        except FileNotFoundError:
            return None
        stamp = (status.st_mtime_ns, status.st_size)
        known = self._known.get(path)
        if known is None or known[0] != stamp:
            held = load_checkpoint_file(path).get(KEY, {})
            self._known[path] = known = (stamp, json.loads(held["document"])["state"].get("replay") if held else None)
        return known[1]


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
