"""Compare groups of trainings over seeds and environments: IQM, intervals, who is better how surely.

operant train pendulum-sac --seeds 0..9; operant train pendulum-td3 --seeds 0..9
operant compare-scores pendulum-sac pendulum-td3
operant compare-scores sac=pendulum-sac,hopper-sac td3=pendulum-td3,hopper-td3 --out scores.html
operant compare-scores old=cartpole-ppo-seed[0-4] new=cartpole-ppo-seed[5-9] --best --out scores.png
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from operant.cli._terminal import print_table
from operant.errors import UsageError

if TYPE_CHECKING:
    from operant.training.comparing import Group, Range


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "groups", nargs="+", metavar="[LABEL=]RUNS[,RUNS]", help="names of trainings; each stands for all its seeds"
    )
    parser.add_argument("--best", action="store_true", help="judge by the best evaluation, not by the last")
    parser.add_argument(
        "--range", action="append", default=[], metavar="ENV=LOW,HIGH", help="returns that count as 0 and 1 there"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="charts too: x.png, x.svg, x.pdf or x.html")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--root", help="the .operant folder (default: the nearest one)")


def run(args: argparse.Namespace) -> int:
    from operant.cli.plot import check_suffix, write_charts
    from operant.tracking.places import find_root
    from operant.training.comparing import read_groups, score_charts, score_figures, score_ranges

    if args.out is not None:
        check_suffix(args.out)
    groups = read_groups(find_root(args.root), _wanted(args.groups))
    ranges = score_ranges(groups, _ranges(args.range), args.best)
    figures = score_figures(groups, ranges, args.best)
    if args.json:
        print(json.dumps({"ranges": ranges, "groups": figures}, indent=1))
    else:
        _print(groups, figures, ranges)
    if args.out is not None:
        charts = score_charts(groups, ranges, args.best)
        write_charts(charts, " and ".join(group.name for group in groups), args.out)
        if not args.json:
            print(f"Wrote {args.out} ({len(charts)} charts)")
    return 0


def _wanted(words: list[str]) -> dict[str, list[str]]:
    wanted: dict[str, list[str]] = {}
    for word in words:
        label, _, names = word.rpartition("=")
        label = label or names
        if label in wanted:
            raise UsageError(f"two groups are called {label}; write LABEL={names} to give one another name")
        wanted[label] = [name for name in names.split(",") if name]
        if not wanted[label]:
            raise UsageError(f"{word!r} names no trainings: write [LABEL=]RUNS[,RUNS], such as sac=pendulum-sac")
    return wanted


def _ranges(words: list[str]) -> dict[str, Range]:
    given: dict[str, Range] = {}
    for task, numbers in map(_range, words):
        if task in given:
            raise UsageError(f"two ranges are given for {task}; leave one of them")
        given[task] = numbers
    return given


def _range(word: str) -> tuple[str, Range]:
    task, _, numbers = word.rpartition("=")
    try:
        low, high = map(float, numbers.split(","))
    except ValueError:
        low = high = 0.0
    if not task or not -math.inf < low < high < math.inf:
        raise UsageError(f"--range is ENV=LOW,HIGH, such as Pendulum-v1=-1200,-150; got {word!r}")
    return task, (low, high)


def _print(groups: list[Group], figures: list[dict[str, Any]], ranges: dict[str, Range]) -> None:
    def shown(middle: float, low: float, high: float) -> str:
        # Thousands in full, as returns are read; small ones with as many digits as tell them apart.
        plain = [f"{one:.0f}" if abs(one) >= 1000 else f"{one:.3g}" for one in (middle, low, high)]
        return f"{plain[0]} [{plain[1]}, {plain[2]}]"

    cells = [
        (one["group"], str(one["runs"]), shown(*one["iqm"]), "" if one["better"] is None else shown(*one["better"]))
        for one in figures
    ]
    print_table(("GROUP", "RUNS", "IQM [95 %]", f"BETTER THAN {groups[0].name}"), cells)
    scaled = [f"{task} {low:g} to {high:g}" for task, (low, high) in ranges.items() if (low, high) != (0.0, 1.0)]
    if scaled:
        print(f"0 to 1 is {', '.join(scaled)}")
    for group in groups:
        if group.unfinished:
            print(f"not counted: seeds of {group.name} that did not finish, {group.unfinished} of them")
        if group.mixed:
            print(f"not of one kind: runs of {group.name} differ in {', '.join(group.mixed)}")
