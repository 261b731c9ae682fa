"""The commands. Each is a module with ``configure(parser)`` and ``run(args) -> int``, loaded only when it is called."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from operant._version import __version__
from operant.cli._dispatch import guarded, help_line, run_command
from operant.errors import nearest

__all__ = ["main"]

# Name of a command -> its module in this package. The first line of the module's docstring is the help line.
COMMANDS = {
    "init": "init",
    "search": "search",
    "show": "show",
    "sites": "sites",
    "stop": "stop",
    "restart": "restart",
    "rm": "rm",
    "runs": "runs",
    "export": "export",
    "import": "import_search",
    "import-tensorboard": "import_tensorboard",
    "compact": "compact",
    "task": "task",
    "join": "join",
    "serve": "serve",
    "sync": "sync",
    "train": "train",
    "fire": "fire",
    "auto": "auto",
    "harness": "harness",
    "cluster": "cluster",
    "monitor": "monitor",
    "ui": "ui",
    "view": "view",
    "record": "record",
    "top": "top",
    "plot": "plot",
    "compare-scores": "compare_scores",
    "replay": "replay",
    "bench": "bench",
}


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help", "help"):
        return guarded("operant", lambda: print(_overview()) or 0)
    if words[0] in ("-V", "--version"):
        return guarded("operant", lambda: print(f"operant {__version__}") or 0)
    name, *rest = words
    if name not in COMMANDS:
        guess = nearest(name, COMMANDS)
        print(f"operant: there is no command {name!r}{guess}; `operant --help` lists them", file=sys.stderr)
        return 2
    return run_command(f"operant {name}", COMMANDS[name], rest)


def _help(module: str) -> str:
    from operant.cli._terminal import folded

    return folded(help_line(module), 22).replace("\n", "\n" + " " * 22)


def _overview() -> str:
    lines = [
        "Operant: train, search, scale and watch reinforcement-learning experiments.",
        "",
        "usage: operant COMMAND …",
        "",
        *(f"  {name:<20}{_help(module)}" for name, module in COMMANDS.items()),
        "",
        "`operant COMMAND --help` tells more of one.",
    ]
    return "\n".join(lines)
