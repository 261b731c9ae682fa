"""Settings of what learns continuous actions from replay, and how others spell them."""

from __future__ import annotations

from dataclasses import dataclass

from operant.errors import UsageError
from operant.settings import setting


@dataclass(frozen=True)
class OffPolicySettings:
    """What algorithms for continuous actions have; each has defaults of its own."""

    train_every: int = setting(
        1, "environment steps (of all together) between rounds of updates; more: quicker, but less is learned from each"
    )
    updates: int = setting(
        1, "gradient steps of a round, 0: as many as steps; more: fewer steps needed, more time (see model.layer_norm)"
    )
    batch: int = setting(256, "transitions of one gradient step; larger: less noise in the gradient, more time")
    buffer: int = setting(
        1_000_000,
        "transitions that are kept; larger: older ones stay and forgetting is rarer, but they fit the policy less",
    )
    learning_starts: int = setting(
        100, "environment steps of random actions before the first update; more: the first batches are more varied"
    )
    gamma: float = setting(0.99, "discount; smaller: less variance and quicker, but what comes late counts less")
    n_step: int = setting(
        1, "rewards summed before bootstrapping; larger: less bias of Q, more variance, rewards travel faster"
    )
    learning_rate: float = setting(3e-4, "step size of Adam; larger: faster, until values diverge")
    actor_learning_rate: float | None = setting(
        None, "step size of the policy if it is another; smaller: the critics are nearer to right when it moves"
    )
    target_rate: float = setting(
        0.005, "share of the learned weights that target networks take; larger: faster, less steady"
    )
    target_every: int = setting(1, "updates between such moves; more: steadier targets, slower learning")
    actor_every: int = setting(
        1, "updates of the critics for each of the policy; more: it moves by better values, but less often"
    )
    critics: int = setting(2, "critics, of which the smallest value counts; more: less overestimation, more time")
    increase_rate: float = setting(
        1.0, "share of errors that raise a value (hysteretic learning); smaller: values rise more slowly"
    )
    decrease_rate: float = setting(
        1.0, "share of errors that lower a value; smaller: bad luck, and others who explore, count less"
    )
    prioritized: bool = setting(
        False, "sample by the size of the last error (Schaul et al. 2016): learns more from rare rewards, takes longer"
    )
    priority_alpha: float = setting(
        0.6, "how much priorities count, 0: not at all; larger: greedier for large errors, more bias"
    )
    priority_beta: float = setting(
        0.4, "correction of that bias at the start, 1 at the end; larger: less bias early, smaller steps"
    )
    max_gradient_norm: float = setting(
        1e9, "limit of the norm of each gradient; smaller: steadier, slower where gradients are large"
    )

    def __post_init__(self) -> None:
        whole = ("train_every", "batch", "buffer", "n_step", "target_every", "actor_every", "critics")
        for name in whole:
            if getattr(self, name) < 1:
                raise UsageError(f"algorithm.{name} is {getattr(self, name)}; it must be at least 1")
        if self.updates < 0:
            raise UsageError(f"algorithm.updates is {self.updates}; it must be at least 0")
        if not 0.0 < self.target_rate <= 1.0:
            raise UsageError(f"algorithm.target_rate lies above 0 and up to 1, got {self.target_rate}")
