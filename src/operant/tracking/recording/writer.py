"""``SummaryWriter``: the calls that TensorBoard and PAVI users know, over a run that cannot be lost."""

from __future__ import annotations

import os
import sys
import traceback
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from time import time
from types import TracebackType
from typing import Any

from operant.errors import UsageError
from operant.status import Status
from operant.tracking.places import check_run_id, find_root, new_run_id, resolve_run_dir, run_dir
from operant.tracking.reading.summary import summarize
from operant.tracking.recording.classic import ClassicCalls
from operant.tracking.recording.recorder import FLUSH_ROWS, ROW, Recorder
from operant.tracking.recording.values import as_array, as_number, as_step, as_tag
from operant.tracking.remote.address import tracking_uri

__all__ = ["SummaryWriter"]

MISSING: Any = object()
_FULL = FLUSH_ROWS * ROW
_SHORT_STEP = 1 << 30  # an int of one digit inside Python: comparing it is quickest


class SummaryWriter(ClassicCalls):
    """Records one run.

    >>> with SummaryWriter("cartpole") as writer:
    ...     for step in range(100):
    ...         writer.add_scalar("return", step * 0.5, step)

    :param name: what the run is called; a path such as TensorBoard's ``log_dir`` will do.
    :param comment: added to the name, as TensorBoard does.
    :param purge_step: with ``run``: points at and behind this step are superseded by what is recorded now.
    :param run: id of an existing run to add to: another process's part of it, or its continuation.
    :param resumed_from: with ``run``: the step this program goes on from; later points of earlier attempts are
        superseded.
    :param tags: labels to find the run by.
    :param config: settings of the program, as ``add_hparams`` takes them.
    :param root: the ``.operant`` folder; by default the nearest one above the current folder.
    :param system_metrics: record CPU, memory and GPU use every 15 seconds.

    Inside a job of a search the run comes from the environment and ``name`` only labels it.
    ``max_queue``, ``flush_secs`` and ``filename_suffix`` are TensorBoard's and change nothing here:
    points are on disk within a second.
    """

    def __init__(
        self,
        name: str | os.PathLike[str] | None = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: float = 120,
        filename_suffix: str = "",
        *,
        log_dir: str | os.PathLike[str] | None = None,
        run: str | None = None,
        resumed_from: int | None = None,
        tags: Iterable[str] = (),
        config: Mapping[str, Any] | None = None,
        root: str | os.PathLike[str] | None = None,
        system_metrics: bool = True,
    ) -> None:
        given = name if name is not None else log_dir
        if given is not None and not isinstance(given, (str, os.PathLike)):
            raise UsageError(f"name must be a string, got {type(given).__name__}: {given!r}")
        label = (os.fspath(given) if given is not None else _program_name()) + comment
        if isinstance(tags, str):
            raise UsageError(f"tags must be a list of strings, got the string {tags!r}")
        if purge_step is not None:
            resumed_from = as_step(purge_step) - 1
        self._core = core = _open_recorder(
            label, run, root, [as_tag(tag) for tag in tags], system_metrics, resumes=resumed_from is not None
        )
        self._rows = core.rows
        self._ids = core.ids
        self._counters: dict[str, int] = {}
        # A writer that is dropped without close() still ends its run; at exit the process hooks do it.
        self._finalizer = weakref.finalize(self, core.end, Status.FINISHED)
        self._finalizer.atexit = False
        if resumed_from is not None:
            self.resume_from(resumed_from)
        if config:
            self.add_hparams(config)

    @property
    def run_id(self) -> str:
        """The id under which ``operant runs`` and ``Run.open`` know this run."""
        return self._core.run_id

    @property
    def run_dir(self) -> Path:
        return self._core.folder

    def add_scalar(
        self,
        tag: str,
        value: Any = MISSING,
        step: int | None = None,
        walltime: float | None = None,
        new_style: bool = False,
        double_precision: bool = False,
        scalar_value: Any = MISSING,
        global_step: int | None = None,
    ) -> None:
        """Record one number: Python's, numpy's, or a tensor of one element. Without a step, this tag's calls count.

        ``scalar_value``, ``global_step``, ``new_style`` and ``double_precision`` are TensorBoard's names;
        values are always stored in double precision.
        """
        try:
            # The common call, a float at an int step, is kept short: about 0.4 µs.
            if type(value) is float and type(step) is int and walltime is None and 0 <= step < _SHORT_STEP:
                rows = self._rows
                rows.extend((self._ids[tag], step, time(), value))
                if len(rows) >= _FULL:
                    self._core.flush()
                return
        except (KeyError, TypeError):  # the first point of a tag, or a tag that is none
            pass
        if value is MISSING:
            value = scalar_value
        if value is MISSING:
            raise UsageError(f"add_scalar({tag!r}) needs a value")
        self._add_point(tag, as_number(value), global_step if step is None else step, walltime)

    def add_scalars(self, *args: Any, **named: Any) -> None:
        """Record several numbers at one step.

        ``add_scalars({"loss": 0.1, "acc": 0.9}, step)``, or TensorBoard's
        ``add_scalars("train", {"loss": 0.1}, step)``, which records ``train/loss``.
        """
        group, scalars, step, walltime = _scalars_arguments(*args, **named)
        now = time() if walltime is None else as_number(walltime, "walltime")
        fixed = None if step is None else as_step(step)
        rows: list[Any] = []  # added at once, when all of them have been found good
        for tag, value in scalars.items():
            number = value if type(value) is float else as_number(value, f"value of {tag!r}")
            name = f"{group}/{as_tag(tag)}" if group else tag
            series = self._ids.get(name)
            if series is None:
                series = self._core.declare(as_tag(name))
            rows += (series, self._step_of(name, None) if fixed is None else fixed, now, number)
        self._rows.extend(rows)
        if len(self._rows) >= _FULL:
            self._core.flush()

    def add_array(self, tag: str, values: Any, steps: Any = None, walltimes: Any = None) -> None:
        """Record many points of one tag at once, from arrays, tensors or lists.

        Without ``steps`` they follow on this tag's counter; without ``walltimes`` all are of now.
        """
        import numpy as np

        tag = as_tag(tag)
        try:
            value_column = np.ascontiguousarray(as_array(values), dtype="<f8")
        except (TypeError, ValueError) as error:
            raise UsageError(f"values of {tag!r} must be numbers: {error}") from None
        count = len(value_column) if value_column.ndim == 1 else -1
        if count < 0:
            raise UsageError(f"values of {tag!r} must be one-dimensional, got shape {value_column.shape}")
        if steps is None:
            first = self._counters.get(tag, 0)
            step_column = np.arange(first, first + count, dtype="<i8")
            self._counters[tag] = first + count
        else:
            step_column = as_array(steps)
            if step_column.size and not np.can_cast(step_column.dtype, np.int64, "same_kind"):
                raise UsageError(f"steps of {tag!r} must be whole numbers, got {step_column.dtype}")
            step_column = np.ascontiguousarray(step_column, dtype="<i8")
        if walltimes is None:
            wall_column = np.full(count, time(), dtype="<f8")
        else:
            wall_column = np.ascontiguousarray(as_array(walltimes), dtype="<f8")
        if step_column.shape != (count,) or wall_column.shape != (count,):
            raise UsageError(
                f"{tag!r} has {count} values but steps of shape {step_column.shape} and walltimes of shape "
                f"{wall_column.shape}: all must be of one length"
            )
        if count:
            self._core.add_array(tag, step_column, wall_column, value_column)

    def add_tags(self, *tags: str) -> None:
        """Label the run, so that it can be found by these tags."""
        self._core.record("tags", add=[as_tag(tag) for tag in tags])

    def resume_from(self, step: int | None) -> None:
        """Say that the program goes on from its state after ``step``: later points of earlier attempts are hidden."""
        step = None if step is None else as_step(step)
        self._core.begin_attempt(self._core.attempt + 1, step)
        self._counters = dict.fromkeys(self._counters, 0 if step is None else step + 1)

    def flush(self) -> None:
        """Write everything recorded so far to disk."""
        self._core.flush()

    def close(self) -> None:
        """Write everything and end the run. It ends as ERROR when an exception is under way."""
        error = sys.exc_info()[1]
        self._end(error)

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(error)

    def __repr__(self) -> str:
        return f"SummaryWriter(run={self.run_id!r})"

    def _end(self, error: BaseException | None) -> None:
        left_well = isinstance(error, SystemExit) and error.code in (None, 0)
        if error is None or left_well:
            self._core.end(Status.FINISHED, code=0)
        else:
            text = "".join(traceback.format_exception_only(error)).strip()
            self._core.end(Status.ERROR, code=1, error=text)

    def _add_point(self, tag: str, number: float, step: Any, walltime: float | None) -> None:
        tag = as_tag(tag)
        step = self._step_of(tag, step)
        wall = time() if walltime is None else as_number(walltime, "walltime")
        series = self._ids.get(tag)
        if series is None:
            series = self._core.declare(tag)
        self._rows.extend((series, step, wall, number))
        if len(self._rows) >= _FULL:
            self._core.flush()

    def _step_of(self, tag: str, step: Any) -> int:
        """The step as given, or how often this tag came without one."""
        if step is not None:
            return as_step(step)
        count = self._counters.get(tag, 0)
        self._counters[tag] = count + 1
        return count


