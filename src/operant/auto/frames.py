"""Frames: an algorithm with the verbs that environment extensions know — act, store an episode, update."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
import torch

from operant.algorithms import ALGORITHMS, ActOut, Algorithm, find_algorithm
from operant.auto.config import Config, Plan, algorithm_key, check_config, generate_algorithm_config
from operant.auto.episodes import batch_of, steps_of
from operant.auto.parts import Parts, equip, prepare_parts, probe
from operant.data import ReplayBuffer, tree_map
from operant.data.batches import add_step
from operant.errors import UsageError
from operant.models.observations import MASK_KEY
from operant.training.sources import learn_from_replay, make_replay

_FAR = 10**12  # environment steps, while nothing is known of how many there will be
STATE = "state"
"""The key of a state that has only one part."""


class Frame:
    """An algorithm by the verbs of Machin.

    States are dicts of arrays or tensors with a leading axis, ``{"state": …}`` or one entry for each part of a dict
    observation; ``action_mask`` in them says what may be done. Actions come back as tensors with that axis.
    """

    algorithm_name: ClassVar[str] = ""

    def __init__(self, plan: Plan, parts: Parts | None = None) -> None:
        self.plan = plan
        self.parts = parts or prepare_parts(plan)
        self.seed = plan.seed
        self.exploring = True
        self.env_step = 0
        self.progress = 0.0
        self.train_iter = 0
        self.algorithm: Any = None
        self.buffer: ReplayBuffer | None = None
        self.schedule: Any = None
        self._clock = 0.0
        self._stored: list[list[dict[str, Any]]] = []  # episodes as lists of steps
        self._ou: Any = np.zeros(0)  # where Ornstein-Uhlenbeck noise stands
        self._rng = np.random.default_rng([plan.seed, 4])
        self._learn_rng = np.random.default_rng([plan.seed, 3])

    @classmethod
    def generate_config(cls, config: Mapping[str, Any] | None = None) -> Config:
        """The config with this algorithm's settings; what it has already stays."""
        config = generate_algorithm_config(cls.algorithm_name, config)
        config.pop("gpus")
        return config

    @classmethod
    def init_from_config(
        cls, config: Mapping[str, Any], observation_space: Any = None, action_space: Any = None
    ) -> Frame:
        """A frame from a config with ``frame`` and ``frame_config``; without spaces `build` makes it whole later."""
        plan = check_config({"env": "openai_gym", **config})
        if cls.algorithm_name and plan.algorithm != algorithm_key(cls.algorithm_name):
            raise UsageError(f"the config is of {config['frame']}, not of {cls.algorithm_name}")
        frame = frame_class(plan.algorithm)(plan)
        if observation_space is not None and action_space is not None:
            frame.build(observation_space, action_space)
        return frame

    def build(self, observation_space: Any, action_space: Any) -> None:
        """Make the algorithm for these spaces."""
        kind, _ = find_algorithm(self.plan.algorithm)
        self.algorithm = kind(observation_space, action_space, self.parts.settings, self.parts.model, self.seed)
        self.schedule = equip(self.algorithm, self.parts)
        probe(self.algorithm, observation_space)
        spec = self.algorithm.data
        if spec.unit == "candidate" or spec.source == "dataset" or getattr(self.algorithm, "joint", False):
            raise UsageError(
                f"{self.plan.launch.frame} does not learn from episodes that somebody else plays; it trains in "
                "environments (openai_gym) and by `operant train`"
            )
        if spec.source == "replay":
            self.buffer = make_buffer(self.algorithm, self.parts, 1)

    # -- acting ------------------------------------------------------------------------------------------------------
    def act(self, state: Mapping[str, Any], **kwargs: Any) -> Any:
        """The best action; of a policy that is sampled a sampled one, with log-probability and entropy.

        Such an action may lie beyond the bounds of the space: `to_env` puts it inside.
        """
        if self.sampled:
            out = self._act(state, self.exploring, **kwargs).extras
            keys = [key for key in ("action", "log_prob", "entropy") if key in out]
            return tuple(torch.as_tensor(np.asarray(out[key])) for key in keys)
        return torch.as_tensor(self._act(state, False, **kwargs).action)

    def act_with_noise(
        self,
        state: Mapping[str, Any],
        noise_param: Any = None,
        ratio: float = 1.0,
        mode: str = "uniform",
        **kwargs: Any,
    ) -> torch.Tensor:
        """An action as the algorithm explores, or a continuous one with noise of these parameters times ``ratio``.

        `noise_param`, in the units of the environment, by `mode`: ``uniform`` (low, high), ``normal`` (mean,
        deviation), ``clipped_normal`` (mean, deviation, low, high), or a list of these with one for each action;
        ``ou`` a dict of mu, sigma, theta and dt.
        """
        if noise_param is None:
            out = self._act(state, self.exploring, **kwargs)
            return torch.as_tensor(np.asarray(out.extras["action"] if self.sampled else out.action))
        if self.sampled or self._algorithm().actions.discrete:
            raise UsageError(f"noise_param is for continuous actions from replay, not for {self.plan.launch.frame}")
        best = np.asarray(self._act(state, False, **kwargs).action)
        if not self.exploring:
            return torch.as_tensor(best)
        if isinstance(ratio, bool) or not isinstance(ratio, (int, float)) or not math.isfinite(ratio):
            raise UsageError(f"ratio is {ratio!r}; it is a finite number that noise is multiplied by")
        noise = self._noise(mode, noise_param, best.shape)
        if not np.isfinite(noise).all():
            raise UsageError(f"noise_param is {noise_param!r}, which makes noise that is not finite")
        return torch.as_tensor(self._algorithm().actions.to_env(best + np.asarray(ratio * noise, best.dtype)))

    def _noise(self, mode: str, param: Any, shape: tuple[int, ...]) -> Any:
        try:
            if mode != "ou" and np.ndim(param) == 2:
                if len(param) != shape[-1]:
                    raise UsageError(f"noise_param has {len(param)} entries, but there are {shape[-1]} actions")
                param = np.asarray(param, float).T
            if mode == "uniform":
                low, high = param
                return self._rng.uniform(low, high, shape)
            if mode == "normal":
                mean, deviation = param
                return self._rng.normal(mean, deviation, shape)
            if mode == "clipped_normal":
                mean, deviation, low, high = param
                return np.clip(self._rng.normal(mean, deviation, shape), low, high)
            if mode == "ou":
                told = {"mu": 0.0, "sigma": 1.0, "theta": 0.15, "dt": 0.01, **param}
                before = self._ou if self._ou.shape == shape else np.zeros(shape)
                back = told["theta"] * (told["mu"] - before) * told["dt"]
                self._ou = before + back + told["sigma"] * np.sqrt(told["dt"]) * self._rng.standard_normal(shape)
                return self._ou
        except UsageError:
            raise
        except (TypeError, ValueError, OverflowError):
            raise UsageError(f"noise_param is {param!r}, which is no noise of the mode {mode!r}") from None
        raise UsageError(f"mode is uniform, normal, clipped_normal or ou; got {mode!r}")

    @property
    def sampled(self) -> bool:
        """Whether `act` samples and gives action, log-probability and entropy, as algorithms without replay do."""
        return bool(self._algorithm().data.on_policy)

    def act_discrete(self, state: Mapping[str, Any], **kwargs: Any) -> torch.Tensor:
        """The best of several actions, as a column."""
        return self._column(self._act_by_share(state, False, **kwargs))

    def act_discrete_with_noise(self, state: Mapping[str, Any], **kwargs: Any) -> torch.Tensor:
        """One of several actions, with exploration, as a column; ``epsilon=0.1`` sets the share of random ones."""
        return self._column(self._act_by_share(state, self.exploring, **kwargs))

    def to_env(self, action: Any) -> Any:
        """Actions as environments take them, inside the bounds of their space."""
        return self._algorithm().actions.to_env(np.asarray(action))

    @contextmanager
    def without_noise(self) -> Iterator[None]:
        """Let every verb give the best action, for evaluations."""
        self.exploring = False
        try:
            yield
        finally:
            self.exploring = True

    def _act(self, state: Mapping[str, Any], explore: bool, **kwargs: Any) -> ActOut:
        raw, mask = self._observed(state)
        if "state" in self._algorithm().data.fields:
            raise UsageError(
                "frames have no memory from one act to the next: train policies with memory by `operant train`"
            )
        wrong = sorted(kwargs.keys() - {"epsilon"})
        if wrong or (kwargs and self.sampled):
            noisy = not (self.sampled or self._algorithm().actions.discrete)
            takes = "noise_param, ratio, mode and epsilon are" if noisy else "epsilon is"
            takes = "a policy that is sampled takes none" if self.sampled else takes
            raise UsageError(f"act_kwargs {wrong or sorted(kwargs)} are not understood: {takes}")
        out: ActOut = self._algorithm().act(raw, mask=mask, explore=explore, rng=self._rng, **kwargs)
        return out

    def _act_by_share(self, state: Mapping[str, Any], explore: bool, **kwargs: Any) -> torch.Tensor:
        if self.sampled:
            raise UsageError(f"{self.plan.launch.frame} acts by `act`, which gives action, log-probability and entropy")
        return torch.as_tensor(self._act(state, explore, **kwargs).action)

    def _observed(self, state: Mapping[str, Any]) -> tuple[Any, Any]:
        if not isinstance(state, Mapping):
            raise UsageError(f"a state is a dict such as {{'state': observations}}, got {type(state).__name__}")
        values = {key: np.asarray(value) for key, value in state.items()}
        mask = values.pop(MASK_KEY, None)
        raw = values[STATE] if values.keys() == {STATE} else values
        return raw, None if mask is None else mask.astype(bool)

    def _algorithm(self) -> Any:
        if self.algorithm is None:
            raise UsageError(
                "this frame has no spaces yet: set observation_space and action_space on the dataset, or call build"
            )
        return self.algorithm

    @staticmethod
    def _column(action: torch.Tensor) -> torch.Tensor:
        return action[:, None] if action.ndim == 1 else action

    # -- learning ----------------------------------------------------------------------------------------------------
    def store_episode(self, episode: list[dict[str, Any]]) -> None:
        """Keep the transitions of one episode to learn from."""
        steps = steps_of(episode, self._algorithm().adapter, self.algorithm.actions)
        self.env_step += len(steps)
        if not self.sampled:
            steps = [{**step, "action": self.algorithm.from_env(step["action"])} for step in steps]
        if self.buffer is None:
            self._stored.append(steps)
            return
        for step in steps:
            add_step(self.buffer, step)
        if not self.ready:
            self._clock = float(self.env_step)
            self._tell_progress(self.env_step)

    @property
    def ready(self) -> bool:
        """Whether enough is stored for an update."""
        spec = self._algorithm().data
        if self.buffer is not None:
            return bool(self.env_step >= spec.starts and len(self.buffer) > 0)
        if spec.unit == "episode":
            return bool(len(self._stored) >= spec.count)
        return bool(self._stored_steps >= max(2, spec.count))

    @property
    def _stored_steps(self) -> int:
        return sum(len(steps) for steps in self._stored)

    def update(self, **_unused: bool) -> dict[str, float]:
        """One update: a gradient step from replay, or all epochs over what was stored since the last one.

        Without anything new to learn from nothing happens, so calling it once too often does no harm.
        """
        if _unused:
            known = ("update_value", "update_policy", "update_target", "concatenate_samples")
            wrong = [key for key, value in _unused.items() if key not in known or not value]
            if wrong:
                raise UsageError(f"update always updates everything; it takes no {', '.join(wrong)}")
        algorithm = self._algorithm()
        if self.buffer is not None:
            return self._update_from_replay(self.buffer)
        if self._stored_steps < 2:
            return {}
        self._tell_progress(self.env_step)
        episodes, self._stored = self._stored, []
        metrics, _ = algorithm.learn(batch_of(episodes, algorithm.data.unit))
        self.train_iter += 1
        return dict(metrics)

    def _update_from_replay(self, buffer: ReplayBuffer) -> dict[str, float]:
        if not len(buffer):
            return {}
        # Episodes come whole, but schedules and the target network go by steps: each update stands for its share.
        self._clock = min(float(self.env_step), self._clock + self.steps_per_update)
        self._tell_progress(int(self._clock))
        self.train_iter += 1
        return learn_from_replay(self.algorithm, buffer, self._learn_rng)

    @property
    def steps_per_update(self) -> float:
        """Environment steps that one update from replay stands for."""
        spec = self.algorithm.data
        return float(spec.every / spec.updates) if spec.updates else 1.0

    def _tell_progress(self, step: int) -> None:
        total = round(self.env_step / self.progress) if self.progress > 0 else _FAR
        self.algorithm.set_progress(step, total)

    def update_lr_scheduler(self, total_reward: float = 0.0) -> None:
        """Another epoch has ended, for `lr_scheduler`."""
        if self.schedule is not None:
            self.schedule.step(total_reward)

    # -- saving ------------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        return {
            "algorithm": self._algorithm().state_dict(),
            "env_step": self.env_step,
            "train_iter": self.train_iter,
            "clock": self._clock,
            "ou": self._ou,
            "rng": self._rng.bit_generator.state,
            "learn_rng": self._learn_rng.bit_generator.state,
            "rollout": [_row(step) for steps in self._stored for step in steps],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._algorithm().load_state_dict(state["algorithm"])
        self.env_step = int(state["env_step"])
        self.train_iter = int(state["train_iter"])
        self._clock = float(state["clock"])
        self._ou = np.asarray(state.get("ou", self._ou))
        self._rng.bit_generator.state = state["rng"]
        self._learn_rng.bit_generator.state = state["learn_rng"]
        self._stored = _episodes([_batched(row) for row in state["rollout"]])


