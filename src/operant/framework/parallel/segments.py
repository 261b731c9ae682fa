"""Shared memory that cannot leak: anonymous files of the writer, reached by its process id.

A segment is a memfd. It has no name, so there is nothing to clean up: the kernel frees it when the last
process that holds or maps it is gone, however that process ended. A reader opens ``/proc/<pid>/fd/<n>``
of the writer, takes a shared `flock` and maps it privately (copy-on-write): reading copies nothing,
writing changes nothing elsewhere. The lock lives as long as the mapping, even after the file descriptor
is closed, and ends with the process. So the writer knows which segments are free: those that it can lock
for itself.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import secrets
import struct
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from operant.framework.parallel.wire import ALIGNMENT, BodyLayout

_HEADER = struct.Struct("<8sQ")
_MAGIC = b"OPRNTSEG"
_HEADER_BYTES = ALIGNMENT
_GRAIN = 1 << 16
# Idle segments beyond this number are given back to the system.
_MAX_IDLE = 4

_TWO_THREADS_FROM = 8 << 20
_PIECE = 1 << 20

# Where a segment is: file descriptor in its owner, token, bytes of the body.
SegmentPlace = tuple[int, int, int]


def shared_memory_works() -> bool:
    return sys.platform == "linux" and hasattr(os, "memfd_create")


class Segment:
    """One piece of shared memory of this process."""

    def __init__(self, capacity: int) -> None:
        self.capacity = (capacity + _HEADER_BYTES + _GRAIN - 1) // _GRAIN * _GRAIN
        self.fd = os.memfd_create("operant", os.MFD_CLOEXEC)
        os.ftruncate(self.fd, self.capacity)
        self._map = mmap.mmap(self.fd, self.capacity)
        self._bytes = np.frombuffer(self._map, dtype=np.uint8)
        self.token = secrets.randbits(64)
        _HEADER.pack_into(self._map, 0, _MAGIC, self.token)
        # How many peers have been told of the contents and have not mapped them yet.
        self.in_flight = 0

    def lock(self) -> bool:
        """True when no process maps this segment; it is then locked for writing."""
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(self) -> None:
        fcntl.flock(self.fd, fcntl.LOCK_UN)

    def copy(self, pieces: list[tuple[int, memoryview]]) -> None:
        """Copy buffers to their offsets; numpy lets other threads run meanwhile."""
        for offset, buffer in pieces:
            start = _HEADER_BYTES + offset
            np.copyto(self._bytes[start : start + buffer.nbytes], np.frombuffer(buffer, dtype=np.uint8))

    def close(self) -> None:
        del self._bytes
        self._map.close()
        os.close(self.fd)


class SegmentPool:
    """The segments of this process, used again and again: touched memory is 10 times faster than new."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._segments: list[Segment] = []
        self._helper: ThreadPoolExecutor | None = None

    def write(self, layout: BodyLayout, n_readers: int) -> tuple[Segment, SegmentPlace]:
        """Put a body into a segment that `n_readers` peers will be told of."""
        with self._lock:
            segment = self._acquire(layout.nbytes)
            segment.in_flight = n_readers
        try:
            self._copy(segment, layout)
            return segment, (segment.fd, segment.token, layout.nbytes)
        finally:
            segment.unlock()

    def _copy(self, segment: Segment, layout: BodyLayout) -> None:
        if layout.nbytes < _TWO_THREADS_FROM or (os.cpu_count() or 1) < 2:
            segment.copy(layout.buffers)
            return
        # One core cannot use all of the memory's bandwidth: two copy 50 MB in 3.8 ms, one in 5.7 ms.
        if self._helper is None:
            self._helper = ThreadPoolExecutor(1, thread_name_prefix="operant-copy")
        pieces = [
            (offset + start, buffer[start : start + _PIECE])
            for offset, buffer in layout.buffers
            for start in range(0, buffer.nbytes, _PIECE)
        ]
        other_half = self._helper.submit(segment.copy, pieces[1::2])
        segment.copy(pieces[::2])
        other_half.result()

    def arrived(self, segment: Segment) -> None:
        """A peer has mapped the segment, or will never do so."""
        with self._lock:
            segment.in_flight -= 1

    def close(self) -> None:
        if self._helper is not None:
            self._helper.shutdown(wait=True)
        with self._lock:
            for segment in self._segments:
                segment.close()
            self._segments.clear()

    def __len__(self) -> int:
        return len(self._segments)

    def _acquire(self, nbytes: int) -> Segment:
        needed = nbytes + _HEADER_BYTES
        idle = [segment for segment in self._segments if segment.in_flight == 0 and segment.lock()]
        fitting = sorted((s for s in idle if s.capacity >= needed), key=lambda s: s.capacity)
        chosen = fitting[0] if fitting else None
        if chosen is None:
            # A state that grows a little each time should not need a new segment each time.
            chosen = Segment(nbytes + nbytes // 8)
            chosen.lock()
            self._segments.append(chosen)
        spare = [segment for segment in idle if segment is not chosen]
        for segment in spare:
            segment.unlock()
        for segment in spare[_MAX_IDLE:]:
            self._segments.remove(segment)
            segment.close()
        return chosen


def map_segment(pid: int, place: SegmentPlace) -> memoryview:
    """The contents of a segment of another process, as memory of this one."""
    fd_there, token, nbytes = place
    # Neither call may wait: if the owner is ending, the number may by now stand for anything, even a pipe.
    fd = os.open(f"/proc/{pid}/fd/{fd_there}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if _HEADER.unpack(os.pread(fd, _HEADER.size, 0)) != (_MAGIC, token):
            raise OSError(f"file {fd_there} of process {pid} is not the expected segment")
        mapped = mmap.mmap(fd, _HEADER_BYTES + nbytes, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    finally:
        os.close(fd)
    return memoryview(mapped)[_HEADER_BYTES:]
