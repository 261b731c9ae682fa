"""Tell what another assessor would have saved in a search that has run, and whether its best would have been lost.

operant replay mnist                                    the usual ones, side by side
operant replay mnist --assessor asha --option reduction_factor=4
operant replay mnist --assessor asha:min_step=1 --assessor asha:min_step=5 --assessor median
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from operant._util.units import duration, printable
from operant.cli._terminal import print_table
from operant.errors import UsageError

_USUAL = ("asha", "hyperband", "median")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("search", nargs="?", help="the search to replay")
    parser.add_argument("-t", "--task", metavar="NAME", help="the search to replay, as other commands take it")
    parser.add_argument(
        "--assessor",
        action="append",
        default=[],
        metavar="NAME[:key=value,…]",
        help=f"an assessor with options of its own; may be given again (default: {', '.join(_USUAL)})",
    )
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="key=value",
        help="an option for all of them that take it; may be given again",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--root", help="the .operant folder (default: the nearest one)")


def run(args: argparse.Namespace) -> int:
    from operant.schedulers.analysis.assessor_replay import read_recording, replay
    from operant.schedulers.views.overview import find_search
    from operant.tracking.places import find_root

    if (args.search is None) == (args.task is None):
        raise UsageError("say which search to replay: `operant replay NAME`")
    wanted = _parse(args.assessor or list(_USUAL), args.option)
    recording = read_recording(find_search(find_root(args.root), args.search or args.task))
    results = [replay(recording, name, options) for name, options in wanted]
    if args.json:
        found = [one.to_mapping() for one in results]
        print(json.dumps({"task": recording.name, "notes": recording.notes, "replays": found}, indent=1))
        return 0
    _print(recording, results)
    return 0


def _parse(words: list[str], shared: list[str]) -> list[tuple[str, dict[str, Any]]]:
    """Each assessor with its own options and those of the shared ones that it takes."""
    from operant.assessors import ASSESSORS
    from operant.registry import accepted_arguments
    from operant.schedulers.analysis.assessor_replay import find_assessor

    for_all = dict(_option(one) for one in shared)
    found, used = [], set()
    for word in words:
        name, _, own = word.partition(":")
        allowed, _, takes_any = accepted_arguments(ASSESSORS.get(find_assessor(name)))
        options = {key: value for key, value in for_all.items() if takes_any or key in allowed}
        used |= set(options)
        options.update(_option(one) for one in own.split(",") if one)
        found.append((name, options))
    for key in for_all:
        if key not in used:
            raise UsageError(f"none of these assessors has an option {key!r}")
    return found


def _option(text: str) -> tuple[str, Any]:
    from operant.space import load_yaml

    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UsageError(f"an option is key=value, not {text!r}")
    return key.strip(), load_yaml(value)[0]


def _print(recording: Any, results: list[Any]) -> None:
    first = results[0]
    print(
        f"{recording.name}: {first.jobs} jobs with {first.steps:,} reports of {printable(recording.rule.attribute)}, "
        f"{duration(first.seconds)} of job time"
    )
    if first.best is not None:
        print(f"its best: {first.best[1]:.6g} by proposal {first.best[0]}")
    rows = []
    for one in results:
        options = " ".join(f"{key}={value}" for key, value in one.options.items() if key != "optimize_mode")
        kept = {None: "", True: "kept", False: f"LOST after {one.best_stopped_after}"}[one.best_kept]
        found = ""
        if one.found is not None:
            found = f"{one.found[1]:.6g} by proposal {one.found[0]}"
            if one.found_real is not None and one.found_real != one.found[1]:
                found += f" (really {one.found_real:.6g})"
        rows.append(
            [
                one.assessor.removesuffix("Assessor"),
                options,
                f"{len(one.stopped)} of {one.jobs}",
                f"{one.steps_saved:,} ({_share(one.steps_saved, one.steps)})",
                f"{duration(one.seconds_saved)} ({_share(one.seconds_saved, one.seconds)})",
                kept,
                found,
            ]
        )
    print_table(["assessor", "options", "stopped", "reports saved", "time saved", "best", "would have found"], rows)
    for note in recording.notes:
        print(f"note: {note}")


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole > 0 else "0%"
