"""Watching a trained policy: episodes of the best one in a window, or as a moving picture in a file."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeGuard

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from operant.algorithms import Policy
from operant.data import tree_map
from operant.envs import make_env
from operant.envs.parallel import ParallelVectorEnv
from operant.envs.vector import Step
from operant.envs.window import Window
from operant.errors import MissingExtraError, OperantError, UsageError
from operant.models.settings import ModelSettings
from operant.tracking import Run
from operant.training.checkpoints import CheckpointError, read_weights
from operant.training.collecting import EpisodeLog, allowed_actions
from operant.training.config import TrainConfig
from operant.training.evaluating import Player
from operant.training.making import drawable, make_policy
from operant.training.normalizing import make_normalizer
from operant.training.trust import check_trust

_UNFIT = (RuntimeError, KeyError, ValueError, TypeError, AttributeError, IndexError, OverflowError)


class NoWindow(OperantError):
    """Why an environment cannot be shown in a window here."""


class LoadedPolicy:
    """The best policy of a run, with what its observations are scaled by.

    :param render_mode: Gymnasium's word for how it is drawn: ``rgb_array`` (frames) or ``human`` (a window).
    :param trust: whether code that it names may run though you did not record it on this machine; or which names.
    """

    def __init__(
        self, weights_file: Path, render_mode: str = "rgb_array", trust: bool | Collection[str] = False
    ) -> None:
        weights, about = read_weights(weights_file)
        try:
            config, scales = about["config"], about["normalizer"]
            self.step, self.mean_return = int(about["step"]), float(about["return"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise CheckpointError(
                f"{weights_file.with_suffix('.json')} does not describe a policy: {error!r:.200}"
            ) from None
        if not isinstance(config, Mapping):
            why = about.get("unseen", "its config is missing")
            raise UsageError(f"this policy cannot be shown: {why}; its weights are in {weights_file}")
        check_trust(about, f"the policy in {weights_file}", trust)
        # A policy is small work: it acts wherever it is loaded, whatever it was trained on.
        self.config = TrainConfig.from_mapping({**config, "device": "cpu"})
        self.returns: list[float] = []
        env = self.config.env
        arguments = {**env.arguments, **self.config.evaluation.arguments}
        if _is_gymnasiums(env.id):
            arguments["render_mode"] = render_mode
        self.opens_window = _is_gymnasiums(env.id) and render_mode == "human"
        self.env = make_env(env.id, 1, wrappers=list(env.wrappers), **arguments)
        if isinstance(self.env, ParallelVectorEnv):  # a window of ours shows its pictures
            arguments = drawable(self.env, arguments)
            self.env.close()
            self.env = make_env(env.id, 1, wrappers=list(env.wrappers), **arguments)
        _check_size(weights, self.config, weights_file)
        try:
            self.policy: Policy = make_policy(self.env, self.config)
            self.policy.load_weights(weights)
            self.normalizer = self._scales(scales)
        except Exception as error:  # a class of the user's own may fail in any way
            if not self.config.model.has_own_modules and not isinstance(error, _UNFIT):
                raise
            why = " ".join(str(error).split())[:300]
            raise UsageError(
                f"this policy cannot be shown: its network cannot be made again from here ({why}); "
                f"its weights are in {weights_file}"
            ) from None
        self._player = Player(self.policy, self.env, self.normalizer)

    def _scales(self, saved: Mapping[str, Any] | None) -> Any:
        """What observations were scaled by."""
        if saved is None:
            return None
        normalizer = make_normalizer(self.config.env, self.policy, 1)
        normalizer.load_state_dict(saved)
        return normalizer

    def act(self, obs: Any, mask: np.ndarray[Any, Any] | None = None) -> Any:
        """Greedy actions [N, …] for observations [N, …] as the environment gives them; ``mask`` [N, A]: which may be.

        Without a mask, that of this policy's own environment counts.
        """
        if self.remembers:
            raise UsageError("this policy has memory: act_from(obs, state) takes what it remembers, and gives it back")
        return self.act_from(obs, None, mask)[0]

    def act_from(self, obs: Any, state: Any, mask: np.ndarray[Any, Any] | None = None) -> tuple[Any, Any]:
        """Greedy actions as `act` gives them, and what the policy remembers then [N, …]; it wants that back with the
        next observations. None: an episode begins in each row."""
        return self._player.act_from(obs, state, allowed_actions(self.env, self.policy, obs) if mask is None else mask)

    @property
    def remembers(self) -> bool:
        """Whether this is a policy with memory."""
        return "state" in self.policy.data.fields

    def play(self, obs: Any) -> Step:
        """One step in this policy's own environment."""
        return self._player.step(obs)


