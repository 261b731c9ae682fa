"""Jobs that go on though nobody controls their search: how they are ended without going on with it."""

from __future__ import annotations

from pathlib import Path

from operant.errors import OperantError, UsageError
from operant.schedulers.engine.live_state import LiveState
from operant.schedulers.engine.state import named_by
from operant.sites import SITES, Event, Site
from operant.sites.base import SystemClock, site_settings
from operant.status import UNDER_WAY, Status
from operant.tracking.journal import Journal


def end_jobs(folder: Path, timeout: float = 120.0, *, trust: bool = False) -> int:
    """End what still waits or runs of a search without a controller, and say in its journal that it was ended.

    :param trust: ask the site that it names also where this user did not begin it on this machine.
    """
    clock = SystemClock()
    with Journal.open(folder) as journal:
        state = LiveState(folder.name, "", clock, lambda text: None)
        state.attach(journal)
        open_jobs = {job.token: job for job in state.jobs.values() if job.status in UNDER_WAY and job.token}
        if not open_jobs:
            return 0
        if not (trust or state.is_own):
            raise UsageError(
                f"the search {folder.name!r} has {len(open_jobs)} open jobs at a site that it names itself, and was "
                "not begun by you on this machine; if you know where it is from, --trust asks that site to end them"
            )
        site: Site = SITES.build(site_settings(named_by(state.opened)["site"]), folder)
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
            state.ended(open_jobs[token], Status.KILLED, clock.wall(), None, [("reason", "stopped by its user")])
        state.end = (Status.KILLED, "stopped by its user")
        state.close()
        state.commit()
    return len(killed)


_ENDS = ("ended", "lost")
