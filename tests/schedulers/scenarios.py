"""Small searches whose journals are kept beside this file, as the first version that wrote them left them.

Each is run again by a test, which compares what it writes with what was written then; times and tokens apart.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from operant.hpo import R, Skip, choice, hpo, report, uniform
from operant.schedulers import NaiveScheduler, Scheduler, make_plan
from operant.sites import SimulatedClock, SimulatedSite, Simulation, Submission
from operant.sites.calls import Pruned
from operant.tracking.journal import JournalReader, post_message

GRID = [{"type": "Categorical", "name": "x", "data": [4, 1, 7, 3, 9, 2, 8, 0, 5, 6]}]
REALS = [
    {"type": "Real", "name": "x", "data": [0.0, 1.0]},
    {"type": "Categorical", "name": "k", "data": [1, 1.0, True, "a"]},
]
Behaviour = Callable[[Submission], Simulation]


def config(scheduler: dict[str, Any], searcher: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {
        "task": {"search_args": more.pop("search_args", GRID)},
        "searcher": {"type": "GridSearcher", "reward_attribute": "acc", **(searcher or {})},
        "scheduler": scheduler,
        **more,
    }


def simulated(
    folder: Path,
    config: dict[str, Any],
    behaviour: Behaviour,
    messages: dict[float, dict[str, Any]] | None = None,
    **options: Any,
) -> Scheduler:
    """A search in simulated time, ready to run; `messages` reach it after so many seconds."""
    clock = SimulatedClock()

    def tell(message: dict[str, Any]) -> list[object]:
        post_message(folder, message)
        return []

    for seconds, message in (messages or {}).items():
        clock.plan(seconds, lambda message=message: tell(message))
    return Scheduler(make_plan(config, function=True), folder, SimulatedSite(clock, behaviour), clock=clock, **options)


def _value(job: Submission) -> float:
    return float(job.config["x"])


def _plain(job: Submission) -> Simulation:
    return Simulation(1.0 + 0.25 * (_value(job) % 3), {"acc": _value(job), "loss": -_value(job)})


def curve(job: Submission) -> Simulation:
    reports = [(0.5 * step, "acc", step, _value(job) * step) for step in range(1, 6)]
    return Simulation(3.0, {}, reports=reports)


def by_seed(job: Submission) -> Simulation:
    seed = int(job.job_id.rpartition("s")[2])
    return Simulation(1.0, {"acc": _value(job) + 0.1 * (seed % 5)})


def _failing(job: Submission) -> Simulation:
    x = job.config["x"]
    if x == 4 and job.attempt < 3:
        return Simulation(1.0, code=3, error="ValueError: no luck")
    if x == 7:
        return Simulation(never_ends=True, reports=[(1.0, "acc", 0, 0.7), (2.0, "acc", 1, 0.8)])
    if x == 3:
        return Simulation(1.0, code=1)
    if x == 9:
        return Simulation(never_ends=True)
    return Simulation(1.0, {"acc": _value(job)} if x != 2 else {})


def awkward(setting: dict[str, Any]) -> Any:
    """Fails, skips itself, gives up early, reports, and returns all that a function may return."""
    place = int(setting["x"] * 1000) % 8
    if place == 0:
        raise ValueError("no such luck")
    if place == 1:
        raise Skip("not this one")
    if place == 2:
        report(0, setting["x"])
        raise Pruned
    if place == 3:
        report(1, setting["x"])
        return None
    if place == 4:
        return {"acc": setting["x"], "loss": 1}
    if place == 5:
        return "a text"
    if place == 6:
        return float("nan")
    return setting["x"]


def _tried(setting: dict[str, Any], task_id: int) -> Any:
    place = int(setting["x"] * 1000) % 6
    if place == 0:
        raise ValueError("no such luck")
    if place == 1:
        raise Skip("not this one")
    if place == 2:
        report(0, 0.5)
        report(1, 0.75)
    return {"y": setting["x"] * task_id, "kind": setting["kind"], "odd": object() if place == 3 else [1, 2]}


def _fluent(folder: Path, **told: Any) -> Any:
    search = hpo(_tried).random(silent=True).seed(4).max_workers(1).max_retries(0).name(folder.name)
    search = search.maximize(R["y"]).concern(R["kind"][0], "first").spaces(
        {"x": uniform(0, 1), "kind": choice([(1, 2), (3, 4)])}
    )  # fmt: skip
    for name, value in told.items():
        getattr(search, name)(value)
    return search


ASHA = {"type": "AshaAssessor", "min_step": 1, "reduction_factor": 2, "max_step": 2, "rest": "pause"}
MEDIAN = {"type": "MedianStopAssessor", "start_step": 2}
TPE = {"type": "TpeSearcher", "seed": 3}
MESSAGES: dict[float, dict[str, Any]] = {
    1.2: {"type": "pause"},
    4.0: {"type": "resume"},
    4.5: {"type": "limits", "parallel_size": 3, "max_tries": 9},
    5.0: {"type": "note", "text": "a note"},
    6.2: {"type": "stop", "jobs": ["4", "5"]},
}

# By name: what is run in which folder. Those that begin with `hpo` use the search folder of the current `.operant`.
SCENARIOS: dict[str, Callable[..., Any]] = {
    "grid": lambda folder, **more: simulated(
        folder, config({"parallel_size": 2, "stop_criterion": {"max_tries": 6}}), _plain, **more
    ).run(),
    "tpe_assessor": lambda folder, **more: simulated(
        folder,
        config(
            {"parallel_size": 2, "stop_criterion": {"max_tries": 14}, "assessor": MEDIAN}, TPE, search_args=REALS[:1]
        ),
        curve,
        **more,
    ).run(),
    "seeds_racing": lambda folder, **more: simulated(
        folder,
        config(
            {"parallel_size": 3, "seeds": [0, 1, 2, 3], "racing": True, "final_check": {"top": 2, "seeds": 3}},
            {"optimize_mode": "minimize"},
        ),
        by_seed,
        **more,
    ).run(),
    "pauses": lambda folder, **more: simulated(
        folder,
        config(
            {"parallel_size": 1, "assessor": ASHA},
            search_args=[{"type": "Categorical", "name": "x", "data": [6.0, 4.0, 1.0, 0.5]}],
        ),
        curve,
        **more,
    ).run(),
    "failures": lambda folder, **more: simulated(
        folder,
        config(
            {
                "parallel_size": 2,
                "max_retries": 2,
                "retry_delay": 2,
                "no_report_timeout": "4s",
                "stop_criterion": {"time_limits_per_job": "5s"},
            }
        ),
        _failing,
        **more,
    ).run(),
    "filtered": lambda folder, **more: simulated(
        folder,
        config({"parallel_size": 2, "filter_criterion": "x > 6", "stop_criterion": {"max_reward": 5}}),
        _plain,
        **more,
    ).run(),
    "messages": lambda folder, **more: simulated(folder, config({"parallel_size": 2}), _plain, MESSAGES, **more).run(),
    "stopped": lambda folder, **more: simulated(
        folder, config({"parallel_size": 2, "seeds": 3}), by_seed, {1.5: {"type": "stop"}}, **more
    ).run(),
    "function": lambda folder, **more: NaiveScheduler(
        folder,
        config({"stop_criterion": {"max_tries": 40}}, {"type": "RandomSearcher", "seed": 5}, search_args=REALS),
        function=awkward,
        source=folder.parent,
        **more,
    ).run(),
    "hpo_inline": lambda folder, **more: _fluent(folder, max_steps=12, stop_when=R["y"] > 11).run(),
    "hpo_processes": lambda folder, **more: _fluent(folder, max_steps=8, workers="process").run(),
}


def lines(folder: Path) -> Iterator[str]:
    """The lines of a journal, without what is another each time."""
    for _, _, line in JournalReader(folder).poll_lines():
        yield json.dumps({key: _timeless(key, value) for key, value in line.items()})


_TIMES = ("wall", "started", "ended", "host", "pid", "time", "digest")


def _timeless(key: str, value: Any) -> Any:
    if key in _TIMES:
        return None
    if key == "token":
        return value.rpartition("/")[0]
    if key == "reports":
        return [one[:2] for one in value]
    if key == "returned":
        return {name: _timeless(name, one) for name, one in value.items()}
    if key == "text":
        return value.partition(" at 0x")[0]
    if key == "origin" and value:
        return sorted(value)
    if key == "config" and "function" in value.get("task", {}):
        return {**value, "task": {**value["task"], "function": None}}
    return value
