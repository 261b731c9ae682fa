"""`search-run --benchmark`: searches linear policies on MuJoCo, or formulas, instead of starting programs."""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from operant._util.checks import is_number, whole_number
from operant.benchmark import Function, make_function
from operant.benchmark.comparing import confirm, confirming_cost
from operant.errors import ArgumentError, ConfigError
from operant.schedulers.engine.control import View
from operant.schedulers.engine.scheduler import Outcome
from operant.schedulers.job import Job
from operant.schedulers.naive_scheduler import NaiveScheduler
from operant.schedulers.planning.plan import SearchPlan
from operant.sites import Site
from operant.sites.function import check_scalars
from operant.sites.processes import ProcessSite
from operant.space import Categorical, load_yaml_file, place_argument_error
from operant.status import Status

# What `scheduler` may say of the function besides what every search has, with its default.
_DEFAULTS: dict[str, Any] = {"func_type": None, "rollouts": 3, "confirm_rollouts": 20}


class MujocoJob(Job):
    """One sample: the value of a function at the point that `arg_dict` is. It runs where it is started.

    A value at the threshold is measured again on fresh episodes, and that mean is the sample's reward: a few episodes
    that went well are no success.
    """

    def __init__(
        self,
        function: Function,
        name: str,
        arg_dict: Mapping[str, Any],
        *,
        seed: int = 0,
        threshold: float | None = None,
        confirm_rollouts: int = 20,
    ) -> None:
        super().__init__("", name, arg_dict)
        self._function = function
        # The same point has the same episodes, whichever process measures it and when.
        self._seed = [seed, zlib.crc32(repr(sorted(self.arg_dict.items())).encode())]
        self._threshold = threshold
        self._confirm_rollouts = confirm_rollouts
        self.reward = float("nan")
        self.episodes = 0
        """All that were run, with those for confirming."""
        self.confirming_episodes = 0

    def start(self, **options: Any) -> None:
        point = list(self.arg_dict.values())
        self._status = Status.RUNNING
        self.reward = self._function(point, self._seed)
        self.episodes = int(getattr(self._function, "rollouts", 1))
        if self._threshold is not None and self.reward >= self._threshold:
            self.reward = confirm(self._function, point, self._seed, self._confirm_rollouts)
            self.confirming_episodes = confirming_cost(self._function, self._confirm_rollouts)
            self.episodes += self.confirming_episodes
        self._status = Status.FINISHED

    def wait(self, timeout: float | None = None) -> str:
        return self.status

    def kill(self) -> None:
        """It has ended when `start` returns."""


