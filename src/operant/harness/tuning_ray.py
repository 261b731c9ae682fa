"""`tune.engine: ray`: the same search with Ray Tune running its trials."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from operant.errors import UsageError
from operant.framework.parallel.ray_engine import prepare_ray
from operant.harness.application import run_tree
from operant.harness.rllib import algorithm_config, ray_session
from operant.harness.tree import Plan, given, make_plan
from operant.harness.tuning import first_values, metric_of, searcher_of, with_values
from operant.harness.words import Tree
from operant.schedulers.engine.scheduler import Outcome
from operant.searchers import Proposal
from operant.status import Status

if TYPE_CHECKING:
    from operant.harness.tune import OperantSearch


def tune_by_ray(plan: Plan, spaces: Mapping[str, Tree], settings: Tree, folder: Path, root: Path) -> Outcome:
    """Search by a `Tuner`; what an earlier one of this name has finished is not run again."""
    if settings.get("site"):
        raise UsageError("tune.site is for tune.engine: operant; with engine: ray the cluster is ray.address")
    prepare_ray()
    from ray.tune import RunConfig, TuneConfig, Tuner, with_parameters, with_resources
    from ray.tune.search import ConcurrencyLimiter

    from operant.harness.tune import OperantScheduler, OperantSearch

    metric, mode = metric_of(settings)
    search_args = [{"name": path, **space} for path, space in spaces.items()]
    search = OperantSearch(searcher_of(settings), search_args, metric, mode, record=folder / "trials.jsonl")
    wanted = settings.get("num_samples", 10) - search.finished
    sample = make_plan(with_values(plan.tree, first_values(spaces)), plan.origins)
    config = algorithm_config(sample) if plan.library == "rllib" else None
    with ray_session(plan, config):
        trainable: Any = with_parameters(_trial, tree=plan.tree, root=str(root.absolute()))
        if config is not None:
            trainable = with_resources(trainable, config.algo_class.default_resource_request(config))
        if wanted > 0:
            Tuner(
                trainable,
                tune_config=TuneConfig(
                    search_alg=ConcurrencyLimiter(search, max_concurrent=settings.get("parallel", 1)),
                    scheduler=OperantScheduler(settings["assessor"], metric, mode) if "assessor" in settings else None,
                    num_samples=wanted,
                ),
                run_config=RunConfig(
                    name="tune",
                    storage_path=str(folder.absolute()),
                    verbose=0 if given(plan, "debugging").get("log_level", "WARN") in ("WARN", "ERROR") else 1,
                ),
            ).fit()
    return _outcome(search)


def _trial(values: dict[str, Any], tree: Tree, root: str) -> None:
    """One trial, in a process of Ray's."""
    from ray import tune

    run_tree(with_values(tree, values), root=root, heard=tune.report)


def _outcome(search: OperantSearch) -> Outcome:
    best = search.best
    if best is None:
        return Outcome(Status.ERROR, "no trial succeeded", None, None, search.finished, {})
    trial, reward = best
    return Outcome(Status.FINISHED, "all done", Proposal(trial.number, trial.config), reward, search.finished, {})
