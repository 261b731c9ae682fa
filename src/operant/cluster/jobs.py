"""Jobs of a Ray cluster: submitted with the working directory, followed, stopped; what they record comes home."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import random
import secrets
import shlex
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from operant._util.files import write_file
from operant.cluster import home
from operant.cluster.applying import POD, connect, read_token, selector
from operant.cluster.fetching import Fetcher
from operant.cluster.forwarding import Listener, Target, dashboard_target
from operant.cluster.packing import pack
from operant.cluster.spec import ClusterSpec
from operant.errors import OperantError, UsageError
from operant.sites._kube import Cluster
from operant.sites._ray_jobs import JobsApi, jobs_client, refusal
from operant.sites.cluster_jobs import SiteAwayError, SiteRefusedError
from operant.tracking.places import find_root

HOME_FOLDER = ".operant-job"
_OVER = ("SUCCEEDED", "FAILED", "STOPPED")
_PORTS = range(20_000, 30_000)
"""Below those that systems give away by themselves, and those of NodePorts; above those of Ray's workers."""
_AWAY_SECONDS = 300.0
"""So long a head may be away, as while its pod moves, before a job counts as lost."""


@dataclass(frozen=True, kw_only=True)
class JobRequest:
    """What is run, and with what."""

    words: Sequence[str]
    folder: Path | None = None
    """The working directory to send; None: none."""
    excludes: Sequence[str] = ()
    runtime_env: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    cpus: float | None = None
    gpus: float | None = None
    memory: int | None = None
    resources: Mapping[str, float] | None = None
    name: str | None = None
    python: str = "python3"
    """The interpreter in the image that hands runs home."""
    fetch: bool = True
    """Whether what the job records comes home."""
    awaited: bool = True
    """Whether somebody will follow it at once."""

    @property
    def entrypoint(self) -> str:
        """One word is a shell's line, as it is."""
        return self.words[0] if len(self.words) == 1 else shlex.join(self.words)


class RayCluster:
    """A Ray cluster that takes jobs: one of Kubernetes', reached through a forward, or any head by its address."""

    def __init__(self, address: str, token: str | None, spec: ClusterSpec | None, cluster: Cluster | None) -> None:
        self.api = JobsApi(lambda: _quiet_client(address, token))
        self.address, self._spec, self._cluster = address, spec, cluster
        self.option = f"--address {address}" if spec is None else f"-c {spec.name}"
        """How a command names it."""

    @contextmanager
    def port_of_job(self, job: str, port: int) -> Iterator[tuple[str, int]]:
        """A port on the loopback of the node that runs a job's program."""
        if self._spec is None or self._cluster is None:
            yield urlsplit(self.address).hostname or "127.0.0.1", port
            return
        info = self.api.call("get_job_info", job)
        wanted = str(getattr(info.driver_info, "node_ip_address", None) or "")
        pods = self._cluster.find(POD, selector(self._spec))
        by_address = {one["status"].get("podIP"): one["metadata"]["name"] for one in pods if one.get("status")}
        head = f"{selector(self._spec)},ray.io/node-type=head"
        target = Target("job", port, head, by_address.get(wanted, "") if not self._spec.host_network else "")
        with Listener(self._cluster, target, 0, patience=5.0) as listener:
            yield "127.0.0.1", listener.port


def _quiet_client(address: str, token: str | None) -> Any:
    """Ray's client without its words on every upload and connection; its modules set their levels on their import."""
    made = jobs_client(address, token)
    for name in ("ray", "ray.dashboard.modules.job.sdk", "ray.dashboard.modules.dashboard_sdk"):
        logging.getLogger(name).setLevel(logging.WARNING)
    return made


@contextmanager
def reach(spec: ClusterSpec | None, address: str | None = None) -> Iterator[RayCluster]:
    """The head that takes jobs."""
    if spec is None:
        if address is None:
            raise UsageError("which Ray? Name a cluster, or its head by --address http://head:8265")
        if not address.startswith(("http://", "https://")):  # Ray would look for a head's other port, for a minute
            raise UsageError(f"the address of a head is that of its dashboard, http://head:8265, not {address!r}")
        yield RayCluster(address, None, None, None)
        return
    cluster = connect(spec)
    token = read_token(spec, cluster)
    if token is None:
        raise UsageError(
            f"in {cluster.namespace} there is no cluster {spec.name} with a token; `operant cluster apply` makes it"
        )
    with Listener(cluster, dashboard_target(spec), 0) as listener:
        yield RayCluster(f"http://127.0.0.1:{listener.port}", token, spec, cluster)


