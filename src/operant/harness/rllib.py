"""The harness's tree trained with RLlib: an `AlgorithmConfig` built group by group, each checked by what takes it."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from operant._util.dotted import plain_flat
from operant.errors import UsageError, nearest
from operant.framework.parallel.ray_engine import prepare_ray
from operant.harness.loggers import loggers_of
from operant.harness.objects import made, named
from operant.harness.results import STEPS, Heard, Report, Result, StopConditions, films_of, flatten, machine_load
from operant.harness.rllib_checkpoints import Checkpoints, find_checkpoint
from operant.harness.tree import Plan, environment_name, flag, given, mapping, whole
from operant.tracking import SummaryWriter
from operant.training.plugins import Recording
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
    "multi_agent": "multi_agent",
}


def algorithm_config(plan: Plan) -> Any:
    """RLlib's config of a tree; a key that its method does not take is an error."""
    config = _default_config(plan)
    for group, method in _METHODS.items():
        values = {key: made(value, f"{group}.{key}") for key, value in given(plan, group).items()}
        _check_keys(plan, config, group)
        _check_kinds(plan, group, values, config)
        if group == "environment":
            values["env"] = _environment(environment_name(plan))
        if group == "evaluation":
            values = _evaluation(plan, values)
        if "policy_mapping_fn" in values:
            values["policy_mapping_fn"] = policy_mapping(values["policy_mapping_fn"])
        try:
            if values:
                getattr(config, method)(**values)
        except (ValueError, TypeError, AttributeError) as error:
            raise UsageError(f"{group}: RLlib's {method}() says: {str(error).splitlines()[0]}") from None
    if plan.tree.get("callbacks") or given(plan, "film").get("frames"):
        config.callbacks(_callbacks(plan))
    _set_model(plan, config)
    whole(plan, "debugging.seed", 0)
    config.debugging(**given(plan, "debugging"))
    return config


def _default_config(plan: Plan) -> Any:
    from ray.rllib.algorithms.registry import ALGORITHMS
    from ray.tune.registry import get_trainable_cls

    if plan.algorithm not in ALGORITHMS:
        known = sorted(ALGORITHMS)
        raise UsageError(
            f"algo.name is {plan.algorithm!r}{nearest(plan.algorithm, known)}; RLlib's are {', '.join(known)}"
        )
    return get_trainable_cls(plan.algorithm).get_default_config()  # type: ignore[no-untyped-call]


def check_group(plan: Plan) -> None:
    """That RLlib takes the keys of the groups that there are."""
    config = _default_config(plan)
    for group in _METHODS:
        _check_keys(plan, config, group)
    _set_model(plan, config)


def _check_keys(plan: Plan, config: Any, group: str) -> None:
    taken = _parameters(config, _METHODS[group])
    for key in given(plan, group):
        if key not in taken:
            raise plan.unknown(f"{group}.{key}", taken, f"RLlib's {type(config).__name__}.{_METHODS[group]}()")


def _check_kinds(plan: Plan, group: str, values: Mapping[str, Any], usual: Any) -> None:
    """RLlib takes words in the place of numbers, and falls over them later."""
    for key, value in values.items():
        default = getattr(usual, key, None)
        if isinstance(default, bool):
            right, what = isinstance(value, bool), "true or false"
        else:
            word = isinstance(value, str) and value != "auto"
            right, what = not (word and isinstance(default, (int, float))), "a number"
        if not right:
            raise UsageError(f"{group}.{key}{plan.origins.of(f'{group}.{key}')} is {what}, got {value!r:.80}")


def _evaluation(plan: Plan, values: dict[str, Any]) -> dict[str, Any]:
    """What `evaluation()` gets; its environments are drawn where films are asked for."""
    if "evaluation_interval" in values:
        whole(plan, "evaluation.evaluation_interval", 0)
    config = dict(mapping(plan, "evaluation.evaluation_config", values.get("evaluation_config")))
    if whole(plan, "film.frames", 0):
        drawn = {**given(plan, "environment").get("env_config", {}), "render_mode": "rgb_array"}
        values["evaluation_config"] = {**config, "env_config": {**drawn, **(config.get("env_config") or {})}}
    if not values.get("evaluation_config"):
        values.pop("evaluation_config", None)
    return values


