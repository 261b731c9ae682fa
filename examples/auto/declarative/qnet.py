"""The network that config.json names: `operant auto launch --config config.json` in this folder trains it."""

import torch
from torch import nn


class QNet(nn.Module):
    """Values of CartPole's two actions."""

    def __init__(self, state_dim: int = 4, action_num: int = 2, width: int = 64) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(state_dim, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, action_num)
        )

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        values: torch.Tensor = self.layers(state)
        return values
