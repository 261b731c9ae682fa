"""Q networks as functions on arrays, fused where their structure allows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from operant.algorithms.contracts import Array
from operant.models.builders import DuelingQNetwork, QNetwork
from operant.models.flat import FlatParameters
from operant.models.fused import FusedMLP, is_fusable
from operant.models.modes import NetworkModes
from operant.models.noisy import Noise, draw_noise, noisy_layers
from operant.models.observations import ObservationAdapter, to_array, to_tensors


def can_fuse(network: QNetwork | DuelingQNetwork, adapter: ObservationAdapter) -> bool:
    """Whether a network has a form with closed-form gradients."""
    return network.encoder is None and adapter.is_flat and all(is_fusable(chain) for chain in _chains(network))


def _chains(network: QNetwork | DuelingQNetwork) -> list[nn.Module]:
    return [network.q] if isinstance(network, QNetwork) else [network.trunk, network.value, network.advantage]


class QFunction:
    """Action values of one network: for acting, for targets, and forward and backward for learning.

    Of a network with noisy layers there may be several, each with noise of its own; without noise it is the means.
    """

    def __init__(
        self,
        network: QNetwork | DuelingQNetwork,
        flat: FlatParameters,
        fused: bool,
        modes: NetworkModes,
        noisy: bool = False,
    ) -> None:
        self._network = network
        self._device = flat.device
        self._modes = modes
        self._noisy = noisy_layers(network)
        self._noise: list[Noise] | None = None
        self._wants_noise = noisy and bool(self._noisy)
        self._parts: list[FusedMLP] = []
        if fused and flat.on_cpu:
            chains = [chain for chain in _chains(network) if isinstance(chain, nn.Sequential)]
            self._parts = [FusedMLP(chain, flat, self._wants_noise) for chain in chains]

    @property
    def fused(self) -> bool:
        return bool(self._parts)

    @property
    def path(self) -> str:
        return "fused (closed-form gradients)" if self.fused else "torch (autograd)"

    def draw_noise(self, rng: np.random.Generator) -> None:
        """New noise, on the weights as they are now; without noisy layers nothing."""
        if not self._wants_noise:
            return
        self._noise = draw_noise(self._noisy, rng)
        fused = [layer for part in self._parts for layer in part.noisy]
        for layer, noise in zip(fused, self._noise, strict=False):
            layer.set_noise(noise)

    def values(self, obs: Any, slot: int = 1) -> Array:
        """Q of adapted observations, without gradient."""
        if self._parts:
            return self.forward(obs, slot)
        with torch.no_grad(), self._modes.acting():
            return to_array(self.tensors(obs))

    def evaluate(self, obs: Any) -> tuple[Array, Callable[[Array], None]]:
        """Values of adapted observations, and what takes the gradient by them back into the network; the gradients of
        a network without a fused form are added to those at hand."""
        if self._parts:
            return self.forward(obs), self.backward
        out = self.tensors(obs)
        return to_array(out), lambda grad: out.backward(to_tensors(grad, self._device))  # type: ignore[no-untyped-call]

    def tensors(self, obs: Any) -> torch.Tensor:
        """Q of adapted observations, with autograd."""
        for number, layer in enumerate(self._noisy):
            layer.noise = None if self._noise is None else self._noise[number]
        out: torch.Tensor = self._network(to_tensors(obs, self._device))
        return out

    def forward(self, obs: Array, slot: int = 0) -> Array:
        if len(self._parts) == 1:
            return self._parts[0].forward(obs, slot)
        trunk, value, advantage = self._parts
        features = trunk.forward(obs, slot)
        advantages = self._by_action(advantage.forward(features, slot))
        centred = advantages - advantages.mean(axis=1, keepdims=True)
        return np.asarray(centred + value.forward(features, slot)[:, None]).reshape(len(obs), -1)

    def backward(self, grad: Array) -> None:
        """Gradients from that of Q. Dueling: ∂V = Σ ∂Q, ∂A = ∂Q − mean ∂Q."""
        if len(self._parts) == 1:
            self._parts[0].backward(grad)
            return
        trunk, value, advantage = self._parts
        by_action = self._by_action(grad)
        through_value = value.backward(by_action.sum(axis=1), need_input=True)
        centred = by_action - by_action.mean(axis=1, keepdims=True)
        through_advantage = advantage.backward(centred.reshape(grad.shape), need_input=True)
        assert through_value is not None and through_advantage is not None
        trunk.backward(through_value + through_advantage)

    def _by_action(self, columns: Array) -> Array:
        """[B, A, atoms]."""
        assert isinstance(self._network, DuelingQNetwork)
        return columns.reshape(len(columns), -1, self._network.atoms)
