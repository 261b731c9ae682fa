"""Fluent searches are searches like any other: journaled, shown, and gone on with under their name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from operant.errors import UsageError
from operant.hpo import R, choice, hpo, randint, uniform
from operant.schedulers.analysis.axes import axes_of
from operant.schedulers.engine.state import read_state
from operant.schedulers.views.overview import describe
from operant.tracking.places import find_root


class Counter:
    def __init__(self) -> None:
        self.calls: list[int] = []

    def __call__(self, config: dict[str, Any], task_id: int) -> dict[str, float]:
        self.calls.append(task_id)
        return {"y": config["x"] ** 2}


def search(function: Any, kind: str = "tpe", **space: Any) -> Any:
    made = getattr(hpo(function), kind)(silent=True).max_workers(1).minimize(R["y"]).name("mine")
    return made.spaces(space or {"x": uniform(-1, 1), "kind": choice([(1, 2), (3, 4)])})


@pytest.mark.parametrize("kind", ["random", "tpe", "bayes", "evolution"])
def test_more_steps_go_on_where_it_stopped(kind: str) -> None:
    first, second, whole = Counter(), Counter(), Counter()
    search(first, kind).seed(4).max_steps(12).run()
    again = search(second, kind).seed(4).max_steps(20)
    best = again.run()
    assert first.calls == list(range(1, 13)) and second.calls == list(range(13, 21))
    assert len(again.history) == 20 and best.result["y"] == min(one.result["y"] for one in again.history)
    assert all(isinstance(one.config["kind"], tuple) for one in again.history)
    uninterrupted = search(whole, kind).seed(4).max_steps(20).name("other")
    uninterrupted.run()
    # A Gaussian process is fitted from where it was; a new one, fitted from nothing, differs in the last digits.
    same = 12 if kind == "bayes" else 20
    assert [one.flat for one in uninterrupted.history][:same] == [one.flat for one in again.history][:same]


def test_without_a_seed_the_first_one_stays() -> None:
    search(Counter()).max_steps(3).run()
    again = search(Counter()).max_steps(5)
    again.run()
    assert len({one.flat["x"] for one in again.history}) == 5


def test_nothing_left_to_do() -> None:
    search(Counter()).max_steps(5).run()
    second = Counter()
    best = search(second).max_steps(5).run()
    assert not second.calls and best.result == {"y": best.config["x"] ** 2} and set(best.metrics) == {"time"}


def test_failed_trials_get_another_chance() -> None:
    broken = True

    def sometimes(config: Any, task_id: int) -> dict[str, float]:
        if broken and task_id == 2:
            raise OSError("the disk")
        return {"y": config["x"] ** 2}

    first = search(sometimes).max_steps(4).max_retries(0)
    first.run()
    assert [one.status for one in first.history] == ["FINISHED", "ERROR", "FINISHED", "FINISHED"]
    broken = False
    again = search(sometimes).max_steps(4)
    again.run()
    assert {one.status for one in again.history} == {"FINISHED"}


def test_another_space_is_another_search() -> None:
    search(Counter()).max_steps(2).run()
    with pytest.raises(UsageError, match="search_args"):
        search(Counter(), x=uniform(-2, 2)).max_steps(4).run()
    with pytest.raises(UsageError, match=r"searcher\.type"):
        search(Counter(), "random").max_steps(4).run()
    with pytest.raises(UsageError, match=r"searcher\.optimize_mode"):
        hpo(Counter()).tpe().maximize(R["y"]).name("mine").spaces({"x": uniform(-1, 1)}).max_steps(3).run()


def test_another_objective_is_computed_for_earlier_trials_too() -> None:
    def both(config: Any) -> dict[str, float]:
        return {"y": config["x"], "z": -config["x"]}

    search(both, "grid", x=randint(1, 4)).run()
    again = hpo(both).grid(silent=True).minimize(R["z"]).name("mine").spaces({"x": randint(1, 4)})
    best = again.run()
    assert best.config == {"x": 4} and [one.target for one in again.history] == [-1, -2, -3, -4]


def test_stop_when_counts_what_was_found_before() -> None:
    search(Counter(), "grid", x=randint(0, 9)).max_steps(3).run()
    second = Counter()
    with pytest.raises(UsageError, match="search_args"):  # a grid of another size is another grid
        search(second, "grid", x=randint(0, 9)).max_steps(10).stop_when(R["y"] == 0).run()
    found = search(second, "grid", x=randint(0, 9)).max_steps(3).stop_when(R["y"] == 0)
    assert found.run().config == {"x": 0} and not second.calls


@pytest.mark.parametrize("workers", [1, 2])
def test_views_show_what_the_function_got(workers: int) -> None:
    got: list[dict[str, Any]] = []

    def keep(config: Any) -> int:
        got.append(config)
        return int(config["width"])

    space = {"width": 2 ** randint(4, 6) >> int, "lr": 10 ** uniform(-3, -1), "act": choice([len, max])}
    search = hpo(keep).random(silent=True).max_workers(workers).max_steps(6).seed(0).maximize(R).name("wide")
    search.spaces(space).run()
    folder = find_root() / "searches" / "wide"
    state, _ = read_state(folder)
    shown = describe(folder)
    widths = sorted(one["arg_dict"]["width"] for one in shown["jobs"])
    assert widths == sorted(config["width"] for config in got) and set(widths) <= {16, 32, 64}
    assert shown["best"]["arg_dict"]["width"] == max(widths)
    assert {one.config["width"] for one in state.proposals.values()} <= {4, 5, 6}  # what was searched
    (axis,) = (axis for axis in axes_of(state) if axis.name == "width")
    assert axis.choices == tuple(sorted(set(widths)))
    assert all(one.settings["act"] in ("0: len", "1: max") for one in state.proposals.values())


def test_search_ctl_shows_it() -> None:
    search(Counter()).max_steps(3).run()
    found = describe(find_root() / "searches" / "mine")
    assert found["status"] == "FINISHED" and found["tries"] == 3 and found["reward_attribute"] == "target"
    command = [sys.executable, "-m", "operant.cli.search_scripts", "ctl", "show", "--task", "mine"]
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    assert shown.returncode == 0 and "FINISHED" in shown.stdout.upper(), shown.stderr
    assert (find_root() / "searches" / "mine" / "search.yaml").read_text().startswith("task:")


PROGRAM = """
import os, sys
from pathlib import Path
from operant.hpo import hpo, R, randint

def f(config, task_id):
    Path(f"call-{task_id}").touch()
    if task_id == 4 and not Path("second").exists():
        os.kill(os.getpid(), 9)
    return config["a"]

search = hpo(f).grid(silent=True).max_workers(1).maximize(R).name("killed").spaces({"a": randint(1, 6)})
best = search.run()
print(best.result, len(search.history))
"""


def test_a_killed_program_goes_on() -> None:
    Path("program.py").write_text(PROGRAM)
    first = subprocess.run([sys.executable, "program.py"], capture_output=True, text=True, check=False)
    assert first.returncode == -9
    for path in Path.cwd().glob("call-*"):
        path.unlink()
    Path("second").touch()
    second = subprocess.run([sys.executable, "program.py"], capture_output=True, text=True, check=False)
    assert second.stdout.strip() == "6 6", second.stderr
    assert sorted(path.name for path in Path.cwd().glob("call-*")) == ["call-4", "call-5", "call-6"]
