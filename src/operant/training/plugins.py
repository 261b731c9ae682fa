"""Callbacks and loggers of one's own: callables, importable names, or entry points of installed packages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any, Protocol

from operant.errors import UsageError, nearest
from operant.models.loading import import_name
from operant.tracking import SummaryWriter


class Logger(Protocol):
    """Who else hears what a run records; torch's and tensorboardX's SummaryWriter are such loggers."""

    def add_scalar(self, tag: str, value: float, step: int) -> Any: ...
    def add_text(self, tag: str, text: str, step: int) -> Any: ...
    def close(self) -> Any: ...


class Recording:
    """The writer of a run, and the loggers that are told the same."""

    def __init__(self, writer: SummaryWriter, loggers: Sequence[Logger] = ()) -> None:
        self._writer = writer
        self._loggers = list(loggers)

    def add_logger(self, logger: Logger) -> None:
        self._loggers.append(logger)

    def add_scalars(self, values: Mapping[str, Any], step: int) -> None:
        self._writer.add_scalars(values, step)
        for logger in self._loggers:
            for tag, value in values.items():
                logger.add_scalar(tag, float(value), step)

    def add_text(self, tag: str, text: str, step: int) -> None:
        self._writer.add_text(tag, text, step)
        for logger in self._loggers:
            logger.add_text(tag, text, step)

    def close(self) -> None:
        """Close the loggers; the writer belongs to whoever made it."""
        for logger in self._loggers:
            logger.close()


def find_plugin(kind: str, given: Any) -> Callable[..., Any]:
    """What a config names as a ``callback`` or a ``logger``; installed packages offer some in ``operant.callbacks``
    and ``operant.loggers``."""
    if isinstance(given, str):
        group = f"operant.{kind}s"
        offered = {point.name: point for point in entry_points(group=group)}
        if given in offered:
            found = offered[given].load()
        elif "." in given or ":" in given:
            found = import_name(given)
        else:
            raise UsageError(
                f"there is no {kind} {given!r}{nearest(given, offered)}: give an entry point of {group!r}, "
                "or `package.module.name`"
            )
    else:
        found = given
    if not callable(found):
        raise UsageError(f"the {kind} {given!r} cannot be called; it is called with the training")
    return found  # type: ignore[no-any-return]
