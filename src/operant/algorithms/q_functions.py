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
from operant.models.observations import ObservationAdapter, to_array, to_tensors


def can_fuse(network: QNetwork | DuelingQNetwork, adapter: ObservationAdapter) -> bool:
    """Whether a network has a form with closed-form gradients."""
    return network.encoder is None and adapter.is_flat and all(is_fusable(chain) for chain in _chains(network))


def _chains(network: QNetwork | DuelingQNetwork) -> list[nn.Module]:
    return [network.q] if isinstance(network, QNetwork) else [network.trunk, network.value, network.advantage]


class QFunction:
    """Action values of one network: for acting, for targets, and forward and backward for learning."""

    def __init__(
        self, network: QNetwork | DuelingQNetwork, flat: FlatParameters, fused: bool, modes: NetworkModes
    ) -> None:
        self._network = network
        self._device = flat.device
        self._modes = modes
        self._parts: list[FusedMLP] = []
        if fused and flat.on_cpu:
            self._parts = [FusedMLP(chain, flat) for chain in _chains(network) if isinstance(chain, nn.Sequential)]

    @property
    def fused(self) -> bool:
        return bool(self._parts)

    @property
    def path(self) -> str:
        return "fused (closed-form gradients)" if self.fused else "torch (autograd)"

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
        out: torch.Tensor = self._network(to_tensors(obs, self._device))
        return out

    def forward(self, obs: Array, slot: int = 0) -> Array:
        if len(self._parts) == 1:
            return self._parts[0].forward(obs, slot)
        trunk, value, advantage = self._parts
        features = trunk.forward(obs, slot)
        advantages = advantage.forward(features, slot)
        centred = advantages - advantages.mean(axis=1, keepdims=True)
        return np.asarray(centred + value.forward(features, slot))

    def backward(self, grad: Array) -> None:
        """Gradients from that of Q. Dueling: ∂V = Σ ∂Q, ∂A = ∂Q − mean ∂Q."""
        if len(self._parts) == 1:
            self._parts[0].backward(grad)
            return
        trunk, value, advantage = self._parts
        through_value = value.backward(grad.sum(axis=1, keepdims=True), need_input=True)
        centred = grad - grad.mean(axis=1, keepdims=True)
        through_advantage = advantage.backward(centred, need_input=True)
        assert through_value is not None and through_advantage is not None
        trunk.backward(through_value + through_advantage)
