"""One process's part of a run: buffers points and records, and flushes them to its segment."""

from __future__ import annotations

import logging
import os
import struct
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from operant._version import __version__
from operant.errors import UsageError
from operant.tracking.format import blobs
from operant.tracking.format.blocks import MAX_PAYLOAD, MIXED, POINTS
from operant.tracking.format.segments import SegmentWriter
from operant.tracking.identity import process_identity
from operant.tracking.places import find_root
from operant.tracking.recording import process, provenance

if TYPE_CHECKING:
    from operant.tracking.remote.send import Sender

log = logging.getLogger("operant.tracking")

# Rows are flat: series, step, wall, value, series, step, … One `list.extend` is atomic, so threads need no lock.
ROW = 4
FLUSH_ROWS = 8192
SYSTEM_SECONDS = 15.0
BEAT_SECONDS = 30.0
SYNC_SECONDS = 10.0
_BULK_POINTS = (MAX_PAYLOAD - 8) // 24 // 2


class Recorder:
    """Everything below :class:`SummaryWriter`: no conversion, no convenience, only what is stored and when.

    ``rows`` and ``ids`` are shared with the writer's fast path: both keep their identity for the life of
    the recorder. ``role`` is ``main`` for the process that made the run, ``joined`` or ``child`` for others.
    """

    def __init__(
        self,
        folder: Path,
        run_id: str,
        name: str,
        *,
        role: str,
        attempt: int,
        tags: Iterable[str] = (),
        system_metrics: bool = True,
        collect_provenance: bool = True,
        sender: Sender | None = None,
    ) -> None:
        self.folder = folder
        self.run_id = run_id
        self.name = name
        self.rows: list[Any] = []
        self.ids: dict[str, int] = {}
        self.attempt = attempt
        self.closed = False
        self._role = role
        self._tags = list(tags)
        self._records: list[dict[str, Any]] = []
        self._segment = SegmentWriter(folder, self._opening)
        self._refused = self._warned = False
        self._lost_points = 0
        self._sender = sender
        self._unsent_blobs: list[Path] = []
        self._began = time.time()
        self._born = self._committed_at = time.monotonic()
        self._sampler: Any = None
        self._sampled_at = 0.0
        self._system_metrics = system_metrics and role == "main"
        self._collector: threading.Thread | None = None
        process.register(self)
        self._begin()
        if collect_provenance and role == "main":
            self._collector = threading.Thread(target=self._collect, name="operant-provenance", daemon=True)
            self._collector.start()
        self._told = role == "main" and bool(os.environ.get("OPERANT_METRICS"))
        if self._told:
            from operant.tracking.recording.scraping import serve_run

            serve_run(find_root(), folder, run_id)

    def record(self, kind: str, **fields: Any) -> None:
        self.check_open()
        self._records.append({"type": kind, "wall": time.time(), **fields})

    def check_open(self) -> None:
        if self.closed:
            raise UsageError(f"the writer of run {self.run_id} is closed; make a new SummaryWriter to go on")

    def declare(self, tag: str) -> int:
        """The number of the series ``tag`` in this process's segments; a new one is announced first."""
        self.check_open()
        with process.gate:
            process.settle()
            series = self.ids.get(tag)
            if series is None:
                series = len(self.ids)
                # The announcement must be there before the first point can be: see `flush`.
                self._records.append({"type": "series", "ids": [[series, tag]]})
                self.ids[tag] = series
            return series

    def add_array(self, tag: str, steps: Any, walls: Any, values: Any) -> None:
        """Points of one series from little-endian int64, float64, float64 arrays, behind all added before."""
        series = self.declare(tag)
        with process.gate:
            self._take_buffers()
            for start in range(0, len(steps), _BULK_POINTS):
                piece = slice(start, start + _BULK_POINTS)
                n = len(steps[piece])
                head = struct.pack("<II", series, n)
                body = b"".join(column[piece].tobytes() for column in (steps, walls, values))
                self._segment.add(POINTS, head + body, n)
                self._commit()

    def begin_attempt(self, number: int, resumed_from: int | None) -> None:
        """From here on this process writes for attempt ``number``: earlier attempts' points behind step
        ``resumed_from`` (None: all of them) are superseded."""
        with process.gate:
            self._take_buffers()
            self.attempt = number
            self.record("attempt", attempt=number, resumed_from=resumed_from)
            self.flush()

    def store(self, source: bytes | Path, suffix: str = "") -> dict[str, Any] | None:
        """Store a file's content with the run; None (and one warning) when the disk refuses."""
        self.check_open()
        try:
            if isinstance(source, bytes):
                blob = blobs.store_bytes(self.folder, source, suffix)
            else:
                blob = blobs.store_file(self.folder, source)
        except OSError as error:
            if isinstance(source, Path) and not os.access(source, os.R_OK):
                raise
            self._warn_refused(error)
            return None
        if self._sender is not None:
            self._unsent_blobs.append(blobs.blob_path(self.folder, blob["name"]))
        return blob

    def flush(self) -> None:
        with process.gate:
            if not self.closed:
                self._take_buffers()
                self._commit()

    def tick(self) -> None:
        """What is due by the clock: system metrics, and a sign of life when nothing else was written."""
        now = time.monotonic()
        if self._system_metrics and now - self._sampled_at >= SYSTEM_SECONDS:
            self._sampled_at = now
            self._sample()
        with process.gate:
            if not self.closed and self._role == "main" and now - self._committed_at >= BEAT_SECONDS:
                self.record("beat")

    def end(self, status: str, *, code: int | None = None, error: str | None = None) -> None:
        """Write what is left and how the process ended, and let go of the file."""
        with process.gate:
            if self.closed:
                return
            if self._collector is not None and self._collector is not threading.current_thread():
                self._collector.join(timeout=provenance.GIT_SECONDS)
            if self._role != "child" or self.rows or self.ids:
                self.record("end", status=status, code=code, error=error)
            self._take_buffers()
            self._commit()
            if self._refused or self._lost_points:
                log.warning("run %s ends incomplete: its folder took no more, and points were lost", self.run_id)
            try:
                self._segment.close()
            except OSError as failure:
                self._warn_refused(failure)
            self.closed = True
            self.ids.clear()  # the fast path finds no series and comes to `check_open`
            process.unregister(self)
        if self._told:
            from operant.tracking.recording.scraping import stop_serving

            stop_serving(f"run {self.run_id}")
        if self._sender is not None:
            self._sender.finish(float(os.environ.get("OPERANT_SYNC_SECONDS") or SYNC_SECONDS))

    def after_fork_in_child(self) -> None:
        """The parent flushed before the fork; what other threads added since is the parent's to write."""
        self.rows.clear()
        self.ids.clear()
        self._records = []
        self._segment.forget()
        self._role = "child"
        self._began = time.time()
        self._system_metrics = False
        self._collector = None
        self._refused = False
        self._unsent_blobs = []

    def _begin(self) -> None:
        """The run is there from its first moment: it is listed, and other processes can join it."""
        with process.gate:
            try:
                self._segment.begin()
            except OSError as error:
                self._warn_refused(error)

    def _opening(self) -> list[dict[str, Any]]:
        start = {
            "type": "start",
            "run": self.run_id,
            "name": self.name,
            "role": self._role,
            "attempt": self.attempt,
            "wall": self._began,
            "process": process_identity(),
            "operant": __version__,
        }
        if self._role == "main":
            start |= {
                "tags": self._tags,
                "command": provenance.command_line(),
                "folder": str(Path.cwd()),
                "machine": provenance.machine(),
            }
        # A later file of this process repeats the series, so that each file can be read alone.
        series = [[number, tag] for tag, number in self.ids.items()]
        return [start, {"type": "series", "ids": series}] if series else [start]

    def _take_buffers(self) -> None:
        # Rows first, then records: whatever series a row names is then announced in these records.
        rows = self.rows
        count = len(rows)
        taken = rows[:count]
        del rows[:count]
        records, self._records = self._records, []
        if records:
            self._segment.add_records(records)
        for start in range(0, count, FLUSH_ROWS * ROW * 4):
            self._pack(taken[start : start + FLUSH_ROWS * ROW * 4])

    def _pack(self, rows: list[Any]) -> None:
        series, steps, walls, values = rows[0::4], rows[1::4], rows[2::4], rows[3::4]
        n = len(series)
        if series.count(series[0]) == n:
            payload = struct.pack(f"<II{n}q{n}d{n}d", series[0], n, *steps, *walls, *values)
            self._segment.add(POINTS, payload, n)
        else:
            payload = struct.pack(f"<II{n}q{n}d{n}d{n}I", 0, n, *steps, *walls, *values, *series)
            self._segment.add(MIXED, payload, n)

    def _commit(self) -> None:
        try:
            if self._refused and self._segment.lost_points:
                lost, self._segment.lost_points = self._segment.lost_points, 0
                self._lost_points += lost
                self._segment.add_records([{"type": "lost", "wall": time.time(), "points": lost}])
            wrote = self._segment.commit()
        except OSError as error:
            self._warn_refused(error)
            return
        if wrote:
            self._committed_at = time.monotonic()
            if self._refused:
                self._refused = False
                log.info("run %s: the disk takes data again", self.run_id)
            if self._sender is not None:
                unsent, self._unsent_blobs = self._unsent_blobs, []
                self._sender.wake(self._segment.writer_id, unsent)

    def _warn_refused(self, error: OSError) -> None:
        self._refused = True
        if not self._warned:
            self._warned = True
            log.warning(
                "run %s cannot be written to %s (%s); training goes on, points wait in memory and are tried again",
                self.run_id,
                self.folder,
                error.strerror or error,
            )

    def _sample(self) -> None:
        try:
            if self._sampler is None:
                from operant.tracking.recording.system import SystemSampler

                self._sampler = SystemSampler()
                return  # percentages are measured between two calls
            found = self._sampler.sample()
        except Exception as error:
            self._system_metrics = False
            log.warning("system metrics are off for run %s: %s", self.run_id, error)
            return
        now, elapsed = time.time(), int(time.monotonic() - self._born)
        with process.gate:
            if not self.closed:
                for tag, value in found.items():
                    self.rows.extend((self.declare(tag), elapsed, now, value))

    def _collect(self) -> None:
        """Commit, diff and package versions take a while: gathered beside the program's own start."""
        try:
            fields: dict[str, Any] = {"packages": provenance.installed_versions()}
            state = provenance.git_state(Path.cwd())
            if state is not None:
                fields["git"], diff = state
                if diff:
                    fields["git"]["diff"] = self.store(diff, ".diff")
            self.record("provenance", **fields)
        except Exception as error:
            log.debug("run %s has no provenance: %s", self.run_id, error)