def frame_class(name: str) -> type[Frame]:
    """The frame of an algorithm: ``frame_class("DQN").generate_config()``."""
    key = algorithm_key(name)
    return type(key.upper(), (Frame,), {"algorithm_name": key.upper(), "__module__": __name__})


def make_buffer(algorithm: Algorithm, parts: Parts, num_envs: int) -> ReplayBuffer:
    """The replay that the algorithm describes, or the user's own."""
    own = parts.buffer
    if not isinstance(own, ReplayBuffer):
        return make_replay(algorithm.data, num_envs, own or ReplayBuffer)
    if own.num_envs != num_envs:
        raise UsageError(f"frame_config.replay_buffer is for {own.num_envs} environments, but there are {num_envs}")
    return own


def __getattr__(name: str) -> type[Frame]:
    # `from operant.auto.frames import DQN`: one for each algorithm, also those that come later.
    if name.lower() in ALGORITHMS and name.isupper():
        return frame_class(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _batched(value: Any) -> Any:
    """The inverse of `_row`; a checkpoint keeps single numbers as Python's."""
    if isinstance(value, dict):
        return {key: _batched(part) for key, part in value.items()}
    return np.asarray(value, np.float32 if isinstance(value, float) else None)[None]


def _row(step: dict[str, Any]) -> Any:
    """A step as checkpoints keep it: without the axis of the one environment."""
    return tree_map(lambda leaf: leaf[0], step)


def _episodes(steps: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Steps of whole episodes, cut where one ended."""
    ends = [number + 1 for number, step in enumerate(steps) if step["terminated"][0] or step["truncated"][0]]
    return [steps[first:end] for first, end in zip([0, *ends], ends, strict=False)]
