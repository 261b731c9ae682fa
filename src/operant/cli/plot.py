"""Draw a search or runs as a picture (png, svg, pdf) or as one page (html) that needs nothing else.

operant plot mnist --out mnist.html                     everything about a search
operant plot mnist --out best.pdf --kind history,importance
operant plot RUN RUN --out curves.png --tag return --smooth 0.9
operant plot RUN RUN RUN RUN --out by-lr.svg --group lr  mean and band of the runs that have the same lr
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from operant._util.files import replacing
from operant.errors import UsageError, unknown

if TYPE_CHECKING:
    from operant.plotting.charts import Chart

_KINDS = ("history", "importance", "parallel", "slice", "contour", "intermediate", "timeline", "tree", "curves")
_SUFFIXES = (".png", ".svg", ".pdf", ".html")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("names", nargs="*", metavar="SEARCH|RUN", help="a search, or runs by id (`last` is one)")
    parser.add_argument("-t", "--task", metavar="NAME", help="the search to draw, as other commands take it")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="x.png, x.svg, x.pdf or x.html")
    parser.add_argument("--kind", metavar="A,B", help=f"what to draw: {', '.join(_KINDS)} (default: all that fit)")
    parser.add_argument("--tag", action="append", default=[], help="curves: only this scalar; may be given again")
    parser.add_argument(
        "--group", metavar="SETTING", help="curves: mean and band of runs that agree in it, or in `name`"
    )
    parser.add_argument("--smooth", type=float, default=0.0, metavar="W", help="curves: weight of the past, 0 to 0.999")
    parser.add_argument("--root", help="the .operant folder (default: the nearest one)")


def run(args: argparse.Namespace) -> int:
    check_suffix(args.out)
    if not 0 <= args.smooth < 1:
        raise UsageError(f"--smooth is a weight from 0 to 0.999, not {args.smooth:g}")
    names = [*args.names, *([args.task] if args.task else [])]
    if not names:
        raise UsageError("say what to draw: `operant plot SEARCH --out x.html`, or runs")
    title, charts = _charts(names, args)
    write_charts(charts, title, args.out)
    print(f"Wrote {args.out} ({len(charts)} charts)")
    return 0


def _charts(names: list[str], args: argparse.Namespace) -> tuple[str, list[Chart]]:
    from operant.schedulers.views.overview import find_search, list_searches
    from operant.tracking.places import find_root

    root = find_root(args.root)
    searches = {folder.name: folder for folder in list_searches(root)}
    kinds = _kinds(args.kind)
    if args.task is not None or names[0] in searches:
        if len(names) > 1:
            raise UsageError("one search at a time, or runs alone: curves of several searches do not share their axes")
        folder = find_search(root, names[0])
        charts = _of_search(folder, kinds or list(_KINDS[:-1]), args)
        if not charts:
            raise UsageError(f"the search {folder.name!r} has nothing to draw as {args.kind}")
        return folder.name, charts
    if kinds and kinds != ["curves"]:
        raise UsageError(f"of runs there are curves only; {kinds[0]!r} is drawn of a search, and {names[0]!r} is none")
    try:
        charts = _of_runs(names, args)
    except UsageError as error:
        known = f"; searches here: {', '.join(sorted(searches))}" if searches else ""
        raise UsageError(f"{names[0]!r} is no search{known}; and {error}") from None
    return ", ".join(names) if len(names) <= 2 else f"{len(names)} runs", charts


def _kinds(text: str | None) -> list[str]:
    kinds = [one.strip() for one in (text or "").split(",") if one.strip()]
    for one in kinds:
        if one not in _KINDS:
            raise UsageError(unknown("kind of plot", one, _KINDS))
    return kinds


def _of_search(folder: Path, kinds: list[str], args: argparse.Namespace) -> list[Chart]:
    from operant.cli._plot_search import charts_of_search

    charts = charts_of_search(folder, [one for one in kinds if one != "curves"])
    if "curves" in kinds:
        jobs = sorted(one.name for one in (folder / "jobs").glob("*") if (one / "run").is_dir())
        if not jobs:
            raise UsageError(f"no job of the search {folder.name!r} has a run to draw curves of")
        charts += _of_runs([f"{folder.name}/{job}" for job in jobs], args)
    return charts


def _of_runs(names: Sequence[str], args: argparse.Namespace) -> list[Chart]:
    from operant.cli._plot_runs import curves
    from operant.tracking import Run

    return curves([Run.open(name, args.root) for name in names], args.tag, args.smooth, args.group)


def check_suffix(path: Path) -> None:
    """Refuse a file of a kind that cannot be written."""
    if path.suffix.lower() not in _SUFFIXES:
        raise UsageError(f"--out ends in {', '.join(_SUFFIXES)}; {str(path)!r} does not")


def write_charts(charts: Sequence[Chart], title: str, path: Path) -> None:
    """Charts as a picture or a page, by how the file's name ends."""
    suffix = path.suffix.lower()
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as staged:
        if suffix in (".png", ".pdf"):
            from operant.plotting.raster import write_figure

            write_figure(charts, title, staged, suffix)
        else:
            from operant.plotting.vector import html_page, svg_file

            staged.write_text((html_page if suffix == ".html" else svg_file)(charts, title), encoding="utf-8")
