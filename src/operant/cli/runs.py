"""List the recorded runs, show one of them, or say something of it."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from operant._util.units import ago, duration, printable
from operant.cli._terminal import iso, print_table, sparkline

if TYPE_CHECKING:
    from operant.tracking.reading.index import RunRow


def configure(parser: argparse.ArgumentParser) -> None:
    _listing(parser)
    parser.set_defaults(action=_list)
    actions = parser.add_subparsers(title="actions", metavar="ACTION")
    _listing(actions.add_parser("list", help="list them, as without an action"), default=argparse.SUPPRESS)
    show = actions.add_parser("show", help="show one run: what it is, its settings, its scalars")
    show.add_argument("id", help="the run's id, the start of it, or `last`")
    show.add_argument(
        "--scalar", action="store_true", help="every scalar: points, last, least and greatest value, shape"
    )
    _common(show, default=argparse.SUPPRESS)
    show.set_defaults(action=_show)
    note = actions.add_parser("note", help="write a note on a run, or change its tags, here or on its server")
    note.add_argument("id", help="the run's id; the start of it, or `last`, if it is on this machine")
    note.add_argument("text", nargs="?", help="the note, in the place of the one before; '' removes it")
    note.add_argument("--add", action="append", default=[], metavar="TAG", help="give it a tag; may be given again")
    note.add_argument("--remove", action="append", default=[], metavar="TAG", help="take a tag from it")
    note.add_argument("--root", default=argparse.SUPPRESS, help="the .operant folder (default: the nearest one)")
    note.set_defaults(action=_note)


def run(args: argparse.Namespace) -> int:
    return int(args.action(args))


def _listing(parser: argparse.ArgumentParser, **options: Any) -> None:
    _common(parser, **options)
    parser.add_argument(
        "--status", help="only runs with this status (RUNNING, FINISHED, STOPPED, ERROR, KILLED, SILENT)", **options
    )
    parser.add_argument(
        "--tag", action="append", help="only runs with this tag; may be given again", **{"default": [], **options}
    )
    parser.add_argument("--last", type=int, metavar="N", help="only the newest N", **options)


def _common(parser: argparse.ArgumentParser, **options: Any) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON", **options)
    parser.add_argument("--root", help="the .operant folder (default: the nearest one)", **{"default": None, **options})


def _list(args: argparse.Namespace) -> int:
    from operant.tracking.places import find_root
    from operant.tracking.reading.index import Index

    root = find_root(args.root)
    rows = [
        row
        for row in Index(root).rows()
        if (args.status is None or row.status == args.status.upper()) and set(args.tag) <= set(row.tags)
    ][: args.last]
    if args.json:
        print(json.dumps([_row(row) for row in rows], indent=1))
    elif rows:
        cells = [
            (row.id, row.name, row.status, ago(row.started), _took(row.started, row.ended), " ".join(row.tags))
            for row in rows
        ]
        # An id begins with the name; it is what other commands want, so it is never cut.
        print_table(("ID", "NAME", "STATUS", "STARTED", "TOOK", "TAGS"), cells, "ID", spare="NAME")
    else:
        print(f"No runs in {root}. Record one:\n")
        print("    from operant import SummaryWriter")
        print("    with SummaryWriter('first') as writer:")
        print("        writer.add_scalar('return', 1.0, 0)")
    return 0


def _row(row: RunRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "name": row.name,
        "status": row.status,
        "started": iso(row.started),
        "ended": iso(row.ended),
        "tags": row.tags,
        "note": row.note,
    }


def _took(started: float | None, ended: float | None) -> str:
    return "" if started is None or ended is None else duration(max(0.0, ended - started))


def _show(args: argparse.Namespace) -> int:
    from operant.tracking import Run

    run = Run.open(args.id, args.root)
    scalars = {tag: _describe(run, tag) for tag in run.scalar_tags}
    if args.json:
        print(json.dumps(_as_json(run, scalars if args.scalar else None), indent=1))
        return 0
    summary = run.summary
    git = run.provenance.get("git", {})
    facts = {
        "run": run.id,
        "name": run.name,
        "status": run.status + (f": {summary.error}" if summary.error else ""),
        "started": f"{iso(summary.started)} ({ago(summary.started)})" if summary.started else "",
        "took": _took(summary.started, summary.ended),
        "attempt": str(run.attempt) if run.attempt > 1 else "",
        "tags": " ".join(run.tags),
        "note": run.note,
        "command": " ".join(summary.command),
        "host": str(run.provenance.get("process", {}).get("host", "")),
        "git": f"{git['commit'][:12]} {git['branch']}{' with changes' if git['dirty'] else ''}" if git else "",
        "files": ", ".join(run.files),
        "folder": str(run.folder),
    }
    for name, value in facts.items():
        if value:
            print(f"{name:<9} {printable(value)}")
    for sentence in run.damage:
        print(f"{'damage':<9} {printable(sentence)}")
    if run.params:
        print("\nsettings")
        for name, value in run.params.items():
            print(f"  {printable(name)} = {printable(json.dumps(value))}")
    print(f"\nscalars ({len(scalars)})")
    shown = scalars if args.scalar else dict(list(scalars.items())[:20])
    cells = []
    for tag, one in shown.items():
        numbers = [f"{one[name]:.6g}" for name in ("last", "least", "greatest")]
        cells.append((tag, str(one["points"]), str(one["step"]), *numbers, sparkline(one["shape"])))
    if cells:
        print_table(("TAG", "POINTS", "STEP", "LAST", "LEAST", "GREATEST", "SHAPE"), cells)
    if len(shown) < len(scalars):
        print(f"… and {len(scalars) - len(shown)} more: --scalar shows all")
    return 0


def _note(args: argparse.Namespace) -> int:
    from operant.errors import UsageError
    from operant.tracking.journal import post_message
    from operant.tracking.places import find_root, resolve_run_dir
    from operant.tracking.reading.summary import check_annotation
    from operant.tracking.remote.address import tracking_uri

    said: list[dict[str, Any]] = []
    if args.text is not None:
        said.append(check_annotation({"type": "note", "text": args.text}))
    if args.add or args.remove:
        said.append(check_annotation({"type": "tags", "add": args.add, "remove": args.remove}))
    if not said:
        raise UsageError("give a text, or tags: `operant runs note ID 'too slow' --add baseline`")
    try:
        run_id, folder = resolve_run_dir(find_root(args.root), args.id)
    except UsageError:
        uri = tracking_uri()
        if uri is None or args.root is not None:
            raise
        from operant.tracking.remote.send import say_of_run

        print(say_of_run(uri, args.id, said))
        return 0
    for content in said:
        post_message(folder, content)
    print(f"{run_id}: noted")
    return 0


def _describe(run: Any, tag: str) -> dict[str, Any]:
    import numpy as np

    chart = run.chart(tag, 30)
    last = run.latest(tag)
    finite = chart.least[np.isfinite(chart.least)]
    return {
        "points": int(chart.count.sum()),
        "step": last.step if last else None,
        "last": last.value if last else float("nan"),
        "least": float(finite.min()) if len(finite) else float("nan"),
        "greatest": float(np.fmax.reduce(chart.greatest)) if len(finite) else float("nan"),
        "shape": [float(value) for value in chart.mean],
    }


def _as_json(run: Any, scalars: dict[str, Any] | None) -> dict[str, Any]:
    summary = run.summary
    found = {
        "id": run.id,
        "name": run.name,
        "status": run.status,
        "started": iso(summary.started),
        "ended": iso(summary.ended),
        "tags": run.tags,
        "note": run.note,
        "attempt": run.attempt,
        "error": summary.error,
        "params": run.params,
        "provenance": run.provenance,
        "files": {name: str(path) for name, path in run.files.items()},
        "damage": run.damage,
        "scalar_tags": run.scalar_tags,
    }
    if scalars is not None:
        found["scalars"] = {tag: run.history(tag) for tag in scalars}
    return found