def submit(ray: RayCluster, request: JobRequest) -> str:
    """Begin a job; its id. A head that is just coming up is asked again."""
    name = request.name or f"operant-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
    runtime_env = dict(request.runtime_env)
    runtime_env["env_vars"] = {**(runtime_env.get("env_vars") or {}), **request.env}
    entrypoint = request.entrypoint
    resources = {"num_cpus": request.cpus, "num_gpus": request.gpus, "memory": request.memory}
    asked: dict[str, Any] = {f"entrypoint_{key}": value for key, value in resources.items() if value is not None}
    if request.resources:
        asked["entrypoint_resources"] = dict(request.resources)
    with tempfile.TemporaryDirectory(prefix="operant-submit-") as place:
        extra = {}
        if request.fetch:
            known = {"ports": random.SystemRandom().sample(_PORTS, 3), "token": secrets.token_urlsafe(32)}
            _remember(name, {**known, "address": urlsplit(ray.address).netloc})
            # Ray shows variables and entrypoints to all its users, but not what it uploads.
            extra = {
                f"{HOME_FOLDER}/home.py": Path(home.__file__).read_bytes(),
                f"{HOME_FOLDER}/{home.CONFIG}": json.dumps({**known, "awaited": request.awaited}).encode(),
            }
            entrypoint = shlex.join([request.python, f"{HOME_FOLDER}/home.py", "--", "sh", "-c", entrypoint])
        if request.folder is not None or extra:
            if "working_dir" in runtime_env:
                raise UsageError("the working directory is named twice: by --working-dir and in the runtime_env")
            archive = Path(place, "working_dir.zip")
            empty = Path(place, "empty")
            empty.mkdir()
            pack(request.folder or empty, archive, request.excludes, extra)
            runtime_env["working_dir"] = str(archive)
        options = {"entrypoint": entrypoint, "submission_id": name, "runtime_env": runtime_env, **asked}
        _patiently(lambda: ray.api.call("submit_job", **options), "already exists", 60.0)
    return name


def follow(ray: RayCluster, job: str, out: Callable[[str], None], said: Callable[[str], None], printed: int = 0) -> int:
    """Print what a job prints until it is over, and fetch what it records; its exit code.

    A connection that is cut is made again, and nothing is printed twice.

    :param printed: so many characters were printed before.
    """
    known = _known(job)
    with contextlib.ExitStack() as stack:
        fetcher = _fetcher(ray, job, known, stack, said) if known else None
        away_since: float | None = None
        seen = False
        while True:
            try:
                printed = asyncio.run(_tail(ray, job, printed, out))
                info = ray.api.call("get_job_info", job)
                away_since, seen = None, True
                if str(getattr(info.status, "value", info.status)) in _OVER:
                    break
            except SiteAwayError as error:
                now = time.monotonic()
                if away_since is None:
                    away_since = now
                    said(f"{error}; asking again")
                if now - away_since > _AWAY_SECONDS:
                    raise SiteAwayError(
                        f"the head has been away for {_AWAY_SECONDS:g} s; the job may still run"
                    ) from None
            except SiteRefusedError as error:
                if (seen or printed) and _is_unknown(error):
                    raise OperantError(
                        f"the head knows nothing of the job {job}: it has been restarted, and its jobs ended with it"
                    ) from None
                raise _explained(error, job) from None
            time.sleep(0.5)
        if fetcher is not None:
            fetcher.complete.wait(5)
            fetcher.close()
            if fetcher.unwritten:
                said(f"not all that {job} recorded is here: {fetcher.unwritten}; its node has it until its pod goes")
    return exit_code(info)


def stop(ray: RayCluster, job: str) -> bool:
    """End a job; whether it still ran."""
    try:
        return bool(ray.api.call("stop_job", job))
    except SiteRefusedError as error:
        raise _explained(error, job) from None


def _is_unknown(error: SiteRefusedError) -> bool:
    return "404" in str(error) or "does not exist" in str(error)


def _explained(error: SiteRefusedError, job: str) -> OperantError:
    return UsageError(f"the head knows no job {job}; `operant cluster jobs` lists all") if _is_unknown(error) else error


