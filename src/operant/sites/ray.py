"""Jobs of a Ray cluster, by its Jobs API: Ray finds a node for each program, everything else stays ours."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from operant._util.checks import positive, whole_number
from operant._util.units import parse_bytes
from operant.errors import ConfigError, MissingExtraError, OperantError
from operant.sites.base import SITES
from operant.sites.cluster import ClusterSite
from operant.sites.cluster_jobs import Batch, SiteAwayError, SiteJob, SiteRefusedError

_STATES = {"PENDING": "waiting", "RUNNING": "running"}
_NODE_DIED = re.compile(r"node .*(died|dead|removed|lost)|actor (is )?(died|dead)|ActorDied|ActorUnschedulable", re.I)


@SITES.register_module("ray")
class RaySite(ClusterSite):
    """Programs on a Ray cluster whose nodes see the search's folder.

    A job of Ray's takes seconds to begin, so this is for programs that run for minutes.

    :param address: of the head's dashboard, ``http://head:8265``; by default ``RAY_API_SERVER_ADDRESS``. Ray's token is
        read by Ray itself, from ``RAY_AUTH_TOKEN_PATH`` or the user's own folder.
    :param python: the interpreter on the nodes that runs the wrapper, 3.8 or later.
    :param cpus: and gpus, memory, resources (by their names): what Ray sets aside for each job.
    :param runtime_env: as Ray takes it, such as ``{pip: [einops]}``; the wrapper runs in it.
    :param restarts: how often an attempt is started again whose node died.
    :param poll: seconds between two questions to the head, one for all jobs.
    :param exit_wait: seconds that a file of a node may take to be seen here.
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
    ) -> None:
        super().__init__(
            folder,
            poll=positive(poll, "poll"),
            exit_wait=positive(exit_wait, "exit_wait"),
            restarts=whole_number(restarts, "restarts", 0),
        )
        for key, value in (("resources", resources), ("runtime_env", runtime_env)):
            if value is not None and not isinstance(value, Mapping):
                raise ConfigError(f"`{key}` is a mapping, not {value!r}", (key,))
        self.address = address
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
        self._made: Any = None

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

    def launch(self, batch: Batch) -> list[str]:
        (job,) = batch.jobs
        name = f"{self.prefix}-{batch.name}"
        spec = job.folder / f"spec-{job.attempt}.json"
        command = [self.python, "-I", "-S", str(self.place / "wrapper.py"), "run", str(spec)]
        variables = {**(self.runtime_env.get("env_vars") or {}), "OPERANT_RESTART": str(batch.restart)}
        try:
            self._call(
                "submit_job",
                entrypoint=shlex.join(command),
                submission_id=name,
                metadata={"operant-search": self.prefix, "operant-batch": batch.name},
                runtime_env={**self.runtime_env, "env_vars": variables},
                **self.asked,
            )
        except SiteRefusedError as error:
            if "already exists" not in str(error):
                raise
        return [name]

    def look(self) -> list[SiteJob]:
        found = self._call("list_jobs")
        return [self._word(one) for one in found if (one.metadata or {}).get("operant-search") == self.prefix]

    def end(self, ids: Sequence[str]) -> None:
        for name in ids:
            with contextlib.suppress(SiteRefusedError):  # it is gone
                self._call("stop_job", name)

    def clean(self, ids: Sequence[str]) -> None:
        """Let the head forget jobs that are over; one that it has not seen ending is forgotten with the cluster."""
        for name in ids:
            with contextlib.suppress(SiteRefusedError):
                self._call("delete_job", name)

    def explain(self, word: SiteJob) -> str:
        """The last line that the job's own log has: a missing interpreter, a folder that the node cannot see."""
        try:
            lines = str(self._call("get_job_logs", word.id)).strip().splitlines()
        except (SiteAwayError, SiteRefusedError):
            return ""
        return f"; its log says: {lines[-1][:300]}" if lines else ""

    def connect(self) -> Any:
        """Ray's client of the Jobs API."""
        try:
            from ray.job_submission import JobSubmissionClient
        except ImportError:
            raise MissingExtraError("the site ray", "ray") from None
        return JobSubmissionClient(self.address)

    def _call(self, verb: str, *args: Any, **options: Any) -> Any:
        try:
            if self._made is None:
                self._made = self.connect()
            call: Callable[..., Any] = getattr(self._made, verb)
            return call(*args, **options)
        except (ConnectionError, OSError) as error:
            raise SiteAwayError(f"the head does not answer: {str(error).splitlines()[0][:200]}") from None
        except (RuntimeError, ValueError) as error:
            said = str(error).strip().splitlines()[-1][:300]
            # Until a node's agent is up, submitting is an error of the server's.
            if re.search(r"status code (5\d\d|429)", str(error)) and "already exists" not in str(error):
                raise SiteAwayError(said) from None
            raise SiteRefusedError(f"Ray refuses: {said}") from None

    def _word(self, found: Any) -> SiteJob:
        status = str(getattr(found.status, "value", found.status))
        state = _STATES.get(status, "ended")
        node = str(getattr(found.driver_info, "node_ip_address", None) or "")
        message = str(found.message or "").strip().splitlines()
        words = f"{status}{f' on {node}' if node else ''}{f': {message[-1][:300]}' if message else ''}"
        reason = "node_failed" if status == "FAILED" and _NODE_DIED.search(str(found.message or "")) else None
        return SiteJob(found.metadata["operant-batch"], 0, str(found.submission_id), state, node, words, reason)
