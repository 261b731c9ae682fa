"""Go on with a search in the background, as --resume does."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

from operant.errors import OperantError, UsageError
from operant.tracking.places import find_root


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-t", "--task", required=True, metavar="NAME", help="the search to go on with")
    parser.add_argument("--force", action="store_true", help="also when its file has changed")


def run(args: argparse.Namespace) -> int:
    from operant.schedulers.ledger import controller_is_alive, read_ledger
    from operant.schedulers.overview import find_search

    root = find_root()
    folder = find_search(root, args.task)
    if controller_is_alive(folder):
        raise UsageError(f"the search {args.task!r} is running already")
    ledger, _ = read_ledger(folder)
    origin = ledger.opened.get("origin") or {}
    file, source = origin.get("file"), origin.get("source")
    if not file or not Path(file).is_file() or not source or not Path(source).is_dir():
        raise UsageError(
            f"the file that the search {args.task!r} was begun with is gone ({file}); "
            f"`search-run --task {args.task} FILE --resume` goes on with another"
        )
    command = [sys.executable, "-m", "operant.cli.search_scripts", "run", "--task", args.task, file, "--resume"]
    command += ["--symlinks", ",".join(origin.get("symlinks", []))] + (["--force"] if args.force else [])
    log = folder / "restart.log"
    with log.open("ab") as stream:
        process = subprocess.Popen(
            command, cwd=source, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True
        )
    deadline = time.monotonic() + 60
    while not controller_is_alive(folder):
        code = process.poll()
        if code == 0:
            break  # there was nothing left to do
        if code is not None or time.monotonic() > deadline:
            lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            raise OperantError(f"it did not start: {lines[-1] if lines else 'no reason was given'} (see {log})")
        time.sleep(0.05)
    print(f"{args.task} goes on in the background (process {process.pid}); its lines are in {log}")
    return 0
