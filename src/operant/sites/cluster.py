"""Jobs on machines that share a folder with this one and go on without it: what all such sites have in common.

A site of this kind says how jobs are launched, looked at and ended (`launch`, `look`, `end`); everything else is here.
What is true of a job is, in this order: its exit file, then the site's word, never a guess. News come as empty files
in one folder (`site/notices`), so that one listing tells of all jobs; the site itself is asked seldom, once for all.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from operant._util.checks import one_of
from operant._util.files import write_file
from operant.sites import cluster_jobs, wrapper
from operant.sites.base import Event, Found, Submission, parse_token
from operant.sites.channel import BOOTSTRAP, ChannelServer
from operant.sites.cluster_jobs import Attempt, Batch, SiteAwayError, SiteJob, SiteRefusedError, Todo

NOTICE_SECONDS = 0.1
LONGEST_BACK_OFF = 60.0


class ClusterSite:
    """Base of sites whose jobs outlive their controller. Subclasses override `launch`, `look` and `end`.

    :param poll: seconds between two questions to the site, however many jobs there are.
    :param exit_wait: seconds that a job's exit file may come later than the site's word that the job is over.
    :param restarts: how often an attempt that was preempted, or is at its time limit, is started again.
    :param channel: ``dir`` where jobs see the search's folder, ``http`` where they do not.
    :param address: with ``http`` the ``host:port`` of this machine that jobs can reach.
    """

    outlives_controller = True
    kind = "cluster"
    most_in_batch = 500
    keeps_ended = False
    """Whether `clean` has to be called for jobs that are over."""
    memory: int | None = None
    """Bytes that the site lets each job have, where its settings say so."""

    def __init__(
        self,
        folder: Path,
        *,
        poll: float = 5.0,
        exit_wait: float = 60.0,
        restarts: int = 0,
        channel: str = "dir",
        address: str | None = None,
    ) -> None:
        self.folder = folder
        self.python = sys.executable
        self.by_http = one_of(channel, "channel", ("dir", "http")) == "http"
        self.address = address
        self._channel: ChannelServer | None = None
        self.poll, self.exit_wait, self.restarts = poll, exit_wait, restarts
        self._emit: Callable[[Event], None] = lambda event: None
        self._open: dict[str, Attempt] = {}
        self._todo = Todo()
        self._lock = threading.RLock()
        self._wake, self._closed = threading.Event(), threading.Event()
        self._threads: list[threading.Thread] = []
        self._back_off = self._try_at = 0.0
        self._asked_at, self._told_away = -1e9, ""
        self._strays_seen: set[str] = set()
        self._ended_ids: list[str] = []

    # -- what a site of this kind says of itself ------------------------------------------------------------------

    def launch(self, batch: Batch) -> list[str]:
        """Start the jobs of a batch under its name and return what the site calls each.

        Raise `SiteAwayError` to be asked again, once `look` does not know the batch, `SiteRefusedError` not to be.
        """
        raise NotImplementedError

    def look(self) -> list[SiteJob]:
        """Every job of this search that the site knows, by one call; raise `SiteAwayError` where it cannot say."""
        raise NotImplementedError

    def end(self, ids: Sequence[str]) -> None:
        """End these jobs, those that wait included; ids that are gone are no error."""
        raise NotImplementedError

    def command(self, batch: Batch, index: int | str) -> list[str]:
        """What runs a job of a batch on the site's machine."""
        if self.by_http:
            return [self.python, "-I", "-S", "-c", BOOTSTRAP]
        return [self.python, "-I", "-S", str(self.place / "wrapper.py"), "run", str(batch.list_file), str(index)]

    def environment(self, batch: Batch, job: Submission) -> dict[str, str]:
        """What that needs in its environment, by way of a file: there is a token in it."""
        ours = {} if self._channel is None else self._channel.environment(job.job_id, job.attempt, job.token)
        return {"OPERANT_RESTART": str(batch.restart), **ours}

    def clean(self, ids: Sequence[str]) -> None:
        """Remove what a site keeps of jobs that are over; most keep nothing that would have to be."""

    def explain(self, word: SiteJob) -> str:
        """What else is known of a job that ended without its wrapper's word, such as what the site itself logged."""
        return ""

    def spec_extras(self) -> dict[str, Any]:
        """What else the wrapper is told."""
        return {}

    # -- the contract of all sites --------------------------------------------------------------------------------

    @property
    def place(self) -> Path:
        """Where this site keeps its own files."""
        return self.folder / "site"

    def start(self, emit: Callable[[Event], None]) -> None:
        self._emit = emit
        self._closed.clear()
        (self.place / "notices").mkdir(parents=True, exist_ok=True)
        # A copy: nodes need not see where Operant is installed, and jobs that run keep theirs through an upgrade.
        shutil.copyfile(wrapper.__file__, self.place / ".wrapper.py")
        (self.place / ".wrapper.py").replace(self.place / "wrapper.py")
        if self.by_http:
            self._channel = ChannelServer(self.folder, self.address)
        for name, step, wait in (
            ("submit", self.work, lambda: self._wake.wait(self._due - self.now() if self._back_off else None)),
            ("notices", self.read_notices, lambda: self._closed.wait(NOTICE_SECONDS)),
            ("status", self.reconcile, lambda: self._closed.wait(max(0.05, self._asked_at + self.poll - self.now()))),
        ):
            thread = threading.Thread(target=self._loop, args=(step, wait), name=f"operant-{name}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def submit(self, jobs: Sequence[Submission]) -> list[str]:
        with self._lock:
            for job in jobs:
                self._open[job.token] = attempt = Attempt(job.token, job.folder, job.attempt, job)
                self._todo.jobs.append(attempt)
        self._wake.set()
        return [job.token for job in jobs]

    def cancel(self, tokens: Iterable[str], reason: str = "cancelled", grace: float | None = None) -> None:
        with self._lock:
            for token in tokens:
                attempt = self._open.get(token)
                if attempt is None or attempt.cancelled is not None:
                    continue
                attempt.cancelled = reason
                with contextlib.suppress(OSError):  # on a full disk it ends by the site's signal alone
                    order = json.dumps({"cancel": reason, "grace": grace})
                    write_file(attempt.folder / f"cancel-{attempt.number}", order)
                self._todo.ends.append(attempt)
        self._wake.set()

    def find(self, tokens: Sequence[str]) -> dict[str, Found]:
        """Those that were launched are heard of from now on, whatever has become of them."""
        if not tokens:
            return {}
        batches = cluster_jobs.read_batches(self.place)
        words: dict[tuple[str, int], SiteJob] | None = None
        with contextlib.suppress(SiteAwayError):
            words = {(one.batch, one.index): one for one in self._ask()}
        found = {}
        for token in tokens:
            job_id, number = parse_token(token)
            folder = self.folder / "jobs" / job_id
            record = cluster_jobs.exit_of(folder, token)
            claimed = wrapper.read_json(str(folder / f"claim-{number}"))
            place = batches.get(token)
            word = None if words is None or place is None else words.get(place[:2])
            if record is not None and not cluster_jobs.by_site(record):
                found[token] = Found("ended", {**record, "node": cluster_jobs.node_of(claimed)})
                self._ended_ids += [word.id] if word is not None else []
                continue
            # Whoever was never launched, or is nowhere to be seen, cannot begin once the attempt is claimed here.
            if (place is None or (words is not None and word is None)) and cluster_jobs.claim_never(folder, token):
                found[token] = Found("unknown", {})
                continue
            batch, index, restart = place or ("", 0, 0)
            attempt = Attempt(token, folder, number, None, batch, index, launched=True, held=record)
            attempt.word, attempt.id, attempt.restarts = word, "" if word is None else word.id, restart // 1000
            with self._lock:
                self._open[token] = attempt
            attempt.started = bool(claimed)
            found[token] = Found("running", {"waiting": not claimed, "node": cluster_jobs.node_of(claimed)})
        return found

    def close(self) -> None:
        """Let go; jobs go on."""
        self._closed.set()
        self._wake.set()
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        with contextlib.suppress(SiteAwayError):
            self._clean_some()
        if self._channel is not None:
            self._channel.close()

    # -- steps, each the work of one thread; tests in simulated time call them by themselves ----------------------

    def now(self) -> float:
        return time.monotonic()

    def _loop(self, step: Callable[[], None], wait: Callable[[], object]) -> None:
        while not self._closed.is_set():
            try:
                step()
            except Exception as error:  # a full disk, an answer that nobody expected: told, and tried again
                self._note(f"{self.kind}: {type(error).__name__}: {error}")
                self._back_off, self._try_at = 1.0, self.now() + 1.0
            if not self._closed.is_set():  # a step forgets who has woken it, also who has for the last time
                wait()

    def _ask(self) -> list[SiteJob]:
        self._asked_at = self.now()
        return self.look()

    def work(self) -> None:
        """Launch what waits and end what shall end; after an error later, and then a little later still."""
        self._wake.clear()
        if self.now() < self._due:
            return
        try:
            while self._launch_some() or self._end_some() or self._clean_some():
                pass
            self._back_off = 0.0
        except SiteAwayError as error:
            self._back_off = min(LONGEST_BACK_OFF, max(1.0, self._back_off * 2))
            self._try_at = self.now() + self._back_off
            self._note(f"{self.kind} does not answer and is asked again: {error}")

    @property
    def _due(self) -> float:
        """When the next try is due. What has arrived is asked first, and that not more often than it ever is."""
        return max(self._try_at, self._asked_at + self.poll) if self._todo.batches else self._try_at

    def _launch_some(self) -> bool:
        todo, tried = self._todo, True
        with self._lock:
            dropped = [one for one in todo.jobs if one.cancelled is not None]
            todo.jobs = [one for one in todo.jobs if one.cancelled is None]
            if not todo.batches and todo.jobs:
                restarts, tried = todo.jobs[0].restarts, False
                same = [one for one in todo.jobs if one.restarts == restarts][: self.most_in_batch]
                todo.jobs = [one for one in todo.jobs if one not in same] if len(same) < len(todo.jobs) else []
                todo.batches.append(same)
        for one in dropped:
            self._finish(one, {"code": None, "reason": one.cancelled})
        if not todo.batches:
            return False
        taken = todo.batches[0]
        if not tried:
            name = secrets.token_hex(4)
            for index, one in enumerate(taken):
                one.batch, one.index = name, index
        name = taken[0].batch
        jobs = [one.submission for one in taken if one.submission is not None]
        batch = Batch(name, jobs, self.place / f"{name}.list", taken[0].restarts * 1000)
        try:
            # One that was tried may have arrived though it seemed not to.
            ids = {one.index: one.id for one in self._ask() if one.batch == name} if tried else {}
            if not ids:
                cluster_jobs.write_batch(self.place, batch, self.spec_extras())
                ids = dict(enumerate(self.launch(batch)))
        except SiteRefusedError as error:
            for one in taken:
                self._finish(one, {"code": None, "reason": "refused", "error": str(error)})
            ids = {}
        with self._lock:
            for one in taken:
                one.id, one.launched = ids.get(one.index, ""), True
                self._tell_place(one)
                if one.id and one.token not in self._open:  # it was over before the last of the batch was launched
                    self._ended_ids.append(one.id)
            todo.batches.pop(0)
        return True

    def _end_some(self) -> bool:
        todo = self._todo
        with self._lock:
            ready = [one for one in todo.ends if one.token in self._open and (one.id or not one.launched)]
            todo.ends = [one for one in todo.ends if one.token in self._open and one not in ready]
            strays, todo.strays = todo.strays, set()
        if not ready and not strays:
            return False
        never = [one for one in ready if not one.started and cluster_jobs.claim_never(one.folder, one.token)]
        try:
            ids = {one.id for one in ready if one.launched} | strays
            if ids:
                self.end(sorted(ids))
        except SiteAwayError:
            with self._lock:
                todo.ends += ready
                todo.strays |= strays
            raise
        for one in never:
            self._finish(one, {"code": None, "reason": one.cancelled})
        return True

    def _clean_some(self) -> bool:
        with self._lock:
            ids, self._ended_ids = self._ended_ids, []
        if ids:
            self.clean(ids)
        return bool(ids)

    def read_notices(self) -> None:
        """Hear what wrappers say: one listing for all."""
        folder = self.place / "notices"
        try:
            names = [one.name for one in os.scandir(folder)]
        except FileNotFoundError:
            return
        if not names:
            return
        with self._lock:
            by_name = {f"{parse_token(one.token)[0]}.{one.number}": one for one in self._open.values()}
        for name in sorted(names, key=lambda one: one.endswith(".ended")):
            job, restart, kind = name.rsplit(".", 2)
            attempt = by_name.get(job)
            if attempt is not None:
                if kind == "started":
                    self._note_start(attempt, int(restart))
                elif not self._note_end(attempt):
                    continue  # the exit file is not to be seen yet
            (folder / name).unlink(missing_ok=True)

    def _note_start(self, attempt: Attempt, restart: int) -> None:
        attempt.held, attempt.gone_since, attempt.missed = None, None, 0
        if not attempt.started:
            attempt.started = True
            claimed = wrapper.read_json(str(attempt.folder / f"claim-{attempt.number}"))
            self._tell_place(attempt, node=cluster_jobs.node_of(claimed))
            self._tell(attempt, "started", {"wall": time.time()})

    def _note_end(self, attempt: Attempt) -> bool:
        record = cluster_jobs.exit_of(attempt.folder, attempt.token)
        if record is None:
            return False
        if cluster_jobs.by_site(record) and attempt.cancelled is None:
            attempt.held = record  # preempted, at its time limit, ended by somebody: the site knows
        else:
            self._finish(attempt, cluster_jobs.with_reason(record, attempt.cancelled))
        return True

    def reconcile(self) -> None:
        """Ask the site once, for all jobs, and settle what its word is needed for."""
        with self._lock:
            launched = [one for one in self._open.values() if one.launched]
        if not launched or self.now() < self._asked_at + self.poll:
            return
        try:
            words = self._ask()
        except SiteAwayError as error:
            self._note(f"{self.kind} does not answer and is asked again: {error}")
            return
        self._told_away = ""
        known = {(one.batch, one.index): one for one in words}
        for attempt in launched:
            word = known.get((attempt.batch, attempt.index))
            attempt.missed = 0 if word is not None else attempt.missed + 1
            if word is not None:
                attempt.word, attempt.id = word, word.id
                self._tell_place(attempt)
        self._find_strays(words)
        for attempt in launched:
            self._settle(attempt)
        if self._todo.ends or self._todo.strays or self._ended_ids:
            self._wake.set()

    def _find_strays(self, words: Sequence[SiteJob]) -> None:
        """Jobs of this search that nobody waits for: a launch that seemed to fail and did not, a row that was lost."""
        with self._lock:
            wanted = {(one.batch, one.index) for one in self._open.values()}
            live = [one for one in words if one.state in ("waiting", "running")]
            strays = {one.id for one in live if (one.batch, one.index) not in wanted}
            self._todo.strays |= strays & self._strays_seen
            self._strays_seen = strays
            over = [one.id for one in words if one.state == "ended" and (one.batch, one.index) not in wanted]
            self._ended_ids += over if self.keeps_ended else []

    def _settle(self, attempt: Attempt) -> None:
        gone = attempt.gone(self.kind, self.explain)
        if gone is None:
            return
        words, reason = gone
        record = attempt.held or cluster_jobs.exit_of(attempt.folder, attempt.token)
        if record is not None and (not cluster_jobs.by_site(record) or attempt.cancelled is not None):
            self._finish(attempt, cluster_jobs.with_reason(record, attempt.cancelled))
            return
        if reason in ("preempted", "node_failed") and attempt.restarts < self.restarts and attempt.cancelled is None:
            self._start_again(attempt)
            return
        if record is None and cluster_jobs.claim_never(attempt.folder, attempt.token):
            record, words = {"code": None}, f"it never began: {words}"
        elif record is None and not attempt.waited(self.now(), self.exit_wait):
            return
        info = {**(record or {}), "code": None, "reason": attempt.cancelled or reason, "error": words}
        self._finish(attempt, info, "lost" if record is None else "ended")

    def _start_again(self, attempt: Attempt) -> None:
        """The same attempt once more, after the site gave up on it."""
        submission = attempt.submission or cluster_jobs.submission_of(attempt.folder, attempt.token)
        if submission is None:
            self._finish(attempt, {"code": None, "reason": "preempted", "error": "its spec cannot be read"})
            return
        with self._lock:
            attempt.submission, attempt.restarts = submission, attempt.restarts + 1
            attempt.batch, attempt.index, attempt.id, attempt.launched = "", 0, "", False
            attempt.word = attempt.held = attempt.gone_since = None
            self._todo.jobs.append(attempt)
        self._wake.set()

    # -- helpers --------------------------------------------------------------------------------------------------

    def _finish(self, attempt: Attempt, info: Mapping[str, Any], kind: str = "ended") -> None:
        info = cluster_jobs.with_memory(info, self.memory)
        with self._lock:  # also while it is told, so that nothing is said of an attempt after its end
            if self._open.pop(attempt.token, None) is not None:
                self._emit(Event(kind, attempt.token, info))
                if attempt.id:
                    self._ended_ids.append(attempt.id)
                    self._wake.set()

    def _tell(self, attempt: Attempt, kind: str, info: Mapping[str, Any]) -> None:
        with self._lock:
            if attempt.token in self._open:
                self._emit(Event(kind, attempt.token, info))

    def _tell_place(self, attempt: Attempt, node: str = "") -> None:
        """Say where it is, when that is news."""
        place = attempt.place(node)
        if place != attempt.told and any(place):
            attempt.told = place
            self._tell(attempt, "placed", {"id": place[0], "node": place[1], "queue": place[2]})

    def _note(self, text: str) -> None:
        """Say something once."""
        if text != self._told_away:
            self._told_away = text
            self._emit(Event("note", "", {"text": text}))
