"""The commands `search-init`, `search-run` and `search-ctl`."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence

from operant.errors import OperantError

__all__ = ["ctl_main", "init_main", "run_main"]

# Subcommand of search-ctl -> module, and the names of its two functions.
_CONTROL = {
    "show": ("show", "configure", "run"),
    "stop": ("stop", "configure", "run"),
    "rm": ("rm", "configure", "run"),
    "export": ("archive", "configure_export", "run_export"),
    "import": ("archive", "configure_import", "run_import"),
    "restart": ("restart", "configure", "run"),
}


def init_main(arguments: Sequence[str] | None = None) -> int:
    return _run_module("search-init", "init", arguments)


def run_main(arguments: Sequence[str] | None = None) -> int:
    return _run_module("search-run", "search", arguments)


def ctl_main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="search-ctl", description="Look at searches and steer them.")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    # Only the module of the command that was given is loaded: looking at a search should not take a second.
    for name, (module_name, configure, run) in _CONTROL.items():
        if words and words[0] in _CONTROL and words[0] != name:
            commands.add_parser(name)
            continue
        module = importlib.import_module(f"operant.cli.{module_name}")
        text = {"export": "Write a search to an archive.", "import": "Bring a search back from an archive."}.get(
            name, (module.__doc__ or "").splitlines()[0]
        )
        command = commands.add_parser(name, help=text, description=text)
        getattr(module, configure)(command)
        command.set_defaults(run=getattr(module, run))
    args = parser.parse_args(words)
    return _guarded("search-ctl", args.run, args)


def _run_module(program: str, module_name: str, arguments: Sequence[str] | None) -> int:
    module = importlib.import_module(f"operant.cli.{module_name}")
    parser = argparse.ArgumentParser(prog=program, description=module.__doc__)
    module.configure(parser)
    return _guarded(program, module.run, parser.parse_args(arguments))


def _guarded(program: str, run: Callable[[argparse.Namespace], int], args: argparse.Namespace) -> int:
    try:
        return int(run(args))
    except OperantError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    mains = {"init": init_main, "run": run_main, "ctl": ctl_main}
    sys.exit(mains[sys.argv[1]](sys.argv[2:]))
