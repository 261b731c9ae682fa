"""A run as an offline run of Weights & Biases, which `wandb sync` sends to a server later."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from operant.status import Status
from operant.tracking.exchange.tools import load_tool
from operant.tracking.reading.run import Run


def write_wandb(run: Run, folder: Path) -> Path:
    """Add ``run`` to the offline runs in ``folder``; return the folder that it got there.

    W&B has one step for all series, which must not decrease: points are logged by their step, whatever order they
    were recorded in; of several points of one series at one step the last counts.
    """
    in_use = "wandb" in sys.modules
    wandb = load_tool("wandb", "the export to W&B", "wandb")
    folder.mkdir(parents=True, exist_ok=True)
    quiet = wandb.Settings(
        console="off",
        silent=True,
        disable_git=True,
        save_code=False,
        x_disable_stats=True,
        x_disable_meta=True,
        x_save_requirements=False,
    )
    there = wandb.init(
        mode="offline",
        dir=str(folder),
        project="operant",
        name=run.name or run.id,
        notes=f"run {run.id}, exported by Operant",
        config=dict(run.params),
        tags=[tag[:64] for tag in run.tags if tag],
        settings=quiet,
        reinit="create_new",
    )
    try:
        for step, wall, row in _rows(run):
            there.log({**row, "_timestamp": wall}, step=step)
        last = max((int(run.scalars(tag)["step"].max()) for tag in run.scalar_tags if len(run.scalars(tag))), default=0)
        others = _others(run, wandb)
        if others:
            there.log(others, step=last + 1)
        return Path(there.dir).parent
    finally:
        there.finish(exit_code=0 if run.status in (Status.FINISHED, Status.RUNNING, Status.SILENT) else 1)
        if not in_use:
            # `finish` returns before the file is written; the end of W&B's own process is what one can wait for.
            wandb.teardown()


def _rows(run: Run) -> Iterator[tuple[int, float, dict[str, float]]]:
    """(step, time, values by tag), by step."""
    steps: dict[int, dict[str, float]] = {}
    walls: dict[int, float] = {}
    for tag in run.scalar_tags:
        for step, wall, value in run.scalars(tag).tolist():
            steps.setdefault(step, {})[tag] = value
            walls[step] = max(wall, walls.get(step, wall))
    for step in sorted(steps):
        yield step, walls[step], steps[step]


def _others(run: Run, wandb: Any) -> dict[str, Any]:
    """Texts as tables, pictures and histograms as what W&B calls them; of histograms the last of each tag."""
    found: dict[str, Any] = {}
    for text in run.text():
        table = found.setdefault(text.tag, wandb.Table(columns=["step", "text"]))
        table.add_data(text.step, text.text)
    for media in run.media():
        if media.path.is_file() and media.kind in ("image", "video"):
            kind = wandb.Image if media.kind == "image" else wandb.Video
            found.setdefault(f"{media.tag}/{media.kind}", []).append(
                kind(str(media.path), caption=f"step {media.step}")
            )
    for one in run.histograms():
        found[f"{one['tag']}/histogram"] = wandb.Histogram(np_histogram=(one["counts"], one["edges"]))
    return found
