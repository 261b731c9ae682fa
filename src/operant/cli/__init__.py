"""The commands. Each is a module with ``configure(parser)`` and ``run(args) -> int``, loaded only when it is called."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from operant._version import __version__
from operant.errors import OperantError, nearest

__all__ = ["main"]

# Name of a command -> its module in this package. The first line of the module's docstring is the help line.
COMMANDS = {
    "init": "init",
    "runs": "runs",
    "export": "export",
    "import-tensorboard": "import_tensorboard",
    "compact": "compact",
    "serve": "serve",
    "sync": "sync",
    "train": "train",
    "view": "view",
}


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help", "help"):
        print(_overview())
        return 0
    if words[0] in ("-V", "--version"):
        print(f"operant {__version__}")
        return 0
    name, *rest = words
    if name not in COMMANDS:
        print(
            f"operant: there is no command {name!r}{nearest(name, COMMANDS)}; `operant --help` lists them",
            file=sys.stderr,
        )
        return 2
    module = importlib.import_module(f"operant.cli.{COMMANDS[name]}")
    parser = argparse.ArgumentParser(prog=f"operant {name}", description=module.__doc__)
    module.configure(parser)
    try:
        return int(module.run(parser.parse_args(rest)))
    except OperantError as error:
        print(f"operant: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # `operant runs | head`
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        return 130


def _overview() -> str:
    lines = [
        "Operant: train, search, scale and watch reinforcement-learning experiments.",
        "",
        "usage: operant COMMAND …",
        "",
    ]
    for name, module in COMMANDS.items():
        text = importlib.import_module(f"operant.cli.{module}").__doc__ or ""
        lines.append(f"  {name:<20}{text.strip().splitlines()[0]}")
    return "\n".join([*lines, "", "`operant COMMAND --help` tells more of one."])
