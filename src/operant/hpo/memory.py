"""What a fluent search remembers of its trials beyond the scheduler's records: results, for history and resuming."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from operant.errors import UsageError
from operant.hpo.history import TrialRecord
from operant.hpo.results import ResultCheck
from operant.schedulers.engine.restore import changed_keys
from operant.schedulers.engine.state import SearchState, StateReader
from operant.sites.calls import TrialEnd
from operant.status import Status
from operant.tracking.journal import Journal
from operant.tracking.journal.journal import JOURNAL_NAME
from operant.tracking.journal.trial_lines import expand

RETURNED = "returned"
# What another run under the same name may do otherwise; all else would make it another search.
_FREE = ("scheduler", "objective", "concerns", "stop_when", "task.function")


class Recorded(NamedTuple):
    """An earlier run of the same search."""

    state: SearchState
    returned: dict[int, dict[str, Any]]

    @property
    def config(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.state.opened["config"]
        return found

    def refuse_other(self, name: str, config: Mapping[str, Any]) -> None:
        if "objective" not in self.config:
            raise UsageError(f"there is a search {name!r} that was not begun from Python; choose another name")
        changed = [key for key in changed_keys(self.config, _as_json(config)) if not key.startswith(_FREE)]
        if changed:
            raise UsageError(
                f"the search {name!r} was begun with other settings ({', '.join(changed)}); "
                f"choose another name, or remove it: search-ctl rm --task {shlex.quote(name)}"
            )

    def records(self, check: ResultCheck) -> list[TrialRecord]:
        jobs = {job.number: job for job in self.state.jobs.values()}
        found = []
        for number, proposal in self.state.proposals.items():
            job = jobs.get(number)
            if proposal.status is None or job is None:
                continue
            kept = self.returned.get(number, {})
            columns = {key: value for key, value in proposal.values.items() if key != check.name}
            found.append(
                TrialRecord(
                    task_id=number + 1,
                    status=job.status,
                    make_config=partial(check.shape.build, proposal.config),
                    flat=check.shape.finished(proposal.config),
                    result=kept.get("value") if job.status == Status.FINISHED else None,
                    metrics={"time": kept["time"]} if "time" in kept else {},
                    target=proposal.reward,
                    columns=columns,
                    attempts=job.attempt,
                    reason=job.reason,
                    error=job.error,
                )
            )
        return found

    def end_of(self, number: int) -> TrialEnd | None:
        """How a finished trial ended, if the journal could keep what it returned."""
        kept = self.returned.get(number)
        return None if kept is None or "value" not in kept else TrialEnd("ok", kept["value"], kept["time"])


def read_recorded(folder: Path) -> Recorded | None:
    if not (folder / JOURNAL_NAME).exists():
        return None
    reader = StateReader(folder)
    records = [record for line in reader.read() for record in expand(line) if record["type"] == RETURNED]
    if not reader.state.opened:
        return None
    return Recorded(reader.state, {one["number"]: one for one in records})


def rescore(folder: Path, recorded: Recorded, check: ResultCheck) -> Recorded:
    """Compute the objective of earlier trials again: it has changed, or could not be computed when they ended."""
    jobs = {job.number: job for job in recorded.state.jobs.values()}
    with Journal.open(folder) as journal:
        for number, proposal in recorded.state.proposals.items():
            end = recorded.end_of(number)
            if proposal.status != Status.FINISHED or end is None or number not in jobs:
                continue
            result = check.check(proposal.config, end)
            if result.wrong is not None:
                raise result.wrong
            reward = result.values.get(check.name)
            job = jobs[number]
            record = {
                "job": job.id,
                "attempt": job.attempt,
                "status": Status.FINISHED,
                "reward": reward,
                "wall": job.ended,
            }
            journal.append("ended", **record, started=job.started)
            journal.append("observed", number=number, status=Status.FINISHED, values=result.values, reward=reward)
    found = read_recorded(folder)
    assert found is not None
    return found


def needs_rescoring(recorded: Recorded, objective: str) -> bool:
    if recorded.config.get("objective") != objective:
        return True
    proposals = recorded.state.proposals.values()
    return any(
        one.status == Status.FINISHED and one.reward is None and recorded.end_of(one.number) is not None
        for one in proposals
    )


def _as_json(config: Mapping[str, Any]) -> Any:
    return json.loads(json.dumps(config, default=str))
