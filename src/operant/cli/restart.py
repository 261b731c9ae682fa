"""Go on with a search in the background, as --resume does."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import time
from pathlib import Path

from operant.errors import OperantError, UsageError
from operant.tracking.places import find_root


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-t", "--task", required=True, metavar="NAME", help="the search to go on with")
    parser.add_argument("--force", action="store_true", help="also when its file has changed")


def run(args: argparse.Namespace) -> int:
    from operant.schedulers.engine.state import read_state
    from operant.schedulers.views.overview import find_search
    from operant.tracking.journal import controller_is_alive

    root = find_root()
    folder = find_search(root, args.task)
    if controller_is_alive(folder):
        raise UsageError(f"the search {args.task!r} is running already")
    state, _ = read_state(folder)
    origin = state.opened.get("origin") or {}
    file, source = origin.get("file"), origin.get("source")
    if not file:
        raise UsageError(
            f"the search {args.task!r} was begun from Python: run that program again, under the same name, to go on"
        )
    if not state.is_own:
        raise UsageError(
            f"the search {args.task!r} was not begun by you on this machine, and what it names may be anything; "
            f"`search-run --task {shlex.quote(args.task)} FILE --resume` goes on with a file of yours"
        )
    if not Path(file).is_file() or not source or not Path(source).is_dir():
        raise UsageError(
            f"the file that the search {args.task!r} was begun with is gone ({file}); "
            f"`search-run --task {shlex.quote(args.task)} FILE --resume` goes on with another"
        )
    command = [sys.executable, "-m", "operant.cli.search_scripts", "run", "--task", args.task, file, "--resume"]
    command += ["--symlinks", ",".join(origin.get("symlinks", []))] + (["--force"] if args.force else [])
    command += ["--benchmark"] if origin.get("benchmark") else []
    command += [f"--site={json.dumps(origin['site'])}"] if origin.get("site") else []
    log = folder / "restart.log"
    pid = _start_detached(command, source, log)
    deadline = time.monotonic() + 60
    while not controller_is_alive(folder):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended and status == 0:
            break  # there was nothing left to do
        if ended or time.monotonic() > deadline:
            lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            raise OperantError(f"it did not start: {lines[-1] if lines else 'no reason was given'} (see {log})")
        time.sleep(0.05)
    print(f"{args.task} goes on in the background (process {pid}); its lines are in {log}")
    return 0


def _start_detached(command: list[str], folder: str, log: Path) -> int:
    """Start a program that goes on when this one ends, and that nobody has to wait for."""
    null = os.open(os.devnull, os.O_RDONLY)
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    actions = [(os.POSIX_SPAWN_DUP2, null, 0), (os.POSIX_SPAWN_DUP2, target, 1), (os.POSIX_SPAWN_DUP2, target, 2)]
    argv = ["/bin/sh", "-c", 'cd "$0" && exec "$@"', folder, *command]
    try:
        return os.posix_spawn(argv[0], argv, os.environ, file_actions=actions, setsid=True)
    finally:
        os.close(null)
        os.close(target)
