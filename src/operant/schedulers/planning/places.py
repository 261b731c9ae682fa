"""Which site a search's programs run on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from operant.sites.base import SITES, site_settings


def checked_site(given: Any) -> dict[str, Any]:
    """The settings of a site, all of them checked: a mistake must not wait for the first job."""
    site = site_settings(given)
    SITES.build(site, Path("search"))
    return site


def moved(config: Mapping[str, Any], where: str | Mapping[str, Any]) -> dict[str, Any]:
    """The same search on another site; one that it names itself keeps the settings that stand there."""
    scheduler = dict(config.get("scheduler") or {})
    there = site_settings(scheduler.pop("site", config.get("site")))
    site = site_settings(where)
    return {**config, "scheduler": scheduler, "site": there if site == {"type": there.get("type")} else site}
