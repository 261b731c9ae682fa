"""How a command is found and run: its module is loaded when it is called, its errors are one line."""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

from operant.errors import MissingExtraError, OperantError

# Packages that a command may find missing, and the extra that brings each.
_EXTRA_OF = {
    **dict.fromkeys(("torch", "gymnasium", "safetensors", "threadpoolctl"), "rl"),
    **dict.fromkeys(("scipy", "sklearn", "cmaes", "optuna"), "search"),
    **dict.fromkeys(("starlette", "uvicorn"), "web"),
    "lightning": "auto",
    "matplotlib": "plot",
    "mujoco": "mujoco",
    "PIL": "media",
    "pyarrow": "parquet",
    "ray": "ray",
    "kubernetes": "k8s",
    **dict.fromkeys(("hydra", "omegaconf"), "harness"),
}
# What is wrong with the disk and not with the program.
_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM})
# Of torch's, whose error is a RuntimeError.
_NO_MEMORY = "can't allocate memory"


def command_module(name: str) -> ModuleType:
    return importlib.import_module(f"operant.cli.{name}")


def help_line(name: str) -> str:
    """The first line of a command's docstring, out of its file: importing all commands takes half as long again."""
    with Path(__file__).with_name(f"{name}.py").open(encoding="utf-8") as source:
        return source.readline().strip().strip('"')


def run_command(program: str, module_name: str, words: Sequence[str] | None) -> int:
    """Parse ``words`` as the command in ``module_name`` takes them, and run it."""
    module = command_module(module_name)
    if hasattr(module, "run_words"):  # it has a parser of its own
        return guarded(program, lambda: module.run_words(words))
    parser = argparse.ArgumentParser(prog=program, description=module.__doc__)
    module.configure(parser)
    return guarded(program, lambda: module.run(_parse(parser, words)))


def _parse(parser: argparse.ArgumentParser, words: Sequence[str] | None) -> argparse.Namespace:
    """Options may stand anywhere, also between `train PRESET` and the settings that it changes."""
    lists = any(action.nargs in ("*", "+") for action in parser._get_positional_actions())
    return parser.parse_intermixed_args(words) if lists else parser.parse_args(words)


def guarded(program: str, run: Callable[[], int]) -> int:
    """Run a command. What its user can mend is told in one sentence; anything else is a fault of ours."""
    try:
        return _written(run)
    except OperantError as error:
        sentence = str(error)
    except ModuleNotFoundError as error:
        extra = _EXTRA_OF.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        sentence = str(MissingExtraError(f"`{program}`", extra))
    except OSError as error:
        if error.errno not in _DISK:
            raise
        place = f" ({os.fsdecode(error.filename)})" if error.filename else ""
        sentence = f"a file cannot be written or read: {os.strerror(error.errno or 0)}{place}"
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and _NO_MEMORY not in str(error):
            raise
        told = str(error).rpartition(_NO_MEMORY)[2].strip(" :")
        sentence = f"there is not as much memory as was asked for: {told or 'none is left'}"
    except KeyboardInterrupt:
        return 130
    print(f"{program.split()[0]}: {sentence}", file=sys.stderr)
    return 1


def _written(call: Callable[[], int]) -> int:
    """Call, and see that what it printed is out; whoever reads it may stop reading (`operant runs | head`)."""
    try:
        try:
            code = int(call())
        except SystemExit as end:  # help was asked for, or the words were wrong
            code = end.code if isinstance(end.code, int) else 0
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The interpreter flushes once more at its end, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
