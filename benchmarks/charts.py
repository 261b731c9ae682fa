"""A chart of a long series, from disk: the part of `tracking.py` that runs in a process of its own.

    python charts.py ACTION POINTS FOLDER

prints one line of JSON. The writing actions prepare the files; the reading ones open them, get what a
page needs to draw one tag, and say what that cost the first time (``cold``) and at once again (``warm``).
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from meter import Meter

TAG = "train/loss"
BUCKETS = 2000
# As many points to a block as the flush of `add_scalar` makes.
BLOCK = 8192


def write_operant(points: int, folder: Path) -> dict[str, Any]:
    from operant import SummaryWriter

    steps, _, values = _columns(points)
    (folder / ".operant").mkdir()
    with SummaryWriter("chart", root=folder, system_metrics=False) as writer:
        for start in range(0, points, BLOCK):
            part = slice(start, start + BLOCK)
            writer.add_array(TAG, values[part], steps[part])
    return {}


def write_events(points: int, folder: Path) -> dict[str, Any]:
    from operant.tracking.exchange.tfevents_write import EventFileWriter

    with EventFileWriter(folder) as writer:
        writer.add_points(TAG, *_columns(points))
    return {}


def read_operant(points: int, folder: Path) -> dict[str, Any]:
    import numpy as np  # noqa: F401  loaded before the clock starts, as the peers' own packages are

    from operant.tracking import Run
    from operant.tracking.reading import pyramid  # noqa: F401

    with Meter() as cold:
        run = Run.open("last", folder)
        chart = run.chart(TAG, BUCKETS)
    with Meter() as warm:
        run.refresh()
        run.chart(TAG, BUCKETS)
    with Meter() as zoomed:
        run.chart(TAG, BUCKETS, points // 3, points // 2)
    seen = int(chart.count.sum())
    return {"cold": vars(cold), "warm": vars(warm), "zoomed": vars(zoomed), "points": seen, "shown": len(chart)}


def read_tensorboard(points: int, folder: Path) -> dict[str, Any]:
    """TensorBoard's Python reader as it comes: it reads every point and keeps a sample of 10,000."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with Meter() as cold:
        reader = EventAccumulator(str(folder))
        reader.Reload()
        shown = reader.Scalars(TAG)
    with Meter() as warm:
        reader.Reload()
        reader.Scalars(TAG)
    return {"cold": vars(cold), "warm": vars(warm), "points": points, "shown": len(shown)}


def read_data_server(points: int, folder: Path) -> dict[str, Any]:
    """The Rust loader that the `tensorboard` command starts: reads every point and keeps a sample of 1,000."""
    import tensorboard_data_server

    command = [str(tensorboard_data_server.server_binary()), f"--logdir={folder}", "--reload=once", "--port=0"]
    with Meter() as cold:
        server = subprocess.Popen(
            [*command, "--die-after-stdin", "--verbose"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert server.stderr is not None
        with Meter() as until_loaded:
            loaded = any("Finished load cycle" in line for line in server.stderr)
        server.communicate()  # closes its stdin, at which it ends, and its CPU time becomes known
    if not loaded:
        raise RuntimeError("the data server ended before it had loaded the file")
    cold.wall = until_loaded.wall
    return {"cold": vars(cold), "warm": None, "points": points, "shown": 1000}


def _columns(points: int) -> tuple[Any, Any, Any]:
    import numpy as np

    values = np.random.default_rng(1).standard_normal(points).cumsum()
    return np.arange(points), np.full(points, time.time()), values


ACTIONS: dict[str, Callable[[int, Path], dict[str, Any]]] = {
    "write-operant": write_operant,
    "write-events": write_events,
    "operant": read_operant,
    "TensorBoard": read_tensorboard,
    "TensorBoard data server": read_data_server,
}


def main() -> None:
    action, points, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    found = ACTIONS[action](points, folder)
    seconds = {name: _seconds(value) for name, value in found.items() if isinstance(value, dict)}
    print("\n" + json.dumps({**found, **seconds}))


def _seconds(meter: dict[str, float]) -> dict[str, float]:
    return {"wall": meter["wall"], "cpu": meter["cpu"]}


if __name__ == "__main__":
    main()
