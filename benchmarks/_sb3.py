"""One of our configs as a Stable-Baselines3 model. Runs in the peers' environment, so it knows nothing of Operant."""

from __future__ import annotations

from typing import Any

__all__ = ["make_model", "make_vector_env"]


def make_vector_env(config: dict[str, Any], num_envs: int, seed: int, training: bool) -> Any:
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    env = config["env"]
    made = make_vec_env(env["id"], n_envs=num_envs, seed=seed, env_kwargs=env["arguments"] or None)
    if env["normalize_obs"] or env["normalize_reward"]:
        made = VecNormalize(
            made,
            training=training,
            norm_obs=env["normalize_obs"],
            norm_reward=env["normalize_reward"] and training,
            gamma=config["algorithm"]["gamma"],
        )
    return made


def make_model(config: dict[str, Any], seed: int) -> Any:
    """The same algorithm with the same settings; networks, optimizers and schedules included."""
    import stable_baselines3 as sb3
    import torch
    from torch import nn

    torch.set_num_threads(1)
    ours = config["algorithm"]
    model = config["model"]
    policy = {
        "net_arch": list(model["hidden"]),
        "activation_fn": {"tanh": nn.Tanh, "relu": nn.ReLU}[model["activation"]],
    }
    env = make_vector_env(config, config["env"]["num_envs"], seed, training=True)
    common = {"seed": seed, "device": "cpu", "verbose": 0, "gamma": ours["gamma"]}
    rate = _falling(ours["learning_rate"], ours.get("anneal_learning_rate", False))
    if ours["name"] == "dqn":
        return sb3.DQN(
            "MlpPolicy",
            env,
            learning_rate=rate,
            batch_size=ours["batch"],
            buffer_size=ours["buffer"],
            learning_starts=ours["learning_starts"],
            target_update_interval=ours["target_every"],
            train_freq=ours["train_every"],
            gradient_steps=ours["updates"] or -1,
            exploration_initial_eps=ours["exploration_start"],
            exploration_fraction=ours["exploration_fraction"],
            exploration_final_eps=ours["exploration_end"],
            max_grad_norm=ours["max_gradient_norm"],
            policy_kwargs=policy,
            **common,
        )
    policy |= {"ortho_init": model["orthogonal"]}
    if hasattr(env.action_space, "low"):
        policy["log_std_init"] = model["log_std"]
    shared = {
        "n_steps": ours["rollout"],
        "gae_lambda": ours["gae_lambda"],
        "ent_coef": ours["entropy_weight"],
        "vf_coef": ours["value_weight"],
        "max_grad_norm": ours["max_gradient_norm"],
        "learning_rate": rate,
        "normalize_advantage": ours["normalize_advantage"],
        "policy_kwargs": policy,
    }
    if ours["name"] == "a2c":
        return sb3.A2C("MlpPolicy", env, use_rms_prop=ours["optimizer"] == "rmsprop", **shared, **common)
    return sb3.PPO(
        "MlpPolicy",
        env,
        batch_size=ours["minibatch"],
        n_epochs=ours["epochs"],
        clip_range=_falling(ours["clip"], ours["anneal_clip"]),
        **shared,
        **common,
    )


def _falling(value: float, anneal: bool) -> Any:
    return (lambda left: left * value) if anneal else value
