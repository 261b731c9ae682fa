"""Whether code that a saved config names may run: what this user recorded on this machine, or allows.

A config out of a checkpoint or of weights may come from anybody, and an import path in it is a call of whatever it
names. So configs are saved with a signature, by a key that only this user's account on this machine can read.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from importlib.metadata import entry_points
from typing import Any

import gymnasium

from operant._util.signing import is_signed
from operant.errors import UsageError

# `module:name` with whatever a file can be called, or `package.name`.
_PATH = re.compile(r"[^:]+:.+|[^\W\d][\w-]*(\.[\w-]+)*\.[^\W\d]\w*", re.DOTALL)


class Untrusted(UsageError):
    """A saved config names code, and nobody has allowed that it runs."""

    def __init__(self, message: str, names: Collection[str] = ()) -> None:
        super().__init__(message)
        self.names = tuple(names)
        """What would have to be allowed."""


def check_trust(saved: Mapping[str, Any], what: str, trust: bool | Collection[str] = False) -> None:
    """Refuse a saved ``{"config": …, "signature": …}`` that names code of a stranger.

    :param trust: True: whatever it names may run; or the names that may.
    """
    if trust is True:
        return
    allowed = () if trust is False else trust
    names = [name for name in code_names(saved["config"]) if name not in allowed]
    if names and not is_signed(saved["config"], saved.get("signature")):
        shown = ", ".join(name[:80] for name in names[:5])
        raise Untrusted(
            f"{what} names code that would run ({shown}) and was not recorded by you on this machine; "
            "if you know where it is from: --allow NAME (trust=[…]) for each, or --trust (trust=True) for all",
            names,
        )


def code_names(config: Any) -> list[str]:
    """The import paths in a saved config; Gymnasium ids without a module, and entry points, are none."""
    return list(dict.fromkeys(_code_names(config)))


def _code_names(config: Any) -> Iterator[str]:
    env, model = (_section(config, name) for name in ("env", "model"))
    target = env.get("id")
    if isinstance(target, str) and target not in gymnasium.registry and not _is_offered("envs", target):
        yield from [target] if ":" in target or "." in target else []
    for section in (env, _section(config, "evaluation")):
        yield from (text for text in _texts(section.get("arguments")) if _PATH.fullmatch(text))
    yield from _texts(env.get("wrappers"))
    policies = _section(config, "policies").values()
    for networks in (model, *(_section(policy, "model") for policy in policies)):
        for role in ("network", "actor", "critic"):
            given = networks.get(role)
            yield from _texts(given.get("class") if isinstance(given, Mapping) else given)
    mapping = _value(config, "policy_mapping")
    if isinstance(mapping, str) and (":" in mapping or "." in mapping):
        yield mapping
    for kind in ("callbacks", "loggers"):
        yield from (name for name in _texts(_value(config, kind)) if not _is_offered(kind, name))


def _is_offered(kind: str, name: str) -> bool:
    return any(point.name == name for point in entry_points(group=f"operant.{kind}"))


def _value(config: Any, name: str) -> Any:
    return config.get(name) if isinstance(config, Mapping) else None


def _section(config: Any, name: str) -> Mapping[str, Any]:
    found = _value(config, name)
    return found if isinstance(found, Mapping) else {}


def _texts(value: Any) -> Iterator[str]:
    """Every text in a value, however deep."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _texts(one)
