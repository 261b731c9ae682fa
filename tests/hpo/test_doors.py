"""Code that people bring along: Optuna objectives and W&B sweeps."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import optuna
import pytest

from operant.errors import ConfigError, UsageError
from operant.hpo import R, choice, hpo, quniform, uniform
from operant.hpo.arguments import NormalReal
from operant.hpo.shape import Shape
from operant.hpo.sweeps import space_of_parameters
from operant.schedulers.exchange.optuna_storage import open_for_reading
from operant.schedulers.exchange.to_optuna import export_to_optuna
from operant.tracking.places import find_root


def objective(trial: Any) -> float:
    """As in Optuna's own pages: a choice, and parameters that only one of its values has."""
    x = trial.suggest_float("x", -10, 10)
    kind = trial.suggest_categorical("kind", ["linear", "deep"])
    if kind == "deep":
        depth = trial.suggest_int("depth", 1, 4)
        rate = trial.suggest_float("rate", 1e-5, 1e-1, log=True)
        trial.set_user_attr("rate", rate)
        return (x - 2) ** 2 + abs(math.log10(rate) + 3) / depth
    return (x - 2) ** 2 + 3


@pytest.mark.parametrize("kind", ["random", "tpe", "bayes", "evolution"])
def test_an_objective_runs_unchanged(kind: str) -> None:
    steps = 14 if kind == "bayes" else 25
    search = getattr(hpo.from_optuna(objective), kind)(silent=True).max_workers(1).max_steps(steps).seed(1)
    best = search.run()
    assert len(search.history) == steps and best.result["value"] == min(one.target for one in search.history)
    kinds = {one.result["params"]["kind"] for one in search.history}
    assert kinds == {"linear", "deep"}
    for one in search.history:
        assert ("depth" in one.result["params"]) == (one.result["params"]["kind"] == "deep")
    # Once seen, a parameter is proposed and not drawn.
    assert {"x", "kind", "depth", "rate"} <= set(search.history[-1].flat)


def test_the_same_objective_under_optuna() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(0))
    study.optimize(objective, n_trials=3)
    assert len(study.trials) == 3


def test_a_search_learns_what_it_was_not_told() -> None:
    search = hpo.from_optuna(lambda trial: (trial.suggest_float("x", -10, 10) - 2) ** 2).tpe(silent=True)
    assert search.max_workers(1).max_steps(60).seed(0).run().result["value"] < 0.5


def test_directions_and_choices_of_any_kind() -> None:
    def pick(trial: Any) -> float:
        function = trial.suggest_categorical("f", [math.sin, math.cos])
        layers = trial.suggest_categorical("layers", [(8,), (8, 8)])
        assert isinstance(layers, tuple) and trial.suggest_categorical("f", [math.sin, math.cos]) is function
        return float(function(0)) + trial.suggest_discrete_uniform("q", 0, 1, 0.5)

    search = hpo.from_optuna(pick, direction="maximize").random(silent=True).max_workers(1).max_steps(12).seed(0)
    assert search.run().result["value"] == 2.0
    assert search.history[0].result["params"]["f"] in ("0: sin", "1: cos")
    with pytest.raises(UsageError, match="did you mean 'maximize'"):
        hpo.from_optuna(pick, direction="maximise")
    with pytest.raises(TypeError, match="no grid"):
        hpo.from_optuna(pick).search("GridSearcher").max_steps(3).run()


