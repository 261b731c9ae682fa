"""Settings of what learns continuous actions from replay, and how others spell them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from operant.algorithms.bounds import check_bounds
from operant.algorithms.dialects import COMMON_RULES, MACHIN_OWN, DIEngine, Machin, Rule, Values, same
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
    optimizer: str = setting("adam", "adam, or rmsprop: without momentum")

    di_engine: ClassVar[DIEngine]
    machin: ClassVar[Machin]

    def __post_init__(self) -> None:
        check_bounds(self, "target_every")


# -- how others spell these settings ----------------------------------------------------------------------------------
_HEAD_SIZES = ("policy.model.actor_head_hidden_size", "policy.model.critic_head_hidden_size")


def read_truth(theirs: Values, key: str) -> bool:
    value = theirs[key]
    if not isinstance(value, bool):
        raise UsageError(f"main_config.{key} is {value!r}; it is true or false")
    return value


def di_engine_words(
    critic_rate: str,
    actor_rate: str,
    table: dict[str, str],
    defaults: Values,
    elsewhere: tuple[str, ...] = (),
    read: Callable[[Values], Values] = lambda theirs: {},
    write: Callable[[Values], Values] = lambda ours: {},
) -> DIEngine:
    """DI-engine's words for one of the family: the common ones and its own.

    :param critic_rate, actor_rate: its keys of the two learning rates.
    """

    def read_all(theirs: Values) -> Values:
        found: Values = {
            "algorithm.critics": 2 if read_truth(theirs, "policy.model.twin_critic") else 1,
            "algorithm.target_every": 1,
        }
        if theirs[actor_rate] != theirs[critic_rate]:
            found["algorithm.actor_learning_rate"] = theirs[actor_rate]
        sizes = {theirs[key] for key in _HEAD_SIZES if key in theirs}
        if len(sizes) > 1:
            raise UsageError(
                "policy.model.actor_head_hidden_size and critic_head_hidden_size differ; actor and critic have the "
                "same hidden layers here, unless model.actor and model.critic name modules"
            )
        # DI-engine's heads have a layer of their own behind the encoder, which is one layer where none is told.
        encoder = theirs.get("policy.model.encoder_hidden_size_list")
        if encoder and not isinstance(encoder, (list, tuple)):
            raise UsageError(
                f"main_config.policy.model.encoder_hidden_size_list is {encoder!r}; it is a list such as [64, 64]"
            )
        width = [*sizes] or [64]
        found["model.hidden"] = [*encoder, *sizes] if encoder else width * 2
        return found | read(theirs)

    def write_all(ours: Values) -> Values:
        rate = ours.get("algorithm.actor_learning_rate")
        updates = ours["algorithm.updates"] or ours["algorithm.train_every"]
        return {
            "policy.model.twin_critic": ours["algorithm.critics"] > 1,
            "policy.learn.update_per_collect": updates,
            actor_rate: ours["algorithm.learning_rate"] if rate is None else rate,
        } | write(ours)

    return DIEngine(
        table={
            "policy.nstep": "algorithm.n_step",
            "policy.priority": "algorithm.prioritized",
            "policy.random_collect_size": "algorithm.learning_starts",
            "policy.learn.batch_size": "algorithm.batch",
            "policy.learn.update_per_collect": "algorithm.updates",
            "policy.learn.target_theta": "algorithm.target_rate",
            "policy.learn.discount_factor": "algorithm.gamma",
            "policy.collect.n_sample": "algorithm.train_every",
            "policy.other.replay_buffer.replay_buffer_size": "algorithm.buffer",
            critic_rate: "algorithm.learning_rate",
            **table,
        },
        defaults={"policy.collect.n_sample": 1, "policy.learn.update_per_collect": 1, **defaults},
        # `ignore_done` works around what truncations do to DI-engine's targets; ours bootstrap at truncations. Here
        # actions always fill the bounds (`act_scale`) and transitions are drawn until they are overwritten (`max_use`).
        elsewhere=(
            "env.act_scale",
            "env.use_act_scale",
            "policy.on_policy",
            "policy.action_space",
            "policy.model.twin_critic",
            "policy.model.action_space",
            "policy.model.actor_head_type",
            *_HEAD_SIZES,
            actor_rate,
            "policy.learn.ignore_done",
            "policy.other.replay_buffer.max_use",
            *elsewhere,
        ),
        read=read_all,
        write=write_all,
        steps_per_iteration=lambda theirs: float(
            theirs["policy.collect.n_sample"] / theirs["policy.learn.update_per_collect"]
        ),
    )


def _read_target(given: Values) -> Values:
    rate, steps = given.get("update_rate"), given.get("update_steps")
    if rate is None and steps is None:
        raise UsageError(
            "frame_config.update_rate and update_steps are both null: give a share (0.005, after each update) or a "
            "number of updates between copies"
        )
    return {"target_every": 1 if steps is None else steps, "target_rate": 1.0 if rate is None else rate}


def _write_target(settings: Values) -> Values:
    every, rate = settings["target_every"], settings["target_rate"]
    soft = rate != 1.0
    return {"update_rate": rate if soft else None, "update_steps": None if every == 1 and soft else every}


def _read_rates(given: Values) -> Values:
    actor, critic = given.get("actor_learning_rate"), given.get("critic_learning_rate")
    read: Values = {} if critic is None else {"learning_rate": critic}
    return read if actor in (None, critic) else {**read, "actor_learning_rate": actor}


def _write_rates(settings: Values) -> Values:
    rate, actor = settings["learning_rate"], settings["actor_learning_rate"]
    return {"actor_learning_rate": rate if actor is None else actor, "critic_learning_rate": rate}


OffPolicySettings.machin = Machin(
    rules=(
        *(rule for rule in COMMON_RULES if rule.ours != ("learning_rate",)),
        Rule(
            ("actor_learning_rate", "critic_learning_rate"),
            ("learning_rate", "actor_learning_rate"),
            _read_rates,
            _write_rates,
        ),
        same("replay_size", "buffer"),
        same("q_increase_rate", "increase_rate"),
        same("q_decrease_rate", "decrease_rate"),
        Rule(("update_rate", "update_steps"), ("target_every", "target_rate"), _read_target, _write_target),
        # Of the critics; it is not to be chosen.
        Rule(("criterion",), (), lambda given: {}, lambda settings: {"criterion": "MSELoss"}),
    ),
    # Machin plays an episode and then makes one update for each of its steps. Rounds of this many steps do the same.
    defaults={"updates": 0, "train_every": 32},
    own={
        **MACHIN_OWN,
        "actor_learning_rate": 5e-4,
        "critic_learning_rate": 1e-3,
        "update_rate": 0.001,
        "update_steps": None,
        "replay_size": 500_000,
        "criterion": "MSELoss",
    },
)
