"""Damages files at random and reads them: one driver for every kind of file, and what each reader must keep to.

A reader may refuse a file in one sentence (`OperantError`) or read what is left of it and say so. It never shows a
traceback, changes what the file says without a word, takes memory out of proportion, or goes on for ever.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import string
import time
import traceback
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from operant.errors import OperantError

__all__ = ["Fuzz", "confused", "confused_records", "few_or_many"]

FOUND = Path(__file__).parent / "found"  # what once broke a reader, by kind of file; read again at every test
KEPT = Path(__file__).parents[2] / ".fuzz"  # where what breaks one now is left
REFUSED = object()  # what a reader gave that refused the file in one sentence
MOST_MEMORY = 64 << 20
MEMORY_OF_A_BYTE = 10
MOST_SECONDS = 5.0  # of the processor; the slowest sound file takes a hundredth
GUARD = 2 << 30  # beyond this memory is refused, before the machine suffers

Edit = Callable[[bytes], bytes]


class TooSlow(BaseException):
    """Not an Exception, so that no reader takes it for damage of its file."""


@dataclass
class Fuzz:
    """One kind of file: how to read one, and how its damage is found out.

    :param read: takes the folder of the try and the file's bytes; gives what a user would see, comparable, or raises
        `OperantError`.
    :param sound: the bytes of whole files, of which others are made.
    :param tells: whether what was read says that something is wrong with the file. None: bytes are not protected by
        checksums (a config, a result), so that a change of them cannot be found.
    :param forge: makes a file of wrong contents, with right checksums where there are any.
    """

    kind: str
    read: Callable[[Path, bytes], Any]
    sound: Sequence[bytes]
    tells: Callable[[Any], bool] | None = None
    forge: Callable[[random.Random, bytes], bytes] | None = None

    def run(self, folder: Path, tries: int, first: int = 0) -> None:
        """Read what was found before, then as many damaged files; the first that breaks a promise is an error."""
        for path in sorted((FOUND / self.kind).glob("*")):
            problem = self._problem(folder, path.read_bytes(), None)
            assert problem is None, f"{path}: {problem}"
        for number, data, problem in self.problems(folder, tries, first):
            KEPT.mkdir(exist_ok=True)
            kept = KEPT / f"{self.kind}-{zlib.crc32(data):08x}"
            kept.write_bytes(data)
            raise AssertionError(f"try {number} of {self.kind}, kept as {kept} ({len(data)} bytes): {problem}")

    def problems(self, folder: Path, tries: int, first: int = 0) -> Iterator[tuple[int, bytes, str]]:
        """The tries that break a promise: number, the file made smaller, and what is wrong."""
        expected = [self._look(folder, one) for one in self.sound]
        assert not any(one is REFUSED for one in expected), f"a sound {self.kind} is refused"
        for number in range(first, first + tries):
            rng = random.Random(f"{self.kind} {number}")
            which = rng.randrange(len(self.sound))
            if self.forge is not None and rng.random() < 0.5:
                data = self.forge(rng, self.sound[which])
                problem = self._problem(folder, data, None)
            else:
                edits = damaged(rng, self.sound)
                known = expected[which] if self.tells is not None else None
                data = _apply(edits, self.sound[which])
                problem = self._problem(folder, data, known)
                if problem is not None:
                    data = _apply(self._fewer(folder, edits, which, known, problem), self.sound[which])
            if problem is not None:
                yield number, data, problem

    def _fewer(self, folder: Path, edits: list[Edit], which: int, known: Any, problem: str) -> list[Edit]:
        """The edits without those that the problem does not need."""
        for one in list(edits):
            fewer = [other for other in edits if other is not one]
            again = self._problem(folder, _apply(fewer, self.sound[which]), known) if fewer else None
            if again is not None and again.split(":")[0] == problem.split(":")[0]:
                edits = fewer
        return edits

    def _problem(self, folder: Path, data: bytes, expected: Any) -> str | None:
        """What is wrong with how these bytes are read; None if nothing is."""
        _forget_peak()
        before, began = _memory("VmRSS"), time.process_time()
        try:
            with _bounded():
                found = self._look(folder, data)
        except TooSlow:
            return f"slow: it takes more than {MOST_SECONDS} s\n{traceback.format_exc(limit=-6)}"
        except Exception as error:
            return f"{type(error).__name__}: {error!s:.200}\n{traceback.format_exc(limit=-6)}"
        took, grew = time.process_time() - began, _memory("VmHWM") - before
        if grew > MOST_MEMORY + MEMORY_OF_A_BYTE * len(data):
            return f"memory: {grew >> 20} MB for a file of {len(data)} bytes"
        if took > MOST_SECONDS:
            return f"slow: {took:.1f} s for a file of {len(data)} bytes"
        judged = expected is not None and found is not REFUSED and self.tells is not None
        if judged and found != expected and not self.tells(found):  # type: ignore[misc]
            return f"silent: it is read as {found!r:.300} instead of {expected!r:.300}, without a word"
        return None

    def _look(self, folder: Path, data: bytes) -> Any:
        try:
            return self.read(folder, data)
        except OperantError as error:
            text = str(error)
            assert text and len(text) < 4000 and "Traceback" not in text, f"no sentence: {text!r:.300}"
            return REFUSED


def few_or_many(few: int) -> pytest.MarkDecorator:
    """Gives a test its ``tries``: few, the same each time, or 20,000 in `make test-long`, which looks for new ones."""
    return pytest.mark.parametrize(
        ("tries", "first"),
        [
            pytest.param(few, 0, id="few"),
            pytest.param(20_000, random.SystemRandom().randrange(2**40), id="many", marks=pytest.mark.long),
        ],
    )


_CHANGES = (*["bit"] * 3, "byte", "cut", "gone", "twice", "zeros", "number", "noise", "other", "deep")


def damaged(rng: random.Random, others: Sequence[bytes]) -> list[Edit]:
    """One to four changes of bytes: mostly single bits, as disks and memories make them."""
    edits: list[Edit] = []
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        kind = rng.choice(_CHANGES)
        edits.append(_Change(kind, rng.random(), rng.random(), rng.getrandbits(64), rng.choice(others)))
    return edits


@dataclass(frozen=True, eq=False)
class _Change:
    kind: str
    place: float
    size: float
    value: int
    other: bytes

    def __call__(self, data: bytes) -> bytes:
        at = int(self.place * len(data))
        length = 1 + int(self.size**4 * (len(data) - at))  # mostly short
        head, middle, tail = data[:at], data[at : at + length], data[at + length :]
        match self.kind:
            case "bit" if data:
                return head + bytes([data[at] ^ 1 << self.value % 8]) + data[at + 1 :]
            case "byte":
                return head + bytes([self.value % 256]) + data[at + 1 :]
            case "cut":
                return head
            case "gone":
                return head + tail
            case "twice":
                return head + middle + middle + tail
            case "zeros":
                return head + bytes(len(middle)) + tail
            case "number":  # lengths and counts
                at -= at % 4
                large = (self.value, 2**32 - 1, 2**31 - 1, 2**63 - 1, 2**64 - 1, len(data))[self.value % 6]
                width = (4, 8)[self.value // 7 % 2]
                return data[:at] + (large % 2 ** (8 * width)).to_bytes(width, "little") + data[at + width :]
            case "noise":
                return head + random.Random(self.value).randbytes(min(len(middle), 4096)) + tail
            case "deep":
                return head + (b"[", b'{"a":', b"- ", b"(")[self.value % 4] * (10 ** (self.value % 6)) + tail
            case "other":
                return head + self.other[at : at + length] + tail
        return data


def _apply(edits: Sequence[Edit], data: bytes) -> bytes:
    for edit in edits:
        data = edit(data)
    return data


def _odd_value(rng: random.Random) -> Any:
    """What no writer of ours puts anywhere, or only somewhere else."""
    deep: Any = 1
    for _ in range(rng.choice((3, 30, 300))):
        deep = rng.choice(([deep], {"a": deep}))
    return rng.choice(
        (
            *(None, True, False, 0, 1, -1, 2**31, 2**63, 2**64, -(2**63), 10**400),
            *(0.5, -0.0, 1e308, float("nan"), float("inf"), -float("inf")),
            *(
                "",
                "x",
                "../../x",
                "/etc/passwd",
                "\0",
                "caf\udce9",
                "\ud800",
                "🔥" * 50,
                "1e999",
                "9" * 5000,
                "x" * 100_000,
            ),
            *([], [[]], [1, "a", None], [0] * 20_000),
            *({}, {"": {}}, {"type": "x"}, {"a": 10**400}, {str(n): n for n in range(300)}),
            *(deep, "".join(rng.choices(string.printable, k=20))),
        )
    )


def confused_records(rng: random.Random, records: list[Any]) -> list[Any]:
    """Lines of a block, some of which are not what they should be."""
    made = confused(rng, records)
    return made[:1000] if isinstance(made, list) else [made]


def confused(rng: random.Random, tree: Any) -> Any:
    """The tree (of JSON) with one to three of its values, keys or lists changed for something of another kind."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        tree = _confused(rng, tree)
    return tree


