"""One of our configs as an RLlib training in this process, its new stack; runs in the peers' environment.

Settings come in SB3's words (see `_sb3.sb3_settings`). RLlib's PPO has no falling clip range, so its stays.
"""

from __future__ import annotations

import os
from typing import Any

__all__ = ["Trainer"]


class Trainer:
    """A training with the environments and the learner in this process: no worker processes, one thread."""

    def __init__(self, settings: dict[str, Any], seed: int) -> None:
        import logging
        import warnings

        warnings.filterwarnings("ignore")
        os.environ |= {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_AUTH_MODE": "disabled"}
        import ray
        import torch

        torch.set_num_threads(1)
        logging.getLogger("ray").setLevel(logging.ERROR)
        ray.init(
            num_cpus=1,
            include_dashboard=False,
            _node_ip_address="127.0.0.2",
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
        self._settings, self._seed = settings, seed
        self._algo = (self._dqn() if settings["algorithm"] == "dqn" else self._ppo()).build_algo()
        self._steps = 0

    def _common(self, config: Any) -> Any:
        from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

        model, env = self._settings["model"], self._settings["env"]
        start = {}
        if self._settings["algorithm"] != "dqn" and model["orthogonal"]:
            start = {"fcnet_kernel_initializer": "orthogonal_", "fcnet_kernel_initializer_kwargs": {"gain": 2**0.5}}
        return (
            config.environment(env["id"])
            .env_runners(num_env_runners=0, num_envs_per_env_runner=env["num_envs"])
            .learners(num_learners=0)
            .rl_module(
                model_config=DefaultModelConfig(
                    fcnet_hiddens=list(model["hidden"]),
                    fcnet_activation=model["activation"],
                    vf_share_layers=model.get("shared", False),
                    **start,
                )
            )
            .debugging(seed=self._seed, log_level="ERROR")
            .reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=0)
        )

    def _rate(self) -> Any:
        rate = self._settings["arguments"]["learning_rate"]
        falling = "learning_rate" in self._settings["falling"]
        return [[0, rate], [self._settings["total_steps"], 0.0]] if falling else rate

    def _ppo(self) -> Any:
        from ray.rllib.algorithms.ppo import PPOConfig

        given = self._settings["arguments"]
        kl = given.get("kl", False)
        return (
            self._common(PPOConfig())
            .env_runners(rollout_fragment_length=given["n_steps"])
            .training(
                train_batch_size_per_learner=given["n_steps"] * self._settings["env"]["num_envs"],
                minibatch_size=given["batch_size"],
                num_epochs=given["n_epochs"],
                gamma=given["gamma"],
                lambda_=given["gae_lambda"],
                lr=self._rate(),
                clip_param=given["clip_range"],
                entropy_coeff=given["ent_coef"],
                vf_loss_coeff=given["vf_coef"],
                vf_clip_param=given.get("vf_clip", float("inf")),
                use_kl_loss=kl,
                kl_coeff=0.2 if kl else 0.0,
                grad_clip=given["max_grad_norm"],
                grad_clip_by="global_norm",
            )
        )

    def _dqn(self) -> Any:
        from ray.rllib.algorithms.dqn import DQNConfig

        given = self._settings["arguments"]
        updates = given["gradient_steps"] if given["gradient_steps"] > 0 else given["train_freq"]
        falls = int(self._settings["total_steps"] * given["exploration_fraction"])
        return (
            self._common(DQNConfig())
            .env_runners(rollout_fragment_length=given["train_freq"])
            .training(
                train_batch_size_per_learner=given["batch_size"],
                training_intensity=updates * given["batch_size"] / given["train_freq"],
                gamma=given["gamma"],
                lr=given["learning_rate"],
                replay_buffer_config={"type": "EpisodeReplayBuffer", "capacity": given["buffer_size"]},
                num_steps_sampled_before_learning_starts=given["learning_starts"],
                target_network_update_freq=given["target_update_interval"],
                epsilon=[[0, given["exploration_initial_eps"]], [falls, given["exploration_final_eps"]]],
                double_q=False,
                dueling=False,
                n_step=1,
                grad_clip=given["max_grad_norm"],
                grad_clip_by="global_norm",
            )
        )

    @property
    def steps(self) -> int:
        return self._steps

    def learn(self, until: int) -> None:
        while self._steps < until:
            result = self._algo.train()
            self._steps = int(result["num_env_steps_sampled_lifetime"])

    def judge(self, episodes: int) -> float:
        """The mean return of greedy episodes."""
        import gymnasium as gym
        import numpy as np
        import torch

        module = self._algo.get_module()
        name = self._settings["env"]["id"]
        envs = gym.make_vec(name, num_envs=min(20, episodes), vectorization_mode="sync")
        obs, _ = envs.reset(seed=1_000_000 + self._seed)
        wanted = -(-episodes // envs.num_envs)
        returns: list[list[float]] = [[] for _ in range(envs.num_envs)]
        running = np.zeros(envs.num_envs)
        fresh = np.zeros(envs.num_envs, bool)  # a step that only resets gives no reward
        while min(map(len, returns)) < wanted:
            with torch.no_grad():
                out = module.forward_inference({"obs": torch.as_tensor(obs, dtype=torch.float32)})
            action = out["actions"] if "actions" in out else out["action_dist_inputs"].argmax(dim=1)
            obs, reward, terminated, truncated, _ = envs.step(action.numpy())
            running += np.where(fresh, 0.0, reward)
            fresh = terminated | truncated
            for row in np.flatnonzero(fresh):
                returns[row].append(float(running[row]))
                running[row] = 0.0
        envs.close()
        return float(np.mean([value for one in returns for value in one[:wanted]]))

    def close(self) -> None:
        import ray

        self._algo.stop()
        ray.shutdown()