def exit_code(info: Any) -> int:
    """How a job ended, as a shell says it."""
    status = str(getattr(info.status, "value", info.status))
    code = getattr(info, "driver_exit_code", None)
    if status == "SUCCEEDED":
        return 0
    if status == "STOPPED":
        return 130
    return int(code) % 256 if code else 1


def job_rows(ray: RayCluster) -> list[tuple[str, str, float | None, str]]:
    """Id, status, start and entrypoint of each job, the youngest last."""
    rows = []
    for one in ray.api.call("list_jobs"):
        if one.submission_id is None:  # a driver that connected by itself
            continue
        began = None if one.start_time is None else one.start_time / 1000
        entrypoint = one.entrypoint.partition(" -- sh -c ")[2] if HOME_FOLDER in one.entrypoint else one.entrypoint
        rows.append((one.submission_id, str(getattr(one.status, "value", one.status)), began, _unquoted(entrypoint)))
    return sorted(rows, key=lambda row: row[2] or 0.0)


def last_job(ray: RayCluster, given: str) -> str:
    """The job of that name, or with ``last`` the youngest."""
    if given != "last":
        return given
    rows = job_rows(ray)
    if not rows:
        raise UsageError("the head knows no job")
    return rows[-1][0]


async def _tail(ray: RayCluster, job: str, printed: int, out: Callable[[str], None]) -> int:
    """Print a log from where it was; how many characters there were."""
    seen = 0
    try:
        async for text in ray.api.client.tail_job_logs(job):
            fresh = text[max(0, printed - seen) :]
            seen += len(text)
            if fresh:
                out(fresh)
            printed = max(printed, seen)
    except OperantError:
        raise
    except (OSError, RuntimeError) as error:
        if "404" in str(error):
            raise SiteRefusedError(str(error)) from None
        # The websocket was cut; whether the job lives is asked next.
    except Exception as error:  # aiohttp's kinds
        if type(error).__module__.partition(".")[0] != "aiohttp":
            raise refusal(error) from None
    return printed


def _fetcher(
    ray: RayCluster, job: str, known: Mapping[str, Any], stack: contextlib.ExitStack, said: Callable[[str], None]
) -> Fetcher:
    ports, places = [int(port) for port in known["ports"]], dict[int, tuple[str, int]]()

    def address(failed: int) -> tuple[str, int]:
        port = ports[failed % len(ports)]
        if port not in places:
            try:
                places[port] = stack.enter_context(ray.port_of_job(job, port))
            except OperantError as error:
                raise OSError(str(error)) from None
        return places[port]

    fetcher = Fetcher(find_root(), _job_file(job), str(known["token"]), address, said)
    fetcher.start()
    stack.callback(fetcher.close)
    return fetcher


def _patiently(call: Callable[[], Any], done: str, seconds: float) -> None:
    """Again and again while the other side is away; ``done`` in a refusal says that an earlier call had arrived."""
    deadline, tries = time.monotonic() + seconds, 0
    while True:
        tries += 1
        try:
            call()
            return
        except SiteAwayError:
            if time.monotonic() > deadline:
                raise
        except SiteRefusedError as error:
            if tries > 1 and done in str(error):
                return
            raise
        time.sleep(min(5.0, 0.5 * tries))


def _job_file(job: str) -> Path:
    if not job.replace("-", "").replace("_", "").replace(".", "").isalnum() or job.startswith("."):
        raise UsageError(f"{job!r} is no id of a job")
    return find_root() / "clusters" / "jobs" / f"{job}.json"


def _remember(job: str, known: Mapping[str, Any]) -> None:
    """What only whoever submitted a job knows, readable by its owner alone."""
    path = _job_file(job)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.parent.chmod(0o700)
    write_file(path, json.dumps(dict(known)))
    path.chmod(0o600)


def _known(job: str) -> dict[str, Any]:
    try:
        found = json.loads(_job_file(job).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) and {"ports", "token"} <= set(found) else {}


def _unquoted(text: str) -> str:
    with contextlib.suppress(ValueError):
        words = shlex.split(text)
        return words[0] if len(words) == 1 else text
    return text


def environment(given: Sequence[str]) -> dict[str, str]:
    """Variables as a command line says them: NAME=VALUE, or NAME for the one of here."""
    found = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals and name not in os.environ:
            raise UsageError(f"there is no variable {name} here; say {name}=VALUE")
        found[name] = value if equals else os.environ[name]
    return found