@pytest.mark.parametrize("workers", ["thread", "process"])
def test_pruning(workers: str) -> None:
    def learns(trial: Any) -> float:
        slope = trial.suggest_int("slope", 1, 30)
        for step in range(6):
            trial.report(slope * step, step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return float(slope * 5)

    search = hpo.from_optuna(learns, "maximize").random(silent=True).workers(workers).max_workers(1).seed(3)
    search.max_steps(8).early_stop({"type": "MedianStopAssessor", "start_step": 2}).run()
    statuses = [one.status for one in search.history]
    assert "STOPPED" in statuses and statuses[0] == "FINISHED" and set(statuses) <= {"FINISHED", "STOPPED"}


def test_an_objective_may_prune_itself_or_fail() -> None:
    def moody(trial: Any) -> float | None:
        trial.report(trial.number, 0)
        if trial.number == 0:
            raise optuna.TrialPruned
        if trial.number == 1:
            return None
        if trial.number == 2:
            return float(trial.study)
        return 5.0

    search = hpo.from_optuna(moody).random(silent=True).max_workers(1).max_steps(4).max_retries(0)
    search.run()
    pruned = search.history[0]
    assert (pruned.status, pruned.reason, pruned.target) == ("STOPPED", "pruned", 0.0)
    assert "returned None" in (search.history[1].error or "")
    assert "unknown part of a trial 'study'" in (search.history[2].error or "")


def test_what_was_seen_is_known_after_resuming() -> None:
    def run(steps: int) -> Any:
        search = hpo.from_optuna(objective).tpe(silent=True).max_workers(1).seed(2).name("study").max_steps(steps)
        search.run()
        return search.history

    run(15)
    again = run(30)
    assert len(again) == 30 and {"x", "kind", "depth", "rate"} <= set(again[15].flat)
    whole = hpo.from_optuna(objective).tpe(silent=True).max_workers(1).seed(2).max_steps(30)
    whole.run()
    assert [one.result["params"] for one in whole.history] == [one.result["params"] for one in again]


def asks(trial: Any) -> float:
    """Every kind of parameter, one of them only now and then; the third trial is pruned, the fourth fails."""
    rate = trial.suggest_float("rate", 1e-5, 1e-1, log=True)
    share = trial.suggest_float("share", 0, 2, step=0.25)
    whole = trial.suggest_float("whole", 0, 3, step=1)
    width = trial.suggest_int("width", 8, 64, log=True)
    size = trial.suggest_categorical("size", [16, 32, 64])
    trial.report(rate, 0)
    trial.set_user_attr("size", size)
    if trial.number == 2:
        raise optuna.TrialPruned
    if trial.number == 3:
        raise RuntimeError("no")
    depth = trial.suggest_int("depth", 2, 8, step=2) if size == 16 else 0
    return float(rate + share + whole + width + depth)


@pytest.mark.parametrize("suffix", ["log", "db"])
def test_optuna_goes_on_with_an_exported_search(suffix: str) -> None:
    made = hpo.from_optuna(asks).random(silent=True).max_workers(1).max_retries(0).seed(0).name("asks").max_steps(8)
    made.run()
    done = export_to_optuna(find_root() / "searches" / "asks", Path(f"study.{suffix}"))
    with open_for_reading(done.path) as storage:
        trials = optuna.load_study(study_name="asks", storage=storage).get_trials()
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(0))
    study.optimize(asks, n_trials=8, catch=RuntimeError)
    own = {name: one for trial in study.trials for name, one in trial.distributions.items()}
    for trial, record in zip(trials, made.history, strict=True):
        assert trial.distributions == {name: own[name] for name in trial.params}
        if record.status == "FINISHED":
            assert trial.params == record.result["params"] and trial.user_attrs["size"] == trial.params["size"]
    assert [one.state.name for one in trials[1:5]] == ["COMPLETE", "PRUNED", "FAIL", "COMPLETE"]
    assert trials[2].params.keys() >= {"rate", "size"} and not trials[3].params
    backend = optuna.storages.journal.JournalFileBackend(str(done.path))
    kept = optuna.storages.JournalStorage(backend) if suffix == "log" else f"sqlite:///{done.path}"
    again = optuna.load_study(study_name="asks", storage=kept, sampler=optuna.samplers.TPESampler(seed=0))
    again.optimize(asks, n_trials=3)
    assert len(again.trials) == 11 and all(one.state.name == "COMPLETE" for one in again.trials[8:])


def test_an_exported_space_from_python_is_the_one_that_was_written() -> None:
    made = hpo(lambda config: config["lr"]).random(silent=True).max_workers(1).max_steps(3).seed(0).name("mine")
    made.minimize(R).spaces({"lr": 10 ** uniform(-5, -1), "k": choice([1, 2, 4]), "q": quniform(0, 2, 0.5)}).run()
    done = export_to_optuna(find_root() / "searches" / "mine")
    with open_for_reading(done.path) as storage:
        (found,) = {str(one.distributions) for one in optuna.load_study(study_name="mine", storage=storage).trials}
    kinds = optuna.distributions
    wanted = {
        "lr": kinds.FloatDistribution(1e-5, 0.1, log=True),
        "k": kinds.CategoricalDistribution((1, 2, 4)),
        "q": kinds.FloatDistribution(0, 2, step=0.5),
    }
    assert found == str(wanted)


SWEEP = """
program: train.py
method: random
metric:
  name: val_loss
  goal: minimize
run_cap: 9
parameters:
  optimizer:
    values: [adam, sgd]
  lr:
    distribution: log_uniform_values
    min: 0.0001
    max: 0.1
  epochs:
    value: 5
  layers:
    min: 1
    max: 3
  net:
    parameters:
      dropout:
        distribution: q_uniform
        min: 0
        max: 0.3
        q: 0.1
early_terminate:
  type: hyperband
  min_iter: 3
"""


def test_a_sweep_is_a_search() -> None:
    Path("sweep.yaml").write_text(SWEEP)

    def train(config: dict[str, Any]) -> dict[str, float]:
        assert config["epochs"] == 5 and 1e-4 <= config["lr"] <= 0.1 and config["layers"] in (1, 2, 3)
        assert config["optimizer"] in ("adam", "sgd") and config["net"]["dropout"] in (0, 0.1, 0.2, 0.3)
        return {"val_loss": config["lr"] + config["net"]["dropout"], "other": 1.0}

    search = hpo.from_sweep("sweep.yaml", train, silent=True).max_workers(1)
    config, result, _ = search.run()
    assert len(search.history) == 9 and result["val_loss"] == min(one.target for one in search.history)
    assert set(config) == {"optimizer", "lr", "epochs", "layers", "net"} and search.history.name == "val_loss"


