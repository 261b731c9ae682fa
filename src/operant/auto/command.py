"""Train from a JSON config with PyTorch Lightning: list, generate, launch.

operant auto list                                               algorithms and environments
operant auto generate --algo DQN --env openai_gym --output config.json
operant auto generate --preset cartpole-ppo                     with the settings of a preset of `operant train`
operant auto generate --algo SAC --defaults machin              with Machin's own values
operant auto launch --config config.json                        train
operant auto launch --config config.json --resume               go on where it stopped
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from operant.errors import OperantError, UsageError


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    actions = parser.add_subparsers(dest="action", required=True, metavar="list|generate|launch")
    shown = actions.add_parser("list", help="show algorithms and environments")
    shown.add_argument("--algo", action="store_true", help="only algorithms")
    shown.add_argument("--env", action="store_true", help="only environments")
    made = actions.add_parser("generate", help="write a complete config")
    made.add_argument("--algo", help="algorithm, such as DQN")
    made.add_argument("--env", default="openai_gym", help="environment module (default: openai_gym)")
    made.add_argument(
        "--defaults",
        choices=["operant", "machin"],
        default="operant",
        help="whose values: operant's as measured (default), or those of Machin itself",
    )
    made.add_argument("--preset", help="take algorithm, settings and environment of a preset of `operant train`")
    made.add_argument("--output", default="config.json", help="file to write (default: config.json)")
    made.add_argument("--print", action="store_true", dest="show", help="print it instead of writing it")
    started = actions.add_parser("launch", help="train")
    started.add_argument("--config", default="config.json", help="config file (default: config.json)")
    started.add_argument("--resume", action="store_true", help="go on from the last checkpoint in root_dir")
    started.add_argument("--checkpoint", help="go on from this checkpoint file")
    started.add_argument("--root", help="the .operant folder (default: the nearest one)")
    started.add_argument("--quiet", action="store_true", help="print only the result")
    started.add_argument("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    return {"list": _list, "generate": _generate, "launch": _launch}[args.action](args)


def main(words: Sequence[str] | None = None) -> int:
    """`python -m operant.auto`."""
    parser = argparse.ArgumentParser(prog="python -m operant.auto", description=__doc__)
    configure(parser)
    try:
        return run(parser.parse_args(words))
    except OperantError as error:
        sys.stderr.write(f"operant.auto: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130


def _list(args: argparse.Namespace) -> int:
    from operant.auto.config import get_available_algorithms
    from operant.auto.envs import get_available_environments

    both = args.algo == args.env
    if both or args.algo:
        _say(*(["algorithms:"] if both else []), *(f"  {name}" for name in get_available_algorithms()))
    if both or args.env:
        _say(*(["environments:"] if both else []), *(f"  {name}" for name in get_available_environments()))
    return 0


def _generate(args: argparse.Namespace) -> int:
    from operant.auto.config import (
        generate_algorithm_config,
        generate_env_config,
        generate_training_config,
        plain_config,
        write_config,
    )

    given: dict[str, Any] = {}
    if args.preset:
        from operant.auto.config import config_of_preset

        if args.defaults == "machin":
            raise UsageError("--preset has the values of the preset; leave --defaults out")
        given = config_of_preset(args.preset)
        if args.algo and args.algo.upper() != given["frame"]:
            raise UsageError(f"the preset {args.preset} is of {given['frame']}, not of {args.algo}")
    elif not args.algo:
        raise UsageError("which algorithm? --algo DQN; `operant auto list --algo` shows them")
    elif args.defaults == "operant" and args.env == "openai_gym":
        from operant.auto.config import measured_config

        given = measured_config(args.algo)
    config = generate_algorithm_config(args.algo or given["frame"], given, args.defaults)
    config = generate_training_config(config=generate_env_config(args.env, config))
    if args.show:
        _say(json.dumps(plain_config(config), indent=4, sort_keys=True))
        return 0
    path = Path(args.output)
    if path.exists():
        raise UsageError(f"{path} exists already; move it away, or name another file with --output")
    write_config(config, path)
    _say(f"wrote {path}; train with: operant auto launch --config {path}")
    return 0


def _launch(args: argparse.Namespace) -> int:
    from operant.auto.config import check_config, launch, read_config
    from operant.training.machines import is_other_machine, join_run, meeting_place

    path = Path(args.config)
    config = read_config(path)
    if is_other_machine(check_config(config).launch.num_nodes, str(config.get("engine", "local"))):
        return join_run(meeting_place(os.environ), _say)
    # Modules named in a config lie beside it.
    beside = str(path.absolute().parent)
    if beside not in sys.path:
        sys.path.insert(0, beside)
    silent = args.quiet or args.json
    result = launch(
        config,
        resume=args.checkpoint or args.resume,
        root=args.root,
        progress=False if silent else None,
        say=None if silent else _say,
    )
    if args.json:
        _say(json.dumps(result.to_mapping()))
        return 0
    _say(
        f"{result.episodes:,} episodes, {result.steps:,} steps in {result.seconds:.1f} s; best total reward "
        f"{result.best_reward:.2f}, last {result.final_reward:.2f}",
        f"checkpoint {result.checkpoint}",
        f"run {result.run_id}",
        f"  operant runs show {result.run_id}",
        f"  operant view {result.run_id}",
    )
    return 0


def _say(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()
