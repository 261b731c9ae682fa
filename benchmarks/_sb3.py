"""One of our configs as a model of Stable-Baselines3, or of SBX, which has its interface on JAX.

Runs in the peers' environment, so it knows nothing of Operant.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

__all__ = [
    "CONTINUOUS",
    "DISTRIBUTIONAL",
    "NOT_THERE",
    "Trainer",
    "fingerprint",
    "make_model",
    "make_vector_env",
    "sb3_settings",
]

CONTINUOUS = ("ddpg", "td3", "sac")
DISTRIBUTIONAL = ("c51", "rainbow")
"""What SB3 has not and Tianshou has: SB3's words for DQN, and ours for what DQN has not."""
NOT_THERE = ("maddpg", "impala", "appo", "a3c", "apex_dqn", "apex_ddpg", "ars", "es")
"""What neither has, or what is run by workers here; our own settings then stand for their words."""
_CAME_LATER = {"minibatch": 0, "v_trace": True}
"""Settings of ours that were not there when rows were measured, as they were then: these rows still stand."""
POSITIONS = {
    "operant.envs.positions:CartPolePositions": ("CartPole-v1", [0, 2]),
    "operant.envs.positions:PendulumPositions": ("Pendulum-v1", [0, 1]),
    "operant.envs.positions:MountainCarContinuousPositions": ("MountainCarContinuous-v0", [0]),
}
"""Tasks without velocities: Gymnasium's, and what is told of its observations."""


def sb3_settings(config: dict[str, Any]) -> dict[str, Any]:
    """Our config in SB3's words, as plain values: everything that decides what SB3 does, and nothing else."""
    ours, model, env = config["algorithm"], config["model"], config["env"]
    common = {key: ours[key] for key in ("gamma", "learning_rate") if key in ours}
    if ours["name"] in NOT_THERE:
        common = {key: value for key, value in ours.items() if (key, value) not in _CAME_LATER.items()}
    elif ours["name"] not in (*CONTINUOUS, "trpo"):
        common["max_grad_norm"] = ours["max_gradient_norm"]
    if ours["name"] in NOT_THERE:
        own = {}
    elif ours["name"] in CONTINUOUS:
        own = _continuous(ours)
    elif ours["name"] == "trpo":
        own = _trpo(ours)
    elif ours["name"] in ("dqn", "qrdqn", *DISTRIBUTIONAL):
        own = {
            "batch_size": ours["batch"],
            "buffer_size": ours["buffer"],
            "learning_starts": ours["learning_starts"],
            "target_update_interval": ours["target_every"],
            "train_freq": ours["train_every"],
            "gradient_steps": ours["updates"] or -1,
            "exploration_initial_eps": ours["exploration_start"],
            "exploration_fraction": ours["exploration_fraction"],
            "exploration_final_eps": ours["exploration_end"],
        }
    else:
        own = {
            "n_steps": ours["rollout"],
            "gae_lambda": ours["gae_lambda"],
            "ent_coef": ours["entropy_weight"],
            "vf_coef": ours["value_weight"],
            "normalize_advantage": ours["normalize_advantage"],
        }
    if ours["name"] == "qrdqn":
        own["n_quantiles"] = ours["quantiles"]
    if ours["name"] in DISTRIBUTIONAL:
        own |= {name: ours[name] for name in ("n_step", "atoms", "value_min", "value_max")}
    if ours["name"] == "rainbow":
        own |= {name: ours[name] for name in ("priority_alpha", "priority_beta", "noisy_std")}
    if ours["name"] == "a2c":
        own["use_rms_prop"] = ours["optimizer"] == "rmsprop"
    if model["state_noise"]:
        own |= {"use_sde": True, "sde_sample_freq": model["state_noise_steps"] or -1}
    if ours["name"] == "ppo":
        own |= {"batch_size": ours["minibatch"], "n_epochs": ours["epochs"], "clip_range": ours["clip"]}
    return {
        "total_steps": config["total_steps"],
        "env": {key: env[key] for key in ("id", "arguments", "num_envs", "normalize_obs", "normalize_reward")},
        "algorithm": ours["name"],
        "arguments": common | own,
        "falling": sorted(
            name
            for name, key in (("learning_rate", "anneal_learning_rate"), ("clip_range", "anneal_clip"))
            if ours.get(key)
        ),
        "model": {key: model[key] for key in ("hidden", "activation", "orthogonal", "log_std", *_memory(model))},
    }


