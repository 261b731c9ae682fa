"""From a search's YAML to everything a scheduler needs; every mistake is found here, before anything starts."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from operant._util.checks import flag, whole_number
from operant._util.files import write_file
from operant._util.units import parse_duration
from operant.assessors import BaseAssessor, build_assessor
from operant.errors import ArgumentError, ConfigError, unknown
from operant.schedulers.criteria import (
    BaseFilterCriterion,
    BaseStopCriterion,
    NaiveStopCriterion,
    StopCriteria,
    build_filter_criterion,
    build_stop_criterion,
)
from operant.schedulers.planning.custom import import_custom
from operant.schedulers.planning.gpus import GpuPool
from operant.schedulers.planning.limits import parse_limits
from operant.schedulers.planning.places import checked_site, moved
from operant.schedulers.planning.rewards import RewardRule, SeedPlan
from operant.schedulers.planning.template import RESERVED, Template
from operant.searchers import BaseSearcher, build_searcher
from operant.sites.base import Limits
from operant.space import Dict, build_space, check_paths, load_yaml_file, place_argument_error

_TOP = (
    "task", "searcher", "scheduler", "assessor", "pavi", "use_spe", "generate_log", "custom_imports", "seeds",
    "seed_reward", "racing", "final_check", "site",
)  # fmt: skip
_TASK = ("template", "search_args", "pattern", "reward")
_SCHEDULER = (
    "type", "parallel_size", "stop_criterion", "filter_criterion", "assessor", "max_retries", "retry_delay",
    "no_report_timeout", "memory_limit", "output_limit", "grace_period", "gpus_per_job", "gpus", "lag", "site",
    "seeds", "seed_reward", "racing", "final_check",
)  # fmt: skip
_SCHEDULER_TYPES = ("FIFO", "NaiveScheduler")
_EITHER_PLACE = ("assessor", "seeds", "seed_reward", "racing", "final_check", "site")


@dataclass
class SearchPlan:
    """A search, checked and put together."""

    config: dict[str, Any]
    space: Dict
    template: Template
    searcher: BaseSearcher
    stop: StopCriteria
    filter: BaseFilterCriterion | None
    assessor: BaseAssessor | None
    rule: RewardRule
    seeds: SeedPlan
    parallel_size: int = 1
    max_retries: int = 0
    retry_delay: float = 1.0
    no_report_timeout: float | None = None
    limits: Limits = field(default_factory=Limits)
    gpus: GpuPool | None = None
    compare: dict[str, str] = field(default_factory=dict)
    scalars: list[str] = field(default_factory=list)
    ckpt_save_path: str | None = None
    site: dict[str, Any] = field(default_factory=lambda: {"type": "local"})
    """Which site its programs run on, with the settings of that site."""
    generate_log: bool = True
    notes: list[str] = field(default_factory=list)
    """What the user should know though it is no mistake."""
    source: str | None = None
    """The text of the file, as it was given."""

    @classmethod
    def for_function(
        cls,
        config: dict[str, Any],
        space: Dict,
        searcher: BaseSearcher,
        *,
        max_tries: int | None = None,
        criteria: Sequence[BaseStopCriterion] = (),
        assessor: Any = None,
        parallel_size: int = 1,
        max_retries: int = 0,
        retry_delay: float = 0.1,
        time_limit: float | None = None,
        grace_seconds: float = 2.0,
        scalars: Sequence[str] = (),
    ) -> SearchPlan:
        """The plan of a search that calls a Python function.

        :param config: the search as plain data, for its journal.
        :param criteria: stop criteria besides ``max_tries``.
        :param assessor: an assessor, its class, its name, or its settings with a ``type``.
        :param time_limit: seconds for each call; only a site that can end calls keeps it.
        :param scalars: names of values that views show besides the reward.
        """
        attribute, rules = searcher.reward_attribute, NaiveStopCriterion()
        rules.max_tries = max_tries  # here also 0: nothing but what an earlier run has found
        return cls(
            config=config,
            space=space,
            template=Template("", space, RESERVED),
            searcher=searcher,
            stop=StopCriteria(rules, criteria),
            filter=None,
            assessor=None if assessor is None else build_assessor(assessor, searcher.optimize_mode),
            rule=RewardRule(attribute),
            seeds=SeedPlan(maximize=searcher.optimize_mode == "maximize"),
            parallel_size=parallel_size,
            max_retries=max_retries,
            retry_delay=retry_delay,
            limits=Limits(seconds=time_limit, grace_seconds=grace_seconds),
            scalars=[attribute, *scalars],
            generate_log=False,
        )

    @property
    def maximize(self) -> bool:
        return self.searcher.optimize_mode == "maximize"

    def keep_config(self, folder: Path) -> None:
        """Write the configuration to ``search.yaml``: as it was given, if it came from a file."""
        text, path = self.source, folder / "search.yaml"
        if text is None:
            import yaml

            dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
            text = yaml.dump(json.loads(json.dumps(self.config, default=str)), Dumper=dumper, sort_keys=False)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            folder.mkdir(parents=True, exist_ok=True)
            write_file(path, text)

    @property
    def digest(self) -> str:
        """Changes with anything in the configuration."""
        text = json.dumps(self.config, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def load_plan(
    path: str | os.PathLike[str], *, folder: Path | None = None, where: str | Mapping[str, Any] | None = None
) -> SearchPlan:
    """Read and check a search's file; commands find their files in ``folder``, ``where`` is another site."""
    file = Path(path)
    config, lines = load_yaml_file(file)
    if where is not None and isinstance(config, Mapping):
        config = moved(config, where)
    try:
        plan = make_plan(config, beside=file.absolute().parent, folder=folder)
    except ConfigError as error:
        raise (error if error.file else error.located(str(file), lines)) from error.__cause__
    plan.source = file.read_text(encoding="utf-8")
    return plan


