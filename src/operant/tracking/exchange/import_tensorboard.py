"""TensorBoard logs as runs: every folder with event files becomes one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from operant.errors import UsageError
from operant.tracking.exchange.tfevents_decode import (
    Event,
    HistogramEvent,
    HparamsEvent,
    ImageEvent,
    ScalarEvent,
    TextEvent,
)
from operant.tracking.exchange.tfevents_read import EventFileReader, find_event_files, run_name
from operant.tracking.recording.writer import SummaryWriter


def import_tensorboard(folder: Path, root: Path | None = None) -> Iterator[tuple[str, str, int, list[str]]]:
    """Import every TensorBoard run below ``folder``; give (its name, our run id, points, notes) as each is done."""
    if not folder.exists():
        raise UsageError(f"there is no folder {str(folder)!r}")
    runs: dict[str, list[Path]] = {}
    for file in find_event_files(folder):
        runs.setdefault(run_name(folder, file), []).append(file)
    if not runs:
        raise UsageError(f"there are no TensorBoard event files in {str(folder)!r}")
    for name, files in runs.items():
        label = folder.resolve().name if name == "." else name
        notes: list[str] = []
        with SummaryWriter(label, root=root, tags=["tensorboard"], system_metrics=False) as writer:
            points = sum(_import_file(file, writer, notes) for file in files)
        yield name, writer.run_id, points, notes


def _import_file(file: Path, writer: SummaryWriter, notes: list[str]) -> int:
    reader = EventFileReader(file)
    points = 0
    for events in reader.batches():
        points += _import_scalars(events, writer)
        for event in events:
            _import_other(event, writer)
    if reader.damage:
        notes.append(f"{file.name}: {reader.damage}")
    if reader.skipped:
        notes.append(f"{file.name}: {reader.skipped} record(s) hold no event that can be read, and were left out")
    return points


def _import_scalars(events: list[Event], writer: SummaryWriter) -> int:
    columns: dict[str, tuple[list[int], list[float], list[float]]] = {}
    for event in events:
        if isinstance(event, ScalarEvent):
            steps, walls, values = columns.setdefault(event.tag, ([], [], []))
            steps.append(event.step)
            walls.append(event.wall)
            values.append(event.value)
    for tag, (steps, walls, values) in columns.items():
        writer.add_array(tag, values, steps, walls)
    return sum(len(steps) for steps, _, _ in columns.values())


def _import_other(event: Event, writer: SummaryWriter) -> None:
    match event:
        case TextEvent(tag, step, wall, text):
            writer.add_text(tag.removesuffix("/text_summary"), text, step, wall)
        case ImageEvent(tag, step, wall, encoded):
            writer.add_image(tag, encoded, step, wall)
        case HistogramEvent() if len(event.counts):  # of nothing, there is nothing to keep
            edges, counts = [float(edge) for edge in event.edges], [float(count) for count in event.counts]
            middle = [(low + high) / 2 for low, high in pairwise(edges)]
            writer.add_histogram_raw(
                event.tag, edges[0], edges[-1], round(sum(counts)),
                sum(count * at for count, at in zip(counts, middle, strict=True)),
                sum(count * at * at for count, at in zip(counts, middle, strict=True)),
                edges[1:], counts, event.step, event.wall, first_edge=edges[0],
            )  # fmt: skip
        case HparamsEvent():
            writer.add_hparams(event.hparams)