def _callbacks(plan: Plan) -> list[Any]:
    from functools import partial

    from ray.rllib.callbacks.callbacks import RLlibCallback

    from operant.harness.callbacks import OperantRLlibCallback

    found = []
    for name in plan.tree.get("callbacks") or []:
        found.append(named(name, "callbacks"))
        if not (isinstance(found[-1], type) and issubclass(found[-1], RLlibCallback)):
            raise UsageError(f"callbacks: {name!r} is no RLlibCallback; algo.library=rllib takes classes of it")
    frames = whole(plan, "film.frames", 0)
    return [*found, partial(OperantRLlibCallback, frames=frames)] if frames else found


def policy_mapping(said: Any) -> Any:
    """Which policy an agent has: a dotted path, a mapping of names, or one policy for all."""
    if isinstance(said, dict):
        table = dict(said)
        return lambda agent, *about, **more: table[agent]
    if callable(said):
        return said
    if "." in str(said) or ":" in str(said):
        return named(str(said), "multi_agent.policy_mapping_fn")
    return lambda agent, *about, **more: said


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


def _set_model(plan: Plan, config: Any) -> None:
    """The networks: RLlib's own by their settings, or an RLModule by its dotted path, with any settings."""
    from dataclasses import fields

    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
    from ray.rllib.core.rl_module.rl_module import RLModule, RLModuleSpec

    values = given(plan, "model")
    module = values.pop("module", None)
    if module is not None:
        found = named(str(module), "model.module")
        if not (isinstance(found, type) and issubclass(found, RLModule)):
            raise UsageError(
                f"model.module is {module!r}, which is no RLModule; algo.library=rllib takes classes of it"
            )
        config.rl_module(rl_module_spec=RLModuleSpec(module_class=found, model_config=values))
        return
    known = {one.name for one in fields(DefaultModelConfig)}
    for key in values:
        if key not in known:
            raise plan.unknown(f"model.{key}", {*known, "module"}, "RLlib's DefaultModelConfig")
    _check_kinds(plan, "model", values, DefaultModelConfig())
    if values:
        config.rl_module(model_config=values)


def _environment(name: str) -> str:
    """A name that RLlib knows the environment by: entry points and importable names as `operant train` has them."""
    from ray.tune.registry import register_env

    from operant.envs.making import environment_maker

    make = environment_maker(name)
    make = getattr(make, "one", make)  # RLlib makes its vectors itself

    def make_one(config: Any) -> Any:
        env = make(**made(dict(config), "environment.env_config"))
        return _for_agents(env) if hasattr(env, "possible_agents") and hasattr(env, "observation_space") else env

    register_env(name, make_one)
    return name


def _for_agents(env: Any) -> Any:
    """A parallel environment of PettingZoo's as RLlib takes it."""
    from ray.rllib.env.multi_agent_env import MultiAgentEnv
    from ray.rllib.env.wrappers.pettingzoo_env import ParallelPettingZooEnv

    class Parallel(ParallelPettingZooEnv):
        def render(self) -> Any:  # as today's PettingZoo has it
            return self.par_env.render()

    return env if isinstance(env, MultiAgentEnv) else Parallel(env)  # type: ignore[no-untyped-call]


def flat_observations(env: Any = None, spaces: Any = None, device: Any = None, multi_agent: bool = True) -> Any:
    """A connector that makes a row of numbers of each observation, for networks without convolutions."""
    from ray.rllib.connectors.env_to_module import FlattenObservations

    return FlattenObservations(multi_agent=multi_agent)


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
        if config is not None:
            check_resources(config, ray.cluster_resources())  # type: ignore[no-untyped-call]
        yield
    finally:
        if begun:
            ray.shutdown()


