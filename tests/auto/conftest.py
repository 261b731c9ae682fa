from __future__ import annotations

import pytest

pytest.importorskip("lightning")


@pytest.fixture
def make_config(tmp_path):
    """A small launch on CartPole without films; keyword arguments change `frame_config` or, by their name, the rest."""
    from operant.auto import generate_algorithm_config, generate_env_config, generate_training_config

    def make(algorithm="DQN", frame_config=None, train=None, test=None, **others):
        small = {"model": {"hidden": [16]}}
        small |= {"rollout": 16} if algorithm in ("PPO", "A2C") else {"batch_size": 16}
        if "models" in (frame_config or {}):
            small.pop("model")
        config = generate_algorithm_config(algorithm, {"frame_config": {**small, **(frame_config or {})}})
        config["train_env_config"] = {"render_every_episode": None, **(train or {})}
        config["test_env_config"] = {"render_every_episode": None, "episodes": 2, **(test or {})}
        config = generate_env_config("openai_gym", config)
        config = generate_training_config(str(tmp_path / "trial"), 3, 9, config, early_stopping_patience=None)
        return {**config, "gpus": None, **others}

    return make
