"""try_init_root: lines on the console, once, and only where nobody else has set up logging."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from operant import log
from operant.log import try_init_root


@contextmanager
def bare_root() -> Iterator[logging.Logger]:
    """Without the handlers that the test runner adds."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers = []
    try:
        yield root
    finally:
        root.handlers = handlers
        root.setLevel(level)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_plain_in_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", stream := io.StringIO())
    with bare_root():
        try_init_root(logging.INFO)
        logging.getLogger("one.two").info("hello %d", 3)
        logging.getLogger("one.two").debug("hidden")
    line = stream.getvalue()
    assert "INFO    one.two: hello 3\n" in line and "\x1b" not in line and "hidden" not in line


def test_colours_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", stream := Terminal())
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    with bare_root():
        try_init_root("WARNING")
        logging.warning("careful")
        assert "\x1b[33mWARNING\x1b[0m root: careful" in stream.getvalue()
        monkeypatch.setenv("NO_COLOR", "1")
        logging.warning("plain")
    assert stream.getvalue().splitlines()[-1].endswith("WARNING root: plain")


def test_once_and_not_over_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with bare_root() as root:
        try_init_root(logging.INFO)
        try_init_root(logging.DEBUG)
        assert len(root.handlers) == 1 and root.level == logging.DEBUG
        own = logging.NullHandler()
        root.handlers, before = [own], root.level
        try_init_root(logging.CRITICAL)
        assert root.handlers == [own] and root.level == before


def test_all_of_the_standard_logging_is_there_too() -> None:
    assert (log.INFO, log.getLogger, log.info) == (logging.INFO, logging.getLogger, logging.info)
    with pytest.raises(AttributeError, match=r"neither operant\.log nor logging has 'inform'"):
        log.inform("x")