def _check_size(weights: Mapping[str, np.ndarray[Any, Any]], config: TrainConfig, file: Path) -> None:
    """Refuse networks that these weights cannot be of before they take their memory."""
    models = [config.policy(name)[2] for name in config.policies] or [config.model]
    if max(_least_size(model) for model in models) > sum(one.size for one in weights.values()):
        raise UsageError(f"this policy cannot be shown: {file} holds fewer weights than its network has")


def _least_size(model: ModelSettings) -> int:
    least = sum(model.hidden) + sum(one * other for one, other in pairwise(model.hidden))
    least += model.recurrent_size**2 if model.recurrent else 0
    return 0 if model.has_own_modules else least


def load_policy(
    run: str,
    root: str | Path | None = None,
    render_mode: str = "rgb_array",
    *,
    trust: bool | Collection[str] = False,
) -> LoadedPolicy:
    """The best policy of a run. ``trust`` (True, or names) lets code run that a run of somebody else names."""
    found = Run.open(run, root)
    weights = found.folder / "best" / "weights.safetensors"
    if not weights.exists():
        raise UsageError(
            f"run {found.id} has no policy to show: one is kept after each evaluation that is the best so far"
        )
    return LoadedPolicy(weights, render_mode, trust)


def show_episodes(
    run: str, episodes: int = 1, seed: int = 0, root: str | Path | None = None, *, trust: bool | Collection[str] = False
) -> LoadedPolicy:
    """Play greedy episodes in a window, as fast as they happen; returns the policy, with `returns` of what was played.

    The same seed starts where that of `record_episodes` does.
    """
    try:
        policy = load_policy(run, root, render_mode="human", trust=trust)
        window = None if policy.opens_window else Window(str(policy.config.env.id))
        log = EpisodeLog(episodes)
        obs = policy.env.reset(seed)
        try:
            while log.count < episodes:
                if window is not None:
                    window.show(policy.env.render_frame())
                step = policy.play(obs)
                obs = step.obs
                log.add(step)
        finally:
            policy.env.close()
            if window is not None:
                window.close()
    except gymnasium.error.DependencyNotInstalled as error:
        raise NoWindow(f"a window needs what is not here: {error}") from None
    policy.returns = list(log.returns)
    return policy


def record_episodes(
    policy: LoadedPolicy, episodes: int = 1, seed: int = 0, max_frames: int = 2000
) -> list[np.ndarray[Any, Any]]:
    """Frames of greedy episodes; their returns are `policy.returns` then."""
    env = policy.env
    log = EpisodeLog(episodes)
    obs = env.reset(seed)
    frames = [env.render_frame()]
    while log.count < episodes and len(frames) < max_frames:
        step = policy.play(obs)
        obs = step.obs
        log.add(step)
        frames.append(env.render_frame())
    env.close()
    policy.returns = list(log.returns)
    return frames


def play_transitions(policy: LoadedPolicy, episodes: int, seed: int = 0, explore: bool = False) -> list[dict[str, Any]]:
    """Steps of whole episodes, to be recorded: observations and actions as the environment has them. Their returns are
    `policy.returns` then.

    :param explore: act as in training, not greedily.
    """
    env, log = policy.env, EpisodeLog(episodes)
    if isinstance(env, ParallelVectorEnv):
        raise UsageError("transitions are recorded of one agent, and this policy has several")
    player = Player(policy.policy, env, policy.normalizer, np.random.default_rng([seed, 2]) if explore else None)
    obs = tree_map(np.array, env.reset(seed))
    steps: list[dict[str, Any]] = []
    try:
        while log.count < episodes:
            step = player.step(obs)
            happened = {
                "obs": obs,
                "action": player.action,
                "reward": step.reward.astype(np.float32),
                "terminated": step.terminated,
                "truncated": step.truncated,
                "next_obs": step.next_obs,
            }
            steps.append(tree_map(np.array, happened))
            obs = tree_map(np.array, step.obs)
            log.add(step)
    finally:
        env.close()
    policy.returns = list(log.returns)
    return steps


def environment_spec(config: TrainConfig) -> EnvSpec | None:
    """What Gymnasium makes the environment of a training from again, None where that is not all of it."""
    env = config.env
    if not _is_gymnasiums(env.id) or env.wrappers:
        return None
    spec = copy.deepcopy(gymnasium.spec(env.id))
    arguments = dict(env.arguments)
    spec.max_episode_steps = arguments.pop("max_episode_steps", spec.max_episode_steps)
    spec.kwargs |= arguments
    return spec


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


def _is_gymnasiums(target: Any) -> TypeGuard[str]:
    return isinstance(target, str) and ":" not in target and target in gymnasium.registry