def _scalars_arguments(
    main_tag: Any,
    tag_scalar_dict: Any = None,
    global_step: Any = None,
    walltime: Any = None,
    *,
    step: Any = None,
) -> tuple[str, Mapping[str, Any], Any, Any]:
    """Tell ``(dict, step)`` from TensorBoard's ``(main tag, dict, step)``."""
    if isinstance(main_tag, Mapping):
        group, scalars, at = "", main_tag, tag_scalar_dict if tag_scalar_dict is not None else global_step
    else:
        group, scalars, at = as_tag(main_tag), tag_scalar_dict, global_step
    if not isinstance(scalars, Mapping):
        raise UsageError(f"add_scalars takes a dict of numbers, got {type(scalars).__name__}: {scalars!r}")
    return group, scalars, step if step is not None else at, walltime


def _program_name() -> str:
    """What an unnamed run is called: the script, or ``run`` in a notebook or at the prompt."""
    stem = Path(sys.argv[0]).stem if sys.argv and sys.argv[0] else ""
    return stem if stem and stem not in ("-c", "-m", "__main__") else "run"


def _open_recorder(
    label: str,
    run: str | None,
    root: str | os.PathLike[str] | None,
    tags: list[str],
    system_metrics: bool,
    resumes: bool,
) -> Recorder:
    """The run that this process writes to: the job's own, the one named by ``run``, or a new one."""
    job_folder = os.environ.get("OPERANT_RUN_DIR")
    if run is None and job_folder:
        return _open_job_recorder(Path(job_folder).absolute(), label, tags, system_metrics, resumes)
    uri = tracking_uri() if root is None else None
    if uri is not None:
        from operant.tracking.recording.remotely import open_remote_recorder

        return open_remote_recorder(uri, label, run, tags, system_metrics, resumes)
    folder = find_root(root)
    if run is None:
        run_id = new_run_id(label)
        path = run_dir(folder, run_id)
        return Recorder(path, run_id, label, role="main", attempt=1, tags=tags, system_metrics=system_metrics)
    run_id, path = resolve_run_dir(folder, check_run_id(run))
    earlier = summarize(path, run_id)
    return Recorder(
        path,
        run_id,
        earlier.name,
        role="main" if resumes else "joined",
        attempt=earlier.attempt,
        tags=tags,
        system_metrics=system_metrics,
    )


def _open_job_recorder(folder: Path, label: str, tags: list[str], system_metrics: bool, resumes: bool) -> Recorder:
    """A job's run. Its code and packages are recorded once, by the search."""
    run_id = check_run_id(os.environ.get("OPERANT_RUN_ID") or folder.parent.name)
    started = int(os.environ.get("OPERANT_ATTEMPT") or "1")
    # A program may have counted further than its job (by `resume_from`): a new start comes behind all of it.
    again = started > 1 or os.environ.get("OPERANT_RESTART", "0") != "0"
    attempt = max(started, summarize(folder, run_id).attempt + 1) if again else 1
    core = Recorder(
        folder,
        run_id,
        label,
        role="main",
        attempt=attempt,
        tags=tags,
        system_metrics=system_metrics,
        collect_provenance=False,
    )
    if attempt > 1 and not resumes:
        core.begin_attempt(attempt, None)
    return core
