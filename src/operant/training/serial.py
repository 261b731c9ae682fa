"""The objects of a hand-written loop: policy with its three modes, learner, sample collector, evaluator, buffer.

They take DI-engine's configs and constructor arguments, so a loop written for it runs; behind them are the same
algorithm, environments and replay as everywhere.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from operant._util.files import write_file
from operant.algorithms import Algorithm, find_algorithm
from operant.data import PrioritizedReplayBuffer, ReplayBuffer
from operant.data.batches import add_step, rollout_batch, sample_batch
from operant.envs import make_env
from operant.envs.vector import VectorEnv
from operant.errors import UsageError
from operant.tracking import SummaryWriter
from operant.training.arithmetic import use_one_thread
from operant.training.checkpoints import write_weights
from operant.training.collecting import Collector
from operant.training.config import TrainConfig
from operant.training.dialects import from_di_engine
from operant.training.evaluating import evaluate
from operant.training.running import train
from operant.training.targets import read_target
from operant.training.training import Observer, TrainResult


def make_envs(
    main_config: Mapping[str, Any], create_config: Mapping[str, Any], seed: int = 0
) -> tuple[VectorEnv, VectorEnv]:
    """The environments to collect in and those to evaluate in."""
    config = TrainConfig.from_mapping(from_di_engine(main_config, create_config))
    rows = config.evaluation.num_envs or config.evaluation.episodes
    collecting = make_env(config.env.id, config.env.num_envs, seed=seed, **config.env.arguments)
    evaluating = make_env(config.env.id, rows, seed=seed + config.evaluation.seed, **config.env.arguments)
    return collecting, evaluating


class _Mode:
    """One side of a policy, with the attributes that loops ask for."""

    def __init__(self, policy: SerialPolicy) -> None:
        self.policy = policy
        self.algorithm = policy.algorithm

    def get_attribute(self, name: str) -> Any:
        try:
            return self.policy.attributes[name]
        except KeyError:
            known = ", ".join(sorted(self.policy.attributes))
            raise UsageError(f"the policy has no attribute {name!r}; it has {known}") from None

    def state_dict(self) -> dict[str, Any]:
        return self.algorithm.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.algorithm.load_state_dict(state)


class SerialPolicy:
    """The algorithm of a config with the three modes of a DI-engine policy, each of which gives and takes weights."""

    def __init__(
        self, main_config: Mapping[str, Any], create_config: Mapping[str, Any], env: VectorEnv, seed: int = 0
    ) -> None:
        use_one_thread()
        config = TrainConfig.from_mapping(from_di_engine(main_config, create_config))
        self.config = config
        kind, _ = find_algorithm(config.algorithm["name"])
        self.algorithm: Algorithm = kind(
            env.single_observation_space, env.single_action_space, config.algorithm_settings, config.model, seed
        )
        spec = self.algorithm.data
        self.attributes = {
            "batch_size": spec.batch,
            "learning_rate": getattr(config.algorithm_settings, "learning_rate", None),
            "n_sample": spec.count * env.num_envs if spec.on_policy else spec.every,
            "discount_factor": spec.gamma,
            "cuda": self.algorithm.device.startswith("cuda"),
            "device": self.algorithm.device,
        }
        self.learn_mode = _Mode(self)
        self.collect_mode = _Mode(self)
        self.eval_mode = _Mode(self)


DQNPolicy = SerialPolicy
"""DI-engine's name for it."""


