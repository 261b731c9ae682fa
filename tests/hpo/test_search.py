"""The fluent search: what it returns, what it refuses, and how it treats trials that go wrong."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from operant.errors import UsageError
from operant.hpo import (
    C,
    ExpressionError,
    M,
    NoResultError,
    R,
    RunnerEventSet,
    Skip,
    choice,
    hpo,
    quniform,
    randint,
    uniform,
)
from operant.schedulers.engine.state import read_state
from operant.searchers import BaseSearcher
from operant.tracking.places import find_root

BLIND = ("random",)
LEARNING = ("bayes", "tpe", "evolution", "cmaes")


def bowl(config: dict[str, Any]) -> dict[str, float]:
    return {"y": (config["x"] - 0.3) ** 2}


def quick(kind: str = "random", function: Any = bowl, **space: Any) -> Any:
    made = getattr(hpo(function), kind)(silent=True).max_workers(1)
    return made.spaces(space or {"x": uniform(0, 1)})


def test_the_package_is_light() -> None:
    code = (
        "import sys; from operant.hpo import hpo, R; print([m for m in ('numpy', 'torch', 'scipy', 'sklearn', 'rich')"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code + " if m in sys.modules])"], capture_output=True, text=True, check=True
    )
    assert printed.stdout.strip() == "[]"


def test_a_function_stays_a_function() -> None:
    @hpo
    def double(config: int, task_id: int = 0) -> int:
        """Twice."""
        return 2 * config

    assert double(4) == 8 and double.__name__ == "double" and double.__doc__ == "Twice."
    assert hpo(double) is double


def test_the_best_trial_is_returned() -> None:
    search = quick("grid").max_steps(11).minimize(R["y"])
    config, result, metrics = search.run()
    assert config == {"x": pytest.approx(0.3)} and result == {"y": pytest.approx(0)} and set(metrics) == {"time"}
    assert len(search.history) == 11 and [one.task_id for one in search.history] == list(range(1, 12))
    assert quick("grid").max_steps(11).maximize(R["y"]).run().config == {"x": 1.0}


@pytest.mark.parametrize("kind", BLIND + LEARNING)
def test_every_searcher(kind: str) -> None:
    space = {"x": uniform(0, 1), "n": {"layers": [randint(1, 3), choice(["relu", "tanh"])]}}
    search = quick(kind, **space).max_steps(12).seed(3).minimize(R["y"])
    best = search.run()
    assert len(search.history) == 12 and best.result["y"] == min(one.result["y"] for one in search.history)
    assert best.config["n"]["layers"][1] in ("relu", "tanh")


@pytest.mark.parametrize("kind", BLIND + LEARNING)
def test_the_same_trials_with_four_workers_and_a_seed(kind: str) -> None:
    """Whoever is faster: the trials take different times in every run."""
    gate = threading.Semaphore(1)

    def uneven(config: dict[str, Any], task_id: int) -> dict[str, float]:
        if task_id % 3 == len(runs) % 3:
            with gate:
                sum(range(200_000))
        return bowl(config)

    runs: list[Any] = []
    for workers in (4, 4, 4):
        search = quick(kind, uneven).max_workers(workers).max_steps(16).seed(5).minimize(R["y"])
        search.run()
        runs.append([one.flat for one in search.history])
    assert runs[0] == runs[1] == runs[2]


def test_a_seed_may_be_a_generator() -> None:
    import random

    import numpy as np

    def first(seed: Any) -> Any:
        search = quick().max_steps(2).seed(seed).minimize(R["y"])
        search.run()
        return [one.flat for one in search.history]

    assert first(random.Random(1)) == first(random.Random(1)) != first(random.Random(2))
    assert first(np.random.default_rng(1)) == first(np.random.default_rng(1))
    assert first(7) == first(np.int64(7)) and first(None) != first(None)


def test_a_seed_may_stand_where_other_tools_have_it() -> None:
    def first(search: Any) -> Any:
        search.max_steps(2).max_workers(1).spaces({"x": uniform(0, 1)}).minimize(R).ephemeral().run()
        return [one.flat for one in search.history]

    made = hpo(lambda config: config["x"])
    assert first(made.tpe(silent=True, seed=7)) == first(made.tpe(silent=True).seed(7))
    with pytest.raises(UsageError, match="maximize or minimize says it"):
        made.random(optimize_mode="minimize")
    with pytest.raises(UsageError):
        quick().seed(-1)


def test_random_search_ends_when_there_is_nothing_new() -> None:
    lists = choice([[1], [2], [2]])
    search = quick(function=lambda c: c["a"] + len(c["b"]), a=choice([1, 2, 2]), b=lists).maximize(R)
    search.run()
    assert len(search.history) == 4


def test_a_search_that_would_never_end_is_refused() -> None:
    with pytest.raises(UsageError, match="max_steps"):
        quick().minimize(R["y"]).run()
    search = quick().minimize(R["y"]).stop_when(R["y"] < 0.01)
    assert search.run().result["y"] < 0.01


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        (lambda: hpo(bowl).baies(), "bayes"),
        (lambda: quick().max_step(5), "max_steps"),
        (lambda: quick().maximise(R), "maximize"),
        (lambda: quick().early_stops("x"), "early_stop"),
    ],
)
def test_an_unknown_method_names_the_nearest(wrong: Any, hint: str) -> None:
    with pytest.raises(AttributeError, match=f"did you mean '{hint}'"):
        wrong()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: quick().max_workers(0),
        lambda: quick().max_workers(1.5),
        lambda: quick().max_retries(-1),
        lambda: quick().max_steps(-1),
        lambda: quick().workers("rocket"),
        lambda: quick().maximize(R).minimize(R),
        lambda: quick().max_steps(1).run(),
        lambda: hpo(bowl).random().max_steps(1).maximize(R).run(),
        lambda: quick().max_steps(1).maximize(R["y"]).time_limit(1).run(),
        lambda: quick().max_steps(1).maximize(R["y"]).name("a/b").run(),
        lambda: quick().max_steps(1).maximize(R["y"]).name("x").ephemeral().run(),
        lambda: quick("grid").max_steps(1).maximize(R["y"]).init_steps(3).run(),
        lambda: hpo(bowl).random(smapling="sobol").max_steps(1).maximize(R).spaces(uniform(0, 1)).run(),
        lambda: quick(function=lambda: 1).max_steps(1).maximize(R).run(),
        lambda: quick(function=lambda a, b, c: 1).max_steps(1).maximize(R).run(),
        lambda: quick().maximize(R["y"]).max_steps(1).early_stop("MedianStopAsessor").run(),
    ],
)
def test_mistakes_are_found_before_anything_runs(wrong: Any) -> None:
    with pytest.raises(UsageError):
        wrong()


def test_task_ids() -> None:
    seen: list[tuple[int, Any]] = []

    def with_id(config: Any, task_id: int) -> int:
        seen.append((task_id, config["a"]))
        return config["a"]

    quick("grid", with_id, a=randint(5, 7)).maximize(R).run()
    assert seen == [(1, 5), (2, 6), (3, 7)]
    # A second argument that has a default is the function's own.
    assert quick("grid", lambda c, scale=10: c["a"] * scale, a=randint(5, 7)).maximize(R).run().result == 70
    assert quick("grid", lambda *args: args[1], a=randint(5, 7)).maximize(R).run().result == 3


def test_a_wrong_key_is_told_at_the_first_trial_and_loses_none() -> None:
    calls: list[Any] = []

    def counted(config: Any) -> dict[str, float]:
        calls.append(config)
        return bowl(config)

    search = quick(function=counted).max_steps(20).minimize(R["yy"]).name("typo").seed(1)
    with pytest.raises(ExpressionError, match="did you mean 'y'") as caught:
        search.run()
    assert "there are y" in str(caught.value) and len(calls) == 1
    assert search.history[0].result == bowl(calls[0]) and search.history[0].status == "FINISHED"
    again = quick(function=counted).max_steps(20).minimize(R["y"]).name("typo").seed(1)
    again.run()
    assert len(calls) == 20 and again.history[0].target == bowl(calls[0])["y"]
    state, status = read_state(find_root() / "searches" / "typo")
    assert status == "FINISHED" and all(job.reward is not None for job in state.jobs.values())


def test_a_wrong_key_with_several_workers_keeps_those_under_way() -> None:
    barrier = threading.Barrier(3)

    def together(config: Any) -> dict[str, float]:
        barrier.wait(30)
        return bowl(config)

    search = quick(function=together).max_workers(3).max_steps(9).minimize(R["z"])
    with pytest.raises(ExpressionError):
        search.run()
    assert len(search.history) == 3 and all(one.result for one in search.history)


def test_stop_when_any_condition_holds() -> None:
    function = lambda c: c["a"]  # noqa: E731
    search = quick("grid", function, a=randint(1, 50)).maximize(R).stop_when(R > 90).stop_when((R > 6) & (C["a"] < 9))
    assert search.run().result == 7 and len(search.history) == 7


def test_failures_are_tried_again_and_then_passed_over() -> None:
    tries: dict[int, int] = {}

    def flaky(config: Any, task_id: int) -> int:
        tries[task_id] = tries.get(task_id, 0) + 1
        if task_id == 2 and tries[2] < 3:
            raise OSError("not yet")
        if task_id == 3:
            raise SystemExit(4)
        return task_id

    search = quick("grid", flaky, a=randint(1, 4)).maximize(R).max_retries(2)
    assert search.run().result == 4
    assert tries == {1: 1, 2: 3, 3: 3, 4: 1}  # two retries are three tries
    failed = search.history[2]
    assert failed.status == "ERROR" and failed.error == "SystemExit: 4" and "flaky" in (failed.trace or "")
    assert search.history[1].attempts == 3 and search.history[1].status == "FINISHED"


def test_no_success_is_an_error_that_says_why() -> None:
    search = quick("grid", lambda c: 1 / 0, a=randint(1, 2)).maximize(R).max_retries(0)
    with pytest.raises(NoResultError, match=r"none of 2 trials gave a result.*division by zero"):
        search.run()
    assert [one.error for one in search.history] == ["ZeroDivisionError: division by zero"] * 2


def test_a_key_of_the_space_is_known_before_the_first_trial() -> None:
    calls: list[Any] = []
    space = {"net": {"width": randint(1, 2), "kind": choice([{"a": 1}])}}
    for wrong in (C["net"]["widht"] - R, R + C["net"]["widht"].abs()):
        with pytest.raises(ExpressionError, match=r"C\['net'\]\['widht'\]: there is no key.*did you mean 'width'"):
            quick("grid", calls.append, **space).maximize(R).concern(wrong, "x").run()
    assert not calls
    right = quick("grid", lambda c: c["net"]["width"], **space).maximize(R - C["net"]["kind"]["a"]).max_steps(2)
    assert right.run().result == 2


def test_nothing_is_tried_with_max_steps_0() -> None:
    calls: list[Any] = []
    search = quick("random", calls.append, a=randint(1, 9)).maximize(R).name("none").max_steps(0)
    config, result, metrics = search.run()
    assert (config, result, metrics, calls, len(search.history)) == (None, None, {}, [], 0)
    before = quick("random", lambda c: c["a"], a=randint(1, 9)).maximize(R).name("some").max_steps(3).seed(0)
    best = before.run()
    assert quick("random", calls.append, a=randint(1, 9)).maximize(R).name("some").max_steps(0).run() == best


@pytest.mark.parametrize("kind", ["bayes", "tpe"])
def test_no_first_steps_at_all(kind: str) -> None:
    search = quick(kind, lambda c: c["a"], a=uniform(0, 1)).maximize(R).init_steps(0).max_steps(5).seed(0)
    assert search.run().result > 0 and len(search.history) == 5


def test_first_steps_of_searchers_that_call_them_otherwise(tmp_path: Path) -> None:
    search = hpo(lambda c: c["a"]).search("LamctsSearcher", silent=True).spaces({"a": uniform(0, 1)}).maximize(R)
    search.init_steps(4).max_steps(6).seed(0).name("lamcts").run()
    assert "ninits: 4" in next(Path(".operant/searches/lamcts").glob("search.yaml")).read_text()


def test_skipped_trials_are_not_tried_again() -> None:
    calls: list[int] = []

    def picky(config: Any) -> int:
        calls.append(config["a"])
        if config["a"] == 2:
            raise Skip("not this one")
        return -int(config["a"])

    search = quick("grid", picky, a=randint(1, 3)).minimize(R).name("skips")
    assert search.run().result == -3 and calls == [1, 2, 3]
    skipped = search.history[1]
    assert (skipped.status, skipped.reason, skipped.error) == ("KILLED", "skipped", "not this one")
    quick("grid", picky, a=randint(1, 3)).minimize(R).name("skips").run()
    assert calls == [1, 2, 3]


def test_ctrl_c_ends_the_search() -> None:
    def impatient(config: Any, task_id: int) -> int:
        if task_id == 3:
            raise KeyboardInterrupt
        return task_id

    search = quick("grid", impatient, a=randint(1, 9)).maximize(R)
    with pytest.raises(KeyboardInterrupt):
        search.run()
    assert [one.result for one in search.history][:2] == [1, 2]


def test_concerns_and_functions_as_objective() -> None:
    search = quick("grid").max_steps(3).minimize(lambda trial: trial["return"]["y"], name="loss")
    search.concern(C["x"] * 2, "twice").concern(M["time"], "seconds").concern("text", "note").run()
    assert [one.columns["twice"] for one in search.history] == [0, 1, 2]
    table = search.history.table()
    assert all(word in table for word in ("loss", "twice", "seconds", "note", "text", "finished"))
    state, _ = read_state(find_root() / "searches" / search.search_name)
    assert state.proposals[2].values["twice"] == 2.0 and state.proposals[1].reward == pytest.approx(0.04)


def test_history_ranks_and_draws() -> None:
    search = quick("grid", lambda c: float("nan") if c["a"] == 2 else c["a"], a=randint(1, 4)).maximize(R)
    assert search.run().result == 4
    history = search.history
    assert [one.target for one in history.ranking(2)] == [4, 3] and len(history.ranking()) == 3
    assert history.table(1).count("finished") == 1 and len(history.rows()) == 4
    assert history.plot("picture.svg").count("<circle") == 3 and "best so far" in Path("picture.svg").read_text()
    with pytest.raises(UsageError):
        _ = quick().history


def test_a_history_can_be_pickled_before_and_after_it_was_looked_at() -> None:
    search = quick("grid", lambda c: c["a"] * 0.5, a=randint(1, 4)).maximize(R)
    search.run()
    unseen = pickle.loads(pickle.dumps(search.history))
    assert [one.target for one in search.history] == [0.5, 1.0, 1.5, 2.0]
    seen = pickle.loads(pickle.dumps(search.history))
    assert unseen.rows() == seen.rows() == search.history.rows() and unseen[3].config == {"a": 4}


def test_the_configuration_is_returned_unpolluted() -> None:
    def greedy(config: dict[str, Any]) -> int:
        config["id"] = 7
        config.pop("a")
        return 1

    assert quick("grid", greedy, a=randint(1, 1)).maximize(R * C["a"]).run().config == {"a": 1}


def test_results_of_any_kind_stay_in_memory() -> None:
    import numpy as np

    marker = object()
    search = quick("grid", lambda c: (c["a"], marker, np.ones(2)), a=randint(1, 2)).maximize(R[0])
    assert search.run().result[1] is marker


def test_event_sets_hear_everything() -> None:
    heard: list[str] = []

    class Listener(RunnerEventSet):
        def __getattribute__(self, name: str) -> Any:
            if not name.startswith("_"):
                heard.append(name)
            return super().__getattribute__(name)

    def mixed(config: Any, task_id: int) -> int:
        if task_id == 2:
            raise Skip
        if task_id == 3:
            raise ValueError("bad")
        return task_id

    quick("grid", mixed, a=randint(1, 3)).maximize(R).max_retries(1).add_event_set(Listener()).run()
    assert heard[:3] == ["init", "init_ok", "run_start"] and heard[-1] == "run_complete"
    assert heard[3:9] == ["step", "try_", "try_complete", "try_ok", "step_ok", "step_final"]
    assert heard[9:15] == ["step", "try_", "try_complete", "try_skip", "step_skip", "step_final"]
    attempt = ["try_", "try_complete", "try_fail"]
    assert heard[15:-1] == ["step", *attempt, *attempt, "step_fail", "step_final"]


class Reverse(BaseSearcher):
    """A searcher as the search document writes them."""

    def __init__(self, search_space: Any, optimize_mode: str = "maximize") -> None:
        super().__init__(search_space, optimize_mode=optimize_mode)
        self._left = list(self.space.data)

    def get_config(self) -> Any:
        return self._left.pop() if self._left else None


def test_any_searcher() -> None:
    search = hpo(lambda c: c["a"]).search(Reverse, silent=True).max_workers(1).spaces({"a": randint(1, 3)}).maximize(R)
    search.run()
    assert [one.result for one in search.history] == [3, 2, 1]
    by_name = hpo(lambda c: c["a"]).search("GridSearcher", silent=True).spaces({"a": quniform(0, 1, 0.5)}).minimize(R)
    assert by_name.run().config == {"a": 0.0}


def test_an_ephemeral_search_leaves_nothing() -> None:
    search = quick("grid").max_steps(3).minimize(R["y"]).ephemeral()
    search.run()
    assert len(search.history) == 3 and not (find_root() / "searches").exists() and search.search_name is None
