"""`NaiveScheduler(work_dir, config, symlink_paths).run()`: a whole search on this machine."""

from __future__ import annotations

import os
import shlex
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from operant.errors import UsageError
from operant.schedulers.engine.control import NoView, View
from operant.schedulers.engine.scheduler import Outcome, Scheduler
from operant.schedulers.engine.state import read_state
from operant.schedulers.engine.workspace import Workspace
from operant.schedulers.planning.places import moved
from operant.schedulers.planning.plan import load_plan, make_plan
from operant.schedulers.views.display import LogView
from operant.schedulers.views.metrics import told_to_prometheus
from operant.sites import SITES, FunctionSite, Site
from operant.sites.base import Clock
from operant.sites.code import take_snapshot
from operant.tracking.journal.journal import JOURNAL_NAME
from operant.tracking.journal.lease import LeaseHeldError, read_lease
from operant.tracking.places import check_run_id
from operant.tracking.reading.compares import join_compare


class BaseScheduler:
    """Something that runs a search."""

    def run(self) -> Outcome:
        raise NotImplementedError


class NaiveScheduler(BaseScheduler):
    """Runs the search that ``config`` describes, keeping everything about it in ``work_dir``.

    :param work_dir: the search's folder, such as ``.operant/searches/mnist``; it need not exist.
    :param config: the configuration as a dict, or the YAML file that holds it.
    :param symlink_paths: paths of the current folder that jobs get as links instead of copies.
    :param resume: go on with the search that is in ``work_dir``.
    :param force: with ``resume``, also when the configuration has changed.
    :param function: call this with each configuration instead of starting programs; it returns the reward.
    :param source: the folder with the code, by default the current one.
    :param where: the site that programs run on, as `site` of the configuration says it, instead of that one.
    """

    def __init__(
        self,
        work_dir: str | os.PathLike[str],
        config: Mapping[str, Any] | str | os.PathLike[str],
        symlink_paths: Iterable[str | os.PathLike[str]] | None = None,
        *,
        resume: bool = False,
        force: bool = False,
        function: Callable[..., Any] | None = None,
        source: str | os.PathLike[str] | None = None,
        view: View | None = None,
        site: Site | None = None,
        where: str | Mapping[str, Any] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.workdir = Path(work_dir).absolute()
        check_run_id(self.workdir.name)
        self.source = Path(source or Path.cwd()).absolute()
        self.symlink_paths = list(symlink_paths or ())
        self.resume = resume
        self.force = force
        self.function = function
        self.view = view or NoView()
        self._site = site
        self._clock = clock
        if isinstance(config, Mapping):
            config = config if where is None else moved(config, where)
            self.plan = make_plan(config, folder=self.source, function=function is not None or site is not None)
        else:
            self.plan = load_plan(config, folder=self.source, where=where)
        self.origin: dict[str, Any] = {
            "file": None if isinstance(config, Mapping) else str(Path(config).absolute()),
            "source": str(self.source),
            "symlinks": [os.fspath(path) for path in self.symlink_paths],
            **({} if where is None else {"site": where}),
        }
        self.scheduler: Scheduler | None = None

    def run(self) -> Outcome:
        """Run the search to its end. SIGINT and SIGTERM end it early; its jobs then count as ERROR."""
        self._refuse_second_controller()
        if (self.workdir / JOURNAL_NAME).exists() and not self.resume and self._has_begun():
            raise UsageError(
                f"there is a search {self.workdir.name!r} already: --resume goes on with it, "
                f"`search-ctl rm --task {shlex.quote(self.workdir.name)}` removes it"
            )
        self.workdir.mkdir(parents=True, exist_ok=True)
        for note in self.plan.notes:
            self.view.note(note)
        in_process = self.function is not None or self._site is not None
        workspace = None if in_process else self._workspace()
        site = self._site or self._make_site()
        self._join_compare()
        self.plan.keep_config(self.workdir)
        self.scheduler = Scheduler(
            self.plan,
            self.workdir,
            site,
            clock=self._clock,
            workspace=workspace,
            view=LogView(self.view, self.workdir / "search.log")
            if self.plan.generate_log and not in_process
            else self.view,
            resume=self.resume,
            force=self.force,
            origin=self.origin,
        )
        with _signals_interrupt(self.scheduler), told_to_prometheus(self.workdir):
            return self.scheduler.run()

    def _refuse_second_controller(self) -> None:
        """Before any file is touched; the journal's lease, taken later, is what really decides."""
        from operant.tracking.journal import controller_is_alive

        if controller_is_alive(self.workdir):
            raise LeaseHeldError(self.workdir, read_lease(self.workdir))

    def _has_begun(self) -> bool:
        """Whether anything was proposed; a search whose site never started may begin anew under its name."""
        state, _ = read_state(self.workdir)
        return bool(state.proposals or state.damage.total)

    def _workspace(self) -> Workspace:
        snapshot = take_snapshot(self.source, self.workdir / "code", self.symlink_paths)
        if snapshot.note is not None:
            self.view.note(snapshot.note)
        return Workspace(self.plan, self.workdir, self.workdir.name, snapshot)

    def _make_site(self) -> Site:
        if self.function is not None:
            return FunctionSite(self.function, self.plan.rule.attribute)
        built: Site = SITES.build(self.plan.site, self.workdir)
        return built

    def _join_compare(self) -> None:
        if self.plan.compare:
            group = join_compare(self.workdir.parent.parent, self.workdir.name, self.plan.compare)
            self.plan.compare = {"name": str(group["name"]), "id": str(group["id"])}
            self.view.note(f"its runs are in the group {group['name']!r}, id {group['id']}")


@contextmanager
def _signals_interrupt(scheduler: Scheduler) -> Iterator[None]:
    """The first ctrl-C ends the search in order, a second one at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = {}

    def handle(number: int, _: Any) -> None:
        scheduler.interrupt(f"interrupted by {signal.Signals(number).name}")
        signal.signal(signal.SIGINT, signal.default_int_handler)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            former[number] = signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
