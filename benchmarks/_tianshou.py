"""One of our configs as a Tianshou 2 training on one environment kind with choices; runs in the peers' environment.

Settings come in SB3's words (see `_sb3.sb3_settings`). Tianshou's PPO has no falling clip range, so its stays. Its C51
and Rainbow do not limit the norm of a gradient and choose the next action by the network that learns (`double`); one
mistake of theirs is mended here (`NSteps`).
"""

from __future__ import annotations

from typing import Any

__all__ = ["Trainer"]


class Trainer:
    """A training by Tianshou's own trainer, in parts of one update at a time; no logger, no progress bar, no tests."""

    def __init__(self, settings: dict[str, Any], seed: int) -> None:
        import gymnasium as gym
        import numpy as np
        import torch
        from tianshou.env import DummyVectorEnv

        torch.set_num_threads(1)
        np.random.seed(seed)
        torch.manual_seed(seed)
        self._settings, self._arguments = settings, settings["arguments"]
        self._seed = seed
        self._rows = settings["env"]["num_envs"]
        name = settings["env"]["id"]
        self._example = gym.make(name)
        self._envs = DummyVectorEnv([lambda: gym.make(name) for _ in range(self._rows)])
        self._envs.seed(seed)
        self._judge_envs = DummyVectorEnv([lambda: gym.make(name) for _ in range(20)])
        self._judge_envs.seed(1_000_000 + seed)
        makers = {"ppo": self._ppo, "dqn": self._dqn, "c51": self._distributional, "rainbow": self._distributional}
        self._trainer = makers[settings["algorithm"]]()
        self._trainer.reset()

    def _net(self, **kwargs: Any) -> Any:
        from tianshou.utils.net.common import Net
        from torch import nn

        model = self._settings["model"]
        activation = {"tanh": nn.Tanh, "relu": nn.ReLU}[model["activation"]]
        shape = self._example.observation_space.shape
        return Net(state_shape=shape, hidden_sizes=list(model["hidden"]), activation=activation, **kwargs)

    def _ppo(self) -> Any:
        import math

        import torch
        from tianshou.algorithm import PPO
        from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
        from tianshou.algorithm.optim import AdamOptimizerFactory, LRSchedulerFactoryLinear
        from tianshou.data import Collector, CollectStats, VectorReplayBuffer
        from tianshou.trainer import OnPolicyTrainerParams
        from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic

        given = self._arguments
        actions = int(self._example.action_space.n)
        actor = DiscreteActor(preprocess_net=self._net(), action_shape=actions, softmax_output=False)
        critic = DiscreteCritic(preprocess_net=self._net())
        if self._settings["model"]["orthogonal"]:
            for module, last in ((actor, 0.01), (critic, 1.0)):
                layers = [part for part in module.modules() if isinstance(part, torch.nn.Linear)]
                for layer in layers:
                    torch.nn.init.orthogonal_(layer.weight, last if layer is layers[-1] else math.sqrt(2))
                    torch.nn.init.zeros_(layer.bias)
        rollout = given["n_steps"] * self._rows
        optim = AdamOptimizerFactory(lr=given["learning_rate"], eps=1e-5)
        if "learning_rate" in self._settings["falling"]:
            optim = optim.with_lr_scheduler_factory(LRSchedulerFactoryLinear(1, self._settings["total_steps"], rollout))
        self._algorithm = PPO(
            policy=DiscreteActorPolicy(actor=actor, action_space=self._example.action_space, deterministic_eval=True),
            critic=critic,
            optim=optim,
            eps_clip=given["clip_range"],
            advantage_normalization=given["normalize_advantage"],
            vf_coef=given["vf_coef"],
            ent_coef=given["ent_coef"],
            max_grad_norm=given["max_grad_norm"],
            gae_lambda=given["gae_lambda"],
            gamma=given["gamma"],
        )
        collector = Collector[CollectStats](
            self._algorithm, self._envs, VectorReplayBuffer(rollout + self._rows, self._rows)
        )
        return self._algorithm.create_trainer(
            OnPolicyTrainerParams(
                training_collector=collector,
                max_epochs=1_000_000,
                epoch_num_steps=rollout,
                collection_step_num_env_steps=rollout,
                batch_size=given["batch_size"],
                update_step_num_repetitions=given["n_epochs"],
                verbose=False,
                show_progress=False,
            )
        )

    def _dqn(self) -> Any:
        from tianshou.algorithm import DQN
        from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
        from tianshou.algorithm.optim import AdamOptimizerFactory

        given = self._arguments
        policy = DiscreteQLearningPolicy(
            model=self._net(action_shape=int(self._example.action_space.n)), action_space=self._example.action_space
        )
        self._algorithm = DQN(
            policy=policy,
            optim=AdamOptimizerFactory(lr=given["learning_rate"]),
            gamma=given["gamma"],
            target_update_freq=self._copies(),
            is_double=False,
            huber_loss_delta=1.0,
        )
        return self._off_policy(policy)

    def _distributional(self) -> Any:
        from tianshou.algorithm import C51, RainbowDQN
        from tianshou.algorithm.modelfree.c51 import C51Policy
        from tianshou.algorithm.optim import AdamOptimizerFactory
        from tianshou.utils.net.discrete import NoisyLinear

        given, rainbow = self._arguments, self._settings["algorithm"] == "rainbow"
        network = {"action_shape": int(self._example.action_space.n), "softmax": True, "num_atoms": given["atoms"]}
        if rainbow:
            noisy = {"linear_layer": lambda x, y: NoisyLinear(x, y, given["noisy_std"])}
            network["dueling_param"] = (noisy, noisy)
        policy = C51Policy(
            model=self._net(**network),
            action_space=self._example.action_space,
            num_atoms=given["atoms"],
            v_min=given["value_min"],
            v_max=given["value_max"],
        )

        class NSteps(RainbowDQN if rainbow else C51):  # type: ignore[misc]
            """Bootstraps from where the n steps end: 2.0.1 adds n rewards, then takes the value one step on."""

            def _target_q(self, buffer: Any, indices: Any) -> Any:
                self._after = buffer[indices].obs_next
                return super()._target_q(buffer, indices)

            def _target_dist(self, batch: Any) -> Any:
                batch.obs_next = self._after
                return super()._target_dist(batch)

        self._algorithm = NSteps(
            policy=policy,
            optim=AdamOptimizerFactory(lr=given["learning_rate"]),
            gamma=given["gamma"],
            n_step_return_horizon=given["n_step"],
            target_update_freq=self._copies(),
        )
        return self._off_policy(policy)

    @property
    def _updates(self) -> int:
        given = self._arguments
        return int(given["gradient_steps"] if given["gradient_steps"] > 0 else given["train_freq"])

    def _copies(self) -> int:
        """SB3 copies to the target network every so many environment steps, Tianshou every so many updates."""
        return max(1, self._arguments["target_update_interval"] // self._arguments["train_freq"]) * self._updates

    def _off_policy(self, policy: Any) -> Any:
        from tianshou.data import Collector, CollectStats, PrioritizedVectorReplayBuffer, VectorReplayBuffer
        from tianshou.trainer import OffPolicyTrainerParams

        given, total = self._arguments, self._settings["total_steps"]
        beta = given.get("priority_beta")
        if beta is None:
            buffer = VectorReplayBuffer(given["buffer_size"], self._rows)
        else:
            buffer = PrioritizedVectorReplayBuffer(
                given["buffer_size"], self._rows, alpha=given["priority_alpha"], beta=beta, weight_norm=True
            )
        collector = Collector[CollectStats](self._algorithm, self._envs, buffer, exploration_noise=True)
        start, end = given["exploration_initial_eps"], given["exploration_final_eps"]

        def schedule(epoch: int, step: int) -> None:
            share = min(1.0, step / total / given["exploration_fraction"])
            policy.set_eps_training(start + share * (end - start))
            if beta is not None:
                buffer.set_beta(beta + min(1.0, step / total) * (1.0 - beta))

        return self._algorithm.create_trainer(
            OffPolicyTrainerParams(
                training_collector=collector,
                max_epochs=1_000_000,
                epoch_num_steps=given["train_freq"],
                collection_step_num_env_steps=given["train_freq"],
                batch_size=given["batch_size"],
                update_step_num_gradient_steps_per_sample=self._updates / given["train_freq"],
                training_fn=schedule,
                verbose=False,
                show_progress=False,
            )
        )

    @property
    def steps(self) -> int:
        return int(self._trainer._env_step) + self._before

    _before = 0

    def learn(self, until: int) -> None:
        starts = self._arguments.get("learning_starts", 0)
        if starts and not self._before:
            self._trainer.params.training_collector.collect(n_step=starts, random=True)
            self._before = starts
        while self.steps < until:
            self._trainer.execute_epoch()

    def judge(self, episodes: int, seed: int | None = None) -> float:
        """The mean return of greedy episodes, from the starts of a seed if one is given."""
        from tianshou.data import Collector, CollectStats

        if seed is not None:
            self._judge_envs.seed(seed)
        collector = Collector[CollectStats](self._algorithm, self._judge_envs)
        collector.reset()
        return float(collector.collect(n_episode=episodes).returns.mean())

    def weights(self) -> dict[str, Any]:
        return {name: value.clone() for name, value in self._algorithm.policy.state_dict().items()}

    def load_weights(self, weights: dict[str, Any]) -> None:
        self._algorithm.policy.load_state_dict(weights)
