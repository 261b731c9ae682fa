"""A launch from Python: three calls make the config, one trains. Settings that are given always win over defaults."""

import torch
from torch import nn

from operant.auto import generate_algorithm_config, generate_env_config, generate_training_config, launch


class QNet(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(4, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2)
        )

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        return self.layers(state)


def main() -> float:
    config = generate_algorithm_config("DQN")
    config["frame_config"] |= {
        "models": ["QNet", "QNet"],  # a name in this module; the class itself, or "__main__.QNet", would do too
        "learning_rate": 1e-3,
        "batch_size": 64,
        "update_rate": 0.01,
        "update_steps": None,
        "epsilon_decay": 0.999,
        "lr_scheduler": "StepLR",  # one step for each epoch
        "lr_scheduler_kwargs": {"step_size": 10, "gamma": 0.5},
    }
    config = generate_env_config("openai_gym", config)
    config = generate_training_config(
        root_dir="trial", episode_per_epoch=20, max_episodes=300, config=config, early_stopping_patience=10
    )
    config["stop_reward"] = 195
    result = launch(config, say=print)
    print(f"best total reward {result.best_reward:.1f} after {result.episodes} episodes: {result.checkpoint}")
    return result.best_reward


if __name__ == "__main__":
    main()
