"""Plain networks without autograd: forward and backward in closed form, on the memory of the module itself.

Which library does which part was measured (one core, batches of 40 to 256): numpy's tanh is six times faster than
torch's; torch's relu and what it does with a row or a column for a whole matrix are faster than numpy's; products are
faster in numpy (twice as fast on AMD's processors with AVX-512, which torch's MKL leaves unused, a little elsewhere);
and a row of ones times the gradient is the fastest way to sum it.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from threading import get_ident
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
_FEW = 8


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
    """One Linear (or those of twins, [C, …]) and what follows it: its memory, seen by numpy and by torch."""

    def __init__(
        self, weight: Array, bias: Array, weight_grad: Array, bias_grad: Array, activation: str | None
    ) -> None:
        self.weight, self.bias, self.weight_grad, self.bias_grad = weight, bias, weight_grad, bias_grad
        self.weight_t = weight.swapaxes(-1, -2)
        self.activation = activation
        self.outputs, self.inputs = weight.shape[-2:]
        self.torch_weight = torch.from_numpy(weight)
        self.torch_bias = torch.from_numpy(bias if weight.ndim == 2 else bias[:, None])


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
        twins = layers[0].weight.shape[:-2]
        self.values = [np.empty((*twins, rows, layer.outputs), dtype) for layer in layers]
        self.torch_values = [torch.from_numpy(value) for value in self.values]
        self.forward = list(zip(layers, self.values, self.torch_values, strict=True))
        self.input: Array = self.values[0]
        self.room = np.empty((rows, layers[0].inputs), dtype)  # for inputs that come in two parts
        self._grads: _Gradients | None = None
        self._parts: dict[tuple[int, int], _Space] = {}

    @property
    def grads(self) -> _Gradients:
        """Room for gradients, made at the first backward: networks that only act need none."""
        if self._grads is None:
            self._grads = _Gradients(self)
        return self._grads

    def part(self, first: int, rows: int) -> _Space:
        """The same room, of which only some rows are seen."""
        key = (first, rows)
        if key not in self._parts:
            part = self._parts[key] = copy.copy(self)
            part.rows, part._grads = rows, None
            part.values = [value[..., first : first + rows, :] for value in self.values]
            part.torch_values = [value[..., first : first + rows, :] for value in self.torch_values]
        return self._parts[key]


class _Gradients:
    """Gradients by the values between layers; and a row of ones to sum them with."""

    def __init__(self, space: _Space) -> None:
        dtype = space.values[0].dtype
        self.ones = np.ones(space.rows, dtype)
        # A gradient is needed until the one before it is made, so two buffers of a width serve all layers, and
        # all networks: less memory in use stays in the cache.
        self.arrays = [
            _shared((*value.shape[:-2], space.rows, value.shape[-1]), dtype, number % 2)
            for number, value in enumerate(space.values)
        ]
        self.tensors = [torch.from_numpy(grad) for grad in self.arrays]
        self.input = np.empty((space.rows, space.layers[0].inputs), dtype)


_shared_buffers = threading.local()


def _shared(shape: tuple[int, ...], dtype: Any, number: int) -> Array:
    buffers: dict[Any, Array] = _shared_buffers.__dict__
    key = f"{shape} {dtype} {number}"
    if key not in buffers:
        buffers[key] = np.empty(shape, dtype)
    return buffers[key]


class FusedMLP:
    """A fusable `nn.Sequential` on its flat parameters, or several alike that see the same inputs: twins.

    What `forward` returns is memory of this object: it holds until the next call with the same number of rows and the
    same `slot`. `backward` writes (does not add) the gradients of the layers, and uses up the values of the forward.

    :param noisy: whether layers that have noise are to have it; then `set_noise` comes before `forward`.
    :param module: of twins a list; values and their gradients are then [C, B, …].
    """

    def __init__(
        self, module: nn.Sequential | Sequence[nn.Sequential], flat: FlatParameters, noisy: bool = False
    ) -> None:
        self._layers: list[_Layer] = []
        self.noisy: list[_NoisyLayer] = []
        twins = None if isinstance(module, nn.Sequential) else [list(one) for one in module]
        parts = list(module) if twins is None else twins[0]
        for number, part in enumerate(parts):
            if isinstance(part, nn.Linear):
                follower = parts[number + 1] if number + 1 < len(parts) else None
                activation = None if follower is None else _ACTIVATIONS.get(type(follower))
                if noisy and isinstance(part, NoisyLinear):
                    self.noisy.append(_NoisyLayer(part, flat, activation))
                    self._layers.append(self.noisy[-1])
                    continue
                if twins is None:
                    (weight, weight_grad), (bias, bias_grad) = flat.views(part.weight), flat.views(part.bias)
                else:
                    alike: list[Any] = [one[number] for one in twins]
                    weight, weight_grad = flat.stacked([one.weight for one in alike])
                    bias, bias_grad = flat.stacked([one.bias for one in alike])
                self._layers.append(_Layer(weight, bias, weight_grad, bias_grad, activation))
        self._dtype = flat.array.dtype
        self._spaces: dict[tuple[int, int, int], _Space] = {}

    def _space(self, rows: int, slot: int) -> _Space:
        # Threads have rooms of their own: a task in async mode acts, judges and learns at the same time.
        key = (rows, slot, get_ident())
        space = self._spaces.get(key)
        if space is None:
            space = self._spaces[key] = _Space(self._layers, rows, self._dtype)
        return space

    def forward(self, inputs: Array, slot: int = 0, beside: Array | None = None) -> Array:
        """Outputs for each row; `beside` are further columns of the input."""
        space = self._space(len(inputs), slot)
        if beside is not None:
            columns = inputs.shape[1]
            space.room[:, :columns] = inputs
            space.room[:, columns:] = beside
            inputs = space.room
        space.input = value = inputs
        for layer, out, tensor in space.forward:
            np.matmul(value, layer.weight_t, out=out)
            tensor.add_(layer.torch_bias)
            if layer.activation == "tanh":
                np.tanh(out, out=out)
            elif layer.activation == "relu":
                torch.relu_(tensor)
            value = out
        return value

    def hidden(self, rows: int, slot: int = 0) -> Array:
        """What the last layer was given in the latest `forward` of so many rows."""
        space = self._space(rows, slot)
        return space.values[-2] if len(self._layers) > 1 else space.input

    def backward(
        self, grad: Array, slot: int = 0, need_input: bool = False, *, first: int = 0, of: int | None = None
    ) -> Array | None:
        """Gradients of all layers from the gradient of the output, after a `forward` with the same rows and slot.

        :param of: rows of that `forward`, if it had more; those from `first` on are meant.
        """
        rows = grad.shape[-2]
        whole = self._space(of or rows, slot)
        space = whole if of is None else whole.part(first, rows)
        grads = space.grads
        own = False  # whether the gradient lies in our memory, where torch sees it too
        for number in range(len(self._layers) - 1, -1, -1):
            layer = self._layers[number]
            if layer.activation is not None:
                if not own:
                    np.copyto(grads.arrays[number], grad)
                    grad, own = grads.arrays[number], True
                _through_activation(
                    layer.activation, space.values[number], space.torch_values[number], grad, grads.tensors[number]
                )
            before = space.values[number - 1] if number else whole.input[first : first + rows]
            np.matmul(grad.swapaxes(-1, -2), before, out=layer.weight_grad)
            if rows < _FEW:  # OpenBLAS 0.3.31, with five: a false "invalid value" by what a register held before
                np.add.reduce(grad, axis=-2, out=layer.bias_grad)
            else:
                np.matmul(grads.ones, grad, out=layer.bias_grad)
            if isinstance(layer, _NoisyLayer):
                layer.spread_gradient()
            if number:
                if layer.outputs == 1:  # an outer product, for which matmul is slow
                    torch.mul(torch.from_numpy(grad), layer.torch_weight, out=grads.tensors[number - 1])
                else:
                    np.matmul(grad, layer.weight, out=grads.arrays[number - 1])
                grad, own = grads.arrays[number - 1], True
            elif need_input:
                return np.asarray(np.matmul(grad, layer.weight, out=grads.input))
        return None

    def input_gradient(self, which: Array, columns: slice) -> Array:
        """The gradient of the only output by some columns of the input, of each row [B] through one of the twins, after
        a `forward` of as many rows; the layers' gradients are left alone, and so are the values."""
        rows = len(which)
        space = self._space(rows, 0)
        # Rows of one twin stand together, so that each product is over a part of them, and all else over all at once.
        at = np.sort(which * rows + np.arange(rows))
        row = at % rows
        ends = np.searchsorted(at, rows * np.arange(len(self._layers[0].weight) + 1)).tolist()
        last = self._layers[-1].weight
        grad: Array = (last if len(self._layers) > 1 else last[..., columns])[which[row], 0]
        for number in range(len(self._layers) - 2, -1, -1):
            layer = self._layers[number]
            value = space.values[number].reshape(-1, layer.outputs).take(at, axis=0)
            if layer.activation is not None:
                _through_activation(layer.activation, value, torch.from_numpy(value), grad, torch.from_numpy(grad))
            weight = layer.weight if number else layer.weight[..., columns]
            before: Array = np.empty((rows, weight.shape[-1]), grad.dtype)
            for one, first, end in zip(weight, ends[:-1], ends[1:], strict=True):
                np.matmul(grad[first:end], one, out=before[first:end])
            grad = before
        gradient = np.empty_like(grad)
        gradient[row] = grad
        return gradient


