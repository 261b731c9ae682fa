"""Settings that mean nothing are told in one sentence."""

from __future__ import annotations

import pytest

from operant.errors import UsageError
from operant.training import load_config


@pytest.mark.parametrize(
    ("preset", "given", "sentence"),
    [
        ("cartpole-ppo", "learning_rate=-1", "algorithm.learning_rate is -1.0; it must be at least 0"),
        ("cartpole-ppo", "gamma=2", "algorithm.gamma is 2.0; it must lie between 0 and 1"),
        ("cartpole-ppo", "gae_lambda=.nan", "algorithm.gae_lambda is nan; it must lie between 0 and 1"),
        ("cartpole-dqn", "train_every=0", "algorithm.train_every is 0; it must be at least 1"),
        ("cartpole-dqn", "max_gradient_norm=0", r"algorithm.max_gradient_norm is 0, .* \.inf is no limit"),
        ("cartpole-dqn", "exploration_end=1.5", "algorithm.exploration_end is 1.5; it must lie between 0 and 1"),
        ("pendulum-sac", "buffer=1e30", r"algorithm.buffer is \d+; it must lie between 1 and 1099511627776"),
        ("pendulum-sac", "critics=1000000000", "algorithm.critics is 1000000000; it must lie between 1 and 1000"),
        ("pendulum-sac", "target_rate=0", "algorithm.target_rate lies above 0 and up to 1, got 0.0"),
        ("pendulum-td3", "updates=-1", "algorithm.updates is -1; it must be at least 0"),
        ("cartpole-es", "learning_rate=-0.1", "algorithm.learning_rate is -0.1; it must be at least 0"),
        ("pendulum-bc", "gamma=-1", "algorithm.gamma is -1.0; it must lie between 0 and 1"),
        ("pendulum-sac", "learning_rate=.inf", "algorithm.learning_rate is inf; it must be a finite number"),
        ("pendulum-sac", "temperature=.nan", "algorithm.temperature is nan; it must be a finite number above 0"),
        ("pendulum-sac", "temperature_rate=-1", "algorithm.temperature_rate is -1.0; it must be at least 0"),
        ("pendulum-sac", "target_entropy=.nan", "algorithm.target_entropy is nan; it must be a finite number"),
        ("pendulum-ddpg", "noise_scale=-0.1", "algorithm.noise_scale is -0.1; it must be at least 0"),
        ("pendulum-ddpg", "increase_rate=.nan", "algorithm.increase_rate is nan; it must be a finite number"),
        ("pendulum-ddpg", "decrease_rate=-1", "algorithm.decrease_rate is -1.0; it must be at least 0"),
        ("pendulum-td3", "smoothing=.inf", "algorithm.smoothing is inf; it must be a finite number"),
        ("pendulum-td3", "noise_limit=-1", "algorithm.noise_limit is -1.0; it must be at least 0"),
        ("pendulum-td3", "priority_alpha=.inf", "algorithm.priority_alpha is inf; it must be a finite number"),
        (
            "pendulum-sac",
            "optimizer=adma",
            r"algorithm.optimizer is adam or rmsprop; got 'adma' \(did you mean 'adam'\?\)",
        ),
        ("cartpole-ppo", "learning_rate=.inf", "algorithm.learning_rate is inf; it must be a finite number"),
        ("cartpole-ppo", "entropy_weight=.nan", "algorithm.entropy_weight is nan; it must be a finite number"),
        ("cartpole-ppo", "optimizer_eps=-1", "algorithm.optimizer_eps is -1.0; it must be at least 0"),
        ("cartpole-dqn", "target_every=-1", "algorithm.target_every is -1; it must be at least 0"),
        ("cartpole-dqn", "exploration_steps=-1", "algorithm.exploration_steps is -1; it must be at least 0"),
        ("cartpole-rainbow", "noisy_std=.nan", "algorithm.noisy_std is nan; it must be a finite number"),
        ("cartpole-c51", "value_max=.inf", "algorithm.value_max is inf; it must be a finite number"),
        ("cartpole-trpo", "max_kl=.nan", "algorithm.max_kl is nan; it must be a finite number"),
        ("cartpole-trpo", "damping=-1", "algorithm.damping is -1.0; it must be at least 0"),
        ("cartpole-trpo", "value_epochs=-1", "algorithm.value_epochs is -1; it must be at least 0"),
        ("pendulum-gail", "discriminator_rate=-1", "algorithm.discriminator_rate is -1.0; it must be at least 0"),
        ("simple-spread-maddpg", "noise_scale=-1", "algorithm.noise_scale is -1.0; it must be at least 0"),
        ("simple-spread-maddpg", "logit_weight=.nan", "algorithm.logit_weight is nan; it must be a finite number"),
        ("cartpole-es", "noise=.nan", "algorithm.directions is at least 1, algorithm.noise a finite number above 0"),
    ],
)
def test_what_means_nothing_is_refused(preset, given, sentence):
    with pytest.raises(UsageError, match=f"^{sentence}$"):
        load_config(preset, [f"algorithm.{given}"])


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("hidden=[64,0]", r"model.hidden is \[64, 0\]; each layer has at least 1 unit"),
        ("log_std=.nan", "model.log_std is nan; it must be a finite number"),
        ("state_noise_steps=-1", "model.state_noise_steps is -1; it must be at least 0"),
    ],
)
def test_networks_that_cannot_be_are_refused(given, sentence):
    with pytest.raises(UsageError, match=f"^{sentence}$"):
        load_config("pendulum-sac", [f"model.{given}"])


@pytest.mark.parametrize(
    ("preset", "given"),
    [
        ("cartpole-ppo", "max_gradient_norm=.inf"),
        ("cartpole-ppo", "entropy_weight=-0.01"),
        ("cartpole-ppo", "clip=.inf"),
        ("cartpole-dqn", "exploration_decay=.inf"),
        ("cartpole-trpo", "value_epochs=0"),
        ("cartpole-c51", "value_min=-500"),
    ],
)
def test_what_means_something_is_taken(preset, given):
    load_config(preset, [f"algorithm.{given}"])
