"""Records points with one recorder and says what it cost: the part of `tracking.py` that runs in a process of its own.

    python recorders.py RECORDER CASE POINTS FOLDER

prints one line of JSON. It runs under Operant's Python or under that of the peers, and imports from
neither but the one recorder it measures.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from meter import Meter, wait_until_idle

TAGS = [f"train/metric_{number}" for number in range(20)]
BATCH = 1000
# A thousand numbers with all their digits, over and over: as long in JSON as a real loss, and cheap to take.
VALUES = [random.Random(seed).gauss(0.0, 1.0) for seed in range(BATCH)]

Calls = dict[str, Callable[..., Any]]
"""What a recorder offers: ``scalar(tag, value, step)``, ``several({tag: value}, step)``, ``bulk(tag, values, first
step)`` and ``close()``, which returns when all of it is in files."""


def operant(folder: Path) -> Calls:
    import numpy as np

    from operant import SummaryWriter

    (folder / ".operant").mkdir()
    writer = SummaryWriter("benchmark", root=folder, system_metrics=False)
    column = np.array(VALUES)  # who has a thousand numbers at once has them in an array

    def bulk(tag: str, values: list[float], first: int) -> None:
        writer.add_array(tag, column, np.arange(first, first + len(values)))

    return {"scalar": writer.add_scalar, "several": writer.add_scalars, "bulk": bulk, "close": writer.close}


def tensorboardx(folder: Path) -> Calls:
    from tensorboardX import SummaryWriter

    writer = SummaryWriter(str(folder))
    return {"scalar": writer.add_scalar, "close": writer.close}


def tensorboard(folder: Path) -> Calls:
    """TensorBoard's own event writer, fed with events as PyTorch's SummaryWriter makes them."""
    from time import time

    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(folder))

    def scalar(tag: str, value: float, step: int) -> None:
        summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
        writer.add_event(Event(summary=summary, wall_time=time(), step=step))

    return {"scalar": scalar, "close": writer.close}


def aim(folder: Path) -> Calls:
    from aim import Run

    run = Run(repo=str(folder), system_tracking_interval=None, capture_terminal_logs=False)
    return {
        "scalar": lambda tag, value, step: run.track(value, name=tag, step=step),
        "several": lambda numbers, step: run.track(numbers, step=step),
        "close": run.close,
    }


def mlflow(folder: Path) -> Calls:
    from time import time

    from mlflow.entities import Metric
    from mlflow.tracking import MlflowClient

    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    experiment = client.create_experiment("benchmark", artifact_location=str(folder / "artifacts"))
    run_id = client.create_run(experiment).info.run_id

    def several(numbers: dict[str, float], step: int) -> None:
        now = int(time() * 1000)
        client.log_batch(run_id, [Metric(tag, value, now, step) for tag, value in numbers.items()])

    def bulk(tag: str, values: list[float], first: int) -> None:
        now = int(time() * 1000)
        client.log_batch(run_id, [Metric(tag, value, now, first + i) for i, value in enumerate(values)])

    return {
        "scalar": lambda tag, value, step: client.log_metric(run_id, tag, value, step=step),
        "several": several,
        "bulk": bulk,
        "close": lambda: client.set_terminated(run_id),
    }


def wandb(folder: Path) -> Calls:
    import wandb as weights_and_biases

    settings = weights_and_biases.Settings(x_disable_stats=True, x_disable_meta=True, console="off", silent=True)
    run = weights_and_biases.init(project="benchmark", dir=str(folder), mode="offline", settings=settings)

    def close() -> None:
        run.finish()
        weights_and_biases.teardown()  # its sidecar does most of the work: it counts once it has ended

    return {
        "scalar": lambda tag, value, step: run.log({tag: value}, step=step),
        "several": lambda numbers, step: run.log(numbers, step=step),
        "close": close,
    }


def trackio(folder: Path) -> Calls:
    import trackio as hf_trackio

    hf_trackio.init(project="benchmark", embed=False, auto_log_gpu=False, auto_log_cpu=False)
    return {
        "scalar": lambda tag, value, step: hf_trackio.log({tag: value}, step=step),
        "several": lambda numbers, step: hf_trackio.log(numbers, step=step),
        "close": hf_trackio.finish,
    }


RECORDERS: dict[str, Callable[[Path], Calls]] = {
    "operant": operant,
    "tensorboardX": tensorboardx,
    "TensorBoard": tensorboard,
    "Aim": aim,
    "MLflow": mlflow,
    "W&B": wandb,
    "Trackio": trackio,
}


def one_tag(calls: Calls, points: int) -> int:
    scalar, tag = calls["scalar"], TAGS[0]
    for step, value in _numbered(points):
        scalar(tag, value, step)
    return points


def round_robin(calls: Calls, points: int) -> int:
    scalar, rounds = calls["scalar"], -(-points // len(TAGS))
    for step, value in _numbered(rounds):
        for tag in TAGS:
            scalar(tag, value, step)
    return rounds * len(TAGS)


def one_dict(calls: Calls, points: int) -> int:
    several, rounds = calls["several"], -(-points // len(TAGS))
    for step, value in _numbered(rounds):
        several(dict.fromkeys(TAGS, value), step)
    return rounds * len(TAGS)


def arrays(calls: Calls, points: int) -> int:
    bulk, batches = calls["bulk"], -(-points // BATCH)
    for number in range(batches):
        bulk(TAGS[0], VALUES, number * BATCH)
    return batches * BATCH


CASES: dict[str, Callable[[Calls, int], int]] = {
    "one tag": one_tag,
    "20 tags": round_robin,
    "20 in a dict": one_dict,
    "1,000 at once": arrays,
}


def _numbered(count: int) -> Iterator[tuple[int, float]]:
    return zip(range(count), itertools.cycle(VALUES))


def _bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def main() -> None:
    recorder, case, points, folder = sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])
    calls = RECORDERS[recorder](folder)
    wait_until_idle()  # nobody's start-up counts
    empty = _bytes_in(folder)
    with Meter() as meter:
        recorded = CASES[case](calls, points)
        calls["close"]()
    found = {"points": recorded, "wall": meter.wall, "cpu": meter.cpu, "bytes": _bytes_in(folder) - empty}
    print("\n" + json.dumps(found), flush=True)
    os._exit(0)  # what a recorder does on the way out is not measured, and some take long over it


if __name__ == "__main__":
    main()
