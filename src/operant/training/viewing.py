"""Watching a trained policy: episodes of the best one as a moving picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from operant.algorithms import find_algorithm
from operant.envs import make_env
from operant.errors import MissingExtraError, UsageError
from operant.tracking import Run
from operant.training.checkpoints import read_weights
from operant.training.collecting import EpisodeLog
from operant.training.config import TrainConfig
from operant.training.evaluating import greedy_or_sampled
from operant.training.normalizing import Normalizer

__all__ = ["LoadedPolicy", "load_policy", "record_episodes", "write_gif"]


class LoadedPolicy:
    """The best policy of a run, with what its observations are scaled by."""

    def __init__(self, weights_file: Path) -> None:
        weights, about = read_weights(weights_file)
        self.config = TrainConfig.from_mapping(about["config"])
        self.step = int(about["step"])
        self.mean_return = float(about["return"])
        env = self.config.env
        self.env = make_env(env.id, 1, wrappers=list(env.wrappers), **_with_pictures(env.id, env.arguments))
        algorithm, _ = find_algorithm(self.config.algorithm["name"])
        self.algorithm = algorithm(
            self.env.single_observation_space,
            self.env.single_action_space,
            self.config.algorithm_settings,
            self.config.model,
            self.config.seed,
        )
        self.algorithm.load_weights(weights)
        self.normalizer: Normalizer | None = None
        if about["normalizer"] is not None:
            gamma = self.config.algorithm_settings.gamma
            self.normalizer = Normalizer(
                max(1, self.algorithm.adapter.size), 1, gamma, obs=env.normalize_obs, reward=env.normalize_reward
            )
            self.normalizer.load_state_dict(about["normalizer"])

    def act(self, obs: Any) -> Any:
        adapted = self.algorithm.adapter.adapt(obs)
        if self.normalizer is not None:
            adapted = self.normalizer.observe(adapted, learn=False)
        mask = self.env.action_mask
        if mask is None:
            mask = self.algorithm.adapter.mask(obs, None)
        return greedy_or_sampled(self.algorithm, adapted, mask, None)


def load_policy(run: str, root: str | Path | None = None) -> LoadedPolicy:
    """The best policy of a run."""
    return LoadedPolicy(Run.open(run, root).folder / "best" / "weights.safetensors")


def record_episodes(
    policy: LoadedPolicy, episodes: int = 1, seed: int = 0, max_frames: int = 2000
) -> tuple[list[np.ndarray[Any, Any]], list[float]]:
    """Frames and returns of greedy episodes."""
    env = policy.env
    log = EpisodeLog(episodes)
    obs = env.reset(seed)
    frames = [env.render_frame()]
    while log.count < episodes and len(frames) < max_frames:
        step = env.step(policy.act(obs))
        obs = step.obs
        log.add(step)
        frames.append(env.render_frame())
    env.close()
    return frames, list(log.returns)


def write_gif(frames: list[np.ndarray[Any, Any]], path: Path, frames_per_second: int = 30) -> None:
    """Write frames as an animated GIF that repeats; at most 50 pictures a second, as players do."""
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtraError("pictures", "media") from None
    if not frames:
        raise UsageError("there is nothing to write: no frame was drawn")
    pictures = [Image.fromarray(frame).convert("P", palette=Image.Palette.ADAPTIVE) for frame in frames]
    path.parent.mkdir(parents=True, exist_ok=True)
    pictures[0].save(
        path,
        save_all=True,
        append_images=pictures[1:],
        duration=max(20, round(1000 / frames_per_second)),
        loop=0,
    )


def _with_pictures(target: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    return {**arguments, "render_mode": "rgb_array"} if isinstance(target, str) and ":" not in target else arguments
