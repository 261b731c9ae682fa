"""The dataset way: `launch_dataset` for environment extensions, and Gymnasium's environments as a dataset."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from gymnasium import Env, Space, spaces

from operant.auto.config import check_config
from operant.auto.dataset import Creator, DatasetResult, RLDataset
from operant.auto.films import drawable, keep_film
from operant.auto.frames import Frame
from operant.auto.learners import DatasetLearner
from operant.auto.parts import prepare_parts
from operant.envs import make_env
from operant.errors import UsageError

if TYPE_CHECKING:
    from operant.auto.launching import LaunchResult


def launch_dataset(
    config: Mapping[str, Any],
    creator: Creator,
    callbacks: list[Any] | None = None,
    *,
    test_episodes: int = 10,
) -> LaunchResult:
    """Train on the episodes of a dataset; what the `launch` of an environment extension calls.

    `creator` is called with the frame and each of the two groups of the environment; after every epoch `test_episodes`
    episodes of the test dataset are played without noise.
    """
    from operant.auto.launching import run_learner  # Lightning

    plan = check_config(config)
    parts = prepare_parts(plan)

    def make(writer: Any, folder: Path, spoken: Any) -> DatasetLearner:
        return DatasetLearner(plan, parts, creator, writer, folder, spoken, test_episodes)

    return run_learner(plan, parts, config, make, callbacks)


def log_video(module: Any, name: str, frames: list[Any]) -> None:
    """Keep a film: for `DatasetResult.add_log({"episode": (frames, log_video)})`."""
    learner = module.learner
    keep_film(name, frames, learner.episodes, learner.env_step, learner.folder / "log" / "images", learner.writer)


class RLGymDataset(RLDataset):
    """Episodes of one Gymnasium environment, or of what `make_env` made for one, played with a frame's verbs."""

    _kinds: ClassVar[tuple[type[Space[Any]], ...]] = ()
    """The kinds of actions that it takes; none: all."""

    def __init__(
        self,
        frame: Frame,
        env: Any,
        render_every_episode: int | None = 100,
        act_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        if isinstance(env, Env):
            single = env
            env = make_env(lambda: single, seed=frame.seed)
        if self._kinds and not isinstance(env.single_action_space, self._kinds):
            raise UsageError(f"{type(self).__name__} is not for {env.single_action_space}; RLGymDataset takes all")
        self.frame = frame
        self.env = env
        self.observation_space = env.single_observation_space
        self.action_space = env.single_action_space
        self.render_every_episode = render_every_episode
        self.act_kwargs = dict(act_kwargs or {})
        self.played = 0
        self._obs: Any = None

    def __next__(self) -> DatasetResult:
        if self._obs is None:
            self._obs = self.env.reset()
        result = DatasetResult()
        self.played += 1
        drawn = bool(self.render_every_episode) and self.played % int(self.render_every_episode or 1) == 0
        frames = []
        done = False
        while not done:
            if drawn:
                frames.append(self.env.render_frame())
            state = self._state(self._obs)
            action = self._act(state)
            step = self.env.step(self.frame.to_env(action).reshape(1, *self.action_space.shape))
            result.add_observation(
                {
                    "state": state,
                    "action": {"action": action},
                    "next_state": self._state(step.next_obs),
                    "reward": float(step.reward[0]),
                    "terminal": bool(step.terminated[0]),
                    "truncated": bool(step.truncated[0]),
                }
            )
            self._obs = step.obs
            done = bool(step.done[0])
        if drawn:
            result.add_log({"episode": (frames, log_video)})
        return result

    def _act(self, state: dict[str, Any]) -> Any:
        if self.frame.sampled:
            return self.frame.act(state, **self.act_kwargs)[0].numpy()
        return self.frame.act_with_noise(state, **self.act_kwargs).numpy()

    def _state(self, obs: Any) -> dict[str, Any]:
        mask = self.env.action_mask
        state = dict(obs) if isinstance(obs, dict) else {"state": np.array(obs)}
        return state if mask is None else {**state, "action_mask": mask}

    def state_dict(self) -> dict[str, Any]:
        return {"env": self.env.save_state() if self._obs is not None else None, "played": self.played}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.played = int(state["played"])
        self._obs = None if state["env"] is None else self.env.load_state(state["env"])

    def close(self) -> None:
        self.env.close()


class RLGymDiscActDataset(RLGymDataset):
    """The dataset under the name that Machin has for discrete actions."""

    _kinds = (spaces.Discrete, spaces.MultiDiscrete)


class RLGymContActDataset(RLGymDataset):
    """The dataset under the name that Machin has for continuous actions."""

    _kinds = (spaces.Box,)


def gym_env_dataset_creator(frame: Frame, env_config: Mapping[str, Any]) -> RLGymDataset:
    """A dataset of the environment that `train_env_config` or `test_env_config` describes."""
    kept = {key: env_config.get(key) for key in ("render_every_episode", "act_kwargs")}
    wrappers = list(env_config.get("wrappers") or ())
    name, arguments = env_config.get("env_name", "CartPole-v1"), dict(env_config.get("arguments") or {})
    if kept["render_every_episode"]:
        arguments = drawable(name, arguments)
    seed = frame.seed + (1_000_000 if env_config is frame.plan.launch.test_env_config else 0)
    env = make_env(name, 1, seed=seed, wrappers=wrappers, **arguments)
    dataset = RLGymDataset(frame, env, kept["render_every_episode"], kept["act_kwargs"])
    dataset.viewed_in = {"id": name, "arguments": dict(env_config.get("arguments") or {}), "wrappers": wrappers}
    return dataset