class MujocoScheduler(NaiveScheduler):
    """Runs the search of a benchmark file: an empty template, and in `scheduler` also `func_type`, `rollouts` (episodes
    for a sample, 3) and `confirm_rollouts` (episodes before `max_reward` counts as reached, 20).

    Without `func_type` the number of search args decides. Samples run in as many processes as `parallel_size` says.
    """

    def __init__(
        self,
        workdir: str | os.PathLike[str],
        config: Mapping[str, Any] | str | os.PathLike[str],
        *,
        resume: bool = False,
        force: bool = False,
        view: View | None = None,
    ) -> None:
        file = None if isinstance(config, Mapping) else Path(config)
        given, lines = (config, {}) if isinstance(config, Mapping) else load_yaml_file(Path(config))
        try:
            if not isinstance(given, Mapping):
                raise ConfigError("a search is described by a mapping with `task`, `searcher` and `scheduler`")
            content, options = _split(given)
            self._options = options
            super().__init__(workdir, content, resume=resume, force=force, function=self._sample, view=view)
            # With the function, too: a search of one does not go on with another.
            self.plan.config = {str(key): value for key, value in given.items()}
            _refuse_jobs_settings(self.plan)
            _check_arguments(self.plan)
            self._threshold = _threshold(content)
            whole_number(options["confirm_rollouts"], "confirm_rollouts", 1, ("scheduler", "confirm_rollouts"))
            rollouts = whole_number(options["rollouts"], "rollouts", 1, ("scheduler", "rollouts"))
            self._function = make_function(options["func_type"], self.plan.space.dimensions, rollouts)
            if not self.plan.maximize:
                raise ConfigError("a benchmark is maximised", ("searcher", "optimize_mode"))
        except ConfigError as error:
            raise (error if error.file or file is None else error.located(str(file), lines)) from error.__cause__
        if self.plan.template.text:
            self.plan.notes.append("a benchmark starts no program: the template is not used")
        self.origin["benchmark"] = True
        if file is not None:
            self.plan.source = file.read_text(encoding="utf-8")
            self.origin["file"] = str(file.absolute())

    def run(self) -> Outcome:
        outcome = super().run()
        assert self.scheduler is not None
        values = [proposal.values or {} for proposal in self.scheduler.state.proposals.values()]
        episodes, confirming = (
            int(sum(one.get(name, 0) for one in values)) for name in ("episodes", "confirming_episodes")
        )
        self.view.note(f"{episodes} episodes, of them {confirming} to confirm rewards at `max_reward`")
        return outcome

    def _make_site(self) -> Site:
        if self.plan.parallel_size == 1:
            return super()._make_site()
        return ProcessSite(
            lambda job: self._sample(job.config), check_scalars, self.plan.rule.attribute, self.plan.parallel_size
        )

    def _sample(self, config: Mapping[str, Any]) -> dict[str, float]:
        job = MujocoJob(
            self._function,
            self._function.name,
            config,
            seed=self.plan.searcher.seed,
            threshold=self._threshold,
            confirm_rollouts=self._options["confirm_rollouts"],
        )
        job.start()
        counts = {"episodes": float(job.episodes), "confirming_episodes": float(job.confirming_episodes)}
        return {self.plan.rule.attribute: job.reward, **counts}


def _split(config: Mapping[str, Any]) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """What every search has, and what only a benchmark has."""
    if not isinstance(config.get("scheduler"), Mapping):
        return config, dict(_DEFAULTS)
    scheduler = dict(config["scheduler"])
    options = {name: scheduler.pop(name, default) for name, default in _DEFAULTS.items()}
    return {**config, "scheduler": scheduler}, options


def _refuse_jobs_settings(plan: SearchPlan) -> None:
    """What is said of programs, and would be left out in silence."""
    scheduler = plan.config.get("scheduler") or {}
    for key in ("seeds", "seed_reward", "racing", "final_check"):
        for section, path in ((plan.config, (key,)), (scheduler, ("scheduler", key))):
            if section.get(key) is not None:
                raise ConfigError(f"a benchmark has no `{key}`: `rollouts` says how many episodes a sample has", path)
    if plan.site.get("type") != "local":
        place = ("site",) if plan.config.get("site") is not None else ("scheduler", "site")
        raise ConfigError("a benchmark runs in processes of this machine (`parallel_size`), not on a site", place)


def _check_arguments(plan: SearchPlan) -> None:
    """A sample is a point with one number for each search arg."""
    for argument in plan.space.layout.arguments:
        if argument.when is not None:
            wrong = "is there under a condition"
        elif argument.row_names:
            wrong = "has rows"
        elif isinstance(argument.leaf, Categorical) and not all(map(is_number, argument.leaf.data)):
            wrong = "has values that are no numbers"
        else:
            continue
        error = ArgumentError(
            f"each search arg of a benchmark is one number, but {argument.name!r} {wrong}", (argument.name,)
        )
        raise place_argument_error(error, plan.config["task"]["search_args"]).under("task", "search_args")


def _threshold(config: Mapping[str, Any]) -> float | None:
    rules = (config.get("scheduler") or {}).get("stop_criterion")
    reward = rules.get("max_reward") if isinstance(rules, Mapping) else None
    return None if reward is None else float(reward)
