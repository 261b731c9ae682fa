"""From what jobs report to rewards: of a job, as it comes and once it has ended, and of a proposal over its seeds."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from operant._util.checks import is_whole, whole_number
from operant._util.statistics import iqm, paired_worse
from operant._util.units import printable
from operant.errors import ConfigError, UsageError, unknown
from operant.sites.wrapper import RESULT_NAMES

if TYPE_CHECKING:
    from operant.tracking.exchange.tfevents_read import EventFileReader
    from operant.tracking.reading.run import Run

_MEAN_LAST = re.compile(r"mean_last_([1-9][0-9]*)")
_RULES = ("last", "max", "min", "mean_last_N")
_NUMBER = r"[-+]?(?:[0-9]+\.?[0-9]*(?:[eE][-+]?[0-9]+)?|\.[0-9]+(?:[eE][-+]?[0-9]+)?|inf|nan)"
_MOST_LINE = 1 << 16
_LARGEST_JSON = 4 << 20  # lists in lists take thirty times their text
_LAST_BYTES, _LONGEST_LINE = 4096, 300
_NOTHING: dict[str, Any] = {}
RACE_ALPHA = 0.1
_FEWEST_FOR_TEST = 2
_MOST_SEEDS = 100_000

Reports = list[dict[str, Any]]
"""What a job reported of one scalar, as assessors take it: ``{'iteration', 'value', 'created'}``, oldest first."""


@dataclass(frozen=True)
class RewardRule:
    """Which scalar counts, where it comes from, and how a job's many values become one."""

    attribute: str = "acc"
    reduce: str = "last"
    pattern: re.Pattern[str] | None = None
    scalars: bool = True
    """Whether jobs record scalars at all."""

    @classmethod
    def parse(cls, attribute: str, reduce: Any = "last", pattern: Any = None, *, scalars: bool = True) -> RewardRule:
        reduce = "last" if reduce is None else reduce
        if not isinstance(reduce, str) or not (reduce in _RULES[:3] or _MEAN_LAST.fullmatch(reduce)):
            raise ConfigError(unknown("reward", reduce, _RULES), ("reward",))
        return cls(attribute, reduce, None if pattern is None else _compile(pattern, attribute), scalars)

    def reward_of(self, values: Sequence[float]) -> float | None:
        """The reward of these values, oldest first; what is no number is passed over unless there is nothing else."""
        finite = [value for value in values if not math.isnan(value)]
        if not finite:
            return None
        if self.reduce == "max":
            return max(finite)
        if self.reduce == "min":
            return min(finite)
        if self.reduce == "last":
            return None if math.isnan(values[-1]) else values[-1]
        last = finite[-int(self.reduce.rpartition("_")[2]) :]
        return math.fsum(last) / len(last)


def _compile(pattern: Any, attribute: str) -> re.Pattern[str]:
    if not isinstance(pattern, str) or not pattern:
        raise ConfigError(f"`pattern` is a text such as 'acc: {{value}}', not {pattern!r}", ("pattern",))
    # `acc: {value}` is plain text with a number in it; anything else is a regular expression.
    if "{value}" in pattern or "{step}" in pattern:
        text = (
            re.escape(pattern).replace(r"\{value\}", f"(?P<value>{_NUMBER})").replace(r"\{step\}", r"(?P<step>[0-9]+)")
        )
    else:
        text = pattern
    try:
        compiled = re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ConfigError(f"`pattern` is no regular expression: {error}", ("pattern",)) from None
    if not compiled.groups:
        raise ConfigError("`pattern` needs {value}, or a group around the number", ("pattern",))
    return compiled


