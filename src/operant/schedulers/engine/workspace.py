"""A job's folder: the code, the files with its settings in them, and what its program finds in the environment."""

from __future__ import annotations

from pathlib import Path

from operant.schedulers.engine.records import JobRecord
from operant.schedulers.planning.plan import SearchPlan
from operant.schedulers.planning.rewards import JobReader
from operant.sites import Limits, Submission
from operant.sites.code import CodeSnapshot, remove_tree
from operant.status import Status

# The wrapper's own limit is a second line: it holds when the controller itself is stuck.
_BACKSTOP_SECONDS = 10.0


class Workspace:
    """Prepares ``jobs/<id>/``: ``work`` is where the program runs, everything beside it is Operant's.

    A new attempt gets a new ``work``; the former one is kept as ``work-<attempt>``.
    """

    def __init__(self, plan: SearchPlan, folder: Path, name: str, snapshot: CodeSnapshot) -> None:
        self.plan = plan
        self.folder = folder
        self.name = name
        self.snapshot = snapshot
        self._files = {
            name: (str(part.file), snapshot.read_text(str(part.file))) for name, part in plan.space.files.items()
        }

    def reader(self, job: JobRecord) -> JobReader:
        folder = self.folder / "jobs" / job.id
        return JobReader(folder, folder / "work", self.plan.rule, self.snapshot.foreign)

    def prepare(
        self, job: JobRecord, attempt: int, token: str, budget: float | None, gpus: list[str] | None
    ) -> tuple[Submission, JobReader]:
        """Make the folder ready for an attempt; one that was paused goes on in the folder it had."""
        folder = self.folder / "jobs" / job.id
        work = folder / "work"
        goes_on = job.status == Status.PAUSED
        if attempt > 1:
            self._set_aside(folder, attempt - 1, goes_on)
        folder.mkdir(parents=True, exist_ok=True)  # also where its user has removed what an attempt left
        if not work.exists():
            # A controller may be killed in the middle of this; a work folder that has its name is whole.
            staged = folder / ".work"
            if staged.exists():
                remove_tree(staged)
            self.snapshot.lay_out(staged, [file for file, _ in self._files.values()])
            self._write_files(job, staged)
            staged.rename(work)
        env = self._environment(job, attempt, budget, folder, work if goes_on else None)
        if gpus is not None:
            env["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
        limits = self.plan.limits
        seconds = None if limits.seconds is None else limits.seconds + _BACKSTOP_SECONDS
        limits = Limits(seconds, limits.memory_bytes, limits.output_bytes, limits.grace_seconds)
        command = self._command(job, budget, work)
        submission = Submission(token, job.id, attempt, command, folder, work, env, limits, job.arg_dict)
        return submission, self.reader(job)

    def _command(self, job: JobRecord, budget: float | None, work: Path) -> list[str]:
        values = dict(job.arg_dict)
        for name, (file, _) in self._files.items():
            values[name] = str(work / file)
        values["job_id"] = job.id
        if job.seed is not None:
            values["seed"] = job.seed
        if budget is not None:
            values["budget"] = budget
        return self.plan.template.render(values)

    def _write_files(self, job: JobRecord, work: Path) -> None:
        for name, (file, text) in self._files.items():
            part = self.plan.space.files[name]
            target = work / file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(part.render(text, part.values(name, job.arg_dict)), encoding="utf-8")

    def _set_aside(self, folder: Path, former: int, goes_on: bool) -> None:
        """Keep what the former attempt left."""
        for name in ("stdout", "stderr", *([] if goes_on else ["work"])):
            path, kept = folder / name, folder / f"{name}-{former}"
            if path.exists() and not kept.exists():
                path.rename(kept)

    def _environment(
        self, job: JobRecord, attempt: int, budget: float | None, folder: Path, goes_on_in: Path | None
    ) -> dict[str, str]:
        checkpoints = folder / "run" / "checkpoints"
        env = {
            "OPERANT_RUN_DIR": str(folder / "run"),
            "OPERANT_RUN_ID": f"{self.name}/{job.id}",
            "OPERANT_ATTEMPT": str(attempt),
            "OPERANT_JOB_ID": job.id,
        }
        if self.plan.ckpt_save_path is not None:
            kept = checkpoints / self.plan.ckpt_save_path
            kept.mkdir(parents=True, exist_ok=True)
            env["OPERANT_CKPT_DIR"] = str(kept)
            link = folder / "work" / self.plan.ckpt_save_path
            if not link.exists() and not link.is_symlink():
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(kept)
        if attempt > 1:
            kept_here = checkpoints.is_dir() and any(checkpoints.iterdir())
            env["OPERANT_RESUME_FROM"] = str(
                env.get("OPERANT_CKPT_DIR", checkpoints) if kept_here else goes_on_in or ""
            )
        if job.seed is not None:
            env["OPERANT_SEED"] = str(job.seed)
        if budget is not None:
            env["OPERANT_BUDGET"] = str(budget)
        if self.plan.rule.pattern is not None:
            env["PYTHONUNBUFFERED"] = "1"  # lines count when they are printed, not when a buffer is full
        return env
