"""Trust region policy optimization (Schulman et al. 2015, arXiv 1502.05477)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from operant.algorithms.contracts import Array, Metrics
from operant.algorithms.dialects import Rule, Values, same
from operant.algorithms.errors import DivergedError
from operant.algorithms.on_policy import OnPolicy, Prepared, explained_variance, normalized
from operant.algorithms.on_policy_settings import OnPolicySettings
from operant.errors import UsageError
from operant.models.observations import to_array, to_tensors
from operant.settings import setting


@dataclass(frozen=True)
class TRPOSettings(OnPolicySettings):
    """Settings of TRPO; learning rate, minibatches and gradient norm are those of the value."""

    learning_rate: float = setting(1e-3, "step size of the value; larger: faster, until its errors grow")
    max_kl: float = setting(0.01, "δ, how far the policy may move in an update (KL); smaller: steadier, slower")
    damping: float = setting(
        0.1, "added to the diagonal of the Fisher matrix; larger: smaller steps that are nearer to the plain gradient"
    )
    conjugate_steps: int = setting(15, "steps of the conjugate gradient method; more: nearer to the natural gradient")
    conjugate_tolerance: float = setting(1e-10, "squared residual at which that ends; smaller: more exact, longer")
    line_search_steps: int = setting(10, "steps that are tried, each shorter; none fits: the policy stays as it is")
    line_search_shrink: float = setting(0.8, "how much shorter each is than the one before; larger: longer search")
    value_epochs: int = setting(10, "passes of the value over a rollout; more: it fits better, until it overfits")
    minibatch: int = setting(128, "rows of one gradient step of the value; fewer: more steps and more noise")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_kl <= 0 or min(self.conjugate_steps, self.line_search_steps, self.minibatch) < 1:
            raise UsageError("TRPO needs max_kl above 0; conjugate_steps, line_search_steps and minibatch from 1 up")
        if not 0.0 < self.line_search_shrink < 1.0:
            raise UsageError(f"algorithm.line_search_shrink lies between 0 and 1, got {self.line_search_shrink}")


TRPOSettings.di_engine = None  # type: ignore[assignment]  # it has none


def _read_product(given: Values) -> Values:
    if given["hv_mode"] not in ("fim", "direct"):
        raise UsageError(f"frame_config.hv_mode is fim or direct, not {given['hv_mode']!r:.100}")
    return {}


TRPOSettings.machin = replace(
    OnPolicySettings.machin,
    rules=(
        *OnPolicySettings.machin.rules,
        same("batch_size", "minibatch"),
        same("critic_update_times", "value_epochs"),
        same("kl_max_delta", "max_kl"),
        same("line_search_backtracks", "line_search_steps"),
        same("conjugate_iterations", "conjugate_steps"),
        same("conjugate_res_threshold", "conjugate_tolerance"),
        # Machin's two ways to multiply by the Fisher matrix give the same; its ε guards a division by zero.
        Rule(("hv_mode",), (), _read_product, lambda settings: {"hv_mode": "fim"}),
        Rule(("conjugate_eps",), (), lambda given: {}, lambda settings: {"conjugate_eps": 1e-8}),
    ),
    own={
        **OnPolicySettings.machin.own,
        "kl_max_delta": 0.01,
        "damping": 0.1,
        "line_search_backtracks": 10,
        "conjugate_eps": 1e-8,
        "conjugate_iterations": 10,
        "conjugate_res_threshold": 1e-10,
        "hv_mode": "fim",
    },
)


def conjugate_gradient(
    product: Callable[[torch.Tensor], torch.Tensor], wanted: torch.Tensor, steps: int, tolerance: float
) -> torch.Tensor:
    """x with A x = `wanted`, from products of a symmetric positive A with vectors (Hestenes and Stiefel 1952)."""
    found = torch.zeros_like(wanted)
    residual, direction = wanted.clone(), wanted.clone()
    size = residual @ residual
    for _ in range(steps):
        if size < tolerance:
            break
        moved = product(direction)
        length = size / (direction @ moved)
        found += length * direction
        residual -= length * moved
        before, size = size, residual @ residual
        direction = residual + (size / before) * direction
    return found


class TRPO(OnPolicy):
    """Moves the policy along the natural gradient, as far as a bound on its divergence allows.

    The value is fitted apart; layers that policy and value share learn with the policy alone.
    """

    Settings = TRPOSettings
    settings: TRPOSettings
    may_remember = False

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if self._remembers:
            raise UsageError("TRPO has no form with memory: name a module without initial_state")
        self._own: list[torch.nn.Parameter] | None = None

    def learn(self, batch: Any) -> tuple[Metrics, None]:
        """Update from one rollout; see `OnPolicy` for its keys."""
        data = self._prepare(batch)
        value, target = data.value, data.target
        if self.settings.normalize_advantage and len(data) > 1:
            data.advantage = normalized(data.advantage)
        with self._modes.acting():
            metrics = self._step_policy(data)
        rate = self._learning_rate
        value_loss, norm = self._fit_value(data, rate)
        if not self.measure:
            return {}, None
        metrics |= {
            "value_loss": value_loss,
            "gradient_norm": norm,
            "explained_variance": explained_variance(value, target),
            "learning_rate": rate,
        }
        if self._log_std is not None:
            metrics["std"] = float(np.exp(self._log_std).mean())
        return metrics, None

    # -- the policy --------------------------------------------------------------------------------------------------
    def _step_policy(self, data: Prepared) -> Metrics:
        settings = self.settings
        objective, entropy, now = self._objective(data)
        old = tuple(part.detach().clone() for part in now)  # deviations are the parameters themselves
        divergence = self._head.divergence(old, now).mean()
        parameters = self._policy_parameters(divergence)
        slope = _flat(torch.autograd.grad(divergence, parameters, create_graph=True))
        gradient = _flat(torch.autograd.grad(objective, parameters, retain_graph=True))

        def fisher(vector: torch.Tensor) -> torch.Tensor:
            """(F + damping) v; F is the Hessian of the divergence (appendix C.1)."""
            product = _flat(torch.autograd.grad(slope @ vector, parameters, retain_graph=True))
            return product + settings.damping * vector

        natural = conjugate_gradient(fisher, gradient, settings.conjugate_steps, settings.conjugate_tolerance)
        curvature = float(natural @ fisher(natural))
        if not (math.isfinite(curvature) and math.isfinite(objective.item())):
            raise DivergedError
        before = torch.nn.utils.parameters_to_vector(parameters).detach().clone()
        taken, moved, reached = 0.0, 0.0, objective.item()
        if curvature > 0.0:
            longest = math.sqrt(2.0 * settings.max_kl / curvature)
            for number in range(settings.line_search_steps):
                share = settings.line_search_shrink**number
                _put(parameters, before + share * longest * natural)
                with torch.no_grad():
                    better, _, new = self._objective(data)
                    moved = float(self._head.divergence(old, new).mean())
                if moved <= settings.max_kl and better.item() > objective.item():
                    taken, reached = share, better.item()
                    break
            else:
                _put(parameters, before)
                moved = 0.0
        return {
            "policy_loss": -reached,
            "improvement": reached - objective.item(),
            "entropy": entropy.item(),
            "kl": moved,
            "step": taken,
        }

    def _objective(self, data: Prepared) -> tuple[torch.Tensor, torch.Tensor, tuple[torch.Tensor, ...]]:
        """Equation 14: E[π(a)/π_old(a) A], with a bonus for entropy; the entropy and the distributions."""
        policy, _, spread, mask = self._torch_output(data)
        action, advantage, old = (to_tensors(one, self._device) for one in (data.action, data.advantage, data.log_prob))
        log_prob, entropy = self._head.log_prob_and_entropy(policy, action, mask, spread)
        mean = entropy.mean()
        objective = (torch.exp(log_prob - old) * advantage).mean() + self.settings.entropy_weight * mean
        return objective, mean, self._head.parameters(policy, mask, spread)

    def _policy_parameters(self, divergence: torch.Tensor) -> list[torch.nn.Parameter]:
        """Those that the policy depends on."""
        if self._own is None:
            every = [one for one in self.network.parameters() if one.requires_grad]
            slopes = torch.autograd.grad(divergence, every, retain_graph=True, allow_unused=True)
            self._own = [one for one, slope in zip(every, slopes, strict=True) if slope is not None]
        return self._own

    # -- the value ---------------------------------------------------------------------------------------------------
    def _fit_value(self, data: Prepared, rate: float) -> tuple[float, float]:
        """Passes over the rollout; returns the mean loss of the last and the norm of its last gradient."""
        size, rows, norm = self.settings.minibatch, len(data), 0.0
        losses: list[float] = []
        for _ in range(self.settings.value_epochs):
            order = self._rng.permutation(rows)
            losses = []
            for start in range(0, rows, size):
                losses.append(self._value_gradient(data.take(order[start : start + size])))
                norm = self._apply_gradient(self.settings.max_gradient_norm, rate)
        return float(np.mean(losses)) if losses else 0.0, norm

    def _value_gradient(self, part: Prepared) -> float:
        weight = self.settings.value_weight
        self._flat.grad_tensor.zero_()
        if self._critic is not None:
            error: Array = self._critic.forward(part.obs)[:, 0] - part.target
            self._critic.backward((error * error.dtype.type(2.0 * weight / len(part)))[:, None])
            return float(np.square(error).mean())
        with self._modes.updating():
            value = self._torch_output(part)[1]
            loss = (value - to_tensors(part.target, self._device)).square().mean()
            (weight * loss).backward()
        for own in self._own or ():
            if own.grad is not None:
                own.grad.zero_()
        return float(to_array(loss))


def _flat(parts: tuple[torch.Tensor, ...]) -> torch.Tensor:
    return torch.cat([part.reshape(-1) for part in parts])


def _put(parameters: list[torch.nn.Parameter], vector: torch.Tensor) -> None:
    """Into the memory that they have: they are parts of one vector."""
    with torch.no_grad():
        start = 0
        for one in parameters:
            one.copy_(vector[start : start + one.numel()].view_as(one))
            start += one.numel()