class JobReader:
    """Follows one attempt of one job through its files."""

    def __init__(self, folder: Path, work: Path, rule: RewardRule, foreign: Sequence[str] = ()) -> None:
        self.folder = folder
        self.work = work
        self.rule = rule
        self.foreign = foreign
        """Names in the work folder that lead to what is not the job's own."""
        self.reported = False
        """Whether its result was there, if only as NaN."""
        self.printed: Reports = []
        self._run: Run | None = None
        self._events: dict[Path, EventFileReader] = {}
        self._event_points: dict[str, Reports] = {}
        self._read_bytes = 0
        self._rest = b""

    def refresh(self, *, ended: bool = False) -> bool:
        """Read on; return whether anything was reported since."""
        fresh = False
        if self.rule.pattern is not None:
            fresh = self._read_stdout(ended)
        if not self.rule.scalars:
            return fresh
        if self._run is None and (self.folder / "run").is_dir():
            from operant.tracking.reading.run import Run

            self._run = Run(self.folder / "run")
            fresh = fresh or bool(self._run.scalar_tags)
        elif self._run is not None:
            fresh = bool(self._run.refresh()) or fresh
        if self._run is None or self.rule.attribute not in self._run.scalar_tags:
            fresh = self._read_events() or fresh
        return fresh

    def history(self, tag: str | None = None) -> Reports:
        """A scalar's reports so far, as assessors take them."""
        tag = tag or self.rule.attribute
        if self.rule.pattern is not None and tag == self.rule.attribute:
            return self.printed
        found = [] if self._run is None else self._run.history(tag)
        return found or self._event_points.get(tag, [])

    def latest(self, tag: str) -> float | None:
        history = self.history(tag)
        return float(history[-1]["value"]) if history else None

    def result(self, info: Mapping[str, Any] = _NOTHING) -> tuple[float | None, str | None]:
        """The reward of a job that has ended, and what was wrong if there is none though there should be.

        ``info`` is what its site says of the end. Whatever the job left, this judges it and raises nothing.
        """
        try:
            self.refresh(ended=True)
            values = [float(point["value"]) for point in self.history()]
            if not values and self.rule.pattern is not None:
                return None, f"no line of its output fits the pattern {self.rule.pattern.pattern!r}"
            if not values:
                values = self._result_file(info.get("results"))
        except Exception as error:
            text = str(error) if isinstance(error, UsageError) else f"its result cannot be read: {error!r}"
            return None, printable(text)[:_LONGEST_LINE]
        if not values:
            return None, f"it reported no {self.rule.attribute!r}" if self.rule.scalars else None
        self.reported = True
        reward = self.rule.reward_of(values)
        return reward, None if reward is not None else f"its last {self.rule.attribute!r} is no number"

    def last_line(self) -> str:
        """The last line of what the program wrote to stderr: what a traceback ends with."""
        try:
            with (self.folder / "stderr").open("rb") as stream:
                stream.seek(max(0, stream.seek(0, os.SEEK_END) - _LAST_BYTES))
                lines = stream.read().decode("utf-8", "replace").splitlines()
        except OSError:
            return ""
        return next((line.strip()[:_LONGEST_LINE] for line in reversed(lines) if line.strip()), "")

    def _result_file(self, written: Any) -> list[float]:
        """The values in the result file that this attempt wrote; of a wrapper that does not say, any counts."""
        for name in RESULT_NAMES:
            path = self.work / name
            if not path.is_file() or (isinstance(written, list) and name not in written):
                continue
            if name.endswith(".json"):
                if path.stat().st_size > _LARGEST_JSON:
                    raise UsageError(f"{name} is larger than {_LARGEST_JSON >> 20} MB")
                try:
                    content = json.loads(path.read_bytes())
                except (ValueError, RecursionError) as error:
                    raise UsageError(f"{name} cannot be read: {error}") from None
            else:
                from operant.schedulers.planning.pickles import load_plain_pickle

                content = load_plain_pickle(path)
            return self._values_in(content, name)
        return []

    def _values_in(self, content: Any, name: str) -> list[float]:
        if isinstance(content, Mapping):
            if self.rule.attribute not in content:
                keys = [key[:80] for key in itertools.islice(content, 20) if isinstance(key, str)]
                raise UsageError(f"{name}: {unknown('key', self.rule.attribute, keys)}")
            content = content[self.rule.attribute]
        if hasattr(content, "tolist"):
            content = content.tolist()
        try:
            return [float(value) for value in (content if isinstance(content, list) else [content])]
        except (TypeError, ValueError):
            kind = f"{content!r:.80}" if isinstance(content, str | None) else f"a {type(content).__name__}"
            raise UsageError(f"{name}: {self.rule.attribute!r} is no number but {kind}") from None
        except OverflowError:
            raise UsageError(f"{name}: {self.rule.attribute!r} is too large for a number") from None

    def _read_stdout(self, ended: bool) -> bool:
        assert self.rule.pattern is not None
        try:
            with (self.folder / "stdout").open("rb") as stream:
                stream.seek(self._read_bytes)
                data = stream.read()
        except FileNotFoundError:
            return False
        self._read_bytes += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        if ended and self._rest:
            lines.append(self._rest)
            self._rest = b""
        before = len(self.printed)
        for line in lines:
            self._match(line[:_MOST_LINE].decode("utf-8", "replace"))
        return len(self.printed) > before

    def _match(self, line: str) -> None:
        assert self.rule.pattern is not None
        for found in self.rule.pattern.finditer(line):
            named = found.groupdict()
            step = named.get("step")
            try:
                value = float(named.get("value") or found[1])
                iteration = int(step) if step else len(self.printed)
            except (TypeError, ValueError):
                continue
            if abs(iteration) >> 63:
                continue
            created = int((self.folder / "stdout").stat().st_mtime * 1000)
            self.printed.append({"iteration": iteration, "value": value, "created": created})

    def _read_events(self) -> bool:
        """TensorBoard files that the program writes below its work folder."""
        from operant.tracking.exchange.tfevents_decode import ScalarEvent
        from operant.tracking.exchange.tfevents_read import EventFileReader, find_event_files

        fresh = False
        for path in find_event_files(self.work, without=self.foreign):
            reader = self._events.setdefault(path, EventFileReader(path))
            for event in reader.poll():
                if isinstance(event, ScalarEvent):
                    fresh = True
                    point = {"iteration": event.step, "value": event.value, "created": round(event.wall * 1000)}
                    self._event_points.setdefault(event.tag, []).append(point)
        return fresh