def make_plan(
    config: Any, *, beside: Path | None = None, folder: Path | None = None, function: bool = False
) -> SearchPlan:
    """Check a configuration that is a dict already. With ``function`` no command is needed."""
    beside = beside or Path.cwd()
    folder = folder or Path.cwd()
    if not isinstance(config, Mapping):
        raise ConfigError("a search is described by a mapping with `task`, `searcher` and `scheduler`")
    config = {str(key): value for key, value in config.items()}
    _known_keys(config, _TOP, "key")
    task, scheduler = _section(config, "task", _TASK), _section(config, "scheduler", _SCHEDULER)
    searcher_cfg = dict(_section(config, "searcher", None))
    pavi = _section(config, "pavi", ("compare", "scalars"))
    chosen = {key: _either(config, scheduler, key) for key in _EITHER_PLACE}
    notes: list[str] = []
    with _under("custom_imports"):
        import_custom(config.get("custom_imports") or [], beside)
    _check_scheduler_type(scheduler.get("type"))
    with _under(*chosen["site"][1]):
        site = checked_site(chosen["site"][0])
    with _collecting(notes):
        with _under("task", "search_args"):
            if "search_args" not in task:
                raise ConfigError("`search_args` is missing: the list of what may vary")
            space = build_space(task["search_args"])
        _check_files(space, folder, task["search_args"])
        template = _template(task, space, function, notes, here=site["type"] == "local")
        rule_options = {key: _move(key, searcher_cfg, task) for key in ("pattern", "reward")}
        checkpoints = searcher_cfg.pop("ckpt_save_path", None)
        lag = scheduler.get("lag")
        if lag is not None:
            searcher_cfg.setdefault("lag", lag)
        try:
            searcher = build_searcher(searcher_cfg, space)
        except ArgumentError as error:  # an argument that this searcher cannot search
            raise place_argument_error(error, task["search_args"]).under("task", "search_args") from None
        except ConfigError as error:
            raise error.under("searcher") from error.__cause__
        with _under("searcher"):
            mock = os.environ.get("MOCK_PAVI", "0").strip() or "0"
            rule = RewardRule.parse(
                searcher.reward_attribute, rule_options["reward"], rule_options["pattern"], scalars=mock != "2"
            )
    with _under("scheduler", "stop_criterion"):
        stop = build_stop_criterion(scheduler.get("stop_criterion"))
    with _under("scheduler", "filter_criterion"):
        filters = build_filter_criterion(scheduler.get("filter_criterion"), space.names)
    assessor = _assessor(chosen["assessor"], searcher, rule)
    with _under(*chosen["seeds"][1][:-1]):
        seeds = SeedPlan.parse(
            chosen["seeds"][0],
            chosen["seed_reward"][0],
            chosen["racing"][0],
            chosen["final_check"][0],
            searcher.optimize_mode,
        )
    with _under("scheduler"):
        plan = SearchPlan(
            config=config,
            space=space,
            template=template,
            searcher=searcher,
            stop=stop,
            filter=filters,
            assessor=assessor,
            rule=rule,
            seeds=seeds,
            parallel_size=_whole(scheduler, "parallel_size", 1, 1),
            max_retries=_whole(scheduler, "max_retries", 0, 0),
            retry_delay=parse_duration(scheduler.get("retry_delay", 1), ("retry_delay",), bare_unit="s") or 1.0,
            no_report_timeout=parse_duration(scheduler.get("no_report_timeout"), ("no_report_timeout",), bare_unit="s"),
            limits=parse_limits(scheduler, stop.rules.time_limits_per_job),
            gpus=GpuPool.parse(scheduler.get("gpus_per_job"), scheduler.get("gpus"), site["type"]),
            site=site,
            notes=notes,
        )
    plan.compare = _compare(pavi.get("compare"))
    plan.scalars = _scalars(pavi.get("scalars"), rule.attribute)
    plan.ckpt_save_path = _checkpoints(checkpoints)
    plan.generate_log = _flag(config, "generate_log", True)
    if _flag(config, "use_spe", False):
        notes.append("`use_spe` has no meaning here; the search runs as it would without")
    if mock not in ("0", "1", "2"):
        raise ConfigError(f"MOCK_PAVI is 0, 1 or 2, not {mock!r}")
    _check_lag(plan)
    return plan


