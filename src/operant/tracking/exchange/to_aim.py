"""A run in an Aim repository, which `aim up` opens."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from operant.tracking.exchange.tools import load_tool
from operant.tracking.reading.run import Run


def write_aim(run: Run, folder: Path) -> Path:
    """Add ``run`` to the repository in ``folder``, which is made when it is not there.

    Aim has no way to say when a point was recorded: all of them are of now. The step and the value are right.
    """
    aim = load_tool("aim", "the export to Aim", "aim")
    folder.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own libraries
        aim.Repo.from_path(str(folder), init=True)
        there = aim.Run(
            repo=str(folder),
            experiment="operant",
            system_tracking_interval=None,
            log_system_params=False,
            capture_terminal_logs=False,
        )
        try:
            _write(run, there, aim)
        finally:
            there.close()
    return folder


def _write(run: Run, there: Any, aim: Any) -> None:
    there.name = run.name or run.id
    there["operant_run"] = run.id
    if run.params:
        there["hparams"] = dict(run.params)
    for tag in run.tags:
        there.add_tag(tag)
    for tag in run.scalar_tags:
        for step, _, value in run.scalars(tag).tolist():
            there.track(value, name=tag, step=step)
    for text in run.text():
        there.track(aim.Text(text.text), name=text.tag, step=text.step)
    for media in run.media():
        if media.kind == "image" and media.path.is_file():
            there.track(aim.Image(str(media.path)), name=media.tag, step=media.step)