def _trpo(ours: dict[str, Any]) -> dict[str, Any]:
    return {
        "n_steps": ours["rollout"],
        "batch_size": ours["minibatch"],
        "gae_lambda": ours["gae_lambda"],
        "normalize_advantage": ours["normalize_advantage"],
        "cg_max_steps": ours["conjugate_steps"],
        "cg_damping": ours["damping"],
        "line_search_shrinking_factor": ours["line_search_shrink"],
        "line_search_max_iter": ours["line_search_steps"],
        "n_critic_updates": ours["value_epochs"],
        "target_kl": ours["max_kl"],
    }


def _memory(model: dict[str, Any]) -> tuple[str, ...]:
    return ("recurrent", "recurrent_size") if model["recurrent"] else ()


def _continuous(ours: dict[str, Any]) -> dict[str, Any]:
    """Settings of DDPG, TD3 and SAC; `make_model` makes `critics` and `noise_scale` into what SB3 wants."""
    own = {
        "buffer_size": ours["buffer"],
        "learning_starts": ours["learning_starts"],
        "batch_size": ours["batch"],
        "tau": ours["target_rate"],
        "train_freq": ours["train_every"],
        "gradient_steps": ours["updates"] or -1,
        "critics": ours["critics"],
    }
    if ours["name"] == "sac":
        learned = ours["learn_temperature"]
        own["ent_coef"] = f"auto_{ours['temperature']}" if learned else ours["temperature"]
        return own
    if ours["noise"] != "gaussian":
        raise SystemExit(f"SB3's noise is gaussian here, not {ours['noise']}")
    own["noise_scale"] = ours["noise_scale"]
    if ours["name"] == "td3":
        own |= {
            "policy_delay": ours["actor_every"],
            "target_policy_noise": ours["smoothing"],
            "target_noise_clip": ours["smoothing_limit"],
        }
    return own