def test_a_sweep_as_a_grid_with_a_target() -> None:
    sweep = {
        "method": "grid",
        "metric": {"name": "acc", "goal": "maximize", "target": 3},
        "parameters": {"a": {"values": [1, 2, 3, 4]}},
    }
    search = hpo.from_sweep(sweep, lambda c: c["a"], silent=True).max_workers(1)
    assert search.run().result == 3 and len(search.history) == 3


def test_the_distributions_of_sweeps() -> None:
    e = math.e
    space = space_of_parameters(
        {
            "a": {"min": 0.5, "max": 2},
            "b": {"distribution": "log_uniform", "min": -2, "max": 1},
            "c": {"distribution": "normal", "mu": 3},
            "d": {"distribution": "q_log_uniform_values", "min": 10, "max": 1000, "q": 10},
            "e": {"distribution": "inv_log_uniform_values", "min": 0.1, "max": 10},
        }
    )
    shape = Shape(space)
    described = {one["name"]: one for one in shape.describe()}
    assert described["a"] == {"name": "a", "type": "Real", "low": 0.5, "high": 2.0}
    assert described["b"]["low"] == pytest.approx(e**-2) and described["b"]["log"]
    assert isinstance(shape.axes["c"].leaf, NormalReal)
    low, high = shape.build(shape.space.decode([0, 0, 0.5, 0, 0])), shape.build(shape.space.decode([1, 1, 0.5, 1, 1]))
    assert (low["d"], high["d"]) == (10, 1000)
    assert sorted([low["e"], high["e"]]) == [pytest.approx(0.1), pytest.approx(10)]


def test_a_sweep_that_does_not_learn_needs_no_metric() -> None:
    sweep = {"method": "grid", "parameters": {"a": {"values": [3, 1, 2]}}}
    for function in (lambda config: {"note": "x", "loss": config["a"]}, lambda config: config["a"]):
        search = hpo.from_sweep(sweep, function, silent=True).max_workers(1)
        assert search.run().config == {"a": 1} and len(search.history) == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": "bayse"}, "did you mean 'bayes'"),
        ({"method": []}, "unknown method"),
        ({"parameters": {"a": {"min": 0, "max": 10**400}}}, "must be a finite number"),
        ({"metric": {"goal": "minimize"}}, "needs a `name`"),
        ({"metric": None, "method": "bayes"}, "needs a `name`"),
        ({"metric": {"name": "x", "goal": "minimise"}}, "did you mean 'minimize'"),
        ({"parameters": {"a": {"vales": [1]}}}, r"parameters\.a\.vales.*did you mean 'values'"),
        ({"parameters": {"a": {"distribution": "unifrom"}}}, "did you mean 'uniform'"),
        ({"parameters": {"a": {"distribution": "uniform", "min": 1}}}, "needs `max`"),
        ({"parameters": {"a": {"values": []}}}, "nothing to choose"),
        ({"parameters": {"a": {"min": 1}}}, "needs `value`"),
        ({"early_terminate": {"type": "bandit"}}, "hyperband"),
        ({"metod": "grid"}, "did you mean 'method'"),
    ],
)
def test_mistakes_in_a_sweep_are_named(change: dict[str, Any], message: str) -> None:
    sweep = {"method": "random", "metric": {"name": "x"}, "parameters": {"a": {"values": [1]}}}
    with pytest.raises(ConfigError, match=message):
        hpo.from_sweep({**sweep, **change}, lambda c: 1)


def test_a_mistake_has_its_line() -> None:
    Path("sweep.yaml").write_text(SWEEP.replace("min: 1\n", "mni: 1\n"))
    with pytest.raises(ConfigError, match=r"sweep\.yaml:1\d: parameters\.layers\.mni"):
        hpo.from_sweep("sweep.yaml", lambda c: 1)


def test_doors_and_spaces_agree() -> None:
    """A sweep's space is the same as the one written in Python."""
    written = Shape({"o": choice(["a", "b"]), "q": quniform(0, 0.3, 0.1)}).describe()
    read = space_of_parameters(
        {"o": {"values": ["a", "b"]}, "q": {"distribution": "q_uniform", "min": 0, "max": 0.3, "q": 0.1}}
    )
    assert Shape(read).describe() == written


def test_what_optuna_once_called_its_distributions() -> None:
    """`suggest_uniform` and the like are gone from Optuna 4 on; objectives that use them still run here."""
    seen: list[tuple[float, float, float]] = []

    def old(trial: Any) -> float:
        seen.append(
            (
                trial.suggest_uniform("u", 2.0, 3.0),
                trial.suggest_loguniform("l", 1e-4, 1e-1),
                trial.suggest_discrete_uniform("d", 0.0, 1.0, 0.25),
            )
        )
        return seen[-1][0]

    assert hpo.from_optuna(old).random(silent=True).seed(0).max_steps(30).max_workers(1).run() is not None
    uniform, logarithmic, discrete = zip(*seen, strict=True)
    assert 2.0 <= min(uniform) < max(uniform) <= 3.0
    assert 1e-4 <= min(logarithmic) < 1e-3, "small values are as likely as large ones"
    assert {*discrete} <= {0.0, 0.25, 0.5, 0.75, 1.0} and len({*discrete}) > 2