@dataclass(frozen=True)
class SeedPlan:
    """Which seeds each proposal runs, and how their rewards become one.

    When racing, seeds are run in their order. After two of them a proposal is dropped as soon as a paired test
    against the best proposal, which has run them all, says that it is worse.
    """

    seeds: tuple[int | None, ...] = (None,)
    reduce: str = "mean"
    racing: bool = False
    check_top: int = 0
    check_seeds: tuple[int, ...] = ()
    maximize: bool = True

    @classmethod
    def parse(cls, seeds: Any, reduce: Any, racing: Any, final_check: Any, optimize_mode: str) -> SeedPlan:
        chosen = _parse_seeds(seeds)
        if reduce is not None and reduce not in ("mean", "iqm", "min"):
            raise ConfigError(unknown("seed_reward", reduce, ("mean", "iqm", "min")), ("seed_reward",))
        if racing not in (None, True, False):
            raise ConfigError(f"`racing` is true or false, not {racing!r}", ("racing",))
        if racing and len(chosen) < _FEWEST_FOR_TEST + 1:
            raise ConfigError("racing needs at least 3 `seeds`", ("racing",))
        top, held_out = _parse_check(final_check, chosen)
        return cls(chosen, reduce or "mean", bool(racing), top, held_out, optimize_mode == "maximize")

    @cached_property
    def first(self) -> tuple[int | None, ...]:
        """The seeds that start with the proposal."""
        return self.seeds[:_FEWEST_FOR_TEST] if self.racing else self.seeds

    def reward(self, rewards: Sequence[float]) -> float:
        if self.reduce == "iqm":
            return iqm(rewards)
        if self.reduce == "min":
            # The worst seed, whichever way is worse.
            return min(rewards) if self.maximize else max(rewards)
        return math.fsum(rewards) / len(rewards)

    def loses(self, rewards: Mapping[int | None, float], incumbent: Mapping[int | None, float] | None) -> bool:
        """Whether a proposal with these rewards by seed should run no further ones."""
        if not self.racing or incumbent is None:
            return False
        shared = [seed for seed in rewards if seed in incumbent]  # one of its jobs, once paused, may run again
        if len(shared) < _FEWEST_FOR_TEST:
            return False
        sign = 1.0 if self.maximize else -1.0
        ours, theirs = ([sign * one[seed] for seed in shared] for one in (rewards, incumbent))
        return paired_worse(ours, theirs, RACE_ALPHA)


def _parse_seeds(seeds: Any) -> tuple[int | None, ...]:
    if seeds is None:
        return (None,)
    if is_whole(seeds, 1):
        _check_count(seeds, ("seeds",))
        return tuple(range(seeds))
    good = isinstance(seeds, (list, tuple)) and seeds and all(is_whole(one) and abs(one) < 1 << 63 for one in seeds)
    if not good:
        raise ConfigError(f"`seeds` is a list of whole numbers such as [0, 1, 2], not {seeds!r}", ("seeds",))
    if len(set(seeds)) != len(seeds):
        raise ConfigError(f"`seeds` names a seed twice: {seeds!r}", ("seeds",))
    return tuple(seeds)


def _check_count(count: int, path: tuple[str, ...]) -> None:
    if count > _MOST_SEEDS:
        raise ConfigError(f"at most {_MOST_SEEDS:,} seeds, not {count}", path)


def _parse_check(check: Any, seeds: Sequence[int | None]) -> tuple[int, tuple[int, ...]]:
    if not check:
        return 0, ()
    if not isinstance(check, Mapping):
        raise ConfigError(f"`final_check` is a mapping such as {{top: 3, seeds: 5}}, not {check!r}", ("final_check",))
    for key in check:
        if key not in ("top", "seeds"):
            raise ConfigError(unknown("key of final_check", key, ("top", "seeds")), ("final_check", str(key)))
    top = whole_number(check.get("top", 3), "top", 1, ("final_check", "top"))
    count = whole_number(check.get("seeds", 5), "seeds", 1, ("final_check", "seeds"))
    _check_count(count, ("final_check", "seeds"))
    # Held out: seeds that the search has not seen.
    first = 1 + max((one for one in seeds if one is not None), default=999)
    return top, tuple(range(first, first + count))
