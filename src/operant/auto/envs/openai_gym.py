"""Gymnasium environments: discrete, continuous and multi-discrete actions, vectors, pictures and dicts to observe.

Without `act_kwargs` the environments are stepped together, by the training of `operant train`. With them, episodes are
played one by one through the verbs of the frame, as environment extensions do it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from operant._lazy import load_when_used
from operant.auto.config import algorithm_key, check_config, copied, example_env
from operant.errors import UsageError
from operant.settings import fill, setting

if TYPE_CHECKING:
    from operant.auto.config import Plan
    from operant.auto.launching import LaunchResult

# Where Machin has them.
__getattr__ = load_when_used(
    __name__,
    dict.fromkeys(("RLGymContActDataset", "RLGymDiscActDataset", "gym_env_dataset_creator"), "operant.auto.datasets"),
)

Config = dict[str, Any]


@dataclass(frozen=True)
class GymTestEnv:
    """Keys of `test_env_config`."""

    env_name: Any = setting("CartPole-v1", "Gymnasium id, `package.module:callable`, or a callable")
    act_kwargs: dict[str, Any] = setting({}, "keyword arguments of the frame's verbs, such as {'epsilon': 0.05}")
    render_every_episode: int | None = setting(100, "episodes between films; null or 0: none")
    arguments: dict[str, Any] = setting({}, "keyword arguments of the environment")
    wrappers: tuple[Any, ...] = setting((), "wrappers around each environment, or their importable names")
    num_envs: int = setting(0, "environments that step together; 0: one for each episode, at most 32")
    episodes: int = setting(20, "episodes of each evaluation")

    def __post_init__(self) -> None:
        if self.episodes < 1:
            raise UsageError(f"test_env_config.episodes is {self.episodes}; it must be at least 1")


@dataclass(frozen=True)
class GymTrainEnv:
    """Keys of `train_env_config`."""

    env_name: Any = setting("CartPole-v1", "Gymnasium id, `package.module:callable`, or a callable")
    act_kwargs: dict[str, Any] = setting({}, "keyword arguments of the frame's verbs, such as {'epsilon': 0.05}")
    render_every_episode: int | None = setting(100, "episodes between films; null or 0: none")
    arguments: dict[str, Any] = setting({}, "keyword arguments of the environment")
    wrappers: tuple[Any, ...] = setting((), "wrappers around each environment, or their importable names")
    num_envs: int = setting(1, "environments that step together")
    workers: int = setting(0, "processes to step them in; 0: in this one")
    normalize_obs: bool = setting(False, "scale observations to mean 0 and deviation 1 as seen so far")
    normalize_reward: bool = setting(False, "scale rewards by the deviation of the discounted return")

    def __post_init__(self) -> None:
        if self.num_envs < 1:
            raise UsageError(f"train_env_config.num_envs is {self.num_envs}; at least one environment is needed")


def generate_env_config(config: Mapping[str, Any] | None = None) -> Config:
    """Add the environment to train in and the one to evaluate in; what the config has of them already stays."""
    result: Config = copied(config or {})
    result["env"] = "openai_gym"
    shown = {"env_name": example_env(algorithm_key(result["frame"]))} if result.get("frame") else {}
    for key, kind in (("train_env_config", GymTrainEnv), ("test_env_config", GymTestEnv)):
        usual = kind()
        made = {one: copied(getattr(usual, one)) for one in ("env_name", "act_kwargs", "render_every_episode")}
        result[key] = {**made, **shown, **result.get(key, {})}
    return result


def launch(config: Mapping[str, Any], callbacks: list[Any] | None = None) -> LaunchResult:
    """Train as a config says."""
    from operant.auto.datasets import gym_env_dataset_creator, launch_dataset
    from operant.auto.films import Films, film_env
    from operant.auto.launching import run_learner
    from operant.auto.learners import VectorLearner
    from operant.auto.parts import prepare_parts

    plan = check_config(config)
    train = fill(GymTrainEnv, plan.launch.train_env_config, "train_env_config")
    test = fill(GymTestEnv, plan.launch.test_env_config, "test_env_config")
    if train.act_kwargs or test.act_kwargs:
        _check_single(train)
        return launch_dataset(config, gym_env_dataset_creator, callbacks, test_episodes=test.episodes)
    parts = prepare_parts(plan)
    training = _train_config(plan, parts, train, test)

    def make(writer: Any, folder: Path, spoken: Any) -> VectorLearner:
        learner = VectorLearner(training, test, plan, parts, writer, folder, spoken)
        places = folder / "log" / "images", writer, plan.seed, learner.say
        learner.films = [
            Films(
                tag,
                env.render_every_episode,
                film_env(env.env_name, list(env.wrappers), env.arguments),
                *places,
                explore=explore,
            )
            for tag, env, explore in (("train_episode", train, True), ("test_episode", test, False))
        ]
        return learner

    return run_learner(plan, parts, config, make, callbacks)


def _check_single(train: GymTrainEnv) -> None:
    """Episodes that are played through the frame's verbs come from one environment as it is."""
    usual = GymTrainEnv()
    for key in ("num_envs", "workers", "normalize_obs", "normalize_reward"):
        if getattr(train, key) != getattr(usual, key):
            raise UsageError(
                f"train_env_config.{key} and act_kwargs exclude each other: with act_kwargs episodes are played one by "
                "one through the frame's verbs"
            )


def _train_config(plan: Plan, parts: Any, train: GymTrainEnv, test: GymTestEnv) -> Any:
    from operant.auto.parts import training_config

    env = {
        key: getattr(train, key)
        for key in ("num_envs", "workers", "arguments", "wrappers", "normalize_obs", "normalize_reward")
    }
    return training_config(plan, parts, {"id": train.env_name, **env}, test.episodes)
