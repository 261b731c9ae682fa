"""Settings of MADDPG, and how Machin spells them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from operant.algorithms.bounds import check_bounds
from operant.algorithms.dialects import Machin, Rule
from operant.algorithms.off_policy_settings import OffPolicySettings
from operant.errors import UsageError
from operant.settings import setting


@dataclass(frozen=True)
class MADDPGSettings:
    """Settings of MADDPG."""

    train_every: int = setting(
        100,
        "environment steps (of all together) between rounds of updates; more: quicker, but less is learned from each",
    )
    updates: int = setting(1, "gradient steps of a round, 0: as many as steps; more: fewer steps needed, more time")
    batch: int = setting(1024, "joint steps of one gradient step; larger: less noise in the gradient, more time")
    buffer: int = setting(
        1_000_000, "joint steps that are kept; larger: older ones stay, but they fit the policies less"
    )
    learning_starts: int = setting(
        1024, "environment steps of random actions before the first update; more: the first batches are more varied"
    )
    gamma: float = setting(0.95, "discount; smaller: less variance and quicker, but what comes late counts less")
    learning_rate: float = setting(1e-2, "step size of the critics; larger: faster, until values diverge")
    actor_learning_rate: float | None = setting(
        None, "step size of the policies if it is another; smaller: the critics are nearer to right when they move"
    )
    target_rate: float = setting(
        0.01, "share of the learned weights that target networks take; larger: faster, less steady"
    )
    target_every: int = setting(1, "updates between such moves; more: steadier targets, slower learning")
    critic_visible_actors: tuple[Any, ...] = setting(
        (), "for each agent a list of those (numbers or names) that its critic sees, itself among them; empty: all"
    )
    sub_policies: int = setting(
        1, "policies of each agent, of which an episode's is drawn (section 4.3); more: less fitted to single partners"
    )
    noise_scale: float = setting(
        0.1, "continuous actions: deviation of noise on them, in half ranges; larger: explores more"
    )
    logit_weight: float = setting(
        1e-3, "discrete actions: weight of the squared logits in the loss; larger: policies stay more random"
    )
    max_gradient_norm: float = setting(
        0.5, "limit of the norm of each gradient; smaller: steadier, slower where gradients are large"
    )
    optimizer: str = setting("adam", "adam, or rmsprop: without momentum")

    machin: ClassVar[Machin]

    def __post_init__(self) -> None:
        check_bounds(self, "target_every", "sub_policies")


def _count(given: Any) -> int:
    whole = isinstance(given, int) or (isinstance(given, float) and given.is_integer())
    if isinstance(given, bool) or not whole or given < 0:
        raise UsageError(f"frame_config.sub_policy_num is a whole number from 0 up, got {given!r:.100}")
    return int(given)


_FAMILY = OffPolicySettings.machin
MADDPGSettings.machin = Machin(
    rules=(
        *(rule for rule in _FAMILY.rules if not {"increase_rate", "decrease_rate"} & set(rule.ours)),
        Rule(
            ("critic_visible_actors",),
            ("critic_visible_actors",),
            lambda given: {"critic_visible_actors": given["critic_visible_actors"] or ()},
            lambda settings: {"critic_visible_actors": list(settings["critic_visible_actors"]) or None},
        ),
        # Machin counts those beside the first.
        Rule(
            ("sub_policy_num",),
            ("sub_policies",),
            lambda given: {"sub_policies": _count(given["sub_policy_num"]) + 1},
            lambda settings: {"sub_policy_num": settings["sub_policies"] - 1},
        ),
    ),
    defaults=_FAMILY.defaults,
    own={**_FAMILY.own, "critic_visible_actors": None, "sub_policy_num": 0},
)
