"""Train with a Hydra tree: our own algorithms or RLlib, from one config.

operant harness cli.mode=train --config-name dqn                the package's tree; overrides as Hydra has them
operant harness cli.mode=train -cn ppo algo.library=rllib       the same with RLlib
operant harness cli.mode=tune -cn dqn 'training.lr=tag(log, interval(1e-5, 1e-2))' tune.num_samples=20
operant harness cli.mode=view algo.checkpoint_path=last         a GIF and the returns of what was learned
operant harness --config-dir conf -cn mine cli.mode=train       a config of one's own over it
operant harness init [FOLDER]                                   copy the tree out, with a program around it
operant harness migrate CONFIG.yaml [--to FOLDER]               a config of SimHarness's as one that runs here
operant harness --help [GROUP]                                  groups and values, or one of them; --hydra-help
eval "$(operant harness -sc install=bash)"                      completion of groups and values
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from operant.errors import MissingExtraError, OperantError, UsageError, nearest
from operant.harness.tree import CONF
from operant.harness.words import OPTIONS
from operant.status import Status

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from operant.training.evaluating import Evaluation

_MAIN = '''"""Trains as the config says: `python main.py --config-name dqn cli.mode=train`."""

import hydra
from omegaconf import DictConfig

from operant.harness import run


@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg: DictConfig):
    run(cfg)


if __name__ == "__main__":
    main()
'''

# Hydra's own script knows commands of one word only.
_COMPLETION = """_operant_harness()
{
    [ "${COMP_WORDS[1]}" = harness ] || return
    local line="operant-harness${COMP_LINE#*harness}" point
    point=$((COMP_POINT - ${#COMP_LINE} + ${#line}))
    COMPREPLY=($(compgen -W "$(COMP_LINE=$line COMP_POINT=$point operant harness -sc query=bash 2>/dev/null)" \\
        -- "${COMP_WORDS[COMP_CWORD]}"))
}
COMP_WORDBREAKS=${COMP_WORDBREAKS//=}
complete -o nospace -o default -F _operant_harness operant
"""


def main(words: Sequence[str] | None = None) -> int:
    """`python -m operant.harness …`: the package's own tree; `init` copies it out."""
    given = list(sys.argv[1:] if words is None else words)
    try:
        if given[:1] == ["init"]:
            return _init(given[1:])
        if given[:1] == ["--help"] and len(given) == 2:
            return _help(given[1])
        if {"-sc", "--shell-completion"} & set(given) and "install=bash" in given:
            sys.stdout.write(_COMPLETION)
            return 0
        if find_spec("hydra") is None:
            raise MissingExtraError("`operant harness`", "harness")
        if given[:1] == ["migrate"]:
            from operant.harness.migrating import migrate

            return migrate(given[1:])
        sys.argv = ["operant harness", *_for_hydra(given)]
    except OperantError as error:
        sys.stderr.write(f"operant: {error}\n")
        return 1
    import hydra

    hydra.main(version_base=None, config_path=str(CONF), config_name="config")(_run)()
    return 0


def _for_hydra(given: list[str]) -> list[str]:
    """The words of a call as Hydra takes them; in `tune`, what would be a sweep is a space."""
    words = ["algo.trust=true" if word == "--trust" else _checked_choice(word) for word in given]
    flags, overrides = _split([_addable(_todays_override(word)) for word in words])
    if "++cli.mode=tune" in overrides and not {"-m", "--multirun"} & set(flags):
        overrides = [_as_tunable(_as_space(word)) for word in overrides]
    return [*flags, *overrides]


def _addable(word: str) -> str:
    """An override of a setting that the tree may not have: whether somebody takes it is checked later, and better."""
    key, equals, value = word.partition("=")
    group, dot, name = key.partition(".")
    if not (equals and dot) or key[0] in "+~-" or group == "hydra" or {"@", "/"} & set(group):
        return word
    # Names of results have slashes, which Hydra takes for groups.
    return f"++{group}={{{name}: {value}}}" if "/" in name else f"++{word}"


def _checked_choice(word: str) -> str:
    """An override that chooses a file of a group, which Hydra takes names for alone."""
    group, equals, value = word.partition("=")
    if group and equals and (CONF / group).is_dir() and (value in ("", "null") or value.isdigit()):
        known = sorted(one.stem for one in (CONF / group).glob("*.yaml"))
        raise UsageError(f"{word} chooses no file of the group; it is one of {', '.join(known)}")
    return word


def _help(group: str) -> int:
    """The files of one group, with what they say about each setting."""
    folder = CONF / group.replace(".", "/").strip("/")
    files = sorted(folder.glob("*.yaml")) if folder.is_dir() and folder.resolve().is_relative_to(CONF) else []
    if not files:
        known = sorted({str(one.parent.relative_to(CONF)) for one in CONF.rglob("*/*.yaml")})
        raise UsageError(f"there is no group {group!r}{nearest(group, known)}; groups are {', '.join(known)}")
    for file in files:
        sys.stdout.write(f"== {group}={file.stem}\n{file.read_text(encoding='utf-8')}\n")
    return 0


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """Flags, and overrides behind them: Hydra's parser takes overrides in one piece only."""
    overrides = [word for word in words if "=" in word and not word.startswith("-")]
    return [word for word in words if word not in overrides], overrides


def _run(cfg: DictConfig) -> None:
    from operant.harness.application import run
    from operant.harness.results import Report
    from operant.harness.viewing import Viewed

    try:
        report = run(cfg, _Lines())
    except OperantError as error:
        sys.stderr.write(f"operant: {error}\n")
        raise SystemExit(1) from None
    if isinstance(report, Viewed):
        sys.stdout.write("episode       seed     return  length\n")
        for number, one in enumerate(report.episodes):
            sys.stdout.write(f"{number:>7}{one.seed:>11}{one.total:>11.2f}{one.length:>8}\n")
        sys.stdout.write(f"wrote {report.gif} ({report.frames} frames) and {report.table}; run {report.run_id}\n")
        return
    if not isinstance(report, Report):
        raise SystemExit(0 if report.status == Status.FINISHED else 1)
    sys.stdout.write(
        f"{report.steps:,} steps; mean return {report.mean_return:.2f}; ended: {report.reason}\n"
        f"run {report.run_id}\n  operant runs show {report.run_id}\n"
    )


class _Lines:
    """A line every few seconds, and one for each evaluation."""

    def __init__(self) -> None:
        self._last = 0.0

    def said(self, sentence: str) -> None:
        sys.stdout.write(f"{sentence}\n")

    def point(self, step: int, steps_per_second: float, mean_return: float) -> None:
        if time.monotonic() - self._last > 5.0:
            self._last = time.monotonic()
            sys.stdout.write(f"{step:>11,}  {steps_per_second:,.0f} steps/s  mean return {mean_return:.2f}\n")

    def evaluated(self, step: int, evaluation: Evaluation, best: bool) -> None:
        sys.stdout.write(f"{step:>11,}  evaluation {evaluation.mean:.2f}{'  (best)' if best else ''}\n")


def _todays_override(word: str) -> str:
    """An override of an option under its older name, under today's, which the tree has."""
    key, equals, value = word.partition("=")
    today = OPTIONS.get(key.lstrip("+"))
    if not equals or today is None:
        return word
    sys.stderr.write(f"operant: {key} is called {today} today\n")
    return f"++{today}={value}"


def _as_space(word: str) -> str:
    """Hydra's words for a sweep (``interval(1e-5, 1e-2)``, ``choice(32, 64)``, ``1,2,3``) as a space of a search."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.core.override_parser.types import IntervalSweep, RangeSweep
    from hydra.errors import HydraException

    try:
        override = OverridesParser.create().parse_override(word)
    except HydraException:
        return word  # Hydra will say what is wrong with it
    if not override.is_sweep_override():
        return word
    if (CONF / override.key_or_group).is_dir():
        raise UsageError(f"{word}: a search is over values (training.lr); --multirun goes through files of a group")
    swept = override.value()
    log = ", log: true" if "log" in getattr(swept, "tags", ()) else ""
    if isinstance(swept, IntervalSweep):
        ends: list[Any] = [swept.start, swept.end]
        kind = "Int" if all(isinstance(one, int) for one in ends) else "Real"
        space = f"{{type: {kind}, data: [{ends[0]}, {ends[1]}]{log}}}"
    elif isinstance(swept, RangeSweep):
        space = f"{{type: Categorical, data: [{', '.join(map(str, swept.range()))}]}}"
    else:
        space = f"{{type: Categorical, data: [{', '.join(override.sweep_string_iterator())}]}}"
    return f"++{override.key_or_group}={space}"


def _as_tunable(word: str) -> str:
    """A space beside the value that it is for: in its place it could not be merged with a list."""
    return re.sub(r"^\+\+(\w+\.\w+=\{\s*type:.*\bdata:)", r"++tunables.\1", word)


def _init(words: Sequence[str]) -> int:
    """Write the tree and a program around it into a folder."""
    parser = argparse.ArgumentParser("operant harness init", description=_init.__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path(), help="where to (default: here)")
    folder = parser.parse_args(words).folder
    taken = [one for one in (folder / "conf", folder / "main.py") if one.exists()]
    if taken:
        raise UsageError(f"{taken[0]} exists already; move it away first")
    shutil.copytree(CONF, folder / "conf", ignore=shutil.ignore_patterns("__*"))
    (folder / "main.py").write_text(_MAIN, encoding="utf-8")
    sys.stdout.write(
        f"wrote {folder / 'conf'} and {folder / 'main.py'}\n"
        f"  python {folder / 'main.py'} --config-name dqn cli.mode=train\n"
    )
    return 0
