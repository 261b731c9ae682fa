"""What is told of searches to Prometheus: by the page of all of a folder, by a search of itself."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from operant._util.prometheus import Metric
from operant.schedulers.views.live import LiveSearch
from operant.status import Status
from operant.tracking.places import find_root

_SEARCH_STATES = (Status.RUNNING, Status.PAUSED, Status.FINISHED, Status.KILLED, Status.ERROR, Status.PENDING)
_JOB_STATES = (
    Status.PENDING,
    Status.RUNNING,
    Status.PAUSED,
    Status.FINISHED,
    Status.STOPPED,
    Status.KILLED,
    Status.ERROR,
)


def about_searches(searches: Iterable[LiveSearch]) -> list[Metric]:
    """Searches by state, and each of them."""
    by_state = Metric("operant_searches", "Searches by state.")
    jobs = Metric("operant_jobs", "Jobs of a search by state.")
    best = Metric("operant_best_reward", "The best reward of a search so far.")
    last = Metric("operant_last_reward", "The reward of the job of a search that ended last with one.")
    tries = Metric("operant_tries", "Configurations that a search has tried.")
    elapsed = Metric("operant_search_seconds", "Seconds that a search has run.")
    unreadable = Metric("operant_journal_unreadable_records", "Records of a search's journal that are damaged.")
    states: Counter[str] = Counter()
    for search in searches:
        name = search.name
        states[search.status] += 1
        of_state = Counter(search.status_of(job)[0] for job in search.state.jobs.values())
        for state in _JOB_STATES:
            jobs.add(of_state[state], search=name, state=state)
        found = search.state.best
        best.add(None if found is None else found.reward, search=name)
        last.add(_last_reward(search), search=name)
        tries.add(sum(not one.filtered for one in search.state.proposals.values()), search=name)
        elapsed.add(search.elapsed, search=name)
        damage = search.state.damage
        unreadable.add(max(1, damage.total) if damage else 0, search=name)
    for state in _SEARCH_STATES:
        by_state.add(states[state], state=state)
    return [by_state, jobs, best, last, tries, elapsed, unreadable]


@contextmanager
def told_to_prometheus(folder: Path) -> Iterator[None]:
    """Tell of the search in ``folder``, which this process runs, as long as it does, if ``OPERANT_METRICS`` asks it."""
    if not os.environ.get("OPERANT_METRICS"):
        yield
        return
    from operant.tracking.recording.scraping import serve, stop_serving

    search: list[LiveSearch] = []

    def collect() -> list[Metric]:
        if not search:
            search.append(LiveSearch(folder))
        search[0].refresh()
        return about_searches(search)

    what = f"search {folder.name}"
    serve(find_root(folder), what, collect)
    try:
        yield
    finally:
        stop_serving(what)


def _last_reward(search: LiveSearch) -> float | None:
    ended = [(job.ended, job.reward) for job in search.state.jobs.values() if job.ended and job.reward is not None]
    return max(ended)[1] if ended else None
