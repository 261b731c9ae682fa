"""The commands `search-init`, `search-run` and `search-ctl`: other names for `operant init`, `search` and the rest."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from operant.cli._dispatch import command_module, guarded, help_line, run_command

# Subcommand of search-ctl -> its module in this package.
_CONTROL = {
    "show": "show",
    "stop": "stop",
    "rm": "rm",
    "export": "export",
    "import": "import_search",
    "restart": "restart",
}


def init_main(arguments: Sequence[str] | None = None) -> int:
    return run_command("search-init", "init", arguments)


def run_main(arguments: Sequence[str] | None = None) -> int:
    return run_command("search-run", "search", arguments)


def ctl_main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="search-ctl", description="Look at searches and steer them.")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    # Only the module of the command that was given is loaded: looking at a search should not take a second.
    for name, module_name in _CONTROL.items():
        if words and words[0] in _CONTROL and words[0] != name:
            commands.add_parser(name)
            continue
        module = command_module(module_name)
        text = "Write a search to an archive, or as an Optuna study." if name == "export" else help_line(module_name)
        command = commands.add_parser(name, help=text, description=text)
        # `operant export` writes runs too; here there are only searches.
        getattr(module, "configure_search", module.configure)(command)
        command.set_defaults(run=getattr(module, "run_search", module.run))

    def run() -> int:
        args = parser.parse_args(words)
        return int(args.run(args))

    return guarded("search-ctl", run)


if __name__ == "__main__":
    mains = {"init": init_main, "run": run_main, "ctl": ctl_main}
    sys.exit(mains[sys.argv[1]](sys.argv[2:]))
