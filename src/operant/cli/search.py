"""Run a hyper-parameter search from a YAML file."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path

from operant.errors import UsageError
from operant.status import Status


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="the search's YAML file")
    parser.add_argument("-t", "--task", required=True, metavar="NAME", help="what the search is called")
    parser.add_argument(
        "--symlinks",
        default="",
        metavar="PATHS",
        help="paths, separated by commas, that jobs get as links instead of copies",
    )
    parser.add_argument("--resume", action="store_true", help="go on with the search of that name: ERROR jobs first")
    parser.add_argument(
        "--benchmark",
        action="store_true",
        help="search MuJoCo policies or a formula (scheduler: func_type) instead of starting programs",
    )
    parser.add_argument(
        "--site", metavar="SITE", help="where jobs run: a name (`operant sites`), '{type: slurm, …}' or a YAML file"
    )
    parser.add_argument("--force", action="store_true", help="with --resume: also when the file has changed")


def run(args: argparse.Namespace) -> int:
    from operant.cli.sites import parse_site
    from operant.schedulers.naive_scheduler import NaiveScheduler
    from operant.schedulers.views.display import make_view
    from operant.schedulers.views.overview import find_search
    from operant.tracking.places import check_run_id, find_root

    _use_own_environment()
    if args.benchmark and (args.site or args.symlinks):
        raise UsageError("--site and --symlinks are for programs, and --benchmark starts none")
    if "/" in check_run_id(args.task):
        raise UsageError(f"a search's name has no '/': {args.task!r}")
    root = find_root()
    folder = find_search(root, args.task) if args.resume else root / "searches" / args.task
    symlinks = [path for path in args.symlinks.split(",") if path]
    scheduler: NaiveScheduler
    if args.benchmark:
        from operant.schedulers.mujoco_scheduler import MujocoScheduler

        scheduler = MujocoScheduler(folder, args.file, resume=args.resume, force=args.force, view=make_view())
    else:
        where = None if args.site is None else parse_site(args.site)
        scheduler = NaiveScheduler(
            folder, args.file, symlinks, resume=args.resume, force=args.force, view=make_view(), where=where
        )
    if not scheduler.plan.compare:
        _print_page(root, args.task, None)
    try:
        outcome = scheduler.run()
    except KeyboardInterrupt:
        _print_way_on(args)
        raise
    if scheduler.plan.compare:  # its group has an id by now
        _print_page(root, args.task, scheduler.plan.compare.get("id"))
    for number, check in outcome.checks.items():
        mean, low, high = check["mean"], check["low"], check["high"]
        print(f"proposal {number} on {check['runs']} new seeds: {mean:.6g} (95 % interval {low:.6g} to {high:.6g})")
    print(f"`search-ctl show --task {shlex.quote(args.task)}` shows its jobs")
    if outcome.status == Status.STOPPED:
        print(f"its jobs go on: --resume takes them over, `search-ctl stop --task {shlex.quote(args.task)}` ends them")
        return 0
    if outcome.status == Status.FINISHED:
        return 0
    _print_way_on(args)
    return 1


def _print_page(root: Path, task: str, compare_id: str | None) -> None:
    from operant.web.address import address_of, compare_url

    print(f"page {compare_url(address_of(root), task, compare_id)} (`operant ui` serves it)", flush=True)


def _print_way_on(args: argparse.Namespace) -> None:
    options = [f"--symlinks={args.symlinks}"] * bool(args.symlinks) + ["--benchmark"] * args.benchmark
    options += [f"--site={args.site}"] * bool(args.site)
    words = shlex.join(["search-run", "--task", args.task, args.file, *options, "--resume"])
    print(f"`{words}` goes on with it; jobs that failed are run again")


def _use_own_environment() -> None:
    """Started from a virtual environment that nobody activated, jobs shall find that environment's `python` too."""
    if sys.prefix != sys.base_prefix and not os.environ.get("VIRTUAL_ENV") and not os.environ.get("CONDA_PREFIX"):
        programs = str(Path(sys.prefix) / "bin")
        os.environ["PATH"] = os.pathsep.join([programs, os.environ.get("PATH", os.defpath)])
