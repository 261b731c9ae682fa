"""Compare searchers on MuJoCo policies and formulas."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from operant.errors import ConfigError, MissingExtraError, UsageError

if TYPE_CHECKING:
    from operant.benchmark import Outcome


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    search = actions.add_parser("search", help="searchers on one function, over seeds")
    search.add_argument("--func", required=True, help="swimmer, hopper, …, ackley, levy, rover, …")
    search.add_argument("--dims", type=int, help="arguments of a formula")
    search.add_argument("--searchers", default="lamcts,cmaes,turbo,tpe,random", help="names, separated by commas")
    search.add_argument("--seeds", type=int, default=20, help="how many searches of each searcher")
    search.add_argument("--first-seed", type=int, default=1000)
    search.add_argument("--samples", type=int, default=500, help="samples of a search that is not done before")
    search.add_argument("--centre", action="store_true", help="searchers that can start in the middle do")
    search.add_argument("--workers", type=int, default=1, help="searches at a time")
    search.add_argument("--out", default="bench", metavar="FOLDER", help="for results, table, picture and page")


def run(args: argparse.Namespace) -> int:
    from operant.benchmark import make_function
    from operant.benchmark.reporting import charts, compare, searcher_options, table
    from operant.cli.plot import write_charts

    if min(args.seeds, args.samples, args.workers, 1 if args.dims is None else args.dims) < 1:
        raise UsageError("--dims, --seeds, --samples and --workers are whole numbers from 1 on")
    if args.first_seed < 0:
        raise UsageError("--first-seed is a whole number from 0 on")
    try:
        make_function(args.func, args.dims)
    except ConfigError as error:  # its place is one in the file of a search
        raise UsageError(error.message) from None
    searchers = [one.strip() for one in args.searchers.split(",") if one.strip()]
    if not searchers:
        raise UsageError("--searchers names no searcher")
    # Searches with other numbers of arguments have nothing in common.
    name = args.func + (f"-{args.dims}" if args.dims else "") + ("-centre" if args.centre else "")
    folder = Path(args.out)
    outcomes = compare(
        args.func,
        {one: searcher_options(one, args.func, args.centre) for one in searchers},
        range(args.first_seed, args.first_seed + args.seeds),
        args.samples,
        folder / f"{name}.jsonl",
        dims=args.dims,
        workers=args.workers,
        told=lambda one: print(_told(one), flush=True),
    )
    text = table(outcomes, args.func)
    (folder / f"{name}.md").write_text(text + "\n", encoding="utf-8")
    print(text)
    drawn = charts(outcomes, args.func)
    write_charts(drawn, name, folder / f"{name}.html")
    try:
        write_charts(drawn, name, folder / f"{name}.png")
    except MissingExtraError as error:
        print(error)
    return 0


def _told(one: Outcome) -> str:
    from operant.benchmark import THRESHOLDS

    found = f"{one.searcher} seed {one.seed}: best {one.best:.6g}"
    if one.function not in THRESHOLDS:
        return found
    threshold = f"{THRESHOLDS[one.function]:g}"
    return (
        f"{found}, {threshold} not reached"
        if one.hit is None
        else f"{found}, {threshold} reached after {one.hit} samples"
    )
