"""Layers whose weights carry noise of a learned size (Fortunato et al. 2018, arXiv 1706.10295): a way to explore."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

Array = npt.NDArray[np.float32]
Noise = tuple[Array, Array]
"""Of one layer: a number for each output and for each input; the noise of a weight is the product of its two."""


class NoisyLinear(nn.Linear):
    """Equation 9: y = (μʷ + σʷ ⊙ εʷ) x + μᵇ + σᵇ ⊙ εᵇ, with factorised noise. Without noise it is y = μʷ x + μᵇ.

    :param std: σ₀ of the paper; the deviation of each weight starts at σ₀/√inputs.
    """

    def __init__(self, inputs: int, outputs: int, std: float) -> None:
        super().__init__(inputs, outputs)
        start = std / math.sqrt(inputs)
        self.weight_std = nn.Parameter(torch.full((outputs, inputs), start))
        self.bias_std = nn.Parameter(torch.full((outputs,), start))
        self.noise: Noise | None = None

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        if self.noise is None:
            return super().forward(features)
        rows, columns = (torch.as_tensor(one, device=self.weight.device) for one in self.noise)
        weight = self.weight + self.weight_std * torch.outer(rows, columns)
        return nn.functional.linear(features, weight, self.bias + self.bias_std * rows)


def noisy_layers(network: nn.Module) -> list[NoisyLinear]:
    return [layer for layer in network.modules() if isinstance(layer, NoisyLinear)]


def draw_noise(layers: Sequence[NoisyLinear], rng: np.random.Generator) -> list[Noise]:
    """f(ε) = sgn(ε) √|ε| of normal numbers (equation 10 and 11)."""
    noises = []
    for layer in layers:
        drawn = rng.standard_normal(layer.out_features + layer.in_features, dtype=np.float32)
        scaled = np.copysign(np.sqrt(np.abs(drawn)), drawn)
        noises.append((scaled[: layer.out_features], scaled[layer.out_features :]))
    return noises
