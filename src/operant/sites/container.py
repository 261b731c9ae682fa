"""Jobs in containers of this machine: podman, docker or apptainer, whichever is there."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from operant._util.checks import is_number, one_of, positive, whole_number
from operant._util.files import write_file
from operant._util.units import parse_bytes, parse_duration
from operant.errors import ConfigError
from operant.sites import wrapper
from operant.sites.base import SITES, Event, Submission
from operant.sites.cluster import ClusterSite
from operant.sites.cluster_jobs import Batch, SiteAwayError, SiteJob, SiteRefusedError, memory_for
from operant.tracking.identity import is_alive

ENGINES = ("podman", "docker", "apptainer")
COMMAND_SECONDS = 300.0
# A container that was killed by the kernel for its memory says nothing but this.
_KILLED = 137


@SITES.register_module("container")
class ContainerSite(ClusterSite):
    """Each job in a container of its own, which sees the search's folder under the same path.

    :param image: what to run: a name, or for apptainer also a file.
    :param engine: ``podman``, ``docker`` or ``apptainer``; without it the first that is there.
    :param volumes: further folders, as ``/data``, ``/data:/inside`` or ``/data:/inside:ro``.
    :param env: variables for the programs, by name; they pass through a file, never through a command line.
    :param user: ``me``, ``root`` or ``uid:gid``; without it files belong to whoever runs the search.
    :param gpus: true for all, or what the engine's option takes.
    :param memory: for each job, such as ``4GB``; without it the search's ``memory_limit``, if there is one.
    :param cpus: for each job, parts of one too.
    :param network: as the engine takes it: ``none``, ``host`` …
    :param runtime: such as ``runc``, where the engine's own does not work.
    :param ulimits: such as ``nofile=1024:1024``.
    :param flags: further options of the engine's ``run`` (apptainer: ``exec``).
    :param python: the interpreter of the image for the wrapper, 3.8 or later.
    :param pull_wait: how long an image may fail to be pulled before the job counts as failed.
    :param poll: seconds between two looks at all containers.
    :param channel: ``http`` where containers do not see the search's folder; ``address`` is then how they reach us.
    """

    kind = "container"
    most_in_batch = 1  # there is no command that starts many, and whoever is started should be known by name at once
    keeps_ended = True

    def __init__(
        self,
        folder: Path,
        *,
        image: str,
        engine: str | None = None,
        volumes: Sequence[str] = (),
        env: Mapping[str, Any] | None = None,
        user: str | None = None,
        gpus: bool | str = False,
        memory: str | int | None = None,
        cpus: float | None = None,
        network: str | None = None,
        runtime: str | None = None,
        ulimits: Sequence[str] = (),
        flags: Sequence[str] = (),
        python: str = "python3",
        pull_wait: str | float = 300,
        poll: float = 2.0,
        exit_wait: float = 2.0,
        restarts: int = 0,
        channel: str = "dir",
        address: str | None = None,
    ) -> None:
        super().__init__(
            folder,
            poll=positive(poll, "poll"),
            exit_wait=positive(exit_wait, "exit_wait"),
            restarts=whole_number(restarts, "restarts", 0),
            channel=channel,
            address=address,
        )
        for key, value in (("image", image), ("user", user), ("network", network), ("runtime", runtime)):
            if value is not None and (not isinstance(value, str) or not value):
                raise ConfigError(f"`{key}` is a text, not {value!r}", (key,))
        for key, values in (("volumes", volumes), ("ulimits", ulimits), ("flags", flags)):
            if not isinstance(values, (list, tuple)) or not all(isinstance(one, str) for one in values):
                raise ConfigError(f"`{key}` is a list of texts, not {values!r}", (key,))
        if env is not None and not isinstance(env, Mapping):
            raise ConfigError(f"`env` is a mapping of names to values, not {env!r}", ("env",))
        if cpus is not None and (not is_number(cpus) or cpus <= 0):
            raise ConfigError(f"`cpus` must be a number above 0, not {cpus!r}", ("cpus",))
        self._engine = None if engine is None else one_of(engine, "engine", ENGINES)
        self.image, self.python = image, python
        self.volumes, self.ulimits, self.flags = list(volumes), list(ulimits), list(flags)
        self.env = {str(key): str(value) for key, value in (env or {}).items()}
        self.user, self.gpus, self.network, self.runtime = user, gpus, network, runtime
        self.memory = None if memory is None else parse_bytes(memory, ("memory",))
        self.cpus = cpus
        self.pull_wait = parse_duration(pull_wait, ("pull_wait",), bare_unit="s") or 0.0
        self._pulling_since: float | None = None
        if (self._engine or _first_engine()) == "apptainer":
            self._apptainer_options()
        self.prefix = f"operant-{folder.name}-{hashlib.sha256(os.fsencode(folder)).hexdigest()[:8]}"

    @staticmethod
    def missing() -> str | None:
        """Why there are no containers here; None where there are."""
        return None if _first_engine() is not None else f"there is none of {', '.join(ENGINES)} on this machine"

    @property
    def engine(self) -> str:
        found = self._engine or _first_engine()
        if found is None:
            raise SiteRefusedError(f"there is none of {', '.join(ENGINES)} on this machine")
        return found

    def start(self, emit: Callable[[Event], None]) -> None:
        _ = self.engine  # none is told before anything is submitted
        super().start(emit)

    # -- the three verbs ------------------------------------------------------------------------------------------

    def launch(self, batch: Batch) -> list[str]:
        # One after the other: one that an earlier try had started already keeps its name, and is not started again.
        names = [f"{self.prefix}-{batch.name}-{index}" for index in range(len(batch.jobs))]
        for name, job in zip(names, batch.jobs, strict=True):
            env_file = self.place / f"{name}.env"
            env_file.touch(0o600)
            env_file.write_text("".join(f"{key}={value}\n" for key, value in self.environment(batch, job).items()))
            _, *inside = self.command(batch, name.rpartition("-")[2])
            if self.engine == "apptainer":
                self._start_apptainer(name, job, batch, inside, env_file)
            else:
                argv = [self.engine, "run", "--detach", f"--name={name}", f"--env-file={env_file}"]
                argv += [f"--label=operant.search={self.prefix}", f"--entrypoint={self.python}", *self._options(job)]
                self.run([*argv, self.image, *inside], taken=name)
                env_file.unlink()
        return names

    def look(self) -> list[SiteJob]:
        if self.engine == "apptainer":
            return self._look_at_processes()
        asked = [self.engine, "ps", "--all", "--no-trunc", f"--filter=label=operant.search={self.prefix}"]
        lines = self.run([*asked, "--format={{.Names}}|{{.Status}}"]).splitlines()
        return [_word(*line.split("|", 1)) for line in lines]

    def end(self, ids: Sequence[str]) -> None:
        if self.engine == "apptainer":
            for name in ids:
                _signal(self.place / f"{name}.pid", signal.SIGTERM)
            return
        for name in ids:  # one that has just ended is no error
            self.run([self.engine, "kill", "--signal=TERM", name], forgiving=True)

    def clean(self, ids: Sequence[str]) -> None:
        """Remove what is left of containers whose jobs are over."""
        if self.engine == "apptainer":
            for name in ids:
                _signal(self.place / f"{name}.pid", signal.SIGKILL)
                for kind in ("pid", "env"):
                    (self.place / f"{name}.{kind}").unlink(missing_ok=True)
            return
        forced = [self.engine, "rm", "--force", *(["--ignore", "--time=0"] if self.engine == "podman" else [])]
        for pause in (0.1, 0.3, 1.0, 0.0):  # one that is just ending cannot be removed at that moment
            if (
                subprocess.run([*forced, *ids], capture_output=True, check=False, timeout=COMMAND_SECONDS).returncode
                == 0
            ):
                return
            time.sleep(pause)

    def spec_extras(self) -> dict[str, Any]:
        return {"env": self.env} if self.env else {}

    # -- how they are said ----------------------------------------------------------------------------------------

    def run(self, argv: list[str], *, forgiving: bool = False, taken: str = "") -> str:
        """What the engine prints. ``taken`` is a name that may have been given by an earlier try."""
        try:
            done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=COMMAND_SECONDS)
        except subprocess.TimeoutExpired:
            raise SiteAwayError(f"{argv[0]} has not answered for {COMMAND_SECONDS:g} s") from None
        except FileNotFoundError:
            raise SiteRefusedError(f"there is no `{argv[0]}` on this machine") from None
        if done.returncode == 0 and taken:
            self._pulling_since = None
        if done.returncode == 0 or forgiving:
            return done.stdout
        if taken and "in use" in done.stderr:
            return ""
        said = done.stderr.strip().rpartition("\n")[2] or f"{argv[0]} ended with code {done.returncode}"
        if argv[1] == "ps" or self._may_pass(said.lower()):
            raise SiteAwayError(said)
        if taken:  # one that was created and could not be started would stay
            self.run([self.engine, "rm", "--force", taken], forgiving=True)
        raise SiteRefusedError(said)

    def _may_pass(self, said: str) -> bool:
        """Whether asking again may help; where it is a registry that does not answer, for a while."""
        if not any(one in said for one in ("connect", "timed out", "temporarily")):
            return False
        if "registry" not in said and "pull" not in said:
            return True
        if self._pulling_since is None:
            self._pulling_since = self.now()
        return self.now() - self._pulling_since < self.pull_wait

    def _options(self, job: Submission) -> list[str]:
        volumes = [one if ":" in one else f"{one}:{one}" for one in self.volumes]
        if not self.by_http:
            volumes.append(f"{self.folder}:{self.folder}")
        options = [f"--volume={one}" for one in volumes] + [f"--ulimit={one}" for one in self.ulimits]
        given = {
            "memory": memory_for(job, self.memory),
            "cpus": self.cpus,
            "network": self.network,
            "runtime": self.runtime,
        }
        options += [f"--{key}={value}" for key, value in given.items() if value is not None]
        user, me = self.user, f"{os.getuid()}:{os.getgid()}"
        if user in (None, "me") and self.engine == "podman" and os.getuid() != 0:
            options.append("--userns=keep-id")
        elif user != "root" and (user not in (None, "me") or os.getuid() != 0):
            options.append(f"--user={me if user in (None, 'me') else user}")
        if self.gpus:
            wanted = "all" if self.gpus is True else self.gpus
            options.append(f"--device=nvidia.com/gpu={wanted}" if self.engine == "podman" else f"--gpus={wanted}")
        return [*options, *self.flags]

    # -- apptainer has no daemon: its containers are processes of ours, in sessions of their own ------------------

    def _start_apptainer(self, name: str, job: Submission, batch: Batch, inside: list[str], env_file: Path) -> None:
        pid_file = self.place / f"{name}.pid"
        if shutil.which("apptainer") is None:
            raise SiteRefusedError("there is no `apptainer` on this machine")
        if is_alive(_holder(pid_file)):
            return
        argv = ["apptainer", "exec", f"--env-file={env_file}"]
        argv += [] if self.by_http else [f"--pwd={job.work}", f"--bind={self.folder}:{self.folder}"]
        argv += self._apptainer_options()
        # By a shell that leaves at once: the container belongs to nobody, and goes on when this process ends.
        log = str(self.place / f"{name}.log")
        detach = ["sh", "-c", 'log=$1; shift; setsid "$@" >>"$log" 2>&1 </dev/null & echo $!', "sh", log]
        inside = [*argv, self.image, self.python, *inside]
        done = subprocess.run([*detach, *inside], stdout=subprocess.PIPE, text=True, check=True)
        holder = {**wrapper.identity(int(done.stdout)), "batch": batch.name, "name": name}
        write_file(pid_file, json.dumps(holder))

    def _apptainer_options(self) -> list[str]:
        for key, value in (("runtime", self.runtime), ("ulimits", self.ulimits)):
            if value:
                raise ConfigError(f"apptainer has no `{key}`: leave it out", (key,))
        if self.user not in (None, "me", "root"):
            raise ConfigError(f"apptainer runs as `me` or `root`, not as {self.user!r}", ("user",))
        given = {"memory": self.memory, "cpus": self.cpus, "network": self.network}
        options = [f"--bind={one}" for one in self.volumes]
        options += [f"--{key}={value}" for key, value in given.items() if value is not None]
        options += ["--net"] if self.network is not None else []
        options += ["--fakeroot"] if self.user == "root" else []
        return [*options, *(["--nv"] if self.gpus else []), *self.flags]

    def _look_at_processes(self) -> list[SiteJob]:
        found = []
        for path in self.place.glob(f"{self.prefix}-*.pid"):
            holder = wrapper.read_json(str(path))
            name = str(holder.get("name", path.stem))
            state = "running" if is_alive(_holder(path)) else "ended"
            found.append(SiteJob(str(holder.get("batch")), int(name.rpartition("-")[2]), name, state, "", state))
        return found


def _first_engine() -> str | None:
    return next((one for one in ENGINES if shutil.which(one) is not None), None)


def _word(name: str, status: str) -> SiteJob:
    """Of ``Up 3 seconds`` or ``Exited (0) 2 minutes ago``."""
    *_, batch, index = name.split("-")
    states = {"Created": "waiting", "Initialized": "waiting", "Exited": "ended", "Dead": "ended", "Stopping": "ending"}
    state = states.get(status.partition(" ")[0], "running")
    killed = f"({_KILLED})" in status
    words = f"{status}{', killed, perhaps for its memory' if killed else ''}"
    return SiteJob(batch, int(index), name, state, "", words, "killed" if killed else None)


def _holder(path: Path) -> dict[str, Any]:
    try:
        space = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        space = ""
    return {**wrapper.read_json(str(path)), "pid_space": space}


def _signal(path: Path, number: int) -> None:
    holder = _holder(path)
    if is_alive(holder):
        try:
            os.killpg(int(holder["pid"]), number)
        except (ProcessLookupError, PermissionError):
            return
