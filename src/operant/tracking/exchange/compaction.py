"""Make an ended run small: one file, each series' points together and deflated. Nothing is left out."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from operant._util.files import replacing
from operant.errors import UsageError
from operant.status import RECORDING
from operant.tracking.format.blocks import (
    DEFLATED,
    POINTS,
    RECORDS,
    SEGMENT_FILE,
    Block,
    encode_block,
    encode_file_header,
    encode_records,
)
from operant.tracking.format.segments import RunLog, Segment, new_writer_id, segment_files
from operant.tracking.reading.run import Points, concatenate, split_points
from operant.tracking.reading.summary import summarize

_POINTS_A_BLOCK = 1 << 20
_RECORDS_A_BLOCK = 1000


class _CompactFile:
    """Collects blocks of one former segment after the other."""

    def __init__(self, stream: BinaryIO, writer_id: int) -> None:
        self._stream = stream
        self._stream.write(encode_file_header(SEGMENT_FILE, 0, writer_id))
        self._sequence = 0

    def add(self, kind: int, payload: bytes, flags: int = 0) -> None:
        self._stream.write(encode_block(kind, self._sequence, payload, flags))
        self._sequence += 1

    def add_records(self, records: list[dict[str, Any]]) -> None:
        for at in range(0, len(records), _RECORDS_A_BLOCK):
            self.add(RECORDS, encode_records(records[at : at + _RECORDS_A_BLOCK]))

    def add_points(self, series: int, points: Points) -> None:
        for at in range(0, len(points), _POINTS_A_BLOCK):
            piece = points[at : at + _POINTS_A_BLOCK]
            packed = zlib.compress(_shuffle_columns(piece), 6)
            self.add(POINTS, struct.pack("<II", series, len(piece)) + packed, DEFLATED)


class _Part:
    """One former segment between two of its ``attempt`` records: within it, points may be put in another order."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self.points: dict[int, list[Points]] = {}


def compact_run(folder: Path) -> tuple[int, int]:
    """Rewrite the run's segments as one file; return its size before and after.

    A reader that looks while this happens sees every point once: the new file appears by a rename,
    names the segments it holds, and readers pass over those they have read before.
    """
    summary = summarize(folder, folder.name)
    if summary.status in RECORDING:
        raise UsageError(f"run {summary.id} is {summary.status.lower()}: only a run that has ended can be compacted")
    sources = segment_files(folder)
    before = sum(path.stat().st_size for path in sources)
    log = RunLog(folder)
    parts: dict[str, list[_Part]] = {}
    for segment, item in log.poll():
        _sort_into(parts.setdefault(segment.name, [_Part()]), segment, item)
    if log.damage(growing=True):  # a torn tail is no loss: it never was a whole block
        raise UsageError(
            f"run {summary.id} has damaged blocks: it is left as it is, so that nothing of it is thrown away"
        )
    writer_id = new_writer_id()
    made = folder / f"seg-{writer_id:016x}-0000.seg"
    with replacing(made, sync=True) as staged, staged.open("xb") as stream:
        target = _CompactFile(stream, writer_id)
        for name, of_segment in parts.items():
            target.add_records([{"type": "segment", "name": name}])
            for part in of_segment:
                target.add_records(part.records)
                for series, pieces in part.points.items():
                    target.add_points(series, concatenate(pieces))
    for path in sources:
        path.unlink()
    return before, made.stat().st_size


def _sort_into(parts: list[_Part], segment: Segment, item: dict[str, Any] | Block) -> None:
    if isinstance(item, Block):
        for series, points in split_points(item):
            parts[-1].points.setdefault(series, []).append(points)
        return
    if item["type"] == "attempt":
        parts.append(_Part())
    parts[-1].records.append(item)


def _shuffle_columns(points: Points) -> bytes:
    """The three columns, each as all first bytes, all second bytes, …: neighbours are alike, so zlib finds more."""
    columns = [np.ascontiguousarray(points[name]) for name in ("step", "wall", "value")]
    return b"".join(column.view(np.uint8).reshape(-1, 8).T.tobytes() for column in columns)
