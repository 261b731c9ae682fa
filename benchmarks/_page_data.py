"""The same runs for each tool: the part of `page.py` that runs in the tool's own Python.

    python _page_data.py TOOL FOLDER RUNS TAGS POINTS

Each run has its settings and, for each tag, a noisy curve over the same steps. Points of all tags are recorded step by
step, as a training does it, so Operant's blocks hold points of all series mixed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

BLOCK = 8192  # as many points as the flush of `add_scalar` packs into a block


def tag_name(number: int) -> str:
    return f"{('train', 'eval', 'loss', 'env')[number % 4]}/metric{number:02d}"


def settings(run: int) -> dict[str, Any]:
    return {"lr": 10.0 ** -(2 + run % 4), "batch": 32 << (run % 3), "seed": run, "opt": ("adam", "sgd")[run % 2]}


def curves(run: int, tags: int, points: int) -> Any:
    """[points, tags]"""
    rng = np.random.default_rng(run)
    rise = 1 - np.exp(-np.arange(points) / (points / (2 + run % 5)))
    return rise[:, None] * np.linspace(1, 2, tags) + 0.1 * rng.standard_normal((points, tags))


def operant(folder: Path, runs: int, tags: int, points: int) -> None:
    import struct

    from operant.tracking.format.blocks import MIXED
    from operant.tracking.recording.recorder import Recorder

    began = time.time() - points
    for run in range(runs):
        name = f"run{run:04d}"
        target = folder / ".operant" / "runs" / name
        target.mkdir(parents=True)
        recorder = Recorder(
            target, name, name, role="main", attempt=1, tags=["even" if run % 2 == 0 else "odd"], system_metrics=False,
            collect_provenance=False,
        )  # fmt: skip
        recorder.record("hparams", params=settings(run), metrics=[])
        numbers = [recorder.declare(tag_name(tag)) for tag in range(tags)]
        recorder.flush()
        values = curves(run, tags, points).reshape(-1)
        steps = np.repeat(np.arange(points, dtype="<i8"), tags)
        series = np.tile(np.array(numbers, "<u4"), points)
        for at in range(0, len(steps), BLOCK):
            part = slice(at, at + BLOCK)
            n = len(steps[part])
            columns = (steps[part], began + steps[part].astype("<f8"), values[part].astype("<f8"), series[part])
            payload = struct.pack("<II", 0, n) + b"".join(column.tobytes() for column in columns)
            recorder._segment.add(MIXED, payload, n)
        recorder.end("FINISHED")


def tensorboard(folder: Path, runs: int, tags: int, points: int) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    for run in range(runs):
        writer = EventFileWriter(str(folder / f"run{run:04d}"), max_queue_size=1000)
        values = curves(run, tags, points)
        for step in range(points):
            found = [Summary.Value(tag=tag_name(tag), simple_value=float(values[step, tag])) for tag in range(tags)]
            writer.add_event(Event(wall_time=time.time(), step=step, summary=Summary(value=found)))
        writer.close()


def aim(folder: Path, runs: int, tags: int, points: int) -> None:
    from aim import Run

    for run in range(runs):
        one = Run(repo=str(folder), experiment="page", system_tracking_interval=None, log_system_params=False)
        one["hparams"] = settings(run)
        one.name = f"run{run:04d}"
        values = curves(run, tags, points)
        for step in range(points):
            for tag in range(tags):
                one.track(float(values[step, tag]), name=tag_name(tag), step=step)
        one.close()


def main() -> None:
    tool, folder, *counts = sys.argv[1:]
    write = {"operant": operant, "TensorBoard": tensorboard, "Aim": aim}[tool]
    began = time.perf_counter()
    write(Path(folder), *map(int, counts))
    print(json.dumps({"seconds": time.perf_counter() - began, "bytes": sum(_sizes(Path(folder)))}))


def _sizes(folder: Path) -> Iterator[int]:
    return (path.stat().st_size for path in folder.rglob("*") if path.is_file())


if __name__ == "__main__":
    main()