def _confused(rng: random.Random, tree: Any) -> Any:
    if isinstance(tree, dict) and tree and rng.random() < 0.9:
        key = rng.choice(list(tree))
        match rng.choice(("inside", "inside", "inside", "inside", "gone", "renamed", "exchanged", "added")):
            case "gone":
                return {one: value for one, value in tree.items() if one != key}
            case "renamed":
                return {(str(_odd_value(rng))[:300] if one == key else one): value for one, value in tree.items()}
            case "exchanged":
                return {**tree, key: tree[rng.choice(list(tree))]}
            case "added":
                return {**tree, rng.choice(("", "x", "type", "__array__", "config")): _odd_value(rng)}
        return {**tree, key: _confused(rng, tree[key])}
    if isinstance(tree, list) and tree and rng.random() < 0.9:
        at = rng.randrange(len(tree))
        match rng.choice(("inside", "inside", "inside", "gone", "twice", "reversed")):
            case "gone":
                return tree[:at] + tree[at + 1 :]
            case "twice":
                return tree[:at] + tree[at : at + 1] + tree[at:]
            case "reversed":
                return tree[::-1]
        return [*tree[:at], _confused(rng, tree[at]), *tree[at + 1 :]]
    return _odd_value(rng)


@contextmanager
def _bounded() -> Iterator[None]:
    """An end to loops and to memory, both far beyond what is allowed."""

    def stop(*_: object) -> None:
        raise TooSlow

    earlier = signal.signal(signal.SIGPROF, stop)
    limits = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (_memory("VmData") + GUARD, limits[1]))
    signal.setitimer(signal.ITIMER_PROF, 2 * MOST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_DATA, limits)
        signal.signal(signal.SIGPROF, earlier)


def _forget_peak() -> None:
    descriptor = os.open("/proc/self/clear_refs", os.O_WRONLY)
    try:
        os.write(descriptor, b"5")
    finally:
        os.close(descriptor)


def _memory(name: str) -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    return int(status.partition(f"{name}:")[2].split(maxsplit=1)[0]) << 10
