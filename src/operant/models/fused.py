"""Plain networks without autograd: forward and backward in closed form, on the memory of the module itself.

Which library does which part was measured (one core, batches of 40 to 256): numpy's tanh is six times faster than
torch's, torch's relu and its larger products are faster than numpy's, thin products (a side below 32) are faster in
numpy, and a row of ones times the gradient is the fastest way to sum it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from operant.models.flat import FlatParameters

__all__ = ["FusedMLP", "is_fusable"]

Array = npt.NDArray[Any]
_ACTIVATIONS: dict[type[nn.Module], str] = {nn.Tanh: "tanh", nn.ReLU: "relu"}
_THIN = 32


def is_fusable(module: nn.Module | None) -> bool:
    """Whether a module is a chain of Linear and Tanh or ReLU layers in float32 on the CPU that nobody hooks into."""
    if type(module) is not nn.Sequential or len(module) == 0 or type(module[0]) is not nn.Linear or _is_hooked(module):
        return False
    was_linear = False
    for layer in module:
        linear = type(layer) is nn.Linear
        if _is_hooked(layer) or layer.__dict__.get("forward") is not None:
            return False
        if not linear and (type(layer) not in _ACTIVATIONS or not was_linear):
            return False
        was_linear = linear
    parameters = list(module.parameters())
    whole = len(parameters) == 2 * sum(type(layer) is nn.Linear for layer in module)  # no shared layers, all biased
    return whole and all(p.dtype == torch.float32 and p.device.type == "cpu" and p.requires_grad for p in parameters)


def _is_hooked(module: nn.Module) -> bool:
    # Spectral norm, pruning and profilers all live in one of these.
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "_parametrizations")
    return any(bool(getattr(module, name, None)) for name in hooks) or bool(getattr(module, "parametrizations", None))


class _Layer:
    """One Linear and what follows it: its memory, seen by numpy and by torch."""

    def __init__(
        self, weight: Array, bias: Array, weight_grad: Array, bias_grad: Array, activation: str | None
    ) -> None:
        self.weight, self.bias, self.weight_grad, self.bias_grad = weight, bias, weight_grad, bias_grad
        self.weight_t = weight.T
        self.activation = activation
        self.outputs, self.inputs = weight.shape
        self.thin = min(weight.shape) < _THIN
        self.torch_weight = torch.from_numpy(weight)
        self.torch_weight_t = self.torch_weight.t()
        self.torch_bias = torch.from_numpy(bias)


class _Space:
    """Room for the values between layers, for one batch size."""

    def __init__(self, layers: list[_Layer], rows: int, dtype: Any) -> None:
        self.ones = np.ones(rows, dtype)
        self.values = [np.empty((rows, layer.outputs), dtype) for layer in layers]
        self.torch_values = [torch.from_numpy(value) for value in self.values]
        self.slopes = [np.empty((rows, layer.outputs), dtype) for layer in layers]
        self.torch_slopes = [torch.from_numpy(slope) for slope in self.slopes]
        self.input_slope = np.empty((rows, layers[0].inputs), dtype)
        self.work = [np.empty((rows, layer.outputs), dtype) for layer in layers]
        self.input: Array = self.input_slope


class FusedMLP:
    """A fusable `nn.Sequential` on its flat parameters.

    What `forward` and `backward` return is memory of this object: it holds until the next call with the same number
    of rows and the same `slot`. `backward` writes (does not add) the gradients of the layers.
    """

    def __init__(self, module: nn.Sequential, flat: FlatParameters) -> None:
        self._layers: list[_Layer] = []
        parts = list(module)
        for number, part in enumerate(parts):
            if isinstance(part, nn.Linear):
                follower = parts[number + 1] if number + 1 < len(parts) else None
                weight, weight_grad = flat.views(part.weight)
                bias, bias_grad = flat.views(part.bias)
                activation = None if follower is None else _ACTIVATIONS.get(type(follower))
                self._layers.append(_Layer(weight, bias, weight_grad, bias_grad, activation))
        self._dtype = flat.array.dtype
        self._spaces: dict[tuple[int, int], _Space] = {}

    def _space(self, rows: int, slot: int) -> _Space:
        space = self._spaces.get((rows, slot))
        if space is None:
            space = self._spaces[rows, slot] = _Space(self._layers, rows, self._dtype)
        return space

    def forward(self, inputs: Array, slot: int = 0) -> Array:
        rows = len(inputs)
        space = self._space(rows, slot)
        space.input = value = inputs
        torch_value: torch.Tensor | None = None
        for number, layer in enumerate(self._layers):
            out = space.values[number]
            if layer.thin or torch_value is None:
                np.matmul(value, layer.weight_t, out=out)
                np.add(out, layer.bias, out=out)
            else:
                torch.addmm(layer.torch_bias, torch_value, layer.torch_weight_t, out=space.torch_values[number])
            torch_value = space.torch_values[number]
            if layer.activation == "tanh":
                np.tanh(out, out=out)
            elif layer.activation == "relu":
                torch.relu_(torch_value)
            value = out
        return value

    def backward(self, slope: Array, slot: int = 0, need_input: bool = False) -> Array | None:
        """Gradients of all layers from the gradient of the output, after a `forward` with the same rows and slot."""
        space = self._space(len(slope), slot)
        torch_slope: torch.Tensor | None = None
        for number in range(len(self._layers) - 1, -1, -1):
            layer = self._layers[number]
            slope = self._through_activation(layer, space, number, slope)
            before = space.values[number - 1] if number else space.input
            np.matmul(slope.T, before, out=layer.weight_grad)
            np.matmul(space.ones, slope, out=layer.bias_grad)
            if number:
                out = space.slopes[number - 1]
                if layer.thin or torch_slope is None:
                    np.matmul(slope, layer.weight, out=out)
                else:
                    torch.mm(torch_slope, layer.torch_weight, out=space.torch_slopes[number - 1])
                slope, torch_slope = out, space.torch_slopes[number - 1]
            elif need_input:
                np.matmul(slope, layer.weight, out=space.input_slope)
                return space.input_slope
        return None

    @staticmethod
    def _through_activation(layer: _Layer, space: _Space, number: int, slope: Array) -> Array:
        if layer.activation is None:
            return slope
        value = space.values[number]
        if layer.activation == "tanh":
            work = space.work[number]
            np.multiply(value, value, out=work)
            np.subtract(1.0, work, out=work)
            return np.multiply(slope, work, out=space.slopes[number])
        torch.ops.aten.threshold_backward.grad_input(
            torch.from_numpy(slope), space.torch_values[number], 0, grad_input=space.torch_slopes[number]
        )
        return space.slopes[number]
