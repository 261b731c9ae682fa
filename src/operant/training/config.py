"""One training in one config: what to learn on, how, for how long, and what to keep of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from operant.algorithms import ALGORITHMS, find_algorithm
from operant.errors import UsageError, nearest
from operant.models.devices import check_device_name
from operant.models.settings import ModelSettings
from operant.settings import fill, setting, to_mapping
from operant.training.policies import SHARED, PolicySettings, plain_policies, read_policies

_ENGINES = ("local", "ray")
_SCHEDULES = ("free", "lockstep")
_LARGEST_SEED = 2**62  # what is added to it for networks and environments still fits into 64 bits


def _check_least(group: str, settings: Any, **least: int) -> None:
    for name, low in least.items():
        if (value := getattr(settings, name)) < low:
            raise UsageError(f"{group}.{name} is {value}; it must be at least {low}")


@dataclass(frozen=True)
class EnvSettings:
    """What is learned on."""

    id: Any = setting("CartPole-v1", "Gymnasium id, entry point, `package.module:callable`, or a callable")
    num_envs: int = setting(
        1, "environments that step together; more: quicker and more varied data, fewer updates for the same steps"
    )
    workers: int = setting(
        0, "processes to step them in, 0: in this one; more: quicker where a step takes long, slower where it does not"
    )
    arguments: dict[str, Any] = setting({}, "keyword arguments of the environment")
    wrappers: tuple[str, ...] = setting((), "importable names of wrappers around each environment")
    normalize_obs: bool = setting(
        False, "scale observations to mean 0 and deviation 1 as seen so far: helps where their ranges differ a lot"
    )
    normalize_reward: bool = setting(
        False, "scale rewards by the deviation of the discounted return: helps where returns are large or tiny"
    )

    def __post_init__(self) -> None:
        if self.num_envs < 1:
            raise UsageError(f"env.num_envs is {self.num_envs}; at least one environment is needed")
        taken = {"target", "num_envs", "workers", "wrappers", "seed"} & self.arguments.keys()
        if taken:
            raise UsageError(f"env.arguments go to the environment itself; {min(taken)!r} is none of them")


@dataclass(frozen=True)
class EvaluationSettings:
    """How the policy is evaluated: greedily, on environments and seeds of their own."""

    every: int = setting(
        0, "environment steps between evaluations, 0: twenty over the training; fewer: the best policy is found nearer"
    )
    episodes: int = setting(20, "episodes of each evaluation; more: less noise in which policy is the best, more time")
    num_envs: int = setting(0, "environments that step together, 0: one for each episode, at most 32; more: quicker")
    process: bool = setting(
        False, "evaluate in a process of its own while learning goes on; what it finds counts a little later"
    )
    seed: int = setting(1_000_000, "added to the seed of the training")
    arguments: dict[str, Any] = setting({}, "arguments of the environment that differ here, such as held-out maps")
    stop_value: float | None = setting(None, "end the training when the mean return reaches this")
    frames: int = setting(
        0,
        "most frames of a film of each evaluation's first episode, 0: no film; more: longer films, more time and disk",
    )

    def __post_init__(self) -> None:
        _check_least("evaluation", self, every=0, episodes=1, num_envs=0, frames=0, seed=0)
        if self.stop_value is not None and math.isnan(self.stop_value):
            raise UsageError("evaluation.stop_value is nan; it is a number, or null")
        if self.process and self.frames:
            raise UsageError("evaluation.frames films where the training is: it is 0 with evaluation.process")


@dataclass(frozen=True)
class CheckpointSettings:
    """What can be resumed."""

    every: int = setting(
        0, "environment steps between checkpoints, 0: ten over the training; fewer: less is lost, more is written"
    )
    keep: int = setting(
        2, "newest checkpoints that are kept (the best policy always is); more: one can go back further, more disk"
    )

    def __post_init__(self) -> None:
        _check_least("checkpoint", self, every=0, keep=1)


@dataclass(frozen=True)
class LogSettings:
    """What is recorded."""

    every: int = setting(
        0, "environment steps between points, 0: two hundred over the training; fewer: finer curves, some time"
    )
    window: int = setting(100, "episodes that the mean return is taken over; more: smoother, later")

    def __post_init__(self) -> None:
        _check_least("log", self, every=0, window=1)


@dataclass(frozen=True)
class TrainConfig:
    """Everything one training needs."""

    name: str = setting("", "what the run is called; by default environment and algorithm")
    total_steps: int = setting(
        100_000,
        "environment steps, of all environments together; more: schedules stretch over them, too",
    )
    seed: int = setting(0, "decides everything random")
    device: str = setting(
        "auto", "where networks live: cpu, cuda, cuda:1, mps; auto: a GPU for those that have no closed form on the CPU"
    )
    workers: int = setting(
        0, "processes that collect for this one, 0: it collects by itself; more: quicker where acting takes the time"
    )
    replay_shards: int = setting(
        0, "processes that hold replay for workers, each a part, 0: this one does; more: this one only learns"
    )
    learners: int = setting(
        1, "processes that learn together, each with its share of the environments and of every minibatch (ppo)"
    )
    num_nodes: int = setting(
        1, "machines that workers and learners are spread over; the others run `operant join`, or this under Slurm"
    )
    engine: str = setting("local", "who starts the workers: local, or ray, which spreads them over its machines")
    schedule: str = setting(
        "free",
        "free: workers do not wait for each other where the algorithm allows; lockstep: rounds, which repeat exactly",
    )
    silence: float = setting(
        60.0, "seconds without an environment step after which a worker is replaced; less: sooner, but slow steps count"
    )
    env: EnvSettings = setting(EnvSettings, "what is learned on")
    algorithm: dict[str, Any] = setting({"name": "ppo"}, "name of the algorithm and its settings")
    model: ModelSettings = setting(ModelSettings, "how the networks look")
    policies: Any = setting({}, "several agents: names of policies, or a group of settings for each that differs")
    policy_mapping: Any = setting(
        SHARED,
        "several agents: shared (one policy for agents of a kind), independent (one for each), a table of agents and "
        "policies, or a function's importable name",
    )
    evaluation: EvaluationSettings = setting(EvaluationSettings, "how the policy is evaluated")
    checkpoint: CheckpointSettings = setting(CheckpointSettings, "what can be resumed")
    log: LogSettings = setting(LogSettings, "what is recorded")
    callbacks: tuple[Any, ...] = setting(
        (), "own middleware: entry points, importable names or callables, called with the training"
    )
    loggers: tuple[Any, ...] = setting(
        (), "who else hears what is recorded: entry points, importable names or callables, called with the training"
    )
    doctor: bool = setting(True, "warn in words when the training looks ill")
    algorithm_settings: Any = field(init=False, default=None)

    def __post_init__(self) -> None:
        if self.total_steps < 1:
            raise UsageError(f"total_steps is {self.total_steps}; it must be at least 1")
        if not 0 <= self.seed <= _LARGEST_SEED:
            raise UsageError(f"seed is {self.seed}; it lies between 0 and {_LARGEST_SEED}")
        if "name" not in self.algorithm:
            raise UsageError(f"algorithm.name is missing: one of {', '.join(ALGORITHMS.names)}")
        _, settings = find_algorithm(self.algorithm["name"])
        own = {key: value for key, value in self.algorithm.items() if key != "name"}
        object.__setattr__(self, "algorithm_settings", fill(settings, own, "algorithm"))
        object.__setattr__(self, "policies", read_policies(self.policies))
        self._check_workers()
        check_device_name(self.device)
        object.__setattr__(self, "model", replace(self.model, device=self.device))
        for policy in self.policies:
            self.policy(policy)
        if not self.name:
            env = self.env.id if isinstance(self.env.id, str) else getattr(self.env.id, "__name__", "env")
            object.__setattr__(self, "name", f"{env.rpartition(':')[2]}-{self.algorithm['name']}".lower())

    def _check_workers(self) -> None:
        if self.workers < 0:
            raise UsageError(f"workers is {self.workers}; it must be 0 or more")
        for name, value, known in (("engine", self.engine, _ENGINES), ("schedule", self.schedule, _SCHEDULES)):
            if value not in known:
                raise UsageError(f"{name} is {' or '.join(known)}; got {value!r}{nearest(value, known)}")
        if self.workers and self.env.workers:
            raise UsageError("workers collect in environments of their own: set workers or env.workers, not both")
        if self.num_nodes < 1 or (self.num_nodes > 1 and not self.workers and self.learners == 1):
            raise UsageError(f"num_nodes is {self.num_nodes}: 1 or more, and workers or learners to spread over them")
        if self.replay_shards:
            self._check_shards()
        self._check_learners()
        if (self.workers or self.learners > 1) and self.silence <= 0:
            raise UsageError(f"silence is {self.silence:g}; it is a number of seconds above 0")

    def _check_shards(self) -> None:
        spec = find_algorithm(self.algorithm["name"])[0].data_spec(self.algorithm_settings)
        if self.replay_shards < 0 or not self.workers:
            raise UsageError(f"replay_shards is {self.replay_shards}: 0 or more, and workers that fill them")
        if spec.source != "replay" or self.schedule == "lockstep":
            raise UsageError("replay_shards is for algorithms that learn from replay, and for schedule=free")

    def _check_learners(self) -> None:
        if self.learners == 1:
            return
        if self.learners < 1 or self.learners > self.env.num_envs:
            raise UsageError(
                f"learners is {self.learners}; it is 1 or more, and at most env.num_envs={self.env.num_envs}: each "
                "learner acts in environments of its own"
            )
        kind = find_algorithm(self.algorithm["name"])[0]
        if not vars(kind).get("learns_together", False):  # its own word: what is derived from one may learn otherwise
            raise UsageError(f"learners is {self.learners}, but {self.algorithm['name']} learns alone")
        if self.workers or self.env.workers:
            raise UsageError("each of several learners collects by itself: workers and env.workers are 0 beside them")

    def policy(self, name: str) -> tuple[str, Any, ModelSettings]:
        """The algorithm of one of several policies, its settings and its networks."""
        one: PolicySettings = self.policies.get(name, PolicySettings())
        if not one.algorithm and not one.model:
            return self.algorithm["name"], self.algorithm_settings, self.model
        where = f"policies.{name}"
        algorithm = one.algorithm.get("name", self.algorithm["name"])
        own = {key: value for key, value in one.algorithm.items() if key != "name"}
        if algorithm == self.algorithm["name"]:
            own = {**to_mapping(self.algorithm_settings), **own}
        settings = fill(find_algorithm(algorithm)[1], own, f"{where}.algorithm")
        if "device" in one.model:
            raise UsageError(f"{where}.model.device stands at the top of a config: device")
        common = {key: getattr(self.model, key) for key in to_mapping(self.model)}
        return algorithm, settings, fill(ModelSettings, {**common, **one.model}, f"{where}.model")

    @staticmethod
    def from_mapping(values: Mapping[str, Any]) -> TrainConfig:
        if isinstance(values.get("model"), Mapping) and "device" in values["model"]:
            raise UsageError("model.device stands at the top of a config: device")
        return fill(TrainConfig, values)

    def for_workers(self) -> TrainConfig:
        """What other processes of the training need: callbacks and loggers are for the one that learns."""
        return replace(self, callbacks=(), loggers=())

    def to_mapping(self) -> dict[str, Any]:
        """Plain values, with the algorithm's settings in full."""
        plain = to_mapping(self)
        del plain["model"]["device"]  # said once, above it
        plain["policies"] = plain_policies(self.policies)
        plain["algorithm"] = {"name": self.algorithm["name"], **to_mapping(self.algorithm_settings)}
        return plain
