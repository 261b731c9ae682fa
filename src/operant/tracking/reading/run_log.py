"""The segments of one run, read once each and in step with their writers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from operant.tracking.format.blocks import MIXED, POINTS, RECORDS, Block, BlockTail, decode_records
from operant.tracking.format.segments import segment_files

__all__ = ["RunLog", "Segment"]


@dataclass
class Segment:
    """What the writer of one segment said of itself, as far as it has been read."""

    name: str
    role: str = ""
    attempt: int = 1
    process: dict[str, Any] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    started: float = 0.0
    end: dict[str, Any] | None = None
    continued: bool = False
    mtime: float = 0.0

    @property
    def sealed(self) -> bool:
        """Whether its writer has let go of it: what is unreadable at its end will not become readable."""
        return self.continued or self.end is not None

    def _take(self, record: dict[str, Any]) -> None:
        match record.get("type"):
            case "start":
                self.role, self.attempt = str(record["role"]), int(record["attempt"])
                self.process, self.started = dict(record["process"]), float(record["wall"])
            case "series":
                self.names.update({int(number): str(tag) for number, tag in record["ids"]})
            case "attempt":
                self.attempt = int(record["attempt"])
            case "continued":
                self.continued = True
            case "end":
                self.end = record


class RunLog:
    """Reads what was appended to a run since the last :meth:`poll`.

    A compacted file holds several former segments, each announced by a ``segment`` record. A former
    segment that was already read from its own file is passed over.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.segments: dict[str, Segment] = {}
        self.odd_records = 0
        self._tails: dict[str, BlockTail] = {}
        self._inside: dict[str, str | None] = {}
        """For each file the segment its next block belongs to; None while passing over one."""
        self.reading = ""
        """The file that the item which :meth:`poll` gave last came from."""

    def poll(self) -> Iterator[tuple[Segment, dict[str, Any] | Block]]:
        """Each new record, and each new block of points, with the segment it belongs to."""
        for path in segment_files(self.folder):
            tail = self._tails.get(path.name)
            if tail is None:
                tail = self._tails[path.name] = BlockTail(path)
            try:
                mtime = path.stat().st_mtime
            except FileNotFoundError:
                continue
            if path.name not in self._inside:
                self._inside[path.name] = path.name if path.name not in self.segments else None
            self.reading = path.name
            for block in tail.poll():
                yield from self._items(path.name, block)
            inside = self._inside[path.name]
            if inside is not None and inside in self.segments:
                self.segments[inside].mtime = mtime

    def damage(self, *, growing: bool) -> list[str]:
        """One sentence for every place where bytes could not be read. In a growing run a torn tail is no damage yet."""
        found = [f"{self.odd_records} records have fields that no writer of Operant makes"] if self.odd_records else []
        for name, tail in self._tails.items():
            if tail.header_damaged:
                found.append(f"{name}: the file header is damaged (its blocks were read all the same)")
            found += [f"{name}: {end - start} damaged bytes at offset {start} were skipped" for start, end in tail.gaps]
            left = 0 if growing else tail.unread_bytes()
            if left:
                found.append(f"{name}: {left} torn bytes after offset {tail.offset} were cut off")
        return found

    def _items(self, file: str, block: Block) -> Iterator[tuple[Segment, dict[str, Any] | Block]]:
        if block.kind == RECORDS:
            for record in decode_records(block.payload):
                if record.get("type") == "segment":
                    name = str(record.get("name"))
                    self._inside[file] = None if name in self.segments else name
                    continue
                segment = self._segment(file)
                if segment is None:
                    continue
                try:
                    segment._take(record)
                except (KeyError, TypeError, ValueError):
                    self.odd_records += 1  # right checksum, wrong fields: not written by us
                else:
                    yield segment, record
        elif block.kind in (POINTS, MIXED):
            segment = self._segment(file)
            if segment is not None:
                yield segment, block

    def _segment(self, file: str) -> Segment | None:
        name = self._inside[file]
        if name is None:
            return None
        segment = self.segments.get(name)
        if segment is None:
            segment = self.segments[name] = Segment(name)
        return segment

    def to_json(self) -> dict[str, Any]:
        return {
            "files": {
                name: [tail.offset, tail.gaps, tail.header_damaged, self._inside.get(name)]
                for name, tail in self._tails.items()
            },
            "segments": [{**vars(one), "names": sorted(one.names.items())} for one in self.segments.values()],
        }

    @classmethod
    def from_json(cls, folder: Path, state: dict[str, Any]) -> RunLog:
        log = cls(folder)
        for name, (offset, gaps, damaged, inside) in state["files"].items():
            tail = log._tails[name] = BlockTail(folder / name, offset)
            tail.gaps = [(start, end) for start, end in gaps]
            tail.header_damaged = damaged
            log._inside[name] = inside
        for one in state["segments"]:
            segment = Segment(**{**one, "names": dict(map(tuple, one["names"]))})
            log.segments[segment.name] = segment
        return log
