"""Signals that reach a training: what it does about them, it does between two passes, where it can be saved exactly.

SIGINT (ctrl-C)   save a checkpoint, say how to go on, end with 130
SIGTERM           the same, end with 143
SIGUSR1           save a checkpoint and go on: clusters send it some time before they end a job

A second SIGINT or SIGTERM ends at once.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from operant.tracking.places import find_root


class Interrupts:
    """Listens to signals inside a ``with`` block; in other threads than the main one there are none to hear."""

    def __init__(self) -> None:
        self.stopped_by: int | None = None
        """The signal that asks for the end, after saving."""
        self._save = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            # Also where SIGINT was ignored, as it is in the background: whoever sends it there means it.
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
                self._before[number] = signal.signal(number, self._heard)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._before = {}

    def take_request(self) -> bool:
        """Whether somebody asked for a checkpoint since the last time this was asked."""
        asked, self._save = self._save, False
        return asked

    def end(self, saved: str) -> NoReturn:
        """Leave the program as the signal wants it; ``saved`` says what was saved and how to go on."""
        sys.stderr.write(f"{saved}\n")
        sys.stderr.flush()
        _leave(self.stopped_by or signal.SIGINT, saved)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        self._save = True
        if number == signal.SIGUSR1:
            return
        if self.stopped_by is not None:
            self.__exit__()
            _leave(number, "ended at once; the last checkpoint is the one saved before")
        self.stopped_by = number
        # Not by print: the handler may run in the middle of one.
        os.write(2, b"saving after this pass; once more ends at once\n")


def _leave(number: int, sentence: str) -> NoReturn:
    if number == signal.SIGTERM:
        raise SystemExit(128 + number)
    raise KeyboardInterrupt(sentence)


def resume_command(run_id: str, folder: Path) -> str:
    """What to type here to go on with the run that lies in a folder."""
    root = folder.parent.parent
    elsewhere = folder.parent.name == "runs" and root.resolve() != find_root().resolve()
    where = f" --root {shlex.quote(str(root))}" if elsewhere else ""
    return f"operant train --resume {run_id}{where}"
