"""When a search ends."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from operant._util.checks import from_text, is_number
from operant._util.units import parse_duration
from operant.errors import ConfigError
from operant.registry import Registry, accepted_arguments

STOP_CRITERIONS = Registry("stop criterion", "operant.stop_criterions")


def get_current_time() -> float:
    """Seconds since 1970."""
    return time.time()


class RunningSearch(Protocol):
    """What a stop criterion is shown of the search, as ``scheduler``; it may keep attributes of its own there."""

    is_stop: bool
    """Set it to True, and nothing more is proposed; jobs that run are waited for."""

    @property
    def maximize(self) -> bool: ...

    @property
    def tries(self) -> int:
        """How many proposals have been tried, or are; those that a filter dropped do not count."""

    @property
    def best(self) -> Any:
        """(reward, proposal, rewards by seed) of the best proposal that ran all its seeds, or None."""

    @property
    def jobs(self) -> Mapping[str, Any]:
        """All jobs that have had a slot, by id: their ``status``, ``arg_dict``, ``reward``, ``started``, ``ended``."""

    @property
    def elapsed(self) -> float:
        """Seconds that this search has run, those before a resume included."""

    def stop(self, reason: str, *, kill: bool) -> None:
        """Set ``is_stop`` and say why; with ``kill`` jobs that run are ended, and count as KILLED."""


class BaseStopCriterion:
    """Looks on at four moments; ``scheduler.is_stop = True`` ends dispatching, and running jobs are waited for.

    The controller's own thread calls all of them: they should be quick.
    """

    def before_run(self, scheduler: Any) -> None:
        """Once, before the first job; on a resume after the journal was read."""

    def after_run(self, scheduler: Any) -> None:
        """Once, after the last job and the final check; not when the search ends by an error of the controller."""

    def before_iter(self, scheduler: Any) -> None:
        """Before the searcher is asked for another proposal; whoever sets ``is_stop`` here prevents it."""

    def after_iter(self, scheduler: Any) -> None:
        """After each job was started (of functions called in the controller's thread: after the call)."""


@STOP_CRITERIONS.register_module()
class NaiveStopCriterion(BaseStopCriterion):
    """The rules of the YAML file.

    ``max_tries`` drains: jobs that run are waited for. ``time_limits`` and ``max_reward`` kill them: the time is
    over, or there is nothing left to look for. ``time_limits_per_job`` ends the one job.
    """

    def __init__(
        self,
        max_tries: Any = None,
        time_limits: Any = None,
        max_reward: Any = None,
        time_limits_per_job: Any = None,
    ) -> None:
        self.max_tries = parse_tries(max_tries)
        self.time_limits = parse_duration(time_limits, ("time_limits",), bare_unit="h")
        self.max_reward = _reward(max_reward)
        self.time_limits_per_job = parse_duration(time_limits_per_job, ("time_limits_per_job",), bare_unit="h")

    def before_iter(self, scheduler: RunningSearch) -> None:
        if self.max_tries is not None and scheduler.tries >= self.max_tries:
            scheduler.stop("max_tries", kill=False)

    def after_result(self, scheduler: RunningSearch, reward: float) -> None:
        """Called with the reward of each proposal; maximise and minimise both come here as the user knows them."""
        if self.max_reward is None:
            return
        reached = reward >= self.max_reward if scheduler.maximize else reward <= self.max_reward
        if reached:
            scheduler.stop("max_reward", kill=True)


RULES = ("max_tries", "time_limits", "max_reward", "time_limits_per_job")


class StopCriteria(BaseStopCriterion):
    """The rules of the file together with a user's own criteria."""

    def __init__(self, rules: NaiveStopCriterion, custom: Sequence[BaseStopCriterion] = ()) -> None:
        self.rules = rules
        self.custom = list(custom)

    def before_run(self, scheduler: Any) -> None:
        self.rules.before_run(scheduler)
        for one in self.custom:
            one.before_run(scheduler)

    def after_run(self, scheduler: Any) -> None:
        self.rules.after_run(scheduler)
        for one in self.custom:
            one.after_run(scheduler)

    def before_iter(self, scheduler: Any) -> None:
        self.rules.before_iter(scheduler)
        for one in self.custom:
            one.before_iter(scheduler)

    def after_iter(self, scheduler: Any) -> None:
        self.rules.after_iter(scheduler)
        for one in self.custom:
            one.after_iter(scheduler)


def build_stop_criterion(cfg: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None) -> StopCriteria:
    """The rules (``max_tries: 10``), a class of the user's (``type: MyStopCriterion``), or a list of both.

    The four rules hold whichever class they stand beside; the class gets those that it has arguments for.
    """
    rules: dict[str, Any] = {}
    custom: list[BaseStopCriterion] = []
    if not isinstance(cfg, (Mapping, list, tuple, type(None))):
        raise ConfigError(f"a stop criterion is a mapping such as {{max_tries: 10}}, or a list of them, not {cfg!r}")
    parts = [cfg] if isinstance(cfg, Mapping) else list(cfg or [])
    for place, part in enumerate(parts):
        try:
            if not isinstance(part, Mapping):
                raise ConfigError(f"a stop criterion is a mapping, not {part!r}")
            for key in RULES:
                if key in part:
                    rules[key] = part[key]
            if part.get("type", "NaiveStopCriterion") != "NaiveStopCriterion":
                custom.append(_build_custom(part))
            else:
                STOP_CRITERIONS.build(part, default_type="NaiveStopCriterion")
        except ConfigError as error:
            raise (error if isinstance(cfg, Mapping) else error.under(place)) from None
    return StopCriteria(NaiveStopCriterion(**rules), custom)


def _build_custom(cfg: Mapping[str, Any]) -> BaseStopCriterion:
    allowed, _, takes_any = accepted_arguments(STOP_CRITERIONS.get(str(cfg["type"])))
    wanted = {key: value for key, value in cfg.items() if key not in RULES or key in allowed or takes_any}
    built: BaseStopCriterion = STOP_CRITERIONS.build(wanted)
    return built


def parse_tries(value: Any) -> int | None:
    value = from_text(value)
    if value is None or (isinstance(value, float) and math.isinf(value)):
        return None
    if not is_number(value) or not value >= 1 or value != int(value):
        raise ConfigError(f"`max_tries` must be a whole number from 1 on, not {value!r}", ("max_tries",))
    return int(value)


def _reward(value: Any) -> float | None:
    value = from_text(value)
    if value is None:
        return None
    if not is_number(value) or math.isnan(value):
        raise ConfigError(f"`max_reward` must be a number, not {value!r}", ("max_reward",))
    return None if math.isinf(value) else float(value)
