"""Tasks of a config file: each trial of a search runs the user's DI-engine style file with its own values in it."""

from __future__ import annotations

import ast
import contextlib
import json
import logging
import os
import re
import secrets
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from operant._util.checks import is_whole
from operant.errors import OperantError, UsageError
from operant.hpo.history import text_table
from operant.hpo.run_config import RESULT_NAME, TASK_NAME
from operant.sites import Event, Limits, LocalSite, Submission, make_token
from operant.sites.calls import FinalFailure

logger = logging.getLogger("operant.hpo")

_STATES = ("defined", "running", "waiting", "finished", "success", "abnormal")
_LAST_LINES = 5


class TaskFailed(OperantError):
    """A task that gave no result, and why."""


class TaskTimedOut(TaskFailed, FinalFailure):
    """A task that took too long would do so again."""


class Task:
    """One trial of a config file."""

    def __init__(self, task_id: int, folder: Path, exp_name: str) -> None:
        self.id, self.folder, self.exp_name = task_id, folder, exp_name
        self.state = "waiting"
        self.ended = threading.Event()
        self.info: Mapping[str, Any] = {}
        self.token = ""


class ConfigScheduler:
    """Runs tasks of one config file on this machine. Use it in a `with`, or call `stop` in the end.

    Task k has the folder `<project>-<k>`: its values, a copy of the file, `stdout` and `stderr`, its run, and in
    `hpo/` what the training leaves, of which `result.pkl` is the task's result.
    """

    def __init__(
        self,
        task_config_template_path: str | os.PathLike[str],
        dijob_project_name: str | None = None,
        max_number_of_running_task: int | None = None,
        max_number_of_tasks: int = 100_000,
        time_out: float | None = None,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        self.template = Path(task_config_template_path).absolute()
        self._text = _checked(self.template)
        self.project = _project(dijob_project_name or self.template.stem)
        self.max_tasks = _at_least_one(max_number_of_tasks, "max_number_of_tasks")
        self.time_out = None if time_out is None else float(time_out)
        if self.time_out is not None and not self.time_out > 0:
            raise UsageError(f"time_out is a number of seconds above 0, not {time_out!r}")
        running = max_number_of_running_task
        self._slots: contextlib.AbstractContextManager[Any] = (
            contextlib.nullcontext()
            if running is None
            else threading.BoundedSemaphore(_at_least_one(running, "max_number_of_running_task"))
        )
        self.folder = Path(folder or Path.cwd()).absolute()
        self._first = _first_free(self.folder, self.project)
        self._lock = threading.Lock()
        self._tasks: list[Task] = []
        self._by_token: dict[str, Task] = {}
        self._stopped = False
        self._open()

    def __enter__(self) -> ConfigScheduler:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def get_hpo_callable(self) -> Callable[[Mapping[str, Any]], Any]:
        """The function to search: it runs a task with the given values and returns its result."""

        def run_task(config: Mapping[str, Any]) -> Any:
            return self.run_task(config)

        run_task.__name__ = run_task.__qualname__ = self.project
        run_task.check_space = self.check_space  # type: ignore[attr-defined]
        return run_task

    def check_space(self, nested: Any) -> None:
        """Find keys that `main_config` does not have, but nearly; the file is read as a task does it, and not run."""
        if not isinstance(nested, Mapping):
            raise UsageError(f"the space of a config file is a mapping shaped like main_config, not {nested!r}")
        with tempfile.TemporaryDirectory(prefix="operant-space-") as folder:
            self._write_task(Path(folder), "hpo", _keys(nested))
            command = [sys.executable, "-m", "operant.hpo.run_config", folder, "--check"]
            done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            said = [f"exit code {done.returncode}", *filter(str.strip, done.stderr.splitlines())]
            why = said[-1].removeprefix(f"{UsageError.__module__}.UsageError: ")
            raise UsageError(f"{self.template.name} cannot take the values of this space: {why}")

    def run_task(self, values: Mapping[str, Any]) -> Any:
        """Run one task to its end and return what is in its `result.pkl`, or its run's last scalars."""
        task = self._define(values)
        with self._slots:
            self._submit(task)
            self._log_status()
            self._await(task)
        try:
            return self._result(task)
        except OperantError:
            task.state = "abnormal"
            raise
        finally:
            self._log_status()

    def _log_status(self) -> None:
        logger.info("tasks of %s:\n%s", self.project, self.status_table())

    def stop(self) -> None:
        """End all tasks that run; nothing is left behind."""
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
        try:
            self._close()
        finally:
            for task in self._tasks:
                task.ended.set()

    def status(self) -> dict[str, list[int]]:
        """The ids of tasks by state; finished are those that succeeded and those that did not."""
        with self._lock:
            by_state = {state: [task.id for task in self._tasks if task.state == state] for state in _STATES}
            by_state["defined"] = [task.id for task in self._tasks]
        by_state["finished"] = sorted(by_state["success"] + by_state["abnormal"])
        return {f"task_{state}": by_state[state] for state in _STATES}

    def status_table(self) -> str:
        return text_table(["status", "instances"], [[state, str(ids)] for state, ids in self.status().items()])

    # -- where tasks run -----------------------------------------------------------------------------------------

    def _open(self) -> None:
        self._site = LocalSite(self.folder)
        self._site.start(self._hear)

    def _close(self) -> None:
        self._site.close()

    def _await(self, task: Task) -> None:
        task.ended.wait()

    # -- one task ------------------------------------------------------------------------------------------------

    def _define(self, values: Mapping[str, Any]) -> Task:
        if not isinstance(values, Mapping):
            raise UsageError(f"the values of a task are a mapping shaped like main_config, not {values!r}")
        with self._lock:
            if self._stopped:
                raise TaskFailed("the scheduler has been stopped")
            if len(self._tasks) >= self.max_tasks:
                raise TaskFailed(f"the scheduler takes at most {self.max_tasks} tasks (max_number_of_tasks)")
            number = self._first + len(self._tasks)
            name = f"{self.project}-{number}"
            task = Task(number, self.folder / name, f"{name}/hpo")
            self._tasks.append(task)
        self._lay_out(task, values)
        return task

    def _lay_out(self, task: Task, values: Mapping[str, Any]) -> None:
        task.folder.mkdir()
        self._write_task(task.folder, task.exp_name, plain_values(values))

    def _write_task(self, folder: Path, exp_name: str, values: Any) -> None:
        (folder / "config.py").write_text(self._text, encoding="utf-8")
        about = {"source": str(self.template), "exp_name": exp_name, "values": values}
        (folder / TASK_NAME).write_text(json.dumps(about, indent=2), encoding="utf-8")

    def _submit(self, task: Task) -> None:
        task.token = make_token(str(task.id), 1, secrets.token_hex(8))
        env = {"OPERANT_RUN_DIR": str(task.folder / "run"), "OPERANT_RUN_ID": task.folder.name, "OPERANT_ATTEMPT": "1"}
        argv = [sys.executable, "-m", "operant.hpo.run_config", str(task.folder)]
        limits = Limits(seconds=self.time_out)
        with self._lock:
            if self._stopped:
                task.ended.set()
                return
            task.state = "running"
            self._by_token[task.token] = task
            self._site.submit([Submission(task.token, str(task.id), 1, argv, task.folder, self.folder, env, limits)])

    def _hear(self, event: Event) -> None:
        if event.kind not in ("ended", "lost"):
            return
        task = self._by_token.get(event.token)
        if task is not None:
            task.info = event.info
            task.state = "success" if event.kind == "ended" and _went_well(event.info) else "abnormal"
            task.ended.set()

    def _result(self, task: Task) -> Any:
        from operant.schedulers.planning.pickles import load_plain_pickle

        if task.state != "success":
            if task.info.get("reason") == "time_limit":
                raise TaskTimedOut(f"task {task.id} ran longer than its time-out of {self.time_out:g} s")
            raise TaskFailed(f"task {task.id}: {_why(task)}")
        # DI-engine adds the time to a name that is taken; then the folder beside it is the one.
        for path in (self.folder / task.exp_name / RESULT_NAME, *sorted(task.folder.glob(f"hpo*/{RESULT_NAME}"))):
            if path.is_file():
                return load_plain_pickle(path)
        found = _last_scalars(task.folder / "run")
        if found:
            return found
        raise TaskFailed(
            f"task {task.id} ended well but left neither {task.exp_name}/{RESULT_NAME} nor a run's scalars"
        )


def run_scheduler_local(
    task_config_template_path: str | os.PathLike[str],
    dijob_project_name: str | None = None,
    max_number_of_running_task: int | None = None,
    max_number_of_tasks: int = 100_000,
    time_out: float | None = None,
) -> ConfigScheduler:
    """Run trials of a config file as jobs of this machine.

    :param task_config_template_path: a Python file that defines `main_config` (and `create_config`).
    :param dijob_project_name: what task folders begin with; by default the file's name.
    :param max_number_of_running_task: a limit beside the search's own `max_workers`.
    :param max_number_of_tasks: more than these are refused.
    :param time_out: seconds after which a task is killed, with everything it started.
    """
    return ConfigScheduler(
        task_config_template_path, dijob_project_name, max_number_of_running_task, max_number_of_tasks, time_out
    )


def _checked(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text, str(path))
    except OSError as error:
        raise UsageError(f"{str(path)!r} cannot be read: {error.strerror}") from None
    except SyntaxError as error:
        raise UsageError(f"{path}:{error.lineno}: this is no Python: {error.msg}") from None
    names = {one.id for one in ast.walk(tree) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    names |= {
        alias.asname or alias.name for one in ast.walk(tree) if isinstance(one, ast.ImportFrom) for alias in one.names
    }
    if "main_config" not in names:
        raise UsageError(f"{path} does not define `main_config`, which is where a trial's values go")
    return text


def _project(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise UsageError(f"a project's name is letters, digits and '._-', not {name!r}")
    return name


def _first_free(folder: Path, project: str) -> int:
    """Numbers go on after those of earlier runs, so that no task finds the results of another."""
    pattern = re.compile(rf"{re.escape(project)}-(\d+)")
    taken = [int(found[1]) for path in folder.iterdir() if (found := pattern.fullmatch(path.name))]
    return max(taken, default=-1) + 1


def plain_values(values: Mapping[str, Any]) -> Any:
    try:
        return json.loads(json.dumps(values, default=_as_number))
    except (TypeError, ValueError) as error:
        raise UsageError(f"values for a config file are plain data: {error}") from None


def _keys(part: Any) -> Any:
    """The keys of a space, without what may vary."""
    if isinstance(part, Mapping):
        return {str(key): _keys(one) for key, one in part.items()}
    return [_keys(one) for one in part] if isinstance(part, (list, tuple)) else None


def _as_number(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{value!r} is not")


def _went_well(info: Mapping[str, Any]) -> bool:
    return info.get("code") == 0 and info.get("reason") is None


def _why(task: Task) -> str:
    """The last lines that the task printed to stderr say more than its exit code."""
    reason = task.info.get("error") or task.info.get("reason")
    code = f"exit code {task.info.get('code')}" if task.info else "it was stopped"
    what = str(reason).replace("_", " ") if reason else code
    try:
        printed = (task.folder / "stderr").read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        printed = []
    lines = [line for line in printed if line.strip()][-_LAST_LINES:]
    return f"{lines[-1].strip()} ({what}; see {task.folder / 'stderr'})" if lines else what


def _last_scalars(folder: Path) -> dict[str, float]:
    if not folder.is_dir():
        return {}
    from operant.tracking import Run

    run = Run(folder)
    found = {tag: run.latest(tag) for tag in run.scalar_tags}
    return {tag: float(point.value) for tag, point in found.items() if point is not None}


def _at_least_one(value: Any, what: str) -> int:
    if not is_whole(value, 1):
        raise UsageError(f"{what} is a whole number from 1 on, not {value!r}")
    return value
