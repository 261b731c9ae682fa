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
        ("cartpole-dqn", "exploration_end=1.5", "algorithm.exploration_end is 1.5; it must lie between 0 and 1"),
        ("pendulum-sac", "target_rate=0", "algorithm.target_rate lies above 0 and up to 1, got 0.0"),
        ("pendulum-td3", "updates=-1", "algorithm.updates is -1; it must be at least 0"),
        ("cartpole-es", "learning_rate=-0.1", "algorithm.learning_rate is -0.1; it must be at least 0"),
        ("pendulum-bc", "gamma=-1", "algorithm.gamma is -1.0; it must lie between 0 and 1"),
    ],
)
def test_what_means_nothing_is_refused(preset, given, sentence):
    with pytest.raises(UsageError, match=f"^{sentence}$"):
        load_config(preset, [f"algorithm.{given}"])
