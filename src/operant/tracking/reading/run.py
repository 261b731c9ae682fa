"""``Run``: everything one program recorded, read while it still records or long after."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from operant.errors import UsageError, nearest
from operant.status import RECORDING
from operant.tracking.format.blobs import BLOB_NAME, blob_path
from operant.tracking.format.blocks import (
    ALIGNMENT,
    BLOCK_HEADER,
    DEFLATED,
    MAX_PAYLOAD,
    MIXED,
    Block,
    scan_blocks,
)
from operant.tracking.format.segments import RunLog, Segment
from operant.tracking.places import check_run_id, find_root, resolve_run_dir
from operant.tracking.reading.summary import RunSummary

if TYPE_CHECKING:
    from operant.tracking.reading.pyramid import Chart, Pyramid


POINT = np.dtype([("step", "<i8"), ("wall", "<f8"), ("value", "<f8")])
Points = NDArray[np.void]
"""A structured array with the fields ``step``, ``wall`` and ``value``."""
_LATEST = 1e15  # seconds; what damaged points say beyond that has no meaning


class Point(NamedTuple):
    step: int
    wall: float
    value: float


class Text(NamedTuple):
    tag: str
    step: int
    wall: float
    text: str


class Media(NamedTuple):
    kind: str
    """``image``, ``video`` or ``audio``."""
    tag: str
    step: int
    wall: float
    path: Path


class _Chunk(NamedTuple):
    attempt: int
    segment: str
    sequence: int
    points: Points


class _Passed(NamedTuple):
    """A block of which not all series were wanted, and where to find it again."""

    file: str
    offset: int
    length: int
    number: int | None
    """The series, where it is a block of one."""
    segment: Segment
    attempt: int


class Run:
    """One run, opened by its id.

    >>> run = Run.open("last")
    >>> run.scalars("return")["value"].max()

    It holds what has been read so far; :meth:`refresh` reads on from there. Points that a resumed
    program recorded anew hide the ones they supersede; ``superseded=True`` shows those as well.
    """

    def __init__(
        self, folder: str | os.PathLike[str], run_id: str | None = None, *, only: Iterable[str] | None = None
    ) -> None:
        """With ``only`` the points of other tags are passed over until :meth:`want` asks for them."""
        self.folder = Path(folder)
        if not self.folder.is_dir():
            raise UsageError(f"there is no run in {str(self.folder)!r}")
        self._log = RunLog(self.folder)
        self.summary = RunSummary(run_id or self.folder.name, self._log)
        self._chunks: dict[str, list[_Chunk]] = {}
        self._merged: dict[tuple[str, bool], Points] = {}
        self._pyramids: dict[str, Pyramid] = {}
        self._records: dict[str, list[dict[str, Any]]] = {}
        self._orphans = 0
        self._only = None if only is None else set(only)
        self._passed: list[_Passed] = []
        self.held_bytes = 0
        """How much memory the points take that were kept so far."""
        self._read_on()

    @classmethod
    def open(cls, run_id: str, root: str | os.PathLike[str] | None = None) -> Run:
        """Open a run by id, by the start of an id that only one run has, or ``last``."""
        found, folder = resolve_run_dir(find_root(root), check_run_id(run_id))
        return cls(folder, found)

    @property
    def id(self) -> str:
        return self.summary.id

    @property
    def name(self) -> str:
        return self.summary.name

    @property
    def status(self) -> str:
        return self.summary.status

    @property
    def attempt(self) -> int:
        return self.summary.attempt

    @property
    def params(self) -> dict[str, Any]:
        """The settings given to ``add_hparams``."""
        return self.summary.params

    @property
    def tags(self) -> list[str]:
        """The labels of the run."""
        return self._annotated().labels

    @property
    def note(self) -> str:
        """What people wrote about the run."""
        return self._annotated().note

    def _annotated(self) -> RunSummary:
        self.summary.annotations.update(self.folder)
        return self.summary

    @property
    def scalar_tags(self) -> list[str]:
        if self._only is None:
            return sorted(self._chunks)
        return sorted({tag for segment in self._log.segments.values() for tag in segment.names.values()})

    @property
    def provenance(self) -> dict[str, Any]:
        """Command, folder, machine, packages and git state of the program."""
        found: dict[str, Any] = {}
        for record in (*self._records.get("start", ())[:1], *self._records.get("provenance", ())):
            found.update({key: value for key, value in record.items() if key not in ("type", "wall")})
        return found

    @property
    def damage(self) -> list[str]:
        """One sentence for every place that could not be read; empty for a healthy run."""
        found = self._log.damage(growing=self.status in RECORDING)
        if self._orphans:
            found.append(f"{self._orphans} points belong to series whose names were damaged")
        if self.summary.lost_points:
            found.append(f"{self.summary.lost_points} points were given up while the disk was full")
        return found

    def refresh(self) -> dict[str, Points]:
        """Read what was appended since; return the new points by tag."""
        return {tag: concatenate(pieces) for tag, pieces in self._read_on().items()}

    def _read_on(self) -> dict[str, list[Points]]:
        fresh: dict[str, list[Points]] = {}
        for segment, item in self._log.poll():
            if isinstance(item, Block):
                for tag, points in self._take_points(segment, item):
                    fresh.setdefault(tag, []).append(points)
            else:
                self.summary.fold_record(item)
                kind = item.get("type")
                if kind == "attempt":
                    self._merged.clear()
                    self._pyramids.clear()
                self._records.setdefault(str(kind), []).append(item)
        for tag in fresh:
            self._merged.pop((tag, False), None)
            self._merged.pop((tag, True), None)
        return fresh

    def scalars(self, tag: str, *, superseded: bool = False) -> Points:
        """A tag's points as an array with the fields ``step``, ``wall``, ``value``, in the order they were recorded."""
        key = (tag, superseded)
        merged = self._merged.get(key)
        if merged is None:
            merged = self._merged[key] = self._merge(self._known(tag), superseded)
        return merged

    def latest(self, tag: str) -> Point | None:
        """The last point of a tag, or None when it has none yet."""
        if tag not in self._chunks:
            return None
        points = self.scalars(tag)
        return Point(*points[-1].item()) if len(points) else None

    def history(self, tag: str) -> list[dict[str, Any]]:
        """A tag's points as assessors take them: ``{'iteration', 'value', 'created'}``, created in whole ms."""
        points = self.scalars(tag) if tag in self._chunks else empty_points()
        created = np.round(np.nan_to_num(points["wall"]).clip(-_LATEST, _LATEST) * 1000).astype(np.int64)
        rows = zip(points["step"].tolist(), points["value"].tolist(), created.tolist(), strict=True)
        return [{"iteration": step, "value": value, "created": at} for step, value, at in rows]

    def chart(self, tag: str, buckets: int = 2000, start: int | None = None, end: int | None = None) -> Chart:
        """At most ``buckets`` buckets over the steps from ``start`` to ``end``: least, greatest and mean value of each.

        The same data gives the same picture every time, and no extreme is ever left out.
        """
        from operant.tracking.reading.pyramid import Pyramid

        points = self.scalars(tag)
        pyramid = self._pyramids.get(tag)
        if pyramid is None or not pyramid.grows_into(points):
            pyramid = self._pyramids[tag] = Pyramid(points)
        else:
            pyramid.extend(points)
        return pyramid.chart(buckets, start, end)

    def text(self, tag: str | None = None) -> list[Text]:
        return [Text(one["tag"], one["step"], one["wall"], one["text"]) for one in self._of("text", tag)]

    def media(self, tag: str | None = None) -> list[Media]:
        found = [(one, blob_path(self.folder, one["blob"]["name"])) for one in self._of("media", tag) if _is_blob(one)]
        return [Media(one["media"], one["tag"], one["step"], one["wall"], path) for one, path in found]

    def histograms(self, tag: str | None = None) -> list[dict[str, Any]]:
        return self._of("histogram", tag)

    @property
    def files(self) -> dict[str, Path]:
        """Files kept with ``add_file``: name and where its content lies."""
        found = self._of("file")
        return {one["name"]: blob_path(self.folder, one["blob"]["name"]) for one in found if _is_blob(one)}

    def records(self, kind: str) -> list[dict[str, Any]]:
        """Everything recorded under one record type of ``docs/format.md``."""
        return list(self._records.get(kind, ()))

    def __repr__(self) -> str:
        return f"Run({self.id!r}, {self.status}, {len(self._chunks)} scalar tags)"

    def _of(self, kind: str, tag: str | None = None) -> list[dict[str, Any]]:
        return [one for one in self._records.get(kind, ()) if tag is None or one["tag"] == tag]

    def _known(self, tag: str) -> str:
        if tag not in self._chunks:
            raise UsageError(f"run {self.id} has no scalar {tag!r}{nearest(str(tag), self._chunks)}")
        return tag

    def want(self, tags: Iterable[str]) -> None:
        """Read the points of these tags too, from the blocks that were passed over so far."""
        missing = set(tags) - (self._only or set())
        if self._only is None or not missing:
            return
        self._only |= missing
        files: dict[str, int] = {}
        try:
            for place in self._passed:
                wanted = {number for number, tag in place.segment.names.items() if tag in missing}
                if not wanted or (place.number is not None and place.number not in wanted):
                    continue
                if place.file not in files:
                    files[place.file] = os.open(self.folder / place.file, os.O_RDONLY | os.O_CLOEXEC)
                data = os.pread(files[place.file], place.length, place.offset)
                for block in scan_blocks(memoryview(data), place.offset).blocks:
                    for number, points in split_points(block, wanted):
                        chunk = _Chunk(place.attempt, place.segment.name, block.sequence, points)
                        self.held_bytes += points.nbytes
                        self._chunks.setdefault(place.segment.names[number], []).append(chunk)
        finally:
            for descriptor in files.values():
                os.close(descriptor)

    def want_all(self) -> None:
        """Read the points of every tag, those to come included."""
        if self._only is not None:
            self.want(self.scalar_tags)
            self._only = None
            self._passed.clear()

    def _take_points(self, segment: Segment, block: Block) -> Iterator[tuple[str, Points]]:
        wanted: set[int] | None = None
        if self._only is not None:
            wanted = {number for number, tag in segment.names.items() if tag in self._only}
            number = None if block.kind == MIXED else int.from_bytes(block.payload[:4], "little")
            if number is None or number not in wanted:
                length = BLOCK_HEADER.size + len(block.payload) + (-len(block.payload) % ALIGNMENT)
                place = _Passed(self._log.reading, block.offset, length, number, segment, segment.attempt)
                self._passed.append(place)
            if not wanted:
                return
        for number, points in split_points(block, wanted):
            tag = segment.names.get(number)
            if tag is None:
                self._orphans += len(points)
                continue
            chunk = _Chunk(segment.attempt, segment.name, block.sequence, points)
            self.held_bytes += points.nbytes
            self._chunks.setdefault(tag, []).append(chunk)
            yield tag, points

    def _merge(self, tag: str, superseded: bool) -> Points:
        chunks = sorted(self._chunks[tag], key=lambda chunk: chunk[:3])
        merged: list[Points] = []
        for attempt in sorted({chunk.attempt for chunk in chunks}):
            of_attempt = [chunk for chunk in chunks if chunk.attempt == attempt]
            points = concatenate([chunk.points for chunk in of_attempt])
            if len({chunk.segment[:20] for chunk in of_attempt}) > 1:
                # Several processes wrote this tag: their own clocks order what no sequence number can.
                points = points[np.argsort(points["wall"], kind="stable")]
            if not superseded:
                points = self._visible(points, attempt)
            merged.append(points)
        return concatenate([points for points in merged if len(points)])

    def _visible(self, points: Points, attempt: int) -> Points:
        later = [step for number, step in self.summary.resumes.items() if number > attempt]
        if None in later:
            return points[:0]
        limits = [step for step in later if step is not None]
        return points[points["step"] <= min(limits)] if limits else points


