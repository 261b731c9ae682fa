"""Jobs of a Ray cluster: programs by its Jobs API, calls by warm workers. Ray finds nodes, the scheduler stays ours."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import logging
import os
import queue
import re
import shlex
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from operant._util.checks import positive, whole_number
from operant._util.units import parse_bytes
from operant.errors import ConfigError, MissingExtraError, OperantError
from operant.sites._ray_jobs import JobsApi, jobs_client
from operant.sites.base import SITES, Event, Submission
from operant.sites.calls import TrialEnd, call_trial
from operant.sites.cluster import ClusterSite
from operant.sites.cluster_jobs import Batch, SiteAwayError, SiteJob, SiteRefusedError
from operant.sites.function import Call, Check, WorkerSite

_STATES = {"PENDING": "waiting", "RUNNING": "running"}
_CHANNEL_FILE = "operant-channel.json"
_READ_CHANNEL = f"import json, os\nos.environ.update(json.load(open({_CHANNEL_FILE!r})))\n"
_NODE_DIED = re.compile(r"node .*(died|dead|removed|lost)|actor (is )?(died|dead)|ActorDied|ActorUnschedulable", re.I)


@SITES.register_module("ray")
class RaySite(ClusterSite):
    """Programs on a Ray cluster whose nodes see the search's folder, or reach this machine (``channel: http``).

    A job of Ray's takes seconds to begin, so this is for programs that run for minutes.

    :param address: of the head's dashboard, ``http://head:8265``; by default ``RAY_API_SERVER_ADDRESS``. Ray's token is
        read by Ray itself, from ``RAY_AUTH_TOKEN_PATH`` or the user's own folder.
    :param python: the interpreter on the nodes that runs the wrapper, 3.8 or later.
    :param cpus: and gpus, memory, resources (by their names): what Ray sets aside for each job.
    :param runtime_env: as Ray takes it, such as ``{pip: [einops]}``; the wrapper runs in it.
    :param restarts: how often an attempt is started again whose node died.
    :param poll: seconds between two questions to the head, one for all jobs.
    :param exit_wait: seconds that a file of a node may take to be seen here.
    :param channel: ``http`` where nodes do not see the search's folder; ``channel_address`` is how they reach us.
    """

    kind = "ray"
    keeps_ended = True
    most_in_batch = 1

    def __init__(
        self,
        folder: Path,
        *,
        address: str | None = None,
        python: str = "python3",
        cpus: float = 1,
        gpus: float | None = None,
        memory: str | int | None = None,
        resources: Mapping[str, float] | None = None,
        runtime_env: Mapping[str, Any] | None = None,
        restarts: int = 0,
        poll: float = 2.0,
        exit_wait: float = 60.0,
        channel: str = "dir",
        channel_address: str | None = None,
    ) -> None:
        super().__init__(
            folder,
            channel=channel,
            address=channel_address,
            poll=positive(poll, "poll"),
            exit_wait=positive(exit_wait, "exit_wait"),
            restarts=whole_number(restarts, "restarts", 0),
        )
        for key, value in (("resources", resources), ("runtime_env", runtime_env)):
            if value is not None and not isinstance(value, Mapping):
                raise ConfigError(f"`{key}` is a mapping, not {value!r}", (key,))
        if self.by_http and "working_dir" in (runtime_env or {}):
            raise ConfigError("with `channel: http` jobs get their files from this machine, not from a `working_dir`")
        self.head = address or os.environ.get("RAY_API_SERVER_ADDRESS")
        self.python = python
        asked: dict[str, Any] = {
            "num_cpus": positive(cpus, "cpus"),
            "num_gpus": None if gpus is None else positive(gpus, "gpus"),
        }
        asked |= {"memory": None if memory is None else parse_bytes(memory, ("memory",))}
        asked |= {"resources": None if resources is None else dict(resources)}
        self.asked = {f"entrypoint_{key}": value for key, value in asked.items() if value is not None}
        self.runtime_env = dict(runtime_env or {})
        short = re.sub(r"[^a-z0-9]+", "-", folder.name.lower())[:24].strip("-") or "search"
        self.prefix = f"operant-{short}-{hashlib.sha256(os.fsencode(folder)).hexdigest()[:8]}"
        self._api = JobsApi(lambda: self.connect())
        self._over: set[str] = set()

    @staticmethod
    def missing() -> str | None:
        """Why there is no Ray here; None where there is."""
        if importlib.util.find_spec("ray") is None:
            return str(MissingExtraError("the site ray", "ray"))
        try:
            RaySite(Path("none")).look()
        except OperantError as error:
            return str(error)
        return None

    def start(self, emit: Callable[[Event], None]) -> None:
        with contextlib.suppress(SiteAwayError):  # that passes; no address or a wrong token does not
            self.look()
        super().start(emit)

    def launch(self, batch: Batch) -> list[str]:
        (job,) = batch.jobs
        name = f"{self.prefix}-{batch.name}"
        variables = {**(self.runtime_env.get("env_vars") or {}), "OPERANT_RESTART": str(batch.restart)}
        runtime_env = {**self.runtime_env, "env_vars": variables}
        with tempfile.TemporaryDirectory(prefix="operant-ray-") as working_dir:
            if self.by_http:  # Ray shows variables and entrypoints to all its users, but not what it uploads
                file = Path(working_dir, _CHANNEL_FILE)
                file.write_text(json.dumps(self.environment(batch, job)), encoding="utf-8")
                runtime_env["working_dir"] = working_dir
            try:
                self._call(
                    "submit_job",
                    entrypoint=shlex.join(self.command(batch, 0)),
                    submission_id=name,
                    metadata={"operant-search": self.prefix, "operant-batch": batch.name},
                    runtime_env=runtime_env,
                    **self.asked,
                )
            except SiteRefusedError as error:
                if "already exists" not in str(error):
                    raise
        return [name]

    def command(self, batch: Batch, index: int | str) -> list[str]:
        *words, code = super().command(batch, index)
        return [*words, f"{_READ_CHANNEL}{code}"] if self.by_http else [*words, code]

    def look(self) -> list[SiteJob]:
        found = self._call("list_jobs")
        words = [self._word(one) for one in found if (one.metadata or {}).get("operant-search") == self.prefix]
        for word in words:
            if word.state == "ended" and word.id in self._over:
                self._over.discard(word.id)
                with contextlib.suppress(SiteRefusedError):
                    self._call("delete_job", word.id)
        return words

    def end(self, ids: Sequence[str]) -> None:
        for name in ids:
            with contextlib.suppress(SiteRefusedError):  # it is gone
                self._call("stop_job", name)

    def clean(self, ids: Sequence[str]) -> None:
        """Let the head forget jobs that are over, once it has seen them ending."""
        self._over.update(ids)

    def close(self) -> None:
        super().close()
        if self._over:
            with contextlib.suppress(SiteAwayError, SiteRefusedError):
                self.look()

    def explain(self, word: SiteJob) -> str:
        """The last line that the job's own log has: a missing interpreter, a folder that the node cannot see."""
        try:
            lines = str(self._call("get_job_logs", word.id)).strip().splitlines()
        except (SiteAwayError, SiteRefusedError):
            return ""
        return f"; its log says: {lines[-1][:300]}" if lines else ""

    def connect(self) -> Any:
        """Ray's client of the Jobs API."""
        if self.head is None:
            raise SiteRefusedError(
                "which Ray? Name its head as `address`, or by RAY_API_SERVER_ADDRESS: http://head:8265"
            )
        return jobs_client(self.head)

    def _call(self, verb: str, *args: Any, **options: Any) -> Any:
        return self._api.call(verb, *args, **options)

    def _word(self, found: Any) -> SiteJob:
        status = str(getattr(found.status, "value", found.status))
        state = _STATES.get(status, "ended")
        node = str(getattr(found.driver_info, "node_ip_address", None) or "")
        message = str(found.message or "").strip().splitlines()
        words = f"{status}{f' on {node}' if node else ''}{f': {message[-1][:300]}' if message else ''}"
        reason = "node_failed" if status == "FAILED" and _NODE_DIED.search(str(found.message or "")) else None
        return SiteJob(found.metadata["operant-batch"], 0, str(found.submission_id), state, node, words, reason)


