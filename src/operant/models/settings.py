"""How the networks of one training look."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from operant.errors import UsageError
from operant.settings import setting


@dataclass(frozen=True)
class ModelSettings:
    """Networks are built from the spaces, unless a module of one's own is named."""

    hidden: tuple[int, ...] = setting(
        (64, 64), "sizes of the hidden layers; larger: fits more, takes more time and data"
    )
    activation: str = setting(
        "tanh", "between layers: tanh (smooth, good for rollouts) or relu (quicker, good for Q values)"
    )
    orthogonal: bool = setting(
        True, "orthogonal start values (policy heads 0.01: all actions alike at first); false: PyTorch's own"
    )
    log_std: float = setting(
        0.0, "start of the logarithm of the deviation of continuous actions; larger: explores more widely at first"
    )
    layer_norm: bool = setting(
        False, "critics of continuous actions: normalise behind each hidden layer; allows many updates for each step"
    )
    state_noise: bool = setting(
        False,
        "continuous actions: noise by a random function of the last hidden layer, smoother than new noise (gSDE)",
    )
    state_noise_steps: int = setting(
        0, "steps after which that function is drawn anew, 0: with each rollout; more: smoother, more consistent noise"
    )
    recurrent: str = setting(
        "", "lstm or gru: a memory before the hidden layers, for what one observation does not tell; empty: none"
    )
    recurrent_size: int = setting(64, "units of that memory; larger: remembers more, takes more time and data")
    sequence: int = setting(
        32, "policies with memory: steps that gradients go back through; more: learns to remember longer, slower"
    )
    burn_in: int = setting(
        8, "policies with memory, from replay: steps before these that only renew the state; more: less stale, slower"
    )
    network: Any = setting(None, "own module for the whole: policy and value, or Q values")
    actor: Any = setting(None, "own module for the policy: class, importable name or instance")
    critic: Any = setting(None, "own module for the value: class, importable name or instance")
    arguments: dict[str, Any] = setting({}, "keyword arguments of own modules given as classes or names")
    device: str = setting("auto", "where own and large networks live; in a training's config this is `device`")
    fused: bool = setting(True, "closed-form gradients for plain networks on a CPU: faster; false: always autograd")

    def __post_init__(self) -> None:
        if any(size < 1 for size in self.hidden):
            raise UsageError(f"model.hidden is {list(self.hidden)}; each layer has at least 1 unit")
        if not math.isfinite(self.log_std):
            raise UsageError(f"model.log_std is {self.log_std}; it must be a finite number")
        if self.state_noise_steps < 0:
            raise UsageError(f"model.state_noise_steps is {self.state_noise_steps}; it must be at least 0")
        if min(self.sequence, self.recurrent_size) < 1 or self.burn_in < 0:
            raise UsageError("model.sequence and model.recurrent_size are at least 1, model.burn_in at least 0")
        if self.recurrent and self.has_own_modules:
            raise UsageError(
                "model.recurrent is for networks that are built; a module of your own remembers if it has initial_state"
            )

    @property
    def has_own_modules(self) -> bool:
        return any(one is not None for one in (self.network, self.actor, self.critic))