class BaseLearner:
    """Counts training iterations, records what was learned, saves."""

    def __init__(
        self, cfg: Mapping[str, Any] | None, policy: _Mode, tb_logger: SummaryWriter, exp_name: str = "run"
    ) -> None:
        self.policy = policy
        self.exp_name = exp_name
        self.train_iter = 0
        self._writer = tb_logger
        self._every = int((cfg or {}).get("log_show_freq", 100))
        self.priorities: tuple[Any, Any, Any] | None = None

    def train(self, data: Any, envstep: int = -1) -> dict[str, float]:
        """One update: from a batch of the replay buffer, or of an on-policy algorithm from what was collected."""
        self.policy.algorithm.measure = self.train_iter % self._every == 0
        if envstep >= 0:
            self.policy.algorithm.set_progress(envstep, max(envstep, self.policy.policy.config.total_steps))
        if self.policy.algorithm.data.on_policy:
            data = rollout_batch(data)
        metrics, sizes = self.policy.algorithm.learn(data)
        if sizes is not None:
            self.priorities = (data["index"], sizes, data["generation"])
        if metrics:
            self._writer.add_scalars({f"learner/{key}": value for key, value in metrics.items()}, self.train_iter)
        self.train_iter += 1
        return metrics

    def save_checkpoint(self, name: str = "last") -> Path:
        """Write the weights beside the run; returns the file."""
        path = self._writer.run_dir / "checkpoints" / f"{name}.safetensors"
        about = {"train_iter": self.train_iter, "config": self.policy.policy.config.to_mapping()}
        write_weights(path, self.policy.algorithm.weights(), about)
        return path


