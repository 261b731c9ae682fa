"""How the networks of one training look."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from operant.settings import setting

__all__ = ["ModelSettings"]


@dataclass(frozen=True)
class ModelSettings:
    """Networks are built from the spaces, unless a module of one's own is named."""

    hidden: tuple[int, ...] = setting((64, 64), "sizes of the hidden layers")
    activation: str = setting("tanh", "between layers: tanh or relu")
    orthogonal: bool = setting(True, "orthogonal start values (policy heads 0.01); otherwise PyTorch's own")
    log_std: float = setting(0.0, "start value of the logarithm of the standard deviation of continuous actions")
    state_noise: bool = setting(
        False,
        "continuous actions: noise is a random function of the last hidden layer that lasts for many steps (gSDE)",
    )
    state_noise_steps: int = setting(0, "steps after which that function is drawn anew; 0: once for each rollout")
    network: Any = setting(None, "own module for the whole: policy and value, or Q values")
    actor: Any = setting(None, "own module for the policy: class, importable name or instance")
    critic: Any = setting(None, "own module for the value: class, importable name or instance")
    arguments: dict[str, Any] = setting({}, "keyword arguments of own modules given as classes or names")
    device: str = setting("auto", "where own and large networks live; in a training's config this is `device`")
    fused: bool = setting(True, "closed-form gradients for plain networks on a CPU; false: always autograd")

    @property
    def has_own_modules(self) -> bool:
        return any(one is not None for one in (self.network, self.actor, self.critic))
