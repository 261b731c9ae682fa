"""Stop a search: jobs that wait or run become KILLED."""

from __future__ import annotations

import argparse
import time

from operant.errors import OperantError, UsageError
from operant.status import Status
from operant.tracking.places import find_root


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-t", "--task", required=True, metavar="NAME", help="the search to stop")
    parser.add_argument("--jobs", metavar="A,B", help="stop only these jobs; the search goes on")
    parser.add_argument(
        "--detach",
        action="store_true",
        help="end the controller only; jobs of a cluster go on, --resume takes them over",
    )
    parser.add_argument("--trust", action="store_true", help="ask the site of a search that you did not begin here")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds to wait for its end (default: 120)")


def run(args: argparse.Namespace) -> int:
    from operant.schedulers.engine.state import read_state
    from operant.schedulers.views.overview import describe, find_search
    from operant.sites.local import end_leftovers
    from operant.tracking.journal import controller_is_alive, post_message

    folder = find_search(find_root(), args.task)
    if not controller_is_alive(folder):
        state, status = read_state(folder)
        if state.outlives_controller and not args.detach and not args.jobs:
            from operant.schedulers.engine.detached import end_jobs

            ended = end_jobs(folder, args.timeout, trust=args.trust)
            print(f"{args.task}: nobody controlled it, {ended} jobs were killed")
            return 0
        left = end_leftovers(folder)
        if left:
            what = "1 process that its jobs had left behind was" if left == 1 else f"{left} processes of its jobs were"
            print(f"{args.task}: nobody controlled it; {what} ended")
            return 0
        raise UsageError(f"the search {args.task!r} is not running; it is {status}")
    if args.detach and not read_state(folder)[0].outlives_controller:
        raise UsageError(f"the jobs of {args.task!r} run on this machine and end with their controller")
    jobs = [one.strip() for one in args.jobs.split(",") if one.strip()] if args.jobs else []
    if jobs:
        jobs = [job["id"] for job in describe(folder, jobs)["jobs"]]
    message = post_message(
        folder, {"type": "stop", **({"jobs": jobs} if jobs else {}), **({"detach": True} if args.detach else {})}
    )
    deadline = time.monotonic() + args.timeout
    while message.exists() if jobs else controller_is_alive(folder):
        if time.monotonic() > deadline:
            raise OperantError(f"the search {args.task!r} was told to stop and has not answered for {args.timeout:g} s")
        time.sleep(0.05)
    if jobs:
        print(f"Told to stop: {', '.join(jobs)}")
    elif args.detach:
        print(f"{args.task}: its jobs go on; `--resume` takes them over, `stop` ends them")
    else:
        state, status = read_state(folder)
        killed = sum(job.status == Status.KILLED for job in state.jobs.values())
        print(f"{args.task}: {status}, {killed} jobs were killed")
    return 0
