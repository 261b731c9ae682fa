"""What the middleware of one loop pass to each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Context(dict[str, Any]):
    """A dict whose keys are attributes too; each pass of a loop gets a fresh one.

    ``keep(name)`` carries a value over to the following passes until ``drop(name)``. ``total_step`` counts
    the passes and ``finish`` asks every loop of the run to end; both are always carried over.
    ``finish`` goes one way: once it is set, setting it to False changes nothing.
    """

    __slots__ = ("_kept", "_on_finish")

    _kept: set[str]
    _on_finish: Callable[[], None] | None

    def __init__(self, *args: Any, **values: Any) -> None:
        super().__init__(*args, **values)
        dict.setdefault(self, "total_step", 0)
        dict.setdefault(self, "finish", False)
        _set_kept(self, set())
        _set_on_finish(self, None)

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            known = ", ".join(sorted(self)) or "none"
            raise AttributeError(
                f"ctx has no {name!r} in this pass (it has: {known}); set it, use ctx.setdefault({name!r}, "
                f"...), or ctx.keep({name!r}) in the pass that makes it"
            ) from None

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _METHODS:
            raise AttributeError(f"ctx.{name} is a method; write ctx[{name!r}] to store a value under that key")
        self[name] = value

    def __delattr__(self, name: str) -> None:
        try:
            del self[name]
        except KeyError:
            raise AttributeError(f"ctx has no {name!r} to delete") from None

    def __setitem__(self, name: str, value: Any) -> None:
        if name == "finish":
            self._set_finish(value)
        else:
            dict.__setitem__(self, name, value)

    def update(self, *args: Any, **values: Any) -> None:
        for name, value in dict(*args, **values).items():
            self[name] = value

    def keep(self, *names: str) -> None:
        """Carry these values over to every following pass, until `drop`. A name may be set later."""
        self._kept.update(names)

    def drop(self, *names: str) -> None:
        """Let these values end with this pass; the opposite of `keep`."""
        self._kept.difference_update(names)

    @property
    def kept(self) -> frozenset[str]:
        """The names that outlive this pass."""
        return frozenset(self._kept)

    def renew(self) -> Context:
        """The context of the next pass: only what is kept, one step further."""
        renewed = _new_context(Context)
        finish = self["finish"]
        dict.__setitem__(renewed, "total_step", self["total_step"] + 1)
        dict.__setitem__(renewed, "finish", finish)
        kept = self._kept
        for name in kept:
            if name in self:
                dict.__setitem__(renewed, name, self[name])
        _set_kept(renewed, kept)
        _set_on_finish(renewed, self._on_finish)
        return renewed

    def _set_finish(self, value: Any) -> None:
        if not value or self["finish"]:
            return
        dict.__setitem__(self, "finish", True)
        if self._on_finish is not None:
            self._on_finish()

    def _watch_finish(self, callback: Callable[[], None]) -> None:
        _set_on_finish(self, callback)

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy or a pickle is a record of the values; it does not speak for the loop it came from.
        return _restore, (dict(self), set(self._kept))

    def __copy__(self) -> Context:
        return _restore(dict(self), set(self._kept))


def _restore(values: dict[str, Any], kept: set[str]) -> Context:
    ctx = Context(values)
    ctx._kept.update(kept)
    return ctx


# The slots are written past Context.__setattr__, which stores keys.
_set_kept = Context.__dict__["_kept"].__set__
_set_on_finish = Context.__dict__["_on_finish"].__set__
_new_context = dict.__new__
_METHODS = frozenset(name for name in dir(Context) if not name.startswith("__"))
