"""Networks, losses and others that configs of the tests name."""

from __future__ import annotations

import torch
from torch import nn

from operant.data import ReplayBuffer


class QNet(nn.Module):
    def __init__(self, inputs=4, outputs=2, width=16):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, outputs))

    def forward(self, state):
        return self.layers(state)


class Actor(QNet):
    pass


class Critic(QNet):
    def __init__(self, inputs=4, width=16):
        super().__init__(inputs, 1, width)


class TupleActor(Actor):
    def forward(self, state):
        logits = self.layers(state)
        return logits.argmax(dim=1), logits, logits


class CubicLoss(nn.Module):
    def forward(self, prediction, target):
        return (prediction - target).abs().pow(3)


class CountingBuffer(ReplayBuffer):
    added = 0

    def add(self, *args, **kwargs):
        type(self).added += 1
        super().add(*args, **kwargs)


class Plain(torch.optim.SGD):
    """An optimizer of one's own."""
