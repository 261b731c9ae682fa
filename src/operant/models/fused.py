"""Plain networks without autograd: forward and backward in closed form, on the memory of the module itself.

Which library does which part was measured (one core, batches of 40 to 256): numpy's tanh is six times faster than
torch's, torch's relu, its larger products and what it does with a row or a column for a whole matrix are faster than
numpy's, thin products (a side below 32) and small ones are faster in numpy, and a row of ones times the gradient is the
fastest way to sum it.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from operant.models.flat import FlatParameters
from operant.models.noisy import Noise, NoisyLinear

Array = npt.NDArray[Any]
_ACTIVATIONS: dict[type[nn.Module], str] = {nn.Tanh: "tanh", nn.ReLU: "relu"}
_LINEAR = (nn.Linear, NoisyLinear)
_THIN = 32
_LARGE = 500_000


def is_fusable(module: nn.Module | None) -> bool:
    """Whether a module is a chain of Linear and Tanh or ReLU layers in float32 on the CPU that nobody hooks into."""
    if type(module) is not nn.Sequential or len(module) == 0 or type(module[0]) not in _LINEAR or _is_hooked(module):
        return False
    was_linear = False
    for layer in module:
        linear = type(layer) in _LINEAR
        if _is_hooked(layer) or layer.__dict__.get("forward") is not None:
            return False
        if not linear and (type(layer) not in _ACTIVATIONS or not was_linear):
            return False
        was_linear = linear
    parameters = list(module.parameters())
    wanted = sum(4 if type(layer) is NoisyLinear else 2 for layer in module if type(layer) in _LINEAR)
    whole = len(parameters) == wanted  # no shared layers, all biased
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


class _NoisyLayer(_Layer):
    """A Linear whose weights are put together from means, deviations and noise: see `operant.models.noisy`."""

    def __init__(self, part: NoisyLinear, flat: FlatParameters, activation: str | None) -> None:
        self._means, self._means_grad = zip(flat.views(part.weight), flat.views(part.bias), strict=True)
        self._stds, self._stds_grad = zip(flat.views(part.weight_std), flat.views(part.bias_std), strict=True)
        (weight, bias), (weight_grad, bias_grad) = self._means, self._means_grad
        super().__init__(weight.copy(), bias.copy(), weight_grad, bias_grad, activation)
        self._weight_noise, self._bias_noise = np.zeros_like(self.weight), np.zeros_like(self.bias)

    def set_noise(self, noise: Noise) -> None:
        """Put the weights together, as they are now, with this noise."""
        rows, columns = noise
        np.multiply(rows[:, None], columns, out=self._weight_noise)
        self._bias_noise[:] = rows
        for whole, mean, std, drawn in zip(
            (self.weight, self.bias), self._means, self._stds, (self._weight_noise, self._bias_noise), strict=True
        ):
            np.multiply(std, drawn, out=whole)
            np.add(whole, mean, out=whole)

    def spread_gradient(self) -> None:
        """∂σ = ∂(μ + σ ε) ε, from the gradient by the whole weight."""
        for grad, drawn, out in zip(
            self._means_grad, (self._weight_noise, self._bias_noise), self._stds_grad, strict=True
        ):
            np.multiply(grad, drawn, out=out)


class _Space:
    """Room for the values between layers, for one batch size."""

    def __init__(self, layers: list[_Layer], rows: int, dtype: Any) -> None:
        self.layers = layers
        self.rows = rows
        self.values = [np.empty((rows, layer.outputs), dtype) for layer in layers]
        self.torch_values = [torch.from_numpy(value) for value in self.values]
        # Small products are faster in numpy: a call to torch costs more than it saves.
        self.by_torch = [not layer.thin and rows * layer.inputs * layer.outputs >= _LARGE for layer in layers]
        self.by_torch[0] = False  # what comes in is no memory of ours that torch sees
        self.forward = list(zip(layers, self.values, self.torch_values, self.by_torch, strict=True))
        self.input: Array = self.values[0]
        self._grads: _Gradients | None = None

    @property
    def grads(self) -> _Gradients:
        """Room for gradients, made at the first backward: networks that only act need none."""
        if self._grads is None:
            self._grads = _Gradients(self)
        return self._grads


class _Gradients:
    """Gradients by the values between layers; and a row of ones to sum them with."""

    def __init__(self, space: _Space) -> None:
        dtype = space.values[0].dtype
        self.ones = np.ones(space.rows, dtype)
        # A gradient is needed until the one before it is made, so two buffers of a width serve all layers, and
        # all networks: less memory in use stays in the cache.
        self.arrays = [
            _shared((space.rows, layer.outputs), dtype, number % 2) for number, layer in enumerate(space.layers)
        ]
        self.tensors = [torch.from_numpy(grad) for grad in self.arrays]
        self.input = np.empty((space.rows, space.layers[0].inputs), dtype)


_shared_buffers = threading.local()


def _shared(shape: tuple[int, int], dtype: Any, number: int) -> Array:
    buffers: dict[Any, Array] = _shared_buffers.__dict__
    key = f"{shape} {dtype} {number}"
    if key not in buffers:
        buffers[key] = np.empty(shape, dtype)
    return buffers[key]


class FusedMLP:
    """A fusable `nn.Sequential` on its flat parameters.

    What `forward` returns is memory of this object: it holds until the next call with the same number of rows and the
    same `slot`. `backward` writes (does not add) the gradients of the layers, and uses up the values of the forward.

    :param noisy: whether layers that have noise are to have it; then `set_noise` comes before `forward`.
    """

    def __init__(self, module: nn.Sequential, flat: FlatParameters, noisy: bool = False) -> None:
        self._layers: list[_Layer] = []
        self.noisy: list[_NoisyLayer] = []
        parts = list(module)
        for number, part in enumerate(parts):
            if isinstance(part, nn.Linear):
                follower = parts[number + 1] if number + 1 < len(parts) else None
                activation = None if follower is None else _ACTIVATIONS.get(type(follower))
                if noisy and isinstance(part, NoisyLinear):
                    self.noisy.append(_NoisyLayer(part, flat, activation))
                    self._layers.append(self.noisy[-1])
                    continue
                weight, weight_grad = flat.views(part.weight)
                bias, bias_grad = flat.views(part.bias)
                self._layers.append(_Layer(weight, bias, weight_grad, bias_grad, activation))
        self._dtype = flat.array.dtype
        self._spaces: dict[tuple[int, int, int], _Space] = {}

    def _space(self, rows: int, slot: int) -> _Space:
        # Threads have rooms of their own: a task in async mode acts, judges and learns at the same time.
        key = (rows, slot, threading.get_ident())
        space = self._spaces.get(key)
        if space is None:
            space = self._spaces[key] = _Space(self._layers, rows, self._dtype)
        return space

    def forward(self, inputs: Array, slot: int = 0) -> Array:
        space = self._space(len(inputs), slot)
        space.input = value = inputs
        before = space.torch_values[0]  # the latest value as torch sees it; the first product is never torch's
        for layer, out, tensor, by_torch in space.forward:
            if by_torch:
                torch.addmm(layer.torch_bias, before, layer.torch_weight_t, out=tensor)
            else:
                np.matmul(value, layer.weight_t, out=out)
                tensor.add_(layer.torch_bias)
            if layer.activation == "tanh":
                np.tanh(out, out=out)
            elif layer.activation == "relu":
                torch.relu_(tensor)
            value, before = out, tensor
        return value

    def hidden(self, rows: int, slot: int = 0) -> Array:
        """What the last layer was given in the latest `forward` of so many rows."""
        space = self._space(rows, slot)
        return space.values[-2] if len(self._layers) > 1 else space.input

    def backward(self, grad: Array, slot: int = 0, need_input: bool = False) -> Array | None:
        """Gradients of all layers from the gradient of the output, after a `forward` with the same rows and slot."""
        space = self._space(len(grad), slot)
        grads = space.grads
        own = False  # whether the gradient lies in our memory, where torch sees it too
        for number in range(len(self._layers) - 1, -1, -1):
            layer = self._layers[number]
            if layer.activation is not None:
                if not own:
                    np.copyto(grads.arrays[number], grad)
                    grad, own = grads.arrays[number], True
                self._through_activation(layer.activation, space, grads, number)
            before = space.values[number - 1] if number else space.input
            np.matmul(grad.T, before, out=layer.weight_grad)
            np.matmul(grads.ones, grad, out=layer.bias_grad)
            if isinstance(layer, _NoisyLayer):
                layer.spread_gradient()
            if number:
                if own and space.by_torch[number]:
                    torch.mm(grads.tensors[number], layer.torch_weight, out=grads.tensors[number - 1])
                elif layer.outputs == 1:  # an outer product, for which matmul is slow
                    torch.mul(torch.from_numpy(grad), layer.torch_weight, out=grads.tensors[number - 1])
                else:
                    np.matmul(grad, layer.weight, out=grads.arrays[number - 1])
                grad, own = grads.arrays[number - 1], True
            elif need_input:
                return np.asarray(np.matmul(grad, layer.weight, out=grads.input))
        return None

    def input_gradient(
        self, grad: Array, columns: slice, rows: int, chosen: Array | None = None, slot: int = 0
    ) -> Array:
        """The gradient by some columns of the input; those of the layers are left alone, and so are the values.

        :param rows: of the `forward` that this is for; `chosen`: those among them that `grad` is for.
        """
        space = self._space(rows, slot)
        for number in range(len(self._layers) - 1, -1, -1):
            layer = self._layers[number]
            if layer.activation is not None:
                value = space.values[number] if chosen is None else space.values[number][chosen]
                if layer.activation == "tanh":
                    grad = grad * (1.0 - value * value)
                else:
                    tensor = torch.from_numpy(grad)
                    torch.ops.aten.threshold_backward.grad_input(tensor, torch.from_numpy(value), 0, grad_input=tensor)
            if number == 0:
                return np.asarray(grad @ layer.weight[:, columns])
            grad = (torch.from_numpy(grad) * layer.torch_weight).numpy() if layer.outputs == 1 else grad @ layer.weight
        raise AssertionError("a chain has a layer")

    @staticmethod
    def _through_activation(activation: str, space: _Space, grads: _Gradients, number: int) -> None:
        if activation == "tanh":
            # The values are not needed any more: 1 − tanh² takes their place.
            value = space.values[number]
            np.multiply(value, value, out=value)
            np.subtract(1.0, value, out=value)
            np.multiply(grads.arrays[number], value, out=grads.arrays[number])
        else:
            grad = grads.tensors[number]
            torch.ops.aten.threshold_backward.grad_input(grad, space.torch_values[number], 0, grad_input=grad)


class FusedCritics:
    """Critics of continuous actions, each a fusable chain over observation and action side by side."""

    def __init__(self, chains: list[nn.Sequential], flat: FlatParameters, observed: int) -> None:
        self._chains = [FusedMLP(chain, flat) for chain in chains]
        self._observed = observed
        self._joined: dict[tuple[int, int], Array] = {}

    def join(self, obs: Array, action: Array) -> Array:
        """Both side by side; the memory is used again by the next call with as many rows."""
        key = (len(obs), threading.get_ident())
        joined = self._joined.get(key)
        if joined is None:
            joined = self._joined[key] = np.empty((len(obs), self._observed + action.shape[1]), np.float32)
        joined[:, : self._observed] = obs
        joined[:, self._observed :] = action
        return joined

    def forward(self, joined: Array) -> Array:
        """Q [C, B]."""
        return np.stack([chain.forward(joined)[:, 0] for chain in self._chains])

    def backward(self, grad: Array) -> None:
        """Gradients of all layers from that of Q [C, B]."""
        for chain, part in zip(self._chains, grad, strict=True):
            chain.backward(part[:, None])

    def first(self, joined: Array) -> tuple[Array, Array]:
        """Q of the first critic [B] and its gradient by the action [B, A]."""
        q = self._chains[0].forward(joined)[:, 0]
        return q, self._by_action(0, len(joined), None)

    def least(self, joined: Array) -> tuple[Array, Array]:
        """The smallest Q [B] and its gradient by the action [B, A]: of each row through that critic alone."""
        q = self.forward(joined)
        which = q.argmin(axis=0)
        gradient: Array = np.empty((len(joined), joined.shape[1] - self._observed), q.dtype)
        for number in range(len(q)):
            chosen = np.flatnonzero(which == number)
            if len(chosen):
                gradient[chosen] = self._by_action(number, len(joined), chosen)
        return q.min(axis=0), gradient

    def _by_action(self, number: int, rows: int, chosen: Array | None) -> Array:
        ones = np.ones((rows if chosen is None else len(chosen), 1), np.float32)
        return self._chains[number].input_gradient(ones, slice(self._observed, None), rows, chosen)