# -- sections -----------------------------------------------------------------------------------------------------


def _section(config: Mapping[str, Any], name: str, known: tuple[str, ...] | None) -> dict[str, Any]:
    section = config.get(name)
    if section is None:
        section = {}
    if not isinstance(section, Mapping):
        raise ConfigError(f"a mapping is expected here, not {section!r}", (name,))
    section = {str(key): value for key, value in section.items()}
    if known is not None:
        with _under(name):
            _known_keys(section, known, f"key of {name}")
    return section


def _known_keys(section: Mapping[str, Any], known: tuple[str, ...], what: str) -> None:
    for key in section:
        if key not in known:
            if key == "func_type":
                raise ConfigError("`func_type` is for benchmarks: `search-run --benchmark`, in `scheduler`", (key,))
            raise ConfigError(unknown(what, key, known), (str(key),))


def _either(config: Mapping[str, Any], scheduler: Mapping[str, Any], key: str) -> tuple[Any, tuple[str, ...]]:
    """What may stand inside `scheduler` or beside it, and where it stood."""
    if config.get(key) is not None and scheduler.get(key) is not None:
        raise ConfigError(f"`{key}` is given twice, inside `scheduler` and beside it; give one of them", (key,))
    if config.get(key) is not None:
        return config[key], (key,)
    return scheduler.get(key), ("scheduler", key)


def _move(key: str, searcher: dict[str, Any], task: Mapping[str, Any]) -> Any:
    """`reward` and `pattern` may stand in `task` or in `searcher`; a searcher's class does not get them."""
    found = searcher.pop(key, None)
    return task.get(key) if found is None else found


@contextmanager
def _under(*path: str | int) -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        raise error.under(*path) from error.__cause__


