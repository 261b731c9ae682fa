"""The harness's tree trained with RLlib: an `AlgorithmConfig` built group by group, each checked by what takes it."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from operant._util.dotted import plain_flat
from operant.errors import UsageError, nearest
from operant.harness.results import LATE, Report, StopConditions, flatten, machine_load
from operant.harness.rllib_checkpoints import Checkpoints, find_checkpoint
from operant.harness.tree import Plan, given, trusts
from operant.tracking import SummaryWriter
from operant.training.training import Observer, Silent

# Group of the tree -> the method of an AlgorithmConfig that takes it.
_METHODS = {
    "environment": "environment",
    "evaluation": "evaluation",
    "framework": "framework",
    "resources": "resources",
    "rollouts": "env_runners",
    "exploration": "env_runners",
    "training": "training",
    "learners": "learners",
    "fault_tolerance": "fault_tolerance",
    "reporting": "reporting",
}
_STEPS = "num_env_steps_sampled_lifetime"


def algorithm_config(plan: Plan) -> Any:
    """RLlib's config of a tree; a key that its method does not take is an error."""
    from ray.rllib.algorithms.registry import ALGORITHMS
    from ray.tune.registry import get_trainable_cls

    if plan.algorithm not in ALGORITHMS:
        known = sorted(ALGORITHMS)
        raise UsageError(
            f"algo.name is {plan.algorithm!r}{nearest(plan.algorithm, known)}; RLlib's are {', '.join(known)}"
        )
    config = get_trainable_cls(plan.algorithm).get_default_config()  # type: ignore[no-untyped-call]
    for group, method in _METHODS.items():
        values = given(plan, group)
        taken = _parameters(config, method)
        for key in values:
            if key not in taken:
                raise plan.unknown(f"{group}.{key}", taken, f"RLlib's {type(config).__name__}.{method}()")
        if group == "environment":
            values["env"] = _environment(values.get("env"))
        if group == "evaluation" and not values.get("evaluation_config"):
            values.pop("evaluation_config", None)
        if values:
            getattr(config, method)(**values)
    model = given(plan, "model")
    if model:
        config.rl_module(model_config=_model(plan, model))
    config.debugging(**given(plan, "debugging"))
    return config


def _parameters(config: Any, method: str) -> set[str]:
    """What a method takes today, in the whole family of classes; what only raises an error is left out."""
    from ray._common.deprecation import DEPRECATED_VALUE

    found: set[str] = set()
    for cls in type(config).__mro__:
        if method not in vars(cls):
            continue
        for name, parameter in inspect.signature(vars(cls)[method]).parameters.items():
            deprecated = parameter.default == DEPRECATED_VALUE
            if name != "self" and parameter.kind is not inspect.Parameter.VAR_KEYWORD and not deprecated:
                found.add(name)
    return found


def _model(plan: Plan, values: dict[str, Any]) -> dict[str, Any]:
    from dataclasses import fields

    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

    known = {one.name for one in fields(DefaultModelConfig)}
    for key in values:
        if key not in known:
            raise plan.unknown(f"model.{key}", known, "RLlib's DefaultModelConfig")
    return values


def _environment(name: Any) -> Any:
    """A name that RLlib knows the environment by: entry points and importable names as `operant train` has them."""
    from ray.tune.registry import register_env

    from operant.envs.making import environment_maker

    make = environment_maker(name)
    register_env(str(name), lambda config: make(**dict(config)))
    return str(name)


@contextmanager
def ray_session(plan: Plan, config: Any) -> Iterator[None]:
    """Ray on this machine, or the cluster at ``ray.address``; ended by who began it."""
    import ray

    begun = not ray.is_initialized()
    level = getattr(logging, str(given(plan, "debugging").get("log_level", "WARN")))
    try:
        if begun:
            ray.init(
                address=given(plan, "ray").get("address"),
                include_dashboard=False,
                log_to_driver=level < logging.WARNING,
                logging_level=level,
            )
        _check_cpus(config, float(ray.cluster_resources().get("CPU", 0.0)))  # type: ignore[no-untyped-call]
        yield
    finally:
        if begun:
            ray.shutdown()


def _check_cpus(config: Any, there: float) -> None:
    """Ray waits for ever where more is asked for than there is."""
    runners = config.num_env_runners * config.num_cpus_per_env_runner
    judges = config.evaluation_num_env_runners * config.num_cpus_per_env_runner
    each = config.num_cpus_per_learner
    learners = config.num_learners * (1 if each == "auto" else each)
    main = config.num_cpus_for_main_process
    needed = main + runners + judges + learners
    if needed > there:
        raise UsageError(
            f"{needed:g} CPUs are asked for and the cluster has {there:g}: main process {main:g} + env runners "
            f"{config.num_env_runners} × {config.num_cpus_per_env_runner:g} + evaluation "
            f"{config.evaluation_num_env_runners} × {config.num_cpus_per_env_runner:g} + learners {learners:g}"
        )


def train_rllib(plan: Plan, observer: Observer | None = None, root: str | Path | None = None) -> Report:
    """Train as a tree says, from the start or from the checkpoint of RLlib's at ``algo.checkpoint_path``."""
    watcher = observer or Silent()
    os.environ.setdefault("RAY_AUTH_MODE", "token")  # Ray runs anybody's code otherwise
    # Where there is much to do, Ray's parts need longer than its 30 s to come up.
    os.environ.setdefault("RAY_raylet_start_wait_time_s", "180")
    os.environ.setdefault("RAY_agent_register_timeout_ms", "180000")
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # small networks lose to the starting of threads
    config = algorithm_config(plan)
    stop = StopConditions(plan.stop_conditions, optional=LATE)
    load = bool(given(plan, "debugging").get("log_sys_usage", False))
    name = given(plan, "runtime").get("name") or f"{config.env}-{plan.algorithm}".lower()
    with (
        ray_session(plan, config),
        SummaryWriter(name, config=plain_flat(plan.tree), root=root, tags=["harness", "train", "rllib"]) as writer,
    ):
        algorithm = config.build_algo()
        try:
            earlier = given(plan, "algo").get("checkpoint_path")
            if earlier is not None:
                algorithm.restore_from_path(str(find_checkpoint(str(earlier), trust=trusts(plan))))
            checkpoints = Checkpoints(plan, writer.run_dir / "checkpoints")
            while True:
                result, lists = flatten(algorithm.train())
                result |= machine_load() if load else {}
                step, iteration = int(result[_STEPS]), int(result["training_iteration"])
                writer.add_scalars(result, step)
                for tag, values in lists.items():
                    writer.add_histogram(tag, values, step)
                mean = result.get("env_runners/episode_return_mean", float("nan"))
                watcher.point(step, step / max(1e-9, result["time_total_s"]), mean)
                reason = stop.reached(result)
                checkpoints.after(algorithm, iteration, last=bool(reason))
                if reason:
                    watcher.said(f"stopped: {reason}")
                    return Report(writer.run_id, writer.run_dir, step, mean, reason)
        finally:
            algorithm.stop()
