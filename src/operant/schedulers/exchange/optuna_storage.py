"""Where an Optuna study is kept: a SQLite file or a journal file, told apart by what is in it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from operant.errors import MissingExtraError, UsageError, unknown

if TYPE_CHECKING:
    from optuna.storages import BaseStorage

SQLITE_SUFFIXES = (".db", ".sqlite", ".sqlite3")
_SQLITE_MARK = b"SQLite format 3\x00"


def load_optuna() -> ModuleType:
    try:
        import optuna
    except ImportError:
        raise MissingExtraError("the exchange with Optuna", "search") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


@contextlib.contextmanager
def open_new(path: Path, like: Path) -> Iterator[BaseStorage]:
    """A new storage at ``path``, of the kind that the suffix of ``like`` asks for."""
    optuna = load_optuna()
    if like.suffix.lower() in SQLITE_SUFFIXES:
        storage = optuna.storages.RDBStorage(_url(path))
        try:
            yield storage
        finally:
            storage.remove_session()
            storage.engine.dispose()
    else:
        from optuna.storages.journal import JournalFileBackend

        yield optuna.storages.JournalStorage(JournalFileBackend(str(path)))


@contextlib.contextmanager
def open_for_reading(path: Path) -> Iterator[BaseStorage]:
    """The storage in a file that somebody else may be using; it is not changed."""
    optuna = load_optuna()
    if not path.is_file():
        raise UsageError(f"there is no file {str(path)!r}")
    with path.open("rb") as stream:
        start = stream.read(len(_SQLITE_MARK))
    if start == _SQLITE_MARK:
        try:
            storage = optuna.storages.RDBStorage(_url(path, read_only=True), skip_table_creation=True)
        except Exception as error:  # a database of anything else, or of another version of Optuna
            raise UsageError(f"{path} cannot be read as an Optuna study: {error}") from None
        try:
            yield storage
        finally:
            storage.remove_session()
            storage.engine.dispose()
    elif start.lstrip()[:1] == b"{":
        from optuna.storages.journal import JournalFileBackend

        try:
            storage = optuna.storages.JournalStorage(JournalFileBackend(str(path)))
        except Exception as error:
            raise UsageError(f"{path} cannot be read as an Optuna journal: {error}") from None
        yield storage
    else:
        raise UsageError(f"{path} is neither a SQLite file nor a journal of Optuna")


def pick_study(storage: BaseStorage, name: str | None, path: Path) -> str:
    """The name of the only study, or of the one that was asked for."""
    known = load_optuna().get_all_study_names(storage=storage)
    if name is not None:
        if name not in known:
            raise UsageError(f"{unknown('study', name, known)} (in {path})")
        return name
    if len(known) != 1:
        listed = ", ".join(sorted(known)) or "none"
        raise UsageError(f"{path} holds {len(known)} studies ({listed}): --study says which one")
    return str(known[0])


def _url(path: Path, *, read_only: bool = False) -> str:
    from sqlalchemy.engine import URL

    absolute = path.absolute()
    if read_only:
        from urllib.parse import quote

        return URL.create(
            "sqlite", database=f"file:{quote(str(absolute))}", query={"mode": "ro", "uri": "true"}
        ).render_as_string()
    return URL.create("sqlite", database=str(absolute)).render_as_string()