@contextmanager
def _collecting(notes: list[str]) -> Iterator[None]:
    """Warnings of the parts become notes of the plan: each once, for the user and not for a developer."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for one in caught:
        text = str(one.message)
        if text not in notes:
            notes.append(text)


# -- parts --------------------------------------------------------------------------------------------------------


def _check_scheduler_type(kind: Any) -> None:
    if kind is not None and kind not in _SCHEDULER_TYPES:
        raise ConfigError(unknown("type of scheduler", kind, _SCHEDULER_TYPES), ("scheduler", "type"))


def _template(task: Mapping[str, Any], space: Dict, function: bool, notes: list[str], *, here: bool) -> Template:
    text = "" if function and task.get("template") is None else task.get("template")
    with _under("task"):
        if text is None:
            raise ConfigError("`template` is missing: the command that runs one job", ("template",))
        if not isinstance(text, str):
            raise ConfigError(f"the template is a command, not {text!r}", ("template",))
        if not text.strip() and not function:
            raise ConfigError(
                "the template is empty: there is nothing to run (a benchmark takes `search-run --benchmark`)",
                ("template",),
            )
        template = Template(text, space, RESERVED)
        notes += template.notes
        if not here:  # programs are looked for where they run
            return template
        if template.program is not None and shutil.which("srun") is None and template.without_srun():
            notes.append("there is no srun on this machine: what it would start is started directly")
        program = template.program
        if program is not None and "/" not in program and shutil.which(program) is None and "{" not in program:
            raise ConfigError(f"there is no program {program!r} on this machine", ("template",))
    return template


def _check_files(space: Dict, folder: Path, search_args: Any) -> None:
    """Every value that will be set must have its place in the file."""
    for name, part in space.files.items():
        place = next(i for i, one in enumerate(search_args) if one.get("name") == name and one.get("type") == "File")
        inner = "args" if "args" in search_args[place] else "search_args"
        with _under("task", "search_args", place):
            path = folder / part.file
            if part.file.is_absolute() or ".." in part.file.parts:
                raise ConfigError(f"the file must lie below the current folder, not at {str(part.file)!r}", ("file",))
            try:
                text = path.read_text(encoding="utf-8")
            except OSError as error:
                raise ConfigError(f"{str(path)!r} cannot be read: {error.strerror}", ("file",)) from None
            paths = [key[len(name) + 1 : -1] for key in space.names if key.startswith(f"{name}(")]
            try:
                check_paths(text, paths, part.file)
            except ConfigError as error:
                wrong = error.path[0] if error.path else None
                where = (i for i, one in enumerate(search_args[place][inner]) if _mentions(one, wrong))
                raise ConfigError(error.message, (inner, *list(where)[:1])) from None


def _mentions(argument: Mapping[str, Any], name: Any) -> bool:
    if argument.get("type") == "Nested":
        return any(name in row for row in argument.get("data", ()))
    return bool(argument.get("name") == name)


def _assessor(found: tuple[Any, tuple[str, ...]], searcher: BaseSearcher, rule: RewardRule) -> BaseAssessor | None:
    cfg, place = found
    if cfg is None:
        return None
    with _under(*place):
        if not rule.scalars and rule.pattern is None:
            raise ConfigError("an assessor needs scalars, and MOCK_PAVI=2 means that there are none")
        if not isinstance(cfg, Mapping):
            raise ConfigError(f"an assessor is a mapping with a `type`, not {cfg!r}")
        # Whoever minimises means it for the assessor as well.
        return build_assessor(cfg, searcher.optimize_mode)


def _compare(compare: Any) -> dict[str, str]:
    if compare is None:
        return {}
    with _under("pavi", "compare"):
        if not isinstance(compare, Mapping):
            raise ConfigError(f"`compare` has a `name` or an `id`, and is not {compare!r}")
        _known_keys(compare, ("name", "id"), "key of compare")
        if len(compare) != 1:
            raise ConfigError("give either `name`, for a new group of runs, or `id`, to add to one")
        return {str(key): str(value) for key, value in compare.items()}


def _scalars(scalars: Any, reward: str) -> list[str]:
    if scalars is None:
        return [reward]
    if not isinstance(scalars, list) or not all(isinstance(one, str) for one in scalars):
        raise ConfigError(f"a list of scalar names is expected here, not {scalars!r}", ("pavi", "scalars"))
    return [*dict.fromkeys([reward, *scalars])]


def _checkpoints(path: Any) -> str | None:
    """`pavi:/MnistNet` and `MnistNet` both name a folder that is kept with the job's run."""
    if path is None:
        return None
    with _under("searcher", "ckpt_save_path"):
        if not isinstance(path, str) or not path.strip():
            raise ConfigError(f"a folder is expected here, not {path!r}")
        relative = path.partition(":")[2] if path.startswith("pavi:") else path
        parts = Path(relative.lstrip("/")).parts if path.startswith("pavi:") else Path(relative).parts
        if not parts or ".." in parts or Path(*parts).is_absolute():
            raise ConfigError(f"the folder must lie inside the job, not at {path!r}")
        return str(Path(*parts))


def _whole(section: Mapping[str, Any], key: str, default: int, least: int) -> int:
    return whole_number(section.get(key, default), key, least)


def _flag(config: Mapping[str, Any], key: str, default: bool) -> bool:
    return flag(config.get(key, default), key)


def _check_lag(plan: SearchPlan) -> None:
    """`lag` promises the same proposals whatever the timing; rules that look at the time would break it."""
    lag = plan.searcher.lag
    if lag is None:
        return
    timed: dict[str, Callable[[], bool]] = {
        "time_limits": lambda: plan.stop.rules.time_limits is not None,
        "time_limits_per_job": lambda: plan.stop.rules.time_limits_per_job is not None,
        "no_report_timeout": lambda: plan.no_report_timeout is not None,
        "assessor": lambda: plan.assessor is not None,
        "racing": lambda: plan.seeds.racing,
    }
    for name, given in timed.items():
        if given():
            raise ConfigError(
                f"`lag` makes proposals independent of timing, and `{name}` depends on it; drop one",
                ("searcher", "lag"),
            )
    if plan.parallel_size > lag:
        plan.notes.append(
            f"with `lag: {lag}` at most {lag} jobs run at once, though `parallel_size` is {plan.parallel_size}"
        )