def get_latest_scalar(run_id: str = "last", tag: str = "acc", root: str | os.PathLike[str] | None = None) -> list[Any]:
    """What a run has recorded of a tag up to now, as `Run.history` gives it and assessors take it."""
    return Run.open(run_id, root).history(tag)


def _is_blob(record: dict[str, Any]) -> bool:
    """Whether a record refers to a file of the run: a name that leads elsewhere is no blob's."""
    blob = record.get("blob")
    return isinstance(blob, dict) and bool(BLOB_NAME.fullmatch(str(blob.get("name"))))


def empty_points() -> Points:
    return np.empty(0, POINT)


def concatenate(pieces: list[Points]) -> Points:
    if not pieces:
        return empty_points()
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def split_points(block: Block, only: Collection[int] | None = None) -> Iterator[tuple[int, Points]]:
    """The points of a block as (series number, points), each series in the order its points were added.

    With ``only`` the points of other series are passed over, at a small part of the cost.
    """
    columns = _columns(block, only)
    if columns is None:
        return
    numbers, steps, walls, values = columns
    if isinstance(numbers, int):
        yield numbers, _points(steps, walls, values)
        return
    if only is not None and len(only) <= 8:  # one look through the block for each costs less than sorting it
        for number in only:
            at = np.flatnonzero(numbers == number)
            if len(at):
                yield number, _points(steps[at], walls[at], values[at])
        return
    order = np.argsort(numbers, kind="stable")
    points, numbers = _points(steps, walls, values)[order], numbers[order]
    starts = [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1)]
    for start, end in zip(starts, [*starts[1:], len(numbers)], strict=True):
        number = int(numbers[start])
        if only is None or number in only:
            yield number, points[start:end]


