"""How a command is found and run: its module is loaded when it is called, its errors are one line."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from types import ModuleType

from operant.errors import OperantError

__all__ = ["command_module", "guarded", "help_line", "run_command"]


def command_module(name: str) -> ModuleType:
    return importlib.import_module(f"operant.cli.{name}")


def help_line(module: ModuleType) -> str:
    return (module.__doc__ or "").strip().splitlines()[0]


def run_command(program: str, module_name: str, words: Sequence[str] | None) -> int:
    """Parse ``words`` as the command in ``module_name`` takes them, and run it."""
    module = command_module(module_name)
    parser = argparse.ArgumentParser(prog=program, description=module.__doc__)
    module.configure(parser)
    return guarded(program, module.run, parser.parse_args(words))


def guarded(program: str, run: Callable[[argparse.Namespace], int], args: argparse.Namespace) -> int:
    try:
        return int(run(args))
    except OperantError as error:
        print(f"{program.split()[0]}: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # `operant runs | head`
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        return 130
