"""Jobs that go on though nobody controls their search: how they are ended without going on with it."""

from __future__ import annotations

from pathlib import Path

from operant.errors import OperantError
from operant.schedulers.engine.live_state import LiveState
from operant.sites import SITES, Event, Site
from operant.sites.base import SystemClock, site_settings
from operant.status import UNDER_WAY, Status
from operant.tracking.journal import Journal


def end_jobs(folder: Path, timeout: float = 120.0) -> int:
    """End what still waits or runs of a search without a controller, and say in its journal that it was ended."""
    clock = SystemClock()
    with Journal.open(folder) as journal:
        state = LiveState(folder.name, "", clock, lambda text: None)
        state.attach(journal)
        open_jobs = {job.token: job for job in state.jobs.values() if job.status in UNDER_WAY and job.token}
        if not open_jobs:
            return 0
        config = state.opened.get("config") or {}
        settings = config.get("site") or (config.get("scheduler") or {}).get("site")
        site: Site = SITES.build(site_settings(settings), folder)
        site.start(clock.put)
        try:
            found = site.find(list(open_jobs))
            waited_for = {token for token, one in found.items() if one.state == "running"}
            site.cancel(waited_for, "stopped by its user")
            deadline = clock.now() + timeout
            while waited_for:
                waited_for -= {one.token for one in clock.wait(1.0) if isinstance(one, Event) and one.kind in _ENDS}
                if waited_for and clock.now() > deadline:
                    raise OperantError(f"{len(waited_for)} jobs of {folder.name!r} have not ended for {timeout:g} s")
        finally:
            site.close()
        # One that had ended by itself keeps its result, for whoever resumes the search.
        killed = [token for token, one in found.items() if one.state != "ended"]
        for token in killed:
            state.ended(open_jobs[token], Status.KILLED, clock.wall(), reason="stopped by its user")
        state.end = (Status.KILLED, "stopped by its user")
        state.close()
        state.commit()
    return len(killed)


_ENDS = ("ended", "lost")