class SampleCollector:
    """Steps the environments with exploration; what it collects is a list of steps of all of them."""

    def __init__(
        self,
        cfg: Mapping[str, Any] | None,
        env: VectorEnv,
        policy: _Mode,
        tb_logger: SummaryWriter,
        exp_name: str = "run",
        seed: int = 0,
    ) -> None:
        self.exp_name = exp_name
        self._policy = policy
        self._writer = tb_logger
        self._n_sample = int((cfg or {}).get("n_sample") or policy.get_attribute("n_sample"))
        self._collector = Collector(env, policy.algorithm, rng=np.random.default_rng([seed, 7]))
        self._collector.reset(seed)

    @property
    def envstep(self) -> int:
        """Environment steps so far."""
        return self._collector.env_step

    def collect(
        self, n_sample: int | None = None, train_iter: int = 0, policy_kwargs: Mapping[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """At least `n_sample` transitions; ``policy_kwargs={'eps': …}`` is a share of random actions, by default 0."""
        sampled = self._policy.algorithm.data.on_policy
        epsilon = (policy_kwargs or {}).get("eps", None if sampled else 0.0)
        rows, before = self._collector.env.num_envs, self._collector.episodes.count
        steps = max(1, -(-(n_sample or self._n_sample) // rows))
        trajectory = self._collector.trajectory(steps, epsilon=epsilon)
        ended = self._collector.episodes.count - before
        if ended:
            latest = list(self._collector.episodes.returns)[-ended:]
            self._writer.add_scalar("collector/return", float(np.mean(latest)), self.envstep)
        return trajectory


class AdvancedReplayBuffer:
    """Replay for a hand-written loop: `push` what was collected, `sample` a batch or None while there is too little."""

    def __init__(
        self,
        cfg: Mapping[str, Any] | None,
        tb_logger: SummaryWriter | None = None,
        exp_name: str = "run",
        *,
        n_step: int = 1,
        gamma: float = 0.99,
        seed: int = 0,
    ) -> None:
        self._cfg = dict(cfg or {})
        self.exp_name = exp_name
        self._sizes = {"n_step": n_step, "gamma": gamma}
        self._rng = np.random.default_rng([seed, 8])
        self._buffer: ReplayBuffer | None = None

    def push(self, data: list[dict[str, Any]], cur_collector_envstep: int = -1) -> None:
        for step in data:
            if self._buffer is None:
                kind = PrioritizedReplayBuffer if self._cfg.get("priority") else ReplayBuffer
                capacity = int(self._cfg.get("replay_buffer_size", 10_000))
                self._buffer = kind(capacity, len(step["reward"]), **self._sizes)  # type: ignore[arg-type]
            add_step(self._buffer, step)

    def sample(self, size: int, cur_learner_iter: int = 0) -> dict[str, Any] | None:
        if self._buffer is None or len(self._buffer) < size:
            return None
        return sample_batch(self._buffer, size, self._rng, beta=float(self._cfg.get("beta", 0.4)))

    def update(self, priorities: tuple[Any, Any, Any]) -> None:
        """New priorities: what `learner.priorities` holds after a `train`."""
        if self._buffer is not None:
            self._buffer.update_priorities(*priorities)

    def count(self) -> int:
        return 0 if self._buffer is None else len(self._buffer)


class BaseSerialEvaluator:
    """Evaluates the policy every `eval_freq` training iterations."""

    def __init__(
        self,
        cfg: Mapping[str, Any] | None,
        env: VectorEnv,
        policy: _Mode,
        tb_logger: SummaryWriter,
        exp_name: str = "run",
        seed: int = 1_000_000,
    ) -> None:
        settings = policy.policy.config.evaluation
        given = cfg or {}
        self.exp_name = exp_name
        self._every = int(given.get("eval_freq", 1000))
        self._episodes = int(given.get("n_episode", settings.episodes))
        self._stop = float(given.get("stop_value", math.inf if settings.stop_value is None else settings.stop_value))
        self._env = env
        self._policy = policy
        self._writer = tb_logger
        self._seed = seed
        self._last = -1
        self._best = -math.inf

    def should_eval(self, train_iter: int) -> bool:
        """True once for each `eval_freq` iterations, and at the first call."""
        if self._last < 0:
            return True
        return train_iter - self._last >= self._every

    def eval(
        self, save_ckpt_fn: Callable[..., Any] | None = None, train_iter: int = -1, envstep: int = -1
    ) -> tuple[bool, float]:
        """Whether the stop value is reached, and the mean return; a best one is saved by `save_ckpt_fn`."""
        self._last = max(0, train_iter)
        mean = evaluate(self._policy.algorithm, self._env, self._episodes, self._seed).mean
        self._writer.add_scalar("evaluation/return", mean, max(0, envstep))
        if mean > self._best:
            self._best = mean
            if save_ckpt_fn is not None:
                save_ckpt_fn("best")
        return mean >= self._stop, mean


def serial_pipeline(
    input_cfg: tuple[Mapping[str, Any], Mapping[str, Any]] | str | Path,
    seed: int = 0,
    max_env_step: int = 1_000_000,
    *,
    observer: Observer | None = None,
    root: str | Path | None = None,
) -> TrainResult:
    """Train as ``(main_config, create_config)``, or a file that defines both, says: until ``stop_value`` or the end.

    Where ``main_config`` has an ``exp_name``, what came of it is left in ``<exp_name>/result.pkl`` too, as DI-engine
    does: that is where a search over config files looks for it.

    >>> serial_pipeline((main_config, create_config), seed=0).best_return
    """
    if isinstance(input_cfg, (str, Path)):
        names = read_target(str(input_cfg))
        input_cfg = (names["main_config"], names["create_config"])
    main, create = input_cfg
    values = from_di_engine(main, create)
    values |= {"seed": seed, "total_steps": max_env_step, "log": {"every": 1000}, "checkpoint": {"every": 20_000}}
    result = train(TrainConfig.from_mapping(values), observer=observer, root=root)
    if "exp_name" in main:
        _leave_result(Path(main["exp_name"]), result, main.get("env", {}).get("stop_value"))
    return result


def _leave_result(folder: Path, result: TrainResult, stop_value: float | None) -> None:
    """Plain numbers under DI-engine's names; the file appears whole."""
    found = {
        "stop": stop_value is not None and result.best_return >= stop_value,
        "env_step": result.steps,
        "train_iter": result.train_iter,
        "eval_value": result.final_return,
        "best_eval_value": result.best_return,
        "seconds": result.seconds,
    }
    write_file(folder / "result.pkl", pickle.dumps(found))
