"""The harness's tree trained with Operant's own algorithms."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from operant._util.dotted import put
from operant.errors import UsageError
from operant.framework import Context
from operant.harness.loggers import loggers_of
from operant.harness.objects import HERE, described
from operant.harness.own_words import algorithm_name, own_settings
from operant.harness.results import Heard, Report, Result, StopConditions, machine_load
from operant.harness.tree import Plan, environment_name, flag, given, mapping, whole
from operant.harness.words import Tree
from operant.tracking import SummaryWriter
from operant.training.config import TrainConfig
from operant.training.evaluating import Evaluation
from operant.training.running import resume, train
from operant.training.training import Observer, Training

_NEVER = 2**62
_STEPS_PER_ITERATION = 1000  # of what learns from replay, as in RLlib


class IteratedTraining(Training):
    """A training that reports a result after each iteration, and ends when one says that it is enough."""

    def __init__(
        self,
        plan: Plan,
        config: TrainConfig,
        writer: SummaryWriter,
        observer: Observer | None,
        heard: Heard | None = None,
    ) -> None:
        super().__init__(config, writer, observer)
        for logger in loggers_of(plan, config.name, writer.run_id):
            self.recording.add_logger(logger)
        self.heard = heard
        self.stop = StopConditions(plan.stop_conditions)
        self.iteration_steps = config.log.every
        self.log_load = flag(plan, "debugging", "log_sys_usage")
        self.reason = "the last step"
        self._evaluated: Evaluation | None = None
        self._iteration_began = time.perf_counter()
        self._episodes_before = 0

    def log(self, ctx: Context) -> None:
        if self.done or not self._is_due("log", ctx):
            return
        steps_before = self._last["log"]
        super().log(ctx)
        result = self.result(steps_before)
        self.recording.add_scalars(result, self.env_step)
        if self.heard is not None:
            self.heard(result)
        reason = self.stop.reached(result)
        if reason:
            self.reason = reason
            self.say(f"stopped: {reason}")
            ctx.finish = True

    def result(self, steps_before: int) -> Result:
        """What this iteration came to, under RLlib's names."""
        now, episodes = time.perf_counter(), self.collector.episodes
        result = {
            "training_iteration": float(self.env_step // self.iteration_steps),
            "num_env_steps_sampled_lifetime": float(self.env_step),
            "env_runners/num_env_steps_sampled": float(self.env_step - steps_before),
            "env_runners/num_episodes": float(episodes.count - self._episodes_before),
            "env_runners/num_episodes_lifetime": float(episodes.count),
            "time_this_iter_s": now - self._iteration_began,
            "time_total_s": now - self._began,
        }
        result |= {
            "timers/training_iteration": result["time_this_iter_s"],
            "time_since_restore": result["time_total_s"],
        }
        self._iteration_began, self._episodes_before = now, episodes.count
        if episodes.returns:
            result |= _spread("env_runners/episode_return", episodes.returns)
            result |= _spread("env_runners/episode_len", episodes.lengths)
        if self._evaluated is not None:
            result |= _spread("evaluation/env_runners/episode_return", self._evaluated.returns)
            result |= _spread("evaluation/env_runners/episode_len", self._evaluated.lengths)
        for name, value in self.metrics.items():  # those of several policies begin with its name
            result[f"learners/{name}" if "/" in name else f"learners/default_policy/{name}"] = value
        return result | machine_load() if self.log_load else result

    def _save(self) -> None:
        super()._save()
        newest = self.store.folder / f"step-{self.env_step:012d}"
        self.recording.add_text("checkpoint", str(newest), self.env_step)

    def evaluate_now(self) -> Evaluation:
        self._evaluated = super().evaluate_now()
        return self._evaluated


def _spread(name: str, values: Any) -> Result:
    rows = np.asarray(values, dtype=float)
    return {f"{name}_mean": float(rows.mean()), f"{name}_min": float(rows.min()), f"{name}_max": float(rows.max())}


def own_config(plan: Plan) -> TrainConfig:
    """The training that a tree describes."""
    environment_name(plan)
    settings, algorithm = own_settings(plan)
    values: Tree = {"algorithm": {"name": algorithm_name(plan), **algorithm}}
    for path, value in settings.items():
        put(values, path, value)
    values["seed"] = whole(plan, "debugging.seed", 0)
    name = given(plan, "runtime").get("name")
    if name:
        values["name"] = str(name)
    steps = _steps_per_iteration(plan, TrainConfig.from_mapping(values))
    values["total_steps"] = _total_steps(plan, steps)
    values["log"] = {**values.get("log", {}), "every": steps}
    checkpoint = given(plan, "checkpoint")
    frequency = checkpoint.get("checkpoint_frequency", 20)
    values["checkpoint"] = {
        "every": frequency * steps or _NEVER,
        "keep": checkpoint.get("num_to_keep", _NEVER),
    }
    values["evaluation"] = _evaluation(plan, steps)
    values["callbacks"] = plan.tree.get("callbacks") or []
    _describe_objects(values)
    return TrainConfig.from_mapping(values)


def _describe_objects(values: Tree) -> None:
    """Arguments that are described by `_target_` stay so in the config; the environment's maker makes them."""
    env, other = values.get("env", {}), values["evaluation"]["arguments"]
    arguments = env.get("arguments") or {}
    if described(arguments) or described(other):
        values["evaluation"]["arguments"] = {"arguments": {**arguments, **other}} if other else {}
        values["env"] = {**env, "id": HERE, "arguments": {"env": env["id"], "arguments": arguments}}


def _steps_per_iteration(plan: Plan, config: TrainConfig) -> int:
    """Environment steps of an iteration: a rollout, or a thousand."""
    rollout = getattr(config.algorithm_settings, "rollout", None)
    if rollout is not None:
        return int(rollout * config.env.num_envs)
    return whole(plan, "reporting.min_sample_timesteps_per_iteration", _STEPS_PER_ITERATION, least=1)


def _total_steps(plan: Plan, steps_per_iteration: int) -> int:
    conditions = plan.stop_conditions
    for name in ("num_env_steps_sampled_lifetime", "training_iteration"):
        if conditions.get(name, 1) < 1:
            raise UsageError(f"stop_conditions.{name} is {conditions[name]:g}: nothing would be trained")
    limits = [conditions.get("num_env_steps_sampled_lifetime", _NEVER)]
    limits.append(conditions.get("training_iteration", _NEVER) * steps_per_iteration)
    return int(min(limits))


def _evaluation(plan: Plan, steps_per_iteration: int) -> Tree:
    values = given(plan, "evaluation")
    unit = values.get("evaluation_duration_unit", "episodes")
    if unit != "episodes":
        raise UsageError(f"evaluation.evaluation_duration_unit is {unit!r}; algo.library=operant counts episodes")
    config = mapping(plan, "evaluation.evaluation_config", values.get("evaluation_config"))
    for key, value in config.items():
        if key not in ("env_config", "explore"):
            raise plan.unknown(f"evaluation.evaluation_config.{key}", ("env_config", "explore"), "algo.library=operant")
        if key == "explore" and value:
            raise UsageError(
                "evaluation.evaluation_config.explore is true; algo.library=operant judges without exploring"
            )
    return {
        "every": whole(plan, "evaluation.evaluation_interval", 0) * steps_per_iteration or _NEVER,
        "episodes": whole(plan, "evaluation.evaluation_duration", 10, least=1),
        "arguments": dict(mapping(plan, "evaluation.evaluation_config.env_config", config.get("env_config"))),
        "frames": whole(plan, "film.frames", 0),
    }


def train_own(
    plan: Plan, observer: Observer | None = None, root: str | Path | None = None, heard: Heard | None = None
) -> Report:
    """Train as a tree says, from the start or from the newest checkpoint of the run at ``algo.checkpoint_path``."""
    config, algo = own_config(plan), given(plan, "algo")
    made: list[IteratedTraining] = []

    def make(config: TrainConfig, writer: SummaryWriter, observer: Observer | None) -> Training:
        made.append(IteratedTraining(plan, config, writer, observer, heard))
        return made[-1]

    earlier = algo.get("checkpoint_path")
    if earlier is None:
        result = train(config, observer=observer, root=root, tags=["harness"], settings=plan.tree, make=make)
    else:
        trust = flag(plan, "algo", "trust")
        result = resume(str(earlier), observer=observer, root=root, trust=trust, config=config, make=make)
    return Report(result.run_id, result.folder, result.steps, result.mean_return, made[-1].reason)
