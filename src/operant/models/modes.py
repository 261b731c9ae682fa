"""Training mode around updates, evaluation mode everywhere else; random numbers inside modules by a seed of theirs."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

# Layers that compute the same in both modes and draw nothing. A class that is not listed may do either.
_PLAIN = frozenset(
    {
        *(nn.Linear, nn.Bilinear, nn.Embedding, nn.Identity, nn.Flatten, nn.Unflatten),
        *(nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.MaxPool1d, nn.MaxPool2d, nn.AvgPool1d, nn.AvgPool2d),
        *(nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d),
        *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.PReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish, nn.Tanh),
        *(nn.Sigmoid, nn.Hardtanh, nn.Hardswish, nn.Hardsigmoid, nn.Softplus, nn.Softsign, nn.Softmax, nn.LogSoftmax),
        *(
            nn.LSTMCell,
            nn.GRUCell,
            nn.RNNCell,
            nn.LayerNorm,
            nn.GroupNorm,
            nn.Sequential,
            nn.ModuleList,
            nn.ModuleDict,
            nn.ParameterList,
            nn.ParameterDict,
        ),
    }
)


_OURS = ("operant.models.builders", "operant.models.noisy", "operant.models.recurrent")


class NetworkModes:
    """Holds networks in evaluation mode; ``with modes.updating():`` puts them into training mode.

    Inside ``updating()`` and ``acting()`` torch's own generators stand where those of these networks stopped, so
    that Dropout or noisy layers draw the same numbers whatever else a program draws, and go on exactly from
    ``state_dict``. Networks of plain layers draw nothing and have no modes; for them both cost nothing.
    """

    def __init__(self, networks: Sequence[nn.Module], seed: int, device: torch.device | None = None) -> None:
        for network in networks:
            network.eval()
        self._networks = networks
        layers = [layer for network in networks for layer in network.modules() if not _is_plain(layer)]
        self.plain = not layers
        # Module.train() visits every layer by way of __setattr__: 5 µs each. Who overrides it is asked properly.
        self._own_train = any(type(layer).train is not nn.Module.train for layer in layers)
        self._layers = [layer.__dict__ for layer in layers]
        self._device = device or torch.device("cpu")
        self._blocks = (_Block(self, False), _Block(self, True))
        self._lock = threading.RLock()  # a task in async mode acts and learns in several threads
        self._entered: list[bool] = []
        self._outside: dict[str, torch.Tensor] = {}
        self._inside: dict[str, torch.Tensor] = {}
        if not self.plain:
            outside = self._generators()
            torch.manual_seed(seed)
            self._inside = self._generators()
            self._set_generators(outside)

    def updating(self) -> AbstractContextManager[Any]:
        """Training mode: around forward and backward of an update."""
        return _NOTHING if self.plain else self._blocks[1]

    def acting(self) -> AbstractContextManager[Any]:
        """Evaluation mode: around any other use of the networks."""
        return _NOTHING if self.plain else self._blocks[0]

    def state_dict(self) -> dict[str, npt.NDArray[np.uint8]]:
        """Where the random numbers inside the networks stand, by kind of device; empty where none are drawn."""
        return {name: state.numpy().copy() for name, state in self._inside.items()}

    def load_state_dict(self, state: Mapping[str, npt.NDArray[np.uint8]]) -> None:
        """Go on from there; a device that the state does not know of keeps its seed."""
        for name in self._inside:
            if name in state:
                self._inside[name] = torch.from_numpy(np.array(state[name], np.uint8))

    def _enter(self, training: bool) -> None:
        self._lock.acquire()
        if not self._entered:
            self._outside = self._generators()
            self._set_generators(self._inside)
        self._entered.append(training)
        self._set_mode(training)

    def _leave(self) -> None:
        self._entered.pop()
        self._set_mode(self._entered[-1] if self._entered else False)
        if not self._entered:
            self._inside = self._generators()
            self._set_generators(self._outside)
        self._lock.release()

    def _set_mode(self, training: bool) -> None:
        if self._own_train:
            for network in self._networks:
                network.train(training)
        else:
            for layer in self._layers:
                layer["training"] = training

    def _generators(self) -> dict[str, torch.Tensor]:
        states = {"cpu": torch.default_generator.get_state()}
        if self._device.type == "cuda":
            states["cuda"] = torch.cuda.get_rng_state(self._device)
        elif self._device.type == "mps":
            states["mps"] = torch.mps.get_rng_state()
        return states

    def _set_generators(self, states: Mapping[str, torch.Tensor]) -> None:
        torch.default_generator.set_state(states["cpu"])
        if "cuda" in states:
            torch.cuda.set_rng_state(states["cuda"], self._device)
        if "mps" in states:
            torch.mps.set_rng_state(states["mps"])


class _Block:
    """One mode as a context manager that may be entered again and again: making one each time costs more."""

    def __init__(self, modes: NetworkModes, training: bool) -> None:
        self._modes, self._training = modes, training

    def __enter__(self) -> None:
        self._modes._enter(self._training)

    def __exit__(self, *_: object) -> None:
        self._modes._leave()


_NOTHING: AbstractContextManager[Any] = nullcontext()


def _is_plain(layer: nn.Module) -> bool:
    if type(layer) in (nn.LSTM, nn.GRU, nn.RNN):
        return not layer.dropout
    return type(layer) in _PLAIN or type(layer).__module__ in _OURS