class RayCallSite(WorkerSite):
    """Calls by actors of a Ray cluster that stay warm, so that a call does not cost the start of a process.

    The cluster is the one that the program is connected to, or that ``RAY_ADDRESS`` names; without either Ray starts
    one here. Nodes have the same packages as this machine.

    :param options: what Ray takes for an actor, such as ``num_cpus``, ``num_gpus``, ``resources``, ``runtime_env``.
    """

    def __init__(
        self,
        call: Call,
        check: Check,
        attribute: str,
        workers: int,
        *,
        reports_count: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(call, check, attribute, reports_count=reports_count)
        try:
            import ray
        except ImportError:
            raise MissingExtraError("workers('ray')", "ray") from None
        self._ray: Any = ray
        self._owned = not ray.is_initialized()
        if self._owned:
            ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        given = {"num_cpus": 1, **(options or {}), "max_concurrency": 2}
        self._kind = ray.remote(_Caller).options(**given)
        self._lock = threading.Lock()
        self._workers = [_RayWorker(self._make()) for _ in range(workers)]
        self._free = list(self._workers)

    def run(self, job: Submission) -> None:
        with self._lock:
            worker = self._free.pop()
            worker.job, worker.reason = job, None
        threading.Thread(target=self._follow, args=(worker, job), name="operant-trial", daemon=True).start()

    def cancel(self, tokens: Iterable[str], reason: str = "cancelled", grace: float | None = None) -> None:
        wanted = set(tokens)
        for worker in self._workers:
            with self._lock:
                if worker.job is None or worker.job.token not in wanted:
                    continue
                worker.reason, job = reason, worker.job
            # Who has just reported gets the answer to that; who does not report in time is ended.
            killer = threading.Timer(2.0 if grace is None else grace, self._kill, (worker, job))
            killer.daemon = True
            killer.start()

    def close(self) -> None:
        self._closed.set()
        for worker in self._workers:
            self._ray.kill(worker.actor)
        if self._owned:
            self._ray.shutdown()

    def _make(self) -> Any:
        return self._kind.remote(self.call_job, self.reports_count)

    def _kill(self, worker: _RayWorker, job: Submission) -> None:
        with self._lock:
            if worker.job is job and not self._closed.is_set():
                self._ray.kill(worker.actor)

    def _follow(self, worker: _RayWorker, job: Submission) -> None:
        end: TrialEnd | None = None
        try:
            for reference in worker.actor.run.options(num_returns="streaming").remote(job):
                kind, content = self._ray.get(reference)
                if kind == "started":
                    self._emit(Event("started", job.token, {}))
                elif kind == "report":
                    self.emit_report(job.token, *content)
                    if self.reports_count:
                        worker.actor.answer.remote(worker.reason is not None)
                else:
                    end = content
        except Exception as error:  # a worker that died, a result that cannot be sent
            if self._closed.is_set():
                return
            end = end or TrialEnd("failed", None, 0.0, f"its worker on Ray failed: {str(error).splitlines()[0][:300]}")
            with self._lock:
                worker.actor = self._make()
        with self._lock:
            reason, worker.job = worker.reason, None
            self._free.append(worker)
        if reason is not None and (end is None or end.kind == "failed"):
            self._emit(Event("ended", job.token, {"code": None, "reason": reason}))
        else:
            self.emit_end(job, end or TrialEnd("failed", None, 0.0, "its worker on Ray ended without a word"))


class _RayWorker:
    """This process's end of one worker."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor
        self.job: Submission | None = None
        self.reason: str | None = None


class _Caller:
    """What a worker does, in its own process: one call at a time, and answers to its reports beside it."""

    def __init__(self, call: Call, waits: bool) -> None:
        self._call, self._waits = call, waits
        self._news: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def run(self, job: Submission) -> Iterator[tuple[str, Any]]:
        threading.Thread(target=self._try, args=(job,), daemon=True).start()
        yield "started", None
        while True:
            news = self._news.get()
            yield news
            if news[0] == "end":
                return

    def _try(self, job: Submission) -> None:
        try:
            end = call_trial(self._call, self, job)
        except KeyboardInterrupt:  # raised by the function itself
            end = TrialEnd("failed", None, 0.0, "KeyboardInterrupt")
        self._news.put(("end", end))

    def answer(self, stop: bool) -> None:
        self._answers.put(stop)

    def send(self, step: int, value: float) -> bool:
        self._news.put(("report", (step, value)))
        return self._answers.get() if self._waits else False
