"""Optimizers and schedules of torch's (or the user's) behind an algorithm of Operant's.

Algorithms call ``optimizer.step(rate)`` with the gradient in place; whatever has that call and a state can stand there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from operant.errors import UsageError


class TorchOptimizer:
    """An optimizer class of torch's kind, over the parameters of a network."""

    def __init__(self, kind: type[torch.optim.Optimizer], network: torch.nn.Module, rate: float) -> None:
        parameters = [one for one in network.parameters() if one.requires_grad]
        try:
            self.inner = kind(parameters, lr=rate)  # type: ignore[call-arg]
        except TypeError as error:
            raise UsageError(f"frame_config.optimizer: {kind.__name__} could not be made: {error}") from None

    def step(self, rate: float) -> None:
        for group in self.inner.param_groups:
            group["lr"] = rate
        try:
            self.inner.step()
        except TypeError as error:  # LBFGS and its like evaluate the loss again by a closure
            kind = type(self.inner).__name__
            raise UsageError(f"frame_config.optimizer: {kind} cannot step on a given gradient: {error}") from None

    def state_dict(self) -> dict[str, Any]:
        return {"state": _as_plain(self.inner.state_dict()["state"])}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        whole = self.inner.state_dict()
        whole["state"] = {int(key): _as_tensors(value) for key, value in state["state"].items()}
        self.inner.load_state_dict(whole)


class Schedule:
    """A scheduler of torch's kind as a factor of the learning rate; it steps once for each epoch."""

    def __init__(self, kind: type, args: Any, kwargs: Any, rate: float) -> None:
        # Schedulers change the rate of an optimizer; this one has nothing else to do.
        self._carrier = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=rate)
        self._rate = rate
        try:
            self.inner = kind(self._carrier, *(args or ()), **(kwargs or {}))
        except TypeError as error:
            raise UsageError(
                f"frame_config.lr_scheduler: {kind.__name__} could not be made with args {list(args or ())} and "
                f"kwargs {dict(kwargs or {})}: {error}"
            ) from None

    @property
    def factor(self) -> float:
        return float(self._carrier.param_groups[0]["lr"]) / self._rate

    def step(self, total_reward: float) -> None:
        """Another epoch has ended."""
        self._carrier.step()  # torch warns of a schedule that runs ahead of its optimizer
        if isinstance(self.inner, torch.optim.lr_scheduler.ReduceLROnPlateau):
            self.inner.step(total_reward)
        else:
            self.inner.step()

    def state_dict(self) -> dict[str, Any]:
        kept = {key: value for key, value in self.inner.state_dict().items() if _is_plain(value)}
        return {"inner": kept, "rate": float(self._carrier.param_groups[0]["lr"])}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.inner.load_state_dict({**self.inner.state_dict(), **state["inner"]})
        self._carrier.param_groups[0]["lr"] = float(state["rate"])


class ScheduledOptimizer:
    """An optimizer whose rate is scaled by a schedule."""

    def __init__(self, inner: Any, schedule: Schedule) -> None:
        self.inner = inner
        self.schedule = schedule

    def step(self, rate: float) -> None:
        self.inner.step(rate * self.schedule.factor)

    def state_dict(self) -> dict[str, Any]:
        return {"inner": self.inner.state_dict(), "schedule": self.schedule.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.inner.load_state_dict(state["inner"])
        self.schedule.load_state_dict(state["schedule"])


def _as_plain(tree: Any) -> Any:
    if isinstance(tree, torch.Tensor):
        return {"tensor": tree.detach().cpu().numpy().copy()}
    if isinstance(tree, dict):
        return {str(key): _as_plain(value) for key, value in tree.items()}
    return tree


def _as_tensors(tree: Any) -> Any:
    if isinstance(tree, Mapping):
        if tree.keys() == {"tensor"}:
            return torch.as_tensor(tree["tensor"])
        return {key: _as_tensors(value) for key, value in tree.items()}
    return tree


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_is_plain(one) for one in value)
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(one) for key, one in value.items())
    return value is None or isinstance(value, (bool, int, float, str))
