"""Write a run in the format of another tool, or a search as an archive or an Optuna study."""

from __future__ import annotations

import argparse
from pathlib import Path

from operant.errors import UsageError


def configure(parser: argparse.ArgumentParser) -> None:
    run_options = parser.add_argument_group("a run")
    run_options.add_argument(
        "id", nargs="?", help="the run's id, the start of it, or `last`; with --to optuna a search"
    )
    run_options.add_argument("--root", help="the .operant folder (default: the nearest one)")
    configure_search(parser)


def configure_search(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--to", metavar="FORMAT", help="csv, jsonl, parquet, tensorboard, wandb, mlflow or aim; a search also: optuna"
    )
    parser.add_argument(
        "--out", type=Path, help="file or folder to write (default: named after what is exported, here)"
    )
    options = parser.add_argument_group("a search")
    options.add_argument("-t", "--task", metavar="NAME", help="the search to export")
    options.add_argument("--tar-path", type=Path, help="the archive to write (default: archive/<task>.<time>.tar.gz)")


def run(args: argparse.Namespace) -> int:
    if args.to == "optuna" and args.task is None:
        args.id, args.task = None, args.id
    if (args.id is None) == (args.task is None):
        raise UsageError("say what to export: a run (`operant export ID --to csv`) or a search (`--task NAME`)")
    return run_search(args) if args.task is not None else _run_run(args)


def run_search(args: argparse.Namespace) -> int:
    from operant.schedulers.archives.archive import export_search
    from operant.schedulers.views.overview import find_search
    from operant.tracking.places import find_root

    if args.task is None:
        raise UsageError("--task says which search to export")
    folder = find_search(find_root(getattr(args, "root", None)), args.task)
    if args.to is not None and args.tar_path is not None:
        raise UsageError("--tar-path goes with an archive; with --to, --out says where to write")
    if args.to == "optuna":
        return _search_to_optuna(folder, args)
    if args.to is not None:
        return _runs_of_search(folder, args)
    if args.out is not None:
        raise UsageError("an archive is written to --tar-path; --out goes with --to optuna")
    print(f"Wrote {export_search(folder, args.tar_path)}")
    return 0


def _search_to_optuna(folder: Path, args: argparse.Namespace) -> int:
    from operant.schedulers.exchange.optuna_storage import SQLITE_SUFFIXES
    from operant.schedulers.exchange.to_optuna import export_to_optuna

    done = export_to_optuna(folder, args.out)
    left = f" ({done.left_out} are still under way and were left out)" if done.left_out else ""
    print(f"Wrote {done.path}: {done.trials} trials{left}")
    shown = f"sqlite:///{done.path}" if done.path.suffix.lower() in SQLITE_SUFFIXES else str(done.path)
    print(f"Open it with: optuna-dashboard {shown}")
    return 0


def _runs_of_search(folder: Path, args: argparse.Namespace) -> int:
    """The runs of all jobs: one after the other into a store, or each as a file of one folder."""
    from operant.tracking import Run
    from operant.tracking.exchange.export import export_run, find_format

    form = find_format(args.to, also="optuna")
    out = args.out or Path(form.store or f"{folder.name}-{args.to}")
    if not form.store and out.exists():
        raise UsageError(f"{out} exists already: name another place with --out, or remove it")
    runs = sorted(one for one in (folder / "jobs").glob("*/run") if one.is_dir())
    for run in runs:
        job = run.parent.name
        suffix = "" if args.to == "tensorboard" else form.suffix  # TensorBoard names runs by their folders
        export_run(Run(run, f"{folder.name}/{job}"), args.to, out if form.store else out / f"{job}{suffix}")
    print(f"Wrote {len(runs)} runs to {out}")
    if runs and form.hint and not form.each:
        print(form.hint.format(target=out))
    return 0


def _run_run(args: argparse.Namespace) -> int:
    from operant.tracking import Run
    from operant.tracking.exchange.export import FORMATS, export_run

    if args.to is None:
        raise UsageError(f"--to says as what: {', '.join(FORMATS)}")
    run = Run.open(args.id, args.root)
    done = export_run(run, args.to, args.out)
    print(f"Wrote {done}")
    for what in FORMATS[args.to].left_out(run):
        print(f"Left out: {what}")
    if FORMATS[args.to].hint:
        print(FORMATS[args.to].hint.format(target=done))
    return 0
