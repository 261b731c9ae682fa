"""Train an agent from a preset or a config file.

operant train cartpole-ppo                      a preset; `operant train --list` shows them
operant train cartpole-ppo seed=3 algorithm.gamma=0.95
operant train config.yaml                       or .json, or .py
operant train --eject cartpole-ppo              copy the preset here, to change it
operant train --resume last total_steps=200000  go on where a run stopped
operant train cartpole-dqn --seeds 0..4         several seeds, one figure with its interval
operant train cartpole-ppo --site slurm --seeds 0..9     ten jobs of a cluster
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

from operant.cli._terminal import print_table
from operant.cli._trusting import add_trust, asking
from operant.errors import UsageError
from operant.status import Status


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("target", nargs="?", help="preset, or file ending in .yaml, .json or .py")
    parser.add_argument("changes", nargs="*", metavar="key=value", help="settings to change")
    parser.add_argument("--list", action="store_true", help="show the presets")
    parser.add_argument("--settings", metavar="ALGORITHM", help="show every setting, with its default")
    parser.add_argument("--eject", metavar="PRESET", help="copy a preset into this folder")
    parser.add_argument("--resume", metavar="RUN", help="go on from the newest checkpoint of a run (its id, or `last`)")
    add_trust(parser, "with --resume: ")
    parser.add_argument("--seeds", help="train once for each of these seeds: 0..4, or 0,3,7")
    parser.add_argument(
        "--workers", type=int, default=0, help="trainings at the same time with --seeds (default: cores)"
    )
    parser.add_argument(
        "--site",
        help="train as a job of a site, one for each seed: a name (`operant sites`), '{type: slurm, …}' or a file",
    )
    parser.add_argument("--quiet", action="store_true", help="print only the result")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--root", help="the .operant folder (default: the nearest one)")


def run(args: argparse.Namespace) -> int:
    _check_seeds(args)
    if args.list:
        return _list(args)
    if args.settings:
        return _settings(args)
    if args.eject:
        from operant.training.targets import eject_preset

        print(f"wrote {eject_preset(args.eject, Path.cwd())}")
        return 0
    if args.resume:
        # `operant train --resume last total_steps=…`: what argparse took for the target is a change.
        changes = ([args.target] if args.target else []) + args.changes
        return _train(args, changes, resumed=True)
    if args.target is None:
        raise UsageError("what is to be trained? Name a preset (`operant train --list`) or a config file")
    if args.site is not None:
        return _on_site(args)
    return _train(args, args.changes, resumed=False) if args.seeds is None else _seeds(args)


def _check_seeds(args: argparse.Namespace) -> None:
    if args.seeds is not None and args.resume:
        raise UsageError("--resume goes on with one run, --seeds begins new ones: leave one of the two")
    if args.workers and args.seeds is None:
        raise UsageError(
            f"--workers is for --seeds; processes that collect for one training are a setting: workers={args.workers}"
        )
    if args.workers and args.site is not None:
        raise UsageError("--workers is for trainings on this machine; with --site each seed is a job of the site")


def _list(args: argparse.Namespace) -> int:
    from operant.training.targets import list_presets

    if args.json:
        print(json.dumps(list_presets(), indent=1))
    else:
        print_table(("PRESET", "WHAT IT IS"), list(list_presets().items()), fold=True)
    return 0


def _settings(args: argparse.Namespace) -> int:
    from operant.algorithms import find_algorithm
    from operant.settings import describe
    from operant.training.config import TrainConfig

    _, settings = find_algorithm(args.settings)
    rows: list[tuple[str, str, str]] = []
    for name, default, text in describe(TrainConfig):
        if name in ("algorithm", "algorithm_settings"):
            continue
        if hasattr(default, "__dataclass_fields__"):
            rows += [(f"{name}.{key}", str(value), text) for key, value, text in describe(type(default))]
        else:
            rows.append((name, str(default), text))
    rows += [(f"algorithm.{key}", str(value), text) for key, value, text in describe(settings)]
    print_table(("SETTING", "DEFAULT", "MEANING"), rows, fold=True)
    return 0


def _train(args: argparse.Namespace, changes: list[str], resumed: bool) -> int:
    from operant.cli._training_progress import progress_for
    from operant.cli.join import say
    from operant.training.machines import is_other_machine, join_run, meeting_place
    from operant.training.running import resume, train
    from operant.training.targets import load_config

    if resumed:
        with progress_for(None, args.quiet or args.json) as observer:
            result = asking(
                args, lambda trust: resume(args.resume, changes, observer=observer, root=args.root, trust=trust)
            )
    else:
        config = load_config(args.target, changes)
        if is_other_machine(config.num_nodes, config.engine):
            return join_run(meeting_place(os.environ), (lambda _: None) if args.quiet or args.json else say)
        with progress_for(config, args.quiet or args.json) as observer:
            result = train(config, observer=observer, root=args.root)
    if args.json:
        print(json.dumps({**vars(result), "folder": str(result.folder)}))
        return 0
    print(
        f"{result.steps:,} steps in {result.seconds:.1f} s; "
        f"best mean return {result.best_return:.2f} at step {result.best_step:,}, last {result.final_return:.2f}"
    )
    if not result.exact:
        print("resume of this run is inexact; its log says why")
    print(f"run {result.run_id}\n  operant runs show {result.run_id}\n  operant view {result.run_id}")
    return 0


def _on_site(args: argparse.Namespace) -> int:
    """A search with nothing to search: one job for each seed, with all that holds of jobs."""
    from operant.cli.sites import parse_site
    from operant.schedulers.engine.control import NoView
    from operant.schedulers.naive_scheduler import NaiveScheduler
    from operant.schedulers.views.display import make_view
    from operant.tracking.places import find_root, new_run_id
    from operant.training.machines import over_nodes
    from operant.training.seeds import parse_seeds
    from operant.training.statistics import interval
    from operant.training.targets import load_config

    config = load_config(args.target, args.changes)
    seeds = [config.seed] if args.seeds is None else parse_seeds(args.seeds)
    name = new_run_id(config.name)
    folder = find_root(args.root) / "searches" / name
    site, before = over_nodes(config, parse_site(args.site))
    words = [*before, sys.executable, "-m", "operant", "train", args.target, *args.changes]
    search = {
        "site": site,
        "task": {
            "template": f"{shlex.join(words)} seed={{train_seed}} --quiet",
            "search_args": [{"name": "train_seed", "type": "Categorical", "data": seeds}],
        },
        "searcher": {"type": "GridSearcher", "reward_attribute": "evaluation/return"},
        "scheduler": {"parallel_size": len(seeds)},
    }
    outcome = NaiveScheduler(folder, search, view=NoView() if args.quiet or args.json else make_view()).run()
    found = _trained(folder)
    if args.json:
        print(json.dumps({"search": name, "status": outcome.status, "seeds": found}))
    else:
        cells = [
            (str(one["seed"]), one["run"], one["status"], _figure(one["best"]), _figure(one["last"])) for one in found
        ]
        print_table(("SEED", "RUN", "STATUS", "BEST", "LAST"), cells)
        for key in ("best", "last"):
            values = [one[key] for one in found if one[key] is not None]
            if len(values) > 1:
                middle, low, high = interval(values)
                print(f"{key:<5} IQM {middle:.2f}   95 % interval {low:.2f} … {high:.2f}   ({len(values)} seeds)")
        print(f"`operant show --task {shlex.quote(name)}` shows its jobs")
    return 0 if all(one["status"] == Status.FINISHED for one in found) else 1


def _trained(folder: Path) -> list[dict[str, Any]]:
    """What each job of a training by seeds came to."""
    from operant.schedulers.views.overview import describe
    from operant.tracking import Run

    found = []
    for job in describe(folder)["jobs"]:
        place = folder / "jobs" / job["id"] / "run"
        values = Run(place).scalars("evaluation/return")["value"].tolist() if place.is_dir() else []
        figures = {"best": max(values, default=None), "last": values[-1] if values else None}
        found.append({"seed": job["arg_dict"]["train_seed"], "run": job["run"], "status": job["status"], **figures})
    return found


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _seeds(args: argparse.Namespace) -> int:
    from operant.training.seeds import parse_seeds, train_seeds
    from operant.training.targets import load_config

    config = load_config(args.target, args.changes)
    summary = train_seeds(config, parse_seeds(args.seeds), workers=args.workers, root=args.root)
    if args.json:
        print(json.dumps(summary.to_mapping()))
        return 1 if summary.failed else 0
    cells: list[tuple[Any, ...]] = [
        (str(seed), one.run_id, f"{one.steps:,}", f"{one.best_return:.2f}", f"{one.final_return:.2f}")
        for seed, one in zip(summary.seeds, summary.results, strict=True)
    ]
    print_table(("SEED", "RUN", "STEPS", "BEST", "LAST"), cells)
    for name, (middle, low, high) in (("best", summary.best), ("last", summary.last)):
        print(f"{name:<5} IQM {middle:.2f}   95 % interval {low:.2f} … {high:.2f}   ({len(cells)} seeds)")
    for seed, error in summary.failed.items():
        print(f"error: seed {seed} failed: {error}", file=sys.stderr)
    return 1 if summary.failed else 0