def check_resources(config: Any, there: Mapping[str, float]) -> None:
    """Ray waits for ever where more is asked for than there is."""
    each = config.num_cpus_per_learner
    local = not config.num_learners
    for unit, main, runner, learner in (
        ("CPU", config.num_cpus_for_main_process, config.num_cpus_per_env_runner, 1 if each == "auto" else each),
        ("GPU", 0, config.num_gpus_per_env_runner, config.num_gpus_per_learner),
    ):
        learners = learner * (1 if local and unit == "GPU" else config.num_learners)
        needed = main + (config.num_env_runners + config.evaluation_num_env_runners) * runner + learners
        has = float(there.get(unit, 0.0))
        if needed > has:
            raise UsageError(
                f"{needed:g} {unit}s are asked for and the cluster has {has:g}: main process {main:g} + env runners "
                f"{config.num_env_runners} × {runner:g} + evaluation {config.evaluation_num_env_runners} × {runner:g} "
                f"+ learners {learners:g}"
            )


def _built(config: Any) -> Any:
    try:
        return config.build_algo()
    except ValueError as error:
        text = str(error)
        if "suppress all validation errors" not in text:
            raise
        raise UsageError(f"RLlib: {text.splitlines()[0]}") from None


def train_rllib(
    plan: Plan, observer: Observer | None = None, root: str | Path | None = None, heard: Heard | None = None
) -> Report:
    """Train as a tree says, from the start or from the checkpoint of RLlib's at ``algo.checkpoint_path``."""
    watcher = observer or Silent()
    prepare_ray()
    config = algorithm_config(plan)
    stop = StopConditions(plan.stop_conditions)
    name = str(given(plan, "runtime").get("name") or f"{config.env}-{plan.algorithm}".lower())
    with (
        ray_session(plan, config),
        SummaryWriter(name, config=plain_flat(plan.tree), root=root, tags=["harness", "train", "rllib"]) as writer,
        closing(Recorder(plan, writer, name)) as recorder,
    ):
        algorithm = _built(config)
        try:
            earlier = given(plan, "algo").get("checkpoint_path")
            if earlier is not None:
                found = find_checkpoint(str(earlier), trust=flag(plan, "algo", "trust"))
                algorithm.restore_from_path(str(found))
            checkpoints = Checkpoints(plan, writer.run_dir / "checkpoints")
            while True:
                result = recorder.record(algorithm.train())
                step = int(result[STEPS])
                if heard is not None:
                    heard(result)
                mean = result.get("env_runners/episode_return_mean", float("nan"))
                watcher.point(step, step / max(1e-9, result["time_total_s"]), mean)
                reason = stop.reached(result)
                saved = checkpoints.after(algorithm, int(result["training_iteration"]), last=bool(reason))
                if saved is not None:
                    recorder.recording.add_text("checkpoint", str(saved), step)
                if reason:
                    watcher.said(f"stopped: {reason}")
                    return Report(writer.run_id, writer.run_dir, step, mean, reason)
        finally:
            algorithm.stop()


class Recorder:
    """What each iteration came to: numbers, lists and films into our run, numbers and lists to other loggers."""

    def __init__(self, plan: Plan, writer: SummaryWriter, name: str) -> None:
        self.writer = writer
        self.loggers = loggers_of(plan, name, writer.run_id)
        self.recording = Recording(writer, self.loggers)
        self.load = flag(plan, "debugging", "log_sys_usage")

    def record(self, given: Mapping[str, Any]) -> Result:
        """The result, flat."""
        result, lists = flatten(given)
        result |= machine_load() if self.load else {}
        step = int(result[STEPS])
        self.recording.add_scalars(result, step)
        for tag, values in lists.items():
            for place in (self.writer, *self.loggers):
                place.add_histogram(tag, values, step)
        for tag, film in films_of(given):
            self.writer.add_video(tag, film, step, fps=10)
        return result

    def close(self) -> None:
        self.recording.close()
