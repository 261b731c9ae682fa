"""What a search is at any moment, folded from its journal: the same for who runs it, resumes it or looks on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from operant._util.garbage import no_garbage_collection
from operant._util.signing import is_signed
from operant.schedulers.engine.records import JobRecord, ProposalRecord
from operant.status import UNDER_WAY, Status
from operant.tracking.journal import Damage, JournalReader, controller_is_alive
from operant.tracking.journal.lease import read_lease
from operant.tracking.journal.trial_lines import SEVERAL, records_in, started_of, token_of

_PENDING, _RUNNING, _FINISHED = Status.PENDING, Status.RUNNING, Status.FINISHED
_SENSELESS = (KeyError, TypeError, ValueError, AttributeError)
_JOB_NAME = re.compile(r"(check-)?[0-9]{1,20}(-s-?[0-9]{1,20})?")


class SearchState:
    """Proposals and jobs of one search, in the order they were made."""

    _folds: ClassVar[dict[str, Callable[..., None]]]
    """What folds a record, by its type. Functions and not an object's methods, which would keep every state and all
    its jobs until the next search for garbage."""

    def __init_subclass__(cls) -> None:
        cls._folds = {name[6:]: getattr(cls, name) for name in dir(cls) if name.startswith("_fold_")}

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.opened: dict[str, Any] = {}
        self.proposals: dict[int, ProposalRecord] = {}
        self.jobs: dict[str, JobRecord] = {}
        self.observed: list[int] = []
        self.reports: dict[str, list[tuple[int, float, float]]] = {}
        """(step, value, wall) that function trials reported in their last attempt, by job; programs have their runs."""
        self.places: dict[str, dict[str, Any]] = {}
        """Where jobs on a cluster are: ``id``, ``node``, ``queue`` (why it waits), and when it was ``submitted``."""
        self.messages: list[dict[str, Any]] = []
        self.limits: dict[str, list[Any]] = {}
        """What messages made of limits that the configuration has not changed since: values as they came, by name."""
        self.closed: dict[str, Any] | None = None
        self.stopping: dict[str, Any] | None = None
        self.checks: dict[int, dict[str, Any]] = {}
        self.seconds_before = 0.0
        """Time that earlier controllers spent on this search."""
        self.first_wall: float | None = None
        self.last_wall: float | None = None
        self.paused = False
        """Whether its user told the present controller to start no more jobs for now."""
        self.maximize = True
        self.best: ProposalRecord | None = None
        """The proposal with the best reward over all its seeds; of equals the earliest."""
        self.damage = Damage()
        """What of the journal could not be read, or made no sense."""
        # How many results there were when a filter dropped a proposal, by its number.
        self._dropped: dict[int, int] = {}

    @property
    def tries(self) -> int:
        """Proposals that no filter has dropped."""
        return len(self.proposals) - len(self._dropped)

    @property
    def heard(self) -> list[int]:
        """The proposals of which the searcher has heard, in that order: those with a result, where it is the last one,
        and those that a filter dropped.
        """
        last = {number: (place, 1, number) for place, number in enumerate(self.observed)}
        dropped = ((place, 0, number) for number, place in self._dropped.items())
        return [number for _, _, number in sorted([*last.values(), *dropped])]

    def fold_all(self, records: Iterable[dict[str, Any]], damage: Damage | None = None) -> SearchState:
        """Take note of records, or of lines that stand for several.

        Their fields were looked at when they were read (:mod:`operant.tracking.journal.damage`). One that does not
        fit to those before (its proposal is in a damaged part) is passed over and added to ``damage``, which is that
        of whoever reads the journal. So handlers look at all they need before they change anything.
        """
        handlers = self._folds
        if damage is not None:
            self.damage = damage
        with no_garbage_collection():
            for record in records:
                handler = handlers.get(record["type"])
                if handler is not None:
                    try:
                        handler(self, record)
                    except _SENSELESS:
                        self.damage.add(None, records_in(record) if record["type"] in SEVERAL else 1)
        return self

    def fold(self, record: dict[str, Any]) -> None:
        """Take note of a record that is known to fit."""
        self._folds[record["type"]](self, record)

    def limits_under(self, opened: dict[str, Any]) -> dict[str, list[Any]]:
        """Which of the changed limits still hold when a controller begins with this ``opened`` record: whoever has
        changed one in the configuration meanwhile wants what stands there."""
        before, now = self.opened.get("limits"), opened.get("limits")
        if before is None or now is None:  # written by an earlier version
            return self.limits if self.opened.get("digest") == opened.get("digest") else {}
        return {name: values for name, values in self.limits.items() if before.get(name) == now.get(name)}

    def _fold_opened(self, record: dict[str, Any]) -> None:
        self.limits = self.limits_under(record)
        self.opened = record
        self.name = str(record.get("name", self.name))
        self.closed = None
        self.stopping = None
        self.paused = False
        if self.maximize != record.get("maximize", True):
            self.maximize = not self.maximize
            self.best = self._find_best()
        if self.first_wall is None:
            self.first_wall = record.get("wall")
        self._note_wall(record)

    def _fold_proposed(self, record: dict[str, Any]) -> None:
        get = record.get
        number = record["number"]
        proposal = ProposalRecord(number, record["config"], get("budget"), get("parent"), get("notes"))
        proposal.shown = get("shown")
        self.proposals[number] = proposal

    def _fold_filtered(self, record: dict[str, Any]) -> None:
        number = record["number"]
        self.proposals[number].filtered = True
        self._dropped[number] = len(self.observed)

    def _fold_submitting(self, record: dict[str, Any]) -> None:
        attempt, token = record["attempt"], record["token"]
        self._begin_attempt(self._job_of(record), attempt, token)

    def _begin_attempt(self, job: JobRecord, attempt: int, token: str) -> None:
        job.status, job.attempt, job.token = _PENDING, attempt, token
        job.reward = job.ended = job.reason = job.error = job.code = None
        job.started, job.snapshot = None, self.opened.get("code")
        if self.reports:
            self.reports.pop(job.id, None)
        if self.places:
            self.places.pop(job.id, None)

    def _fold_placed(self, record: dict[str, Any]) -> None:
        name, texts = record["job"], {key: str(record.get(key, "")) for key in ("id", "node", "queue")}
        since = self.places.get(self.jobs[name].id, {}).get("submitted", record["wall"])
        self.places[name] = {**texts, "submitted": since}

    def _fold_reported(self, record: dict[str, Any]) -> None:
        point = record["step"], record["value"], record["wall"]
        self.reports.setdefault(self.jobs[record["job"]].id, []).append(point)

    def _fold_planned(self, record: dict[str, Any]) -> None:
        """Jobs that never got a slot, named when the search is cut off."""
        status = record["status"]
        self._job_of(record).status = status

    def _job_of(self, record: dict[str, Any]) -> JobRecord:
        job = self.jobs.get(record["job"])
        if job is None:
            number = record["number"]
            if _JOB_NAME.fullmatch(record["job"]) is None:
                raise ValueError("no name of a job")  # it is part of paths
            job = JobRecord(record["job"], number, record.get("seed"), self.proposals[number].config, self.name)
            self.jobs[job.id] = job
        return job

    def _fold_started(self, record: dict[str, Any]) -> None:
        job = self.jobs[record["job"]]
        job.started, job.status = record["wall"], _RUNNING

    def _fold_assessed(self, record: dict[str, Any]) -> None:
        self.jobs[record["job"]].iteration = record["iteration"]

    def _fold_ended(self, record: dict[str, Any]) -> None:
        job = self.jobs[record["job"]]
        job.status = record["status"]
        get = record.get
        job.reward, job.ended, job.code = get("reward"), get("wall"), get("code")
        job.reason, job.error = get("reason"), get("error")
        started = get("started")
        if started is not None:
            job.started = started
        self._note_wall(record)

    def _fold_observed(self, record: dict[str, Any]) -> None:
        number = record["number"]
        proposal, values = self.proposals[number], record["values"]
        proposal.status, proposal.values = record["status"], values
        proposal.reward = record.get("reward")
        self.observed.append(number)
        self._compare(proposal)

    def _fold_begun(self, line: dict[str, Any]) -> None:
        """``proposed`` and ``submitting`` of a first attempt, in one."""
        number, config = line["number"], line["config"]
        name, token, extras = str(number), token_of(number, line["epoch"]), line.get("extras")
        proposal = self.proposals[number] = ProposalRecord(number, config)
        if extras is not None:
            proposal.budget, proposal.parent = extras.get("budget"), extras.get("parent")
            proposal.notes, proposal.shown = extras.get("notes"), extras.get("shown")
        job = self.jobs[name] = JobRecord(name, number, None, config, self.name)
        job.attempt, job.token = 1, token
        job.snapshot = self.opened.get("code")

    def _fold_done(self, line: dict[str, Any]) -> None:
        """``reported``, ``ended`` and ``observed`` of a first attempt that went well, in one."""
        number, values, wall = line["number"], line["values"], line["wall"]
        job, proposal = self.jobs[str(number)], self.proposals[number]
        reward, started = values[line["of"]], started_of(line)
        job.status, job.code = _FINISHED, 0
        job.reward, job.started, job.ended = reward, started, wall
        proposal.status, proposal.values, proposal.reward = _FINISHED, values, reward
        self.observed.append(number)
        if "reports" in line:
            self.reports.setdefault(job.id, []).extend([tuple(one) for one in line["reports"]])
        self._note_wall(line)
        self._compare(proposal)

    def _fold_raced(self, record: dict[str, Any]) -> None:
        self.proposals[record["number"]].raced_out = True

    def _fold_message(self, record: dict[str, Any]) -> None:
        content = record["content"]
        kind = content["type"]
        self.messages.append(content)
        if kind in ("pause", "resume"):
            self.paused = kind == "pause"
        elif kind == "limits":
            for name, value in content.items():
                if name != "type":
                    self.limits.setdefault(name, []).append(value)
            if self.stopping and self.stopping.get("reason") == "max_tries":
                self.stopping = None  # the rule stops it again, if it still does

    def _fold_stopping(self, record: dict[str, Any]) -> None:
        self.stopping = record

    def _fold_checked(self, record: dict[str, Any]) -> None:
        self.checks[record["number"]] = record

    def _fold_closed(self, record: dict[str, Any]) -> None:
        self.closed = record
        self._note_wall(record)

    def _note_wall(self, record: dict[str, Any]) -> None:
        """Add up the time between the marks of one controller; the gap to the next one is nobody's."""
        wall = record.get("wall")
        if wall is None:
            return
        if record["type"] != "opened" and self.last_wall is not None:
            self.seconds_before += max(0.0, wall - self.last_wall)
        self.last_wall = wall

    def _compare(self, proposal: ProposalRecord) -> None:
        """Take note of a new result."""
        best, reward = self.best, proposal.reward
        if proposal is best:  # another one of the same
            self.best = self._find_best()
        elif reward is not None and proposal.counts:
            best_reward = None if best is None else best.reward
            if (
                best is None
                or best_reward is None
                or (reward > best_reward if self.maximize else reward < best_reward)
                or (reward == best_reward and proposal.number < best.number)
            ):
                self.best = proposal

    def _find_best(self) -> ProposalRecord | None:
        ranked = self.ranking()
        return ranked[0] if ranked else None

    def ranking(self) -> list[ProposalRecord]:
        """The proposals whose rewards count, the best first and of equals the earliest."""
        sign = -1.0 if self.maximize else 1.0
        found = [one for one in self.proposals.values() if one.counts]
        return sorted(found, key=lambda one: (sign * (one.reward or 0.0), one.number))

    @property
    def end_status(self) -> str:
        """How a search without a controller ended."""
        if self.closed is not None:
            return str(self.closed.get("status", Status.ERROR))
        return Status.ERROR if self.opened or self.damage else Status.PENDING

    @property
    def outlives_controller(self) -> bool:
        """Whether its jobs go on while nobody controls it."""
        return bool(self.opened.get("outlives"))

    @property
    def is_own(self) -> bool:
        """Whether this user began it on this machine; what another search names as its file or site is a stranger's."""
        return is_signed(named_by(self.opened), self.opened.get("signature"))

    def where(self, job: JobRecord) -> list[str]:
        """The node of a cluster's job, what its site calls it, and why it waits: as far as that is known."""
        place = self.places.get(job.id, {})
        return [place[key] for key in ("node", "id", "queue") if place.get(key) and (key != "queue" or not job.started)]

    def waited(self, job: JobRecord, now: float) -> float:
        """Seconds for which a cluster's job waited until its program began; until ``now`` while it waits."""
        until = job.started or job.ended or now
        submitted: float = self.places.get(job.id, {}).get("submitted", until)
        return max(0.0, until - submitted)

    def without_controller(self, job: JobRecord) -> tuple[str, str | None]:
        """The status of a job of a search that nobody controls, and its reason: most that were under way died."""
        if job.status not in UNDER_WAY:
            return job.status, job.reason
        if self.outlives_controller:
            return job.status, f"{'running' if job.status == _RUNNING else 'waiting'}, no controller"
        return Status.ERROR, job.reason or "controller_lost"

    def settle_dead(self) -> None:
        """Say of a search without a controller what became of its jobs."""
        for job in self.jobs.values():
            job.status, job.reason = self.without_controller(job)


