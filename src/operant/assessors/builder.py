"""The registry of assessors, and how one is made from its part of a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from operant.errors import ConfigError
from operant.registry import Registry, accepted_arguments, check_arguments

if TYPE_CHECKING:
    from operant.assessors.base_assessor import BaseAssessor

ASSESSORS = Registry("assessor", "operant.assessors")


def build_assessor(cfg: Any, optimize_mode: str | None = None) -> BaseAssessor:
    """The assessor that `cfg` describes: `type` is a registered name, all other keys are its options.

    It may also be a name, a class, or an assessor that somebody has made. With an `optimize_mode` the assessor gets
    it, and one that was made for the other is refused.
    """
    if not isinstance(cfg, (str, Mapping, type)):
        if not hasattr(cfg, "assess_job"):
            raise ConfigError(f"an assessor is a mapping with a `type`, a name, a class or an assessor, not {cfg!r}")
        built = cfg
    else:
        options = {"type": cfg} if not isinstance(cfg, Mapping) else dict(cfg)
        kind = options.get("type")
        made = ASSESSORS.get(kind) if isinstance(kind, str) else kind
        if optimize_mode is not None and isinstance(made, type) and "optimize_mode" not in options:
            allowed, _, takes_any = accepted_arguments(made)
            if "optimize_mode" in allowed or takes_any:
                options["optimize_mode"] = optimize_mode
        if isinstance(made, type) and not isinstance(kind, str):
            del options["type"]
            check_arguments(made, options, f"option of {made.__name__}")
            built = made(**options)
        else:
            built = ASSESSORS.build(options)
    mode = getattr(built, "optimize_mode", optimize_mode)
    if optimize_mode is not None and mode != optimize_mode:
        raise ConfigError(
            f"the search is to {optimize_mode}, but its assessor was made to {mode}; both must be the same",
            ("optimize_mode",),
        )
    assessor: BaseAssessor = built
    return assessor
