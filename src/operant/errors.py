"""Errors that are meant for people: one sentence that says what is wrong, where, and what would be right."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

__all__ = [
    "ConfigError",
    "KeyPath",
    "MissingExtraError",
    "OperantError",
    "UsageError",
    "nearest",
    "path_text",
    "unknown",
]

KeyPath = tuple[str | int, ...]
_LONGEST = 2000  # characters of a message


class OperantError(Exception):
    """Anything Operant says to its user in one sentence; commands print it without a traceback."""


class UsageError(OperantError, ValueError):
    """An argument, key or file that cannot be used as it was given."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(_shortened(one) if isinstance(one, str) else one for one in args))


def _shortened(message: str) -> str:
    """It quotes what was given, which may be anything."""
    return message if len(message) <= _LONGEST else f"{message[: _LONGEST // 2]} … {message[-_LONGEST // 4 :]}"


class MissingExtraError(OperantError, ImportError):
    """A feature whose optional packages are not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(feature, extra)  # as it is made again in another process

    def __str__(self) -> str:
        feature, extra = self.args
        return f"{feature} needs an extra that is not installed: pip install 'operant[{extra}]'"


class ConfigError(UsageError):
    """A mistake in what the user wrote.

    `path` leads to the key, outermost first: `("task", "search_args", 2, "dat")`. Code deep inside knows only
    its own part of it; callers add theirs with `under`, and the loader of the file adds the place with
    `located`.
    """

    def __init__(self, message: str, path: KeyPath = (), *, file: str | None = None, line: int | None = None) -> None:
        super().__init__(message)
        self.message = str(self.args[0])
        self.path = path
        self.file = file
        self.line = line

    def under(self, *prefix: str | int) -> ConfigError:
        """The same mistake, seen from further outside."""
        return type(self)(self.message, (*prefix, *self.path), file=self.file, line=self.line)

    def located(self, file: str, lines: Mapping[KeyPath, int]) -> ConfigError:
        """The same mistake with its file and the line of the innermost key that the file really has."""
        path = self.path
        while path and path not in lines:
            path = path[:-1]
        return type(self)(self.message, self.path, file=file, line=lines.get(path, self.line))

    def __str__(self) -> str:
        place = self.file or ""
        if self.file and self.line is not None:
            place += f":{self.line}"
        key = path_text(self.path)
        key = key if len(key) <= _LONGEST else f"{key[: _LONGEST // 2]} …"
        return ": ".join(part for part in (place, key, self.message) if part)


class ArgumentError(ConfigError):
    """A mistake in an argument of the space, found by somebody who knows only its flat name: `path[0]`.

    `operant.space.place_argument_error` turns it into one whose path leads through the `search_args` list.
    """


def path_text(path: KeyPath) -> str:
    """`("task", "search_args", 2, "name")` as `task.search_args[2].name`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ``" (did you mean 'x'?)"`` for the known word closest to ``word``, or an empty string."""
    guess = _closest(word, known)
    return f" (did you mean {guess!r}?)" if guess is not None else ""


def unknown(what: str, word: object, known: Iterable[object]) -> str:
    """The sentence for a name that nobody knows: the nearest known one, or else all of them."""
    names = [str(name) for name in known]
    guess = _closest(word, names)
    said = f"unknown {what} {str(word)!r:.200}"
    if guess is not None:
        return f"{said}; did you mean {guess!r:.200}?"
    if not names:
        return f"{said}; there are none to choose from"
    # Keys of a file may be anything.
    shown = [name if name.isprintable() and len(name) <= 80 else repr(name)[:80] for name in sorted(names)[:100]]
    return f"{said}; known are {', '.join(shown)}{', …' if len(names) > len(shown) else ''}"


def _closest(word: object, known: Iterable[object]) -> str | None:
    import difflib  # only mistakes need it

    by_lower = {str(name).lower(): str(name) for name in known}
    found = difflib.get_close_matches(str(word).lower(), by_lower, n=1, cutoff=0.5)
    return by_lower[found[0]] if found else None
