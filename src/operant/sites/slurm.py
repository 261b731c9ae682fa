"""Jobs of a Slurm cluster: submitted by `sbatch` as arrays, looked at by one `squeue` for all of them."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from operant._util.checks import is_whole, positive, whole_number
from operant._util.units import parse_bytes, parse_duration
from operant.errors import ConfigError
from operant.sites.base import SITES, Event, Submission
from operant.sites.cluster import ClusterSite
from operant.sites.cluster_jobs import Batch, SiteAwayError, SiteJob, SiteRefusedError, memory_for

COMMAND_SECONDS = 120.0
ANSWER_SECONDS = 20.0
# What Slurm says when asking again helps: its controller is away or busy, a limit of the queue is reached.
_AWAY = re.compile(
    r"unable to contact|socket timed out|timed out|temporarily|connect|zero bytes|try again|submit limit|"
    r"job violates accounting/qos policy|maxsubmit|resource temporarily|communication|slurm_load_jobs|retry",
    re.IGNORECASE,
)
_STATES = {
    **dict.fromkeys(("PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"), "waiting"),
    **dict.fromkeys(("RUNNING", "CONFIGURING", "SUSPENDED", "RESIZING", "SIGNALING", "STOPPED"), "running"),
    **dict.fromkeys(("COMPLETING", "STAGE_OUT"), "ending"),
}
_REASONS = {
    "TIMEOUT": "time_limit", "DEADLINE": "time_limit", "PREEMPTED": "preempted", "REVOKED": "preempted",
    "NODE_FAIL": "node_failed", "BOOT_FAIL": "node_failed", "OUT_OF_MEMORY": "memory_limit", "CANCELLED": "cancelled",
}  # fmt: skip
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
# What it says of settings that it would never take. Nodes that are down are no such thing: jobs wait for them.
_INVALID = re.compile(r"invalid|fatal|unrecogni[sz]ed|ambiguous|requires an argument|unexpected", re.IGNORECASE)
# Options of srun that stand alone; every other one without `=` has its value in the next word.
SRUN_FLAGS = frozenset((
    "-l", "-u", "-v", "-vv", "-Q", "-K", "-O", "-o0", "-s", "-b", "-H", "-E", "-Z", "--label", "--unbuffered",
    "--verbose", "--quiet", "--kill-on-bad-exit", "--overcommit", "--oversubscribe", "--exclusive", "--pty",
    "--no-kill", "--contiguous", "--preserve-env", "--overlap", "--exact", "--disable-status", "--hold",
    "--reboot", "--no-allocate", "--debugger-test", "--help", "--usage", "--version", "--wait-all-nodes",
    "--use-min-nodes",
))  # fmt: skip
# Options of srun that ask for resources: a template that begins with srun gets its job allocated with them.
_ALLOCATES = (
    "-p", "--partition", "--gres", "-n", "--ntasks", "-N", "--nodes", "-c", "--cpus-per-task", "--ntasks-per-node",
    "--mem", "--mem-per-cpu", "--mem-per-gpu", "-A", "--account", "-q", "--qos", "-w", "--nodelist", "-x", "--exclude",
    "-C", "--constraint", "-G", "--gpus", "--gpus-per-node", "--gpus-per-task", "--cpus-per-gpu", "--reservation",
    "-t", "--time", "-M", "--clusters", "--exclusive",
)  # fmt: skip


@SITES.register_module("slurm")
class SlurmSite(ClusterSite):
    """Jobs of a Slurm cluster whose nodes see the search's folder.

    :param partition: and account, qos, gres, nodelist, exclude, constraint, reservation: as `sbatch` takes them.
    :param cpus: for each job.
    :param memory: for each job, such as ``4GB``; without it the search's ``memory_limit``, if there is one.
    :param time: how long Slurm lets a job run, such as ``2h``; without it the search's limit and a little more.
    :param warn: how long before that time programs get SIGUSR1; with ``restarts`` the job is then requeued.
    :param restarts: how often an attempt that is at its time limit, or was preempted, is started again.
    :param requeue: whether Slurm itself may start a job again, after a preemption or when its node fails.
    :param array_size: how many jobs are submitted by one `sbatch` at most; 1 means no arrays.
    :param throttle: how many jobs of one array run at a time.
    :param poll: seconds between two `squeue`, however many jobs there are.
    :param exit_wait: seconds that a file of a node may take to be seen here.
    :param channel: ``http`` where nodes do not see the search's folder; ``address`` is how they reach us.
    :param python: the interpreter on the nodes that runs the wrapper, 3.8 or later.
    :param flags: further options of `sbatch`.
    """

    kind = "slurm"

    def __init__(
        self,
        folder: Path,
        *,
        partition: str | None = None,
        account: str | None = None,
        qos: str | None = None,
        gres: str | None = None,
        nodelist: str | None = None,
        exclude: str | None = None,
        constraint: str | None = None,
        reservation: str | None = None,
        cpus: int | None = None,
        memory: str | int | None = None,
        time: str | float | None = None,
        warn: str | float = 60,
        restarts: int = 0,
        requeue: bool = True,
        array_size: int = 500,
        throttle: int | None = None,
        poll: float = 5.0,
        exit_wait: float = 60.0,
        channel: str = "dir",
        address: str | None = None,
        python: str | None = None,
        flags: Sequence[str] = (),
    ) -> None:
        super().__init__(
            folder,
            poll=positive(poll, "poll"),
            exit_wait=positive(exit_wait, "exit_wait"),
            restarts=whole_number(restarts, "restarts", 0),
            channel=channel,
            address=address,
        )
        texts = {
            "partition": partition, "account": account, "qos": qos, "gres": gres, "nodelist": nodelist,
            "exclude": exclude, "constraint": constraint, "reservation": reservation,
        }  # fmt: skip
        for key, value in {**texts, "python": python}.items():
            if value is not None and (not isinstance(value, str) or not value):
                raise ConfigError(f"`{key}` is a text, not {value!r}", (key,))
        if not isinstance(flags, (list, tuple)) or not all(isinstance(one, str) for one in flags):
            raise ConfigError(f"`flags` is a list of options of sbatch, not {flags!r}", ("flags",))
        if not isinstance(requeue, bool):
            raise ConfigError(f"`requeue` is true or false, not {requeue!r}", ("requeue",))
        for key, number in (("cpus", cpus), ("throttle", throttle)):
            if number is not None and not is_whole(number, 1):
                raise ConfigError(f"`{key}` must be a whole number from 1 on, not {number!r}", (key,))
        self.most_in_batch = whole_number(array_size, "array_size", 1)
        self.throttle = throttle
        self.seconds = None if time is None else parse_duration(time, ("time",), bare_unit="s")
        self.warn = parse_duration(warn, ("warn",), bare_unit="s") or 0.0
        self.memory = None if memory is None else parse_bytes(memory, ("memory",))
        self.python = python or sys.executable
        self.options = [f"--{key}={value}" for key, value in texts.items() if value is not None]
        self.options += [] if cpus is None else [f"--cpus-per-task={cpus}"]
        self.options += ["--requeue" if requeue else "--no-requeue", *flags]
        # Names of other searches, of this user or in another folder, must not be taken for this one's.
        self.prefix = f"operant-{folder.name}-{hashlib.sha256(os.fsencode(folder)).hexdigest()[:8]}"
        self._accounting: bool | None = None
        self._requeued: dict[str, float] = {}

    @staticmethod
    def missing() -> str | None:
        """Why there is no Slurm here; None where there is."""
        if shutil.which("sbatch") is None:
            return "there is no `sbatch` on this machine (Debian's package is slurm-client)"
        try:
            asked = subprocess.run(
                ["sinfo", "-h", "-o", "%P"], capture_output=True, text=True, check=False, timeout=ANSWER_SECONDS
            )
        except subprocess.TimeoutExpired:
            return f"Slurm's controller has not answered for {ANSWER_SECONDS:g} s"
        return asked.stderr.strip() or None if asked.returncode else None

    def start(self, emit: Callable[[Event], None]) -> None:
        options = self._options(Submission("", "", 1, [], self.folder, self.folder))
        with contextlib.suppress(SiteAwayError):  # that passes
            try:
                self.run(["sbatch", "--test-only", *options], "#!/bin/sh\n")
            except SiteRefusedError as error:
                if shutil.which("sbatch") is None:
                    raise
                if _INVALID.search(str(error)):
                    raise ConfigError(f"Slurm refuses such jobs: {error}", ("site",)) from None
        super().start(emit)

    # -- the three verbs ------------------------------------------------------------------------------------------

    def launch(self, batch: Batch) -> list[str]:
        argv = ["sbatch", "--parsable", *self._options(batch.jobs[0]), f"--job-name={self.prefix}-{batch.name}"]
        logs = self.place / batch.name
        alone = len(batch.jobs) == 1 and self.most_in_batch == 1
        output = "/dev/null" if self.by_http else f"{logs}_0.log" if alone else f"{logs}_%a.log"
        argv += [f"--output={output}", "--open-mode=append"]
        if not alone:
            at_once = "" if self.throttle is None else f"%{self.throttle}"
            argv.append(f"--array=0-{len(batch.jobs) - 1}{at_once}")
        job = self.run(argv, self._script(batch)).strip().partition(";")[0]
        return [job] if alone else [f"{job}_{index}" for index in range(len(batch.jobs))]

    def look(self) -> list[SiteJob]:
        # `-r` gives each element of an array a line, `-t all` also what has ended in the last minutes.
        lines = self.run(["squeue", "--me", "-h", "-r", "-t", "all", "-o", "%j|%K|%i|%T|%N|%S|%r"]).splitlines()
        words = [self._word(*line.split("|", 6)) for line in lines if line.startswith(f"{self.prefix}-")]
        with self._lock:
            missed = {(one.batch, one.index) for one in self._open.values() if one.launched and one.missed}
        missed -= {(one.batch, one.index) for one in words}
        if missed and self._has_accounting():
            words += [one for one in self._accounted() if (one.batch, one.index) in missed]
        self._start_requeued(words)
        return words

    def end(self, ids: Sequence[str]) -> None:
        for start in range(0, len(ids), 200):
            self.run(["scancel", "--quiet", *ids[start : start + 200]], forgiving=True)

    # -- how they are said ----------------------------------------------------------------------------------------

    def run(self, argv: list[str], text: str = "", *, forgiving: bool = False) -> str:
        """What one of Slurm's commands prints."""
        try:
            done = subprocess.run(
                argv, input=text, capture_output=True, text=True, check=False, timeout=COMMAND_SECONDS
            )
        except subprocess.TimeoutExpired:
            raise SiteAwayError(f"{argv[0]} has not answered for {COMMAND_SECONDS:g} s") from None
        except FileNotFoundError:
            raise SiteRefusedError(f"there is no `{argv[0]}` on this machine") from None
        if done.returncode == 0:
            return done.stdout
        lines = [one for one in done.stderr.strip().splitlines() if not one.startswith("Try ")]
        said = lines[-1] if lines else f"{argv[0]} ended with code {done.returncode}"
        if argv[0] == "squeue" or _AWAY.search(done.stderr):
            raise SiteAwayError(said)
        if forgiving:
            return ""
        raise SiteRefusedError(said)

    def _script(self, batch: Batch) -> str:
        task = "${SLURM_ARRAY_TASK_ID:-0}"
        command = " ".join(one if one == task else shlex.quote(one) for one in self.command(batch, task))
        lines = ["#!/bin/sh"]
        if self.by_http:  # tokens stand in the script, which Slurm shows to nobody but its owner
            lines.append(f"case {task} in")
            for index, job in enumerate(batch.jobs):
                known = self.environment(batch, job).items()
                lines.append(f"{index}) export {' '.join(f'{key}={shlex.quote(value)}' for key, value in known)};;")
            lines.append("esac")
        lines += [
            f"export OPERANT_RESTART=$((${{SLURM_RESTART_COUNT:-0}} + {batch.restart}))",
            'export OPERANT_REQUEUE="scontrol requeue '
            '${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}"',
            f"exec {command}",
        ]
        return "\n".join(lines) + "\n"

    def _options(self, job: Submission) -> list[str]:
        options = [*_of_srun(job.argv), *self.options]
        limits = job.limits
        memory = memory_for(job, self.memory)
        if memory is not None:
            options.append(f"--mem={math.ceil(memory / 2**20)}M")
        seconds = self.seconds
        if seconds is None and limits.seconds is not None:
            seconds = (
                limits.seconds + limits.grace_seconds + 60
            )  # whoever is over the limit is ended by us, not by Slurm
        if seconds is not None:
            options.append(f"--time={math.ceil(seconds / 60)}")
        if self.seconds is not None and self.warn:
            options.append(f"--signal=B:USR1@{math.ceil(self.warn)}")
        return options

    def spec_extras(self) -> dict[str, Any]:
        return {"requeues": self.restarts, "warn": self.warn}

    def explain(self, word: SiteJob) -> str:
        """The last line that the batch script itself left: a missing interpreter, a folder that the node cannot see."""
        try:
            lines = (self.place / f"{word.batch}_{word.index}.log").read_text("utf-8", "replace").strip().splitlines()
        except OSError:
            return ""
        return f"; its log says: {lines[-1][:300]}" if lines else ""

    def _word(self, name: str, index: str, job: str, state: str, node: str, start: str, why: str) -> SiteJob:
        said = {"None": "", "": ""}.get(why, f" ({why})")
        if state == "PENDING" and _TIME.fullmatch(start):
            # To ten minutes: what the backfill plans changes all the time.
            said += f", to start about {start[:-4].replace('T', ' ')}0"
        where = f" on {node}" if node else ""
        key = state.partition(" ")[0]  # `CANCELLED by 1000` of sacct
        found = _STATES.get(key, "ended")
        place = int(index) if index.isdigit() else 0
        words = f"{state}{where}{said}"
        return SiteJob(name.removeprefix(f"{self.prefix}-"), place, job, found, node, words, _REASONS.get(key))

    def _start_requeued(self, words: Sequence[SiteJob]) -> None:
        """Slurm lets a requeued job wait for two minutes; the user of a search need not."""
        waiting = {one.id for one in words if one.state == "waiting" and "(BeginTime)" in one.words}
        since = self._requeued = {one: self._requeued.get(one, self.now()) for one in waiting}
        for job, seen in since.items():
            if self.now() - seen >= 1.0:  # a node refuses a job that it has killed within the same second
                self.run(["scontrol", "update", f"jobid={job}", "StartTime=now"], forgiving=True)

    def _has_accounting(self) -> bool:
        if self._accounting is None:
            asked = ["sacct", "-n", "-X", "-P", "-o", "JobID", "-S", "now-1minutes"]
            found = shutil.which("sacct") is not None
            self._accounting = found and subprocess.run(asked, capture_output=True, check=False).returncode == 0
        return self._accounting

    def _accounted(self) -> list[SiteJob]:
        """What the accounting still knows of jobs that have left the queue."""
        fields = "JobName%200,JobID,State,NodeList,ExitCode"
        names = sorted({one.batch for one in self._open.values() if one.launched and one.missed})
        asked = ",".join(f"{self.prefix}-{name}" for name in names[:100])
        found = []
        lines = self.run(["sacct", "-n", "-X", "-P", "-S", "now-30days", f"--name={asked}", "-o", fields]).splitlines()
        for line in lines:
            name, job, state, node, code = line.split("|", 4)
            index = job.partition("_")[2] or "0"
            word = self._word(name, index, job, state, node, "", f"exit code {code}")
            found.append(word)
        return found


def _of_srun(argv: Sequence[str]) -> list[str]:
    """What a command that begins with srun asks for: its job needs at least that."""
    if not argv or argv[0].rpartition("/")[2] != "srun":
        return []
    found: list[str] = []
    words = iter(argv[1:])
    for word in words:
        if not word.startswith("-"):
            break
        name = word.partition("=")[0] if word.startswith("--") else word[:2]
        whole = "=" in word or (not word.startswith("--") and len(word) > 2) or word in SRUN_FLAGS
        value = [] if whole else [next(words, "")]
        if name in _ALLOCATES:
            found += [word, *value]
    return found