SearchState.__init_subclass__()  # the same for itself


def named_by(opened: Mapping[str, Any]) -> dict[str, Any]:
    """What of a record ``opened`` others act on: where a search came from, and the site of its jobs."""
    config = opened.get("config") or {}
    scheduler = config.get("scheduler")
    inner = scheduler.get("site") if isinstance(scheduler, Mapping) else None
    return {"origin": opened.get("origin"), "site": config.get("site") or inner}


class StateReader:
    """The state of a search as its journal tells it; :meth:`read` reads on. Every view of a search is made of this."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = SearchState()
        self.alive = False
        """Whether the search had a controller when its journal was last looked at."""
        self._journal = JournalReader(folder)

    @property
    def offset(self) -> int:
        """How many bytes of the journal the state is made of."""
        return self._journal.offset

    def read(self) -> list[dict[str, Any]]:
        """Fold the lines that were appended since, and return them."""
        self.alive = controller_is_alive(self.folder)  # before the journal: its last words are then in it
        lines = [line for _, _, line in self._journal.poll_lines()]
        self.state.fold_all(lines, self._journal.damage)
        self._journal.look_at_end(growing=self.alive, released=read_lease(self.folder).get("released", False))
        return lines


def read_state(folder: Path) -> tuple[SearchState, str]:
    """A search's state and its status: RUNNING, or how it ended; ERROR when its controller died without a word."""
    reader = StateReader(folder)
    reader.read()
    state = reader.state
    if reader.alive:
        return state, Status.RUNNING
    state.settle_dead()
    return state, state.end_status
