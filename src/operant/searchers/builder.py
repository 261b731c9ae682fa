"""The registry of searchers, and how one is made from its part of a configuration."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from operant.errors import ConfigError
from operant.registry import Registry, accepted_arguments
from operant.space import Container, Dict, build_space

if TYPE_CHECKING:
    from operant.searchers.base_searcher import BaseSearcher

SEARCHERS = Registry("searcher", "operant.searchers")
SEARCHERS.alias(
    "EvolutionSearhcer",
    "EvolutionSearcher",
    "the searcher 'EvolutionSearhcer' is taken as 'EvolutionSearcher'",
)

# What every searcher understands, also a user's own whose __init__ does not mention it.
COMMON_KEYS = ("reward_attribute", "optimize_mode", "seed", "lag")


class SpellingNote(UserWarning):
    """A name was accepted in another spelling."""


def build_searcher(
    cfg: Mapping[str, Any], search_space: Container | Sequence[Mapping[str, Any]] | None = None
) -> BaseSearcher:
    """The searcher that `cfg` describes, over a space or the `search_args` list of one.

    `type` is a registered name (default `GridSearcher`), all other keys are options of that class.
    """
    if not isinstance(cfg, Mapping):
        raise ConfigError(f"a searcher is described by a mapping with a `type`, not by {cfg!r}")
    options = dict(cfg)
    space = options.pop("search_space", None) if search_space is None else search_space
    if space is None:
        raise ConfigError("there is no search space: give `search_args`", ("search_space",))
    if not isinstance(space, Dict):
        space = space if isinstance(space, Container) else build_space(space)
    kind = options.get("type", "GridSearcher")
    if isinstance(kind, str):
        _, note = SEARCHERS.resolve(kind)
        if note is not None:
            warnings.warn(note, SpellingNote, stacklevel=2)
        allowed, _, takes_any = accepted_arguments(SEARCHERS.get(kind), skip=1)
        later = {
            key: options.pop(key) for key in COMMON_KEYS if key in options and not takes_any and key not in allowed
        }
    else:
        later = {}
    searcher: BaseSearcher = SEARCHERS.build(options, space, default_type="GridSearcher")
    if later:
        searcher.configure(**later)
    return searcher
