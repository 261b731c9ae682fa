"""simple_spread by BenchMARL (on TorchRL) with its own settings; runs in an environment of its own.

Its IPPO is PPO with one policy for all agents; its MADDPG takes continuous actions alone.
"""

from __future__ import annotations

import copy
import tempfile
from functools import partial
from typing import Any

import numpy as np
import torch
from benchmarl.algorithms import IppoConfig, MaddpgConfig
from benchmarl.environments.pettingzoo.common import PettingZooClass
from benchmarl.experiment import Callback, Experiment, ExperimentConfig
from benchmarl.models import MlpConfig
from mpe2 import simple_spread_v3
from tensordict import TensorDict
from torchrl.envs import ExplorationType, PettingZooWrapper, set_exploration_type

__all__ = ["train"]


class _Spread(PettingZooClass):
    """Its task, with the environments of mpe2: those that it names itself are gone from PettingZoo."""

    def get_env_fun(self, num_envs: int, continuous_actions: bool, seed: int | None, device: Any) -> Any:
        return lambda: PettingZooWrapper(
            env=simple_spread_v3.parallel_env(continuous_actions=continuous_actions, **self.config),
            categorical_actions=True,
            return_state=True,
            seed=seed,
            device=device,
        )


class _Judge(Callback):  # type: ignore[misc]
    """Greedy episodes after every round, and the weights that did best."""

    def __init__(self, judge: Any) -> None:
        super().__init__()
        self._judge = judge
        self.means: list[float] = []
        self.best: dict[str, Any] = {}

    def on_train_end(self, training_td: Any, group: str) -> None:
        self.means.append(self._judge(self.experiment.policy))
        if self.means[-1] > max(self.means[:-1], default=-float("inf")):  # the first of equals, as ours
            self.best = copy.deepcopy(self.experiment.policy.state_dict())


def train(settings: dict[str, Any], seed: int, episodes: tuple[int, int], seeds: tuple[int, int]) -> dict[str, Any]:
    """`episodes` and `seeds` of the evaluations on the way, and of the last ones."""
    torch.set_num_threads(1)
    arguments = {"max_cycles": 25, **settings["env"]["arguments"]}
    continuous = bool(arguments.pop("continuous_actions", False))
    config = ExperimentConfig.get_from_yaml()
    config.max_n_frames = settings["total_steps"]
    config.prefer_continuous_actions = continuous
    config.evaluation, config.render, config.loggers, config.create_json = False, False, [], False

    on_the_way, at_the_end = (
        partial(judged, episodes=count, seed=first, continuous=continuous, arguments=arguments)
        for count, first in zip(episodes, seeds, strict=True)
    )
    judge = _Judge(on_the_way)
    with tempfile.TemporaryDirectory() as folder:
        config.save_folder = folder
        kind = {"ppo": IppoConfig, "maddpg": MaddpgConfig}[settings["algorithm"]]
        experiment = Experiment(
            task=_Spread("SIMPLE_SPREAD", arguments),
            algorithm_config=kind.get_from_yaml(),
            model_config=MlpConfig.get_from_yaml(),
            critic_model_config=MlpConfig.get_from_yaml(),
            seed=seed,
            config=config,
            callbacks=[judge],
        )
        experiment.run()
    last = at_the_end(experiment.policy)
    experiment.policy.load_state_dict(judge.best)
    best = at_the_end(experiment.policy)
    return {"best": best, "last": last, "steps": experiment.total_frames, "curve": judge.means}


def judged(policy: Any, episodes: int, seed: int, continuous: bool, arguments: dict[str, Any]) -> float:
    """The mean return of greedy episodes, the sum over agents."""
    envs = [simple_spread_v3.parallel_env(continuous_actions=continuous, **arguments) for _ in range(episodes)]
    seen = [env.reset(seed=seed + i)[0] for i, env in enumerate(envs)]
    names = list(seen[0])
    total = 0.0
    with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
        while envs[0].agents:  # all episodes have the same length
            obs = torch.as_tensor(np.stack([[one[name] for name in names] for one in seen]), dtype=torch.float32)
            inputs = TensorDict({"agent": TensorDict({"observation": obs}, obs.shape[:2])}, obs.shape[:1])
            actions = policy(inputs)["agent", "action"].numpy()
            seen = []
            for env, chosen in zip(envs, actions, strict=True):
                step = env.step(
                    {name: one if continuous else int(one) for name, one in zip(names, chosen, strict=True)}
                )
                seen.append(step[0])
                total += sum(step[1].values())
    return total / episodes
