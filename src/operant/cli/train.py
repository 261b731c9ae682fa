"""Train an agent from a preset or a config file.

operant train cartpole-ppo                      a preset; `operant train --list` shows them
operant train cartpole-ppo seed=3 algorithm.gamma=0.95
operant train config.yaml                       or .json, or .py
operant train --eject cartpole-ppo              copy the preset here, to change it
operant train --resume last total_steps=200000  go on where a run stopped
operant train cartpole-dqn --seeds 0..4         several seeds, one figure with its interval
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from operant.cli._terminal import print_table
from operant.errors import UsageError


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("target", nargs="?", help="preset, or file ending in .yaml, .json or .py")
    parser.add_argument("changes", nargs="*", metavar="key=value", help="settings to change")
    parser.add_argument("--list", action="store_true", help="show the presets")
    parser.add_argument("--settings", metavar="ALGORITHM", help="show every setting, with its default")
    parser.add_argument("--eject", metavar="PRESET", help="copy a preset into this folder")
    parser.add_argument("--resume", metavar="RUN", help="go on from the newest checkpoint of a run (its id, or `last`)")
    parser.add_argument("--trust", action="store_true", help="with --resume: run code that the run names")
    parser.add_argument("--seeds", help="train once for each of these seeds: 0..4, or 0,3,7")
    parser.add_argument(
        "--workers", type=int, default=0, help="trainings at the same time with --seeds (default: cores)"
    )
    parser.add_argument("--quiet", action="store_true", help="print only the result")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--root", help="the .operant folder (default: the nearest one)")


def run(args: argparse.Namespace) -> int:
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
    return _seeds(args) if args.seeds else _train(args, args.changes, resumed=False)


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
    from operant.cli._trusting import asking
    from operant.training.running import resume, train
    from operant.training.targets import load_config

    if resumed:
        with progress_for(None, args.quiet or args.json) as observer:
            result = asking(
                args, lambda trust: resume(args.resume, changes, observer=observer, root=args.root, trust=trust)
            )
    else:
        config = load_config(args.target, changes)
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
        print("resume of this run is inexact: its environments cannot be saved")
    print(f"run {result.run_id}\n  operant runs show {result.run_id}\n  operant view {result.run_id}")
    return 0


def _seeds(args: argparse.Namespace) -> int:
    from operant.training.seeds import parse_seeds, train_seeds
    from operant.training.targets import load_config

    config = load_config(args.target, args.changes)
    summary = train_seeds(config, parse_seeds(args.seeds), workers=args.workers, root=args.root)
    if args.json:
        print(json.dumps(summary.to_mapping()))
        return 0
    cells: list[tuple[Any, ...]] = [
        (str(seed), one.run_id, f"{one.steps:,}", f"{one.best_return:.2f}", f"{one.final_return:.2f}")
        for seed, one in zip(summary.seeds, summary.results, strict=True)
    ]
    print_table(("SEED", "RUN", "STEPS", "BEST", "LAST"), cells)
    for name, (middle, low, high) in (("best", summary.best), ("last", summary.last)):
        print(f"{name:<5} IQM {middle:.2f}   95 % interval {low:.2f} … {high:.2f}   ({len(cells)} seeds)")
    return 0