def fingerprint(settings: dict[str, Any]) -> str:
    """A short name of these settings: other settings have another one."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]


def make_vector_env(settings: dict[str, Any], num_envs: int, seed: int, training: bool) -> Any:
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    env = settings["env"]
    name, columns = POSITIONS.get(env["id"], (env["id"], None))
    wrapper = None if columns is None else _telling(columns)
    made = make_vec_env(name, num_envs, seed, wrapper_class=wrapper, env_kwargs=env["arguments"] or None)
    if env["normalize_obs"] or env["normalize_reward"]:
        made = VecNormalize(
            made,
            training=training,
            norm_obs=env["normalize_obs"],
            norm_reward=env["normalize_reward"] and training,
            gamma=settings["arguments"]["gamma"],
        )
    return made


def make_model(settings: dict[str, Any], seed: int, library: str = "sb3") -> Any:
    """The same algorithm with the same settings; networks, optimizers and schedules included.

    :param library: sb3 or sbx.
    """
    model, algorithm = settings["model"], settings["algorithm"]
    arguments = dict(settings["arguments"])
    policy: dict[str, Any] = {"net_arch": list(model["hidden"])}
    env = make_vector_env(settings, settings["env"]["num_envs"], seed, training=True)
    if algorithm in CONTINUOUS:
        policy["n_critics"] = arguments.pop("critics")
        if scale := arguments.pop("noise_scale", 0.0):
            arguments["action_noise"] = _gaussian(scale, env.action_space.shape)
    elif algorithm == "trpo" and hasattr(env.action_space, "low"):
        for name in ("target_kl", "cg_damping"):  # its KL is the mean over an action's axes, not their sum
            arguments[name] /= env.action_space.shape[0]
    elif algorithm == "qrdqn":
        policy["n_quantiles"] = arguments.pop("n_quantiles")
    if algorithm not in (*CONTINUOUS, "dqn", "qrdqn"):
        policy |= {"ortho_init": model["orthogonal"]}
    if hasattr(env.action_space, "low") and (algorithm not in CONTINUOUS or arguments.get("use_sde")):
        policy["log_std_init"] = model["log_std"]
    for name in settings["falling"]:
        arguments[name] = _falling(arguments[name])
    if library == "sbx":
        import sbx as peer

        if model["activation"] != "relu":
            raise SystemExit("SBX is compared with networks of ReLU only")
    else:
        import stable_baselines3 as peer
        import torch
        from torch import nn

        torch.set_num_threads(1)
        policy["activation_fn"] = {"tanh": nn.Tanh, "relu": nn.ReLU}[model["activation"]]
        arguments["device"] = "cpu"
    if model.get("recurrent"):
        from sb3_contrib import RecurrentPPO

        if model["recurrent"] != "lstm":
            raise SystemExit("SB3-contrib's memory is an LSTM")
        policy["lstm_hidden_size"] = model["recurrent_size"]
        return RecurrentPPO("MlpLstmPolicy", env, policy_kwargs=policy, seed=seed, verbose=0, **arguments)
    if algorithm in ("qrdqn", "trpo"):
        import sb3_contrib as peer
    made = getattr(peer, algorithm.upper())
    return made("MlpPolicy", env, policy_kwargs=policy, seed=seed, verbose=0, **arguments)


def _telling(columns: list[int]) -> Any:
    """A wrapper that tells some numbers of each observation."""
    import gymnasium
    import numpy as np

    class Telling(gymnasium.ObservationWrapper):  # type: ignore[misc,type-arg]
        def __init__(self, env: Any) -> None:
            super().__init__(env)
            whole = env.observation_space
            self.observation_space = gymnasium.spaces.Box(whole.low[columns], whole.high[columns], dtype=np.float32)

        def observation(self, observation: Any) -> Any:
            return observation[columns]

    return Telling


def _gaussian(scale: float, shape: tuple[int, ...]) -> Any:
    import numpy as np
    from stable_baselines3.common.noise import NormalActionNoise

    return NormalActionNoise(np.zeros(shape), np.full(shape, scale))


def _falling(value: float) -> Any:
    return lambda left: left * value


class Trainer:
    """A training of SB3 that can be made in parts: its schedules are those of the whole."""

    def __init__(self, settings: dict[str, Any], seed: int) -> None:
        self._settings, self._seed = settings, seed
        self._total = settings["total_steps"]
        self._model = make_model(settings, seed)
        self._judge = make_vector_env(settings, 20, 1_000_000 + seed, training=False)
        _, self._callback = self._model._setup_learn(self._total, None, True, "run", False)

    @property
    def steps(self) -> int:
        return int(self._model.num_timesteps)

    def learn(self, until: int) -> None:
        """What `model.learn` does, up to so many steps; `learn` itself would measure its schedules by the part."""
        model = self._model
        while model.num_timesteps < until:
            if self._settings["algorithm"] in ("dqn", "qrdqn"):
                model.collect_rollouts(
                    model.env,
                    train_freq=model.train_freq,
                    callback=self._callback,
                    learning_starts=model.learning_starts,
                    replay_buffer=model.replay_buffer,
                    log_interval=4,
                )
                if model.num_timesteps > model.learning_starts:
                    updates = model.gradient_steps if model.gradient_steps >= 0 else model.train_freq.frequency
                    model.train(batch_size=model.batch_size, gradient_steps=updates)
            else:
                model.collect_rollouts(model.env, self._callback, model.rollout_buffer, n_rollout_steps=model.n_steps)
                model._update_current_progress_remaining(model.num_timesteps, self._total)
                model.train()

    def judge(self, episodes: int) -> float:
        """The mean return of greedy episodes."""
        import numpy as np
        from stable_baselines3.common.evaluation import evaluate_policy

        returns, _ = evaluate_policy(self._model, self._judge, episodes, return_episode_rewards=True)
        return float(np.mean(returns))
