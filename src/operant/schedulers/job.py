"""A job: one program run with one configuration."""

from __future__ import annotations

import os
import secrets
import shlex
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from operant.errors import UsageError
from operant.sites import SITES, Event, Limits, Site, Submission, make_token
from operant.sites.code import take_snapshot
from operant.status import Status


class Job:
    """What all kinds of jobs have in common. Status: PENDING, RUNNING, PAUSED, FINISHED, STOPPED, KILLED or ERROR."""

    def __init__(
        self,
        command: str | Sequence[str],
        name: str,
        arg_dict: Mapping[str, Any] | None = None,
        pavi_compare_id: str | None = None,
        symlink_paths: Sequence[str | os.PathLike[str]] = (),
    ) -> None:
        self.command = command
        self.name = name
        self.arg_dict = dict(arg_dict or {})
        self.pavi_compare_id = pavi_compare_id
        self.symlink_paths = list(symlink_paths or ())
        self._status: str = Status.PENDING

    @property
    def status(self) -> str:
        return self._status

    def start(self, **options: Any) -> None:
        raise NotImplementedError

    def wait(self, timeout: float | None = None) -> str:
        raise NotImplementedError

    def kill(self) -> None:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.status})"


class LocalJob(Job):
    """A job of this machine, without a search around it.

    >>> job = LocalJob("python train.py --lr 0.1", "try", {"lr": 0.1})
    >>> job.start(workdir="jobs")
    >>> job.wait()
    'FINISHED'
    """

    site = "local"
    exit: Mapping[str, Any] | None = None
    """How it ended, as its wrapper says."""
    place: Mapping[str, Any] | None = None
    """Where it is, as its site says: ``id``, ``node``, ``queue``."""

    def start(
        self, *, workdir: str | os.PathLike[str] = ".operant/jobs", limits: Limits | None = None, **options: Any
    ) -> None:
        """Start the program in ``<workdir>/jobs/<name>/work``, a copy of the current folder's code.

        :param options: settings of the site, such as ``partition="short"`` of Slurm.
        """
        if self._status != Status.PENDING or self.exit is not None:
            raise UsageError(f"job {self.name!r} was started before")
        base = Path(workdir).absolute()
        self.folder = base / "jobs" / self.name
        if self.folder.exists():
            raise UsageError(f"there is a job {self.name!r} in {base} already")
        # A cluster's jobs are told apart by the folder of their site, so each gets its own.
        found: Site = SITES.build({"type": self.site, **options}, base if self.site == "local" else self.folder)
        snapshot = take_snapshot(Path.cwd(), base / "code", self.symlink_paths)
        self.folder.mkdir(parents=True)
        snapshot.lay_out(self.folder / "work")
        argv = shlex.split(self.command) if isinstance(self.command, str) else list(self.command)
        token = make_token(self.name, 1, secrets.token_hex(8))
        env = {"OPERANT_RUN_DIR": str(self.folder / "run"), "OPERANT_RUN_ID": self.name, "OPERANT_ATTEMPT": "1"}
        job = Submission(token, self.name, 1, argv, self.folder, self.folder / "work", env, limits or Limits())
        self._token = token
        self._done = threading.Event()
        self._killed = False
        self._site = found
        self._site.start(self._hear)
        self._site.submit([job])

    def wait(self, timeout: float | None = None) -> str:
        """Wait for its end and return its status; after ``timeout`` seconds return the status it has then."""
        if self._done.wait(timeout):
            self._site.close()
        return self._status

    def kill(self) -> None:
        """End it with everything it started."""
        self._killed = True
        self._site.cancel([self._token], "killed")

    def _hear(self, event: Event) -> None:
        if event.kind == "started":
            self._status = Status.RUNNING
        elif event.kind == "placed":
            self.place = event.info
        elif event.kind in ("ended", "lost"):
            self.exit = event.info
            if event.info.get("code") == 0 and event.info.get("reason") is None:
                self._status = Status.FINISHED
            else:
                self._status = Status.KILLED if self._killed else Status.ERROR
            self._done.set()


class SlurmJob(LocalJob):
    """A job of a Slurm cluster. A command that begins with ``srun`` works as it stands; `kill` ends its steps too.

    >>> job = SlurmJob("srun -p short --gres gpu:1 python train.py --lr 0.1", "try", {"lr": 0.1})
    >>> job.start(account="mine")
    """

    site = "slurm"


class ContainerJob(LocalJob):
    """A job in a container of this machine.

    >>> job = ContainerJob("python train.py --lr 0.1", "try", {"lr": 0.1})
    >>> job.start(image="python:3.11")
    """

    site = "container"


class AutolinkJob(Job):
    """A job of Autolink, a service that is not public."""

    def start(self, **options: Any) -> None:
        raise UsageError(
            "Autolink is a closed service that Operant cannot reach; a site of your own takes its place (docs/sites.md)"
        )