def _through_activation(
    activation: str, value: Array, torch_value: torch.Tensor, grad: Array, torch_grad: torch.Tensor
) -> None:
    """Take a gradient by what an activation gave back to what it was given; of tanh the values are used up."""
    if activation == "tanh":
        np.multiply(value, value, out=value)
        np.subtract(1.0, value, out=value)
        np.multiply(grad, value, out=grad)
    else:
        torch.ops.aten.threshold_backward.grad_input(torch_grad, torch_value, 0, grad_input=torch_grad)


class FusedCritics:
    """Critics of continuous actions, each a fusable chain over observation and action side by side."""

    def __init__(self, chains: list[nn.Sequential], flat: FlatParameters, observed: int) -> None:
        self._all = FusedMLP(chains, flat)
        self._first = FusedMLP(chains[:1], flat)
        self._actions = slice(observed, None)

    def forward(self, obs: Array, action: Array) -> Array:
        """Q [C, B]."""
        return self._all.forward(obs, beside=action)[..., 0].copy()

    def backward(self, grad: Array) -> None:
        """Gradients of all layers from that of Q [C, B]."""
        self._all.backward(grad[..., None])

    def first(self, obs: Array, action: Array) -> tuple[Array, Array]:
        """Q of the first critic [B] and its gradient by the action [B, A]."""
        return self._least(self._first, obs, action)

    def least(self, obs: Array, action: Array) -> tuple[Array, Array]:
        """The smallest Q [B] and its gradient by the action [B, A]: of each row through that critic alone."""
        return self._least(self._all, obs, action)

    def _least(self, critics: FusedMLP, obs: Array, action: Array) -> tuple[Array, Array]:
        q = critics.forward(obs, beside=action)[..., 0]
        return q.min(axis=0), critics.input_gradient(q.argmin(axis=0), self._actions)