def last_points(block: Block) -> Iterator[tuple[int, int, tuple[int, float, float]]]:
    """Of each series in a block: its number, how many points it has there, and the last of them."""
    columns = _columns(block, None)
    if columns is None:
        return
    numbers, steps, walls, values = columns
    if isinstance(numbers, int):
        yield numbers, len(steps), (int(steps[-1]), float(walls[-1]), float(values[-1]))
        return
    # Looked at from the end, the first point of each series is its last; nothing needs to be sorted by series.
    found, places, counts = np.unique(numbers[::-1], return_index=True, return_counts=True)
    last = len(numbers) - 1 - places
    rows = zip(steps[last].tolist(), walls[last].tolist(), values[last].tolist(), strict=True)
    yield from zip(found.tolist(), counts.tolist(), rows, strict=True)


def _columns(block: Block, only: Collection[int] | None) -> tuple[Any, Any, Any, Any] | None:
    """Series number (one, or one for each point), steps, walls and values; None when nothing is wanted of it."""
    if len(block.payload) < 8:
        return None
    number, count = struct.unpack_from("<II", block.payload)
    mixed = block.kind == MIXED
    if not mixed and only is not None and number not in only:
        return None
    width = 28 if mixed else 24
    body = _inflate(block, count * width) if block.flags & DEFLATED else block.payload[8:]
    if count == 0 or len(body) != count * width:
        return None  # a writer of ours never makes such a block
    numbers = np.frombuffer(body, "<u4", count, 24 * count) if mixed else number
    return (
        numbers,
        np.frombuffer(body, "<i8", count),
        np.frombuffer(body, "<f8", count, 8 * count),
        np.frombuffer(body, "<f8", count, 16 * count),
    )


def _points(steps: Any, walls: Any, values: Any) -> Points:
    points = np.empty(len(steps), POINT)
    points["step"], points["wall"], points["value"] = steps, walls, values
    return points


def _inflate(block: Block, expected: int) -> bytes:
    if expected > MAX_PAYLOAD:
        return b""
    try:
        packed = zlib.decompressobj().decompress(bytes(block.payload[8:]), expected + 1)
    except zlib.error:
        return b""
    if len(packed) != expected or expected % 24:
        return b""
    planes = np.frombuffer(packed, np.uint8).reshape(3, 8, expected // 24)
    return planes.transpose(0, 2, 1).tobytes()
