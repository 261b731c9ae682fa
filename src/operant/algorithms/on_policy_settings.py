"""Settings of what learns from rollouts, and how others spell them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from operant.algorithms.bounds import check_bounds
from operant.algorithms.dialects import COMMON_RULES, MACHIN_OWN, DIEngine, Machin, Rule, Values, both, same
from operant.errors import UsageError
from operant.settings import setting


@dataclass(frozen=True)
class OnPolicySettings:
    """What all algorithms that learn from rollouts have; each has defaults of its own."""

    rollout: int = setting(
        2048, "steps of each environment before an update; more: less bias and variance, fewer updates"
    )
    gamma: float = setting(0.99, "discount; smaller: less variance and quicker, but what comes late counts less")
    gae_lambda: float = setting(
        0.95, "λ of generalised advantage estimation; smaller: less variance, more bias by a wrong value function"
    )
    learning_rate: float = setting(3e-4, "step size; larger: faster, until the policy collapses")
    anneal_learning_rate: bool = setting(
        False, "let the learning rate fall to zero over the training: settles better, but learns nothing new at the end"
    )
    entropy_weight: float = setting(0.0, "weight of the entropy bonus; larger: explores longer, ends less sure")
    value_weight: float = setting(
        0.5,
        "weight of the squared error of the value; larger: it fits sooner, the policy moves less once clipped",
    )
    max_gradient_norm: float = setting(
        0.5, "limit of the norm of the gradient; smaller: steadier, slower where gradients are large"
    )
    normalize_advantage: bool = setting(
        True, "scale advantages of each minibatch to mean 0 and deviation 1: steps do not depend on the size of rewards"
    )
    optimizer: str = setting("adam", "adam, or rmsprop: without momentum")
    optimizer_eps: float = setting(1e-5, "ε of the optimizer; larger: smaller steps where gradients are tiny")

    di_engine: ClassVar[DIEngine]
    machin: ClassVar[Machin]

    def __post_init__(self) -> None:
        check_bounds(self)


# -- how others spell these settings ----------------------------------------------------------------------------------
def collected(theirs: Values) -> int:
    """DI-engine's samples of all environments together for one update."""
    if "policy.collect.n_sample" not in theirs:
        raise UsageError("main_config.policy.collect.n_sample is missing: how many steps are collected for an update")
    return _rollout(theirs) * int(theirs.get("env.collector_env_num", 1))


def _rollout(theirs: Values) -> int:
    return math.ceil(float(theirs["policy.collect.n_sample"] / theirs.get("env.collector_env_num", 1)))


def _from_di_engine(theirs: Values) -> Values:
    collected(theirs)
    read: Values = {"algorithm.rollout": _rollout(theirs)}
    # DI-engine's heads have a layer of their own behind the encoder; ours is one more hidden layer.
    sizes = {value for key, value in theirs.items() if key.endswith(_HEAD_SIZES)}
    if len(sizes) > 1:
        raise UsageError(
            "policy.model.actor_head_hidden_size and critic_head_hidden_size differ; actor and critic have the same "
            "hidden layers here, unless model.actor and model.critic name modules"
        )
    hidden = theirs.get("policy.model.encoder_hidden_size_list")
    return {**read, "model.hidden": [*hidden, *sizes]} if sizes and hidden else read


def _to_di_engine(ours: Values) -> Values:
    return {"policy.collect.n_sample": ours["algorithm.rollout"] * ours.get("env.num_envs", 1)}


_HEAD_SIZES = ("actor_head_hidden_size", "critic_head_hidden_size")
OnPolicySettings.di_engine = DIEngine(
    table={
        "policy.collect.discount_factor": "algorithm.gamma",
        "policy.collect.gae_lambda": "algorithm.gae_lambda",
        "policy.learn.entropy_weight": "algorithm.entropy_weight",
        "policy.learn.value_weight": "algorithm.value_weight",
    },
    defaults={},
    # `ignore_done` works around what truncations do to DI-engine's targets; ours bootstrap at truncations.
    elsewhere=(
        "policy.action_space",
        "policy.on_policy",
        "policy.model.action_space",
        *(f"policy.model.{size}" for size in _HEAD_SIZES),
        "policy.collect.n_sample",
        "policy.learn.ignore_done",
        "policy.learn.update_per_collect",
    ),
    read=_from_di_engine,
    write=_to_di_engine,
    steps_per_iteration=collected,
)


def _read_entropy_weight(given: Values) -> Values:
    weight = given["entropy_weight"]
    if weight is not None and (isinstance(weight, bool) or not isinstance(weight, (int, float))):
        raise UsageError(f"frame_config.entropy_weight is a number or null, got {weight!r:.100}")
    return {"entropy_weight": -weight if weight else 0.0}


OnPolicySettings.machin = Machin(
    rules=(
        *(rule for rule in COMMON_RULES if rule.ours not in (("learning_rate",), ("batch",))),
        both("actor_learning_rate", "critic_learning_rate", "learning_rate"),
        same("value_weight", "value_weight"),
        same("gae_lambda", "gae_lambda"),
        same("normalize_advantage", "normalize_advantage"),
        # Machin adds weight times entropy to the loss; here the weight is that of a bonus.
        Rule(
            ("entropy_weight",),
            ("entropy_weight",),
            _read_entropy_weight,
            lambda settings: {"entropy_weight": -settings["entropy_weight"] if settings["entropy_weight"] else None},
        ),
        # Of the value; it is not to be chosen.
        Rule(("criterion",), (), lambda given: {}, lambda settings: {"criterion": "MSELoss"}),
    ),
    # Without its numbers of updates, 5 of the actor and 10 of the critic, which are trained together here.
    own={
        **MACHIN_OWN,
        "actor_learning_rate": 1e-3,
        "critic_learning_rate": 1e-3,
        "entropy_weight": None,
        "value_weight": 0.5,
        "gae_lambda": 1.0,
        "normalize_advantage": True,
        "criterion": "MSELoss",
    },
)
