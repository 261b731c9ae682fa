"""Settings of the DQN family, and how others spell them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from operant.algorithms.bounds import check_bounds
from operant.algorithms.dialects import COMMON_RULES, MACHIN_OWN, DIEngine, Machin, Rule, Values, named, same
from operant.errors import UsageError
from operant.settings import setting


@dataclass(frozen=True)
class QSettings:
    """What all of the DQN family have."""

    train_every: int = setting(
        4, "environment steps (of all together) between rounds of updates; more: quicker, but less is learned from each"
    )
    updates: int = setting(
        1, "gradient steps of a round, 0: as many as steps; more: fewer steps needed, more time, more overfitting"
    )
    batch: int = setting(32, "transitions of one gradient step; larger: less noise in the gradient, more time")
    buffer: int = setting(
        1_000_000,
        "transitions that are kept; larger: older ones stay and forgetting is rarer, but they fit the policy less",
    )
    learning_starts: int = setting(
        100, "environment steps before the first update (ε-greedy already); more: the first batches are more varied"
    )
    gamma: float = setting(0.99, "discount; smaller: less variance and quicker, but what comes late counts less")
    n_step: int = setting(
        1, "rewards summed before bootstrapping; larger: less bias of Q, more variance, rewards travel faster"
    )
    learning_rate: float = setting(1e-4, "step size; larger: faster, until values diverge")
    double: bool = setting(
        True, "choose the next action with the online network (van Hasselt et al. 2016): values are overestimated less"
    )
    dueling: bool = setting(
        False, "split the network into value and advantage (Wang et al. 2016): helps where many actions are alike"
    )
    target_every: int = setting(
        10_000,
        "environment steps between copies into the target network, 0: none; more: steadier targets, slower learning",
    )
    target_rate: float = setting(
        1.0, "share of the online weights in such a copy, 1: a hard copy; smaller: smoother targets (then copy often)"
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
    exploration_start: float = setting(
        1.0, "share of random actions at the start; larger: more is seen before anything is learned"
    )
    exploration_end: float = setting(
        0.05, "share of random actions in the end; larger: goes on exploring, but training returns stay lower"
    )
    exploration_fraction: float = setting(
        0.1, "part of the training over which that share falls; larger: explores longer"
    )
    exploration_steps: int = setting(
        0, "if above 0, environment steps over which it falls instead of that part; more: explores longer"
    )
    exploration_decay: float = setting(
        0.0, "if above 0, it falls as exp(−steps/decay) instead of a line; larger: explores longer"
    )
    noisy: bool = setting(
        False,
        "noise of a learned size on the last layer explores, beside random actions if any (Fortunato et al. 2018)",
    )
    noisy_std: float = setting(0.5, "size of that noise at the start; larger: explores more widely at first")
    max_gradient_norm: float = setting(
        10.0, "limit of the norm of the gradient; smaller: steadier, slower where gradients are large"
    )
    optimizer: str = setting("adam", "adam, or rmsprop: without momentum, as in the paper")
    optimizer_eps: float = setting(1e-8, "ε of the optimizer; larger: smaller steps where gradients are tiny")

    di_engine: ClassVar[DIEngine]
    machin: ClassVar[Machin]

    def __post_init__(self) -> None:
        check_bounds(self)


@dataclass(frozen=True)
class DQNSettings(QSettings):
    """Settings of DQN."""

    loss: str = setting("huber", "huber: single large errors count less; squared: exact means, more easily thrown off")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.loss not in ("huber", "squared"):
            raise UsageError(f"algorithm.loss is huber or squared, not {self.loss!r}")


# -- how others spell these settings ----------------------------------------------------------------------------------
_EPS = {"start": 0.95, "end": 0.1, "decay": 10_000, "type": "exp"}


def _steps_per_iteration(theirs: Values) -> float:
    return float(theirs["policy.collect.n_sample"] / theirs["policy.learn.update_per_collect"])


def _from_di_engine(theirs: Values) -> Values:
    eps = {key: theirs.get(f"policy.other.eps.{key}", usual) for key, usual in _EPS.items()}
    # DI-engine copies every `target_update_freq` iterations; ours counts environment steps.
    copies = theirs.get("policy.learn.target_update_freq", 100)
    read = {
        "algorithm.target_every": max(1, round(copies * _steps_per_iteration(theirs))),
        "algorithm.exploration_start": eps["start"],
        "algorithm.exploration_end": eps["end"],
    }
    if eps["type"] == "exp":
        return {**read, "algorithm.exploration_decay": float(eps["decay"])}
    if eps["type"] == "linear":
        return {**read, "algorithm.exploration_steps": int(eps["decay"])}
    raise UsageError(f"policy.other.eps.type is {eps['type']!r}; exp and linear are known")


def _to_di_engine(ours: Values) -> Values:
    usual = QSettings()
    now = {name: ours.get(f"algorithm.{name}", value) for name, value in vars(usual).items()}
    share = now["exploration_fraction"] * ours.get("total_steps", 100_000)
    updates = now["updates"] or now["train_every"]  # 0: as many as environment steps, which DI-engine says in full
    return {
        "policy.learn.update_per_collect": updates,
        "policy.learn.target_update_freq": max(1, round(now["target_every"] * updates / now["train_every"])),
        "policy.other.eps.type": "exp" if now["exploration_decay"] else "linear",
        "policy.other.eps.start": now["exploration_start"],
        "policy.other.eps.end": now["exploration_end"],
        "policy.other.eps.decay": now["exploration_decay"] or now["exploration_steps"] or max(1, round(share)),
    }


QSettings.di_engine = DIEngine(
    table={
        "policy.nstep": "algorithm.n_step",
        "policy.discount_factor": "algorithm.gamma",
        "policy.priority": "algorithm.prioritized",
        "policy.learn.batch_size": "algorithm.batch",
        "policy.learn.update_per_collect": "algorithm.updates",
        "policy.collect.n_sample": "algorithm.train_every",
        "policy.other.replay_buffer.replay_buffer_size": "algorithm.buffer",
    },
    defaults={"policy.learn.update_per_collect": 3, "policy.collect.n_sample": 8},
    elsewhere=("policy.other.eps", "policy.learn.target_update_freq"),
    read=_from_di_engine,
    write=_to_di_engine,
    steps_per_iteration=_steps_per_iteration,
)
DQNSettings.di_engine = replace(
    QSettings.di_engine,
    table={**QSettings.di_engine.table, "policy.model.dueling": "algorithm.dueling"},
    defaults={**QSettings.di_engine.defaults, "policy.model.dueling": True},
)


def _read_target(given: Values) -> Values:
    rate, steps = given.get("update_rate"), given.get("update_steps")
    if given.get("mode") == "vanilla":
        return {"target_every": 0, "target_rate": 1.0, "double": False}
    if given.get("mode", "double") not in ("double", "fixed_target"):
        raise UsageError(f"frame_config.mode is double, fixed_target or vanilla, not {given['mode']!r}")
    read: Values = {"double": given["mode"] == "double"} if "mode" in given else {}
    if "update_rate" not in given and "update_steps" not in given:
        return read
    if rate is None and steps is None:
        raise UsageError(
            "frame_config.update_rate and update_steps are both null: give a share (0.005, after each update) or a "
            "number of updates between copies; without a target network the mode is 'vanilla'"
        )
    return {**read, "target_every": 1 if steps is None else steps, "target_rate": 1.0 if rate is None else rate}


def _write_target(settings: Values) -> Values:
    every, rate = settings["target_every"], settings["target_rate"]
    if every == 0:
        return {"mode": "vanilla", "update_rate": None, "update_steps": None}
    return {
        "mode": "double" if settings["double"] else "fixed_target",
        "update_rate": None if rate == 1.0 else rate,
        "update_steps": None if every == 1 and rate != 1.0 else every,
    }


def _read_epsilon(given: Values) -> Values:
    """ε is multiplied by this after each step: exp(−steps/decay) with decay = −1/ln ε_decay. It ends at a floor."""
    decay = given["epsilon_decay"]
    if decay is None:
        return {"exploration_decay": 0.0}
    if not isinstance(decay, (int, float)) or not 0.0 < decay < 1.0:
        raise UsageError(f"frame_config.epsilon_decay lies between 0 and 1, or is null; got {decay!r}")
    return {"exploration_decay": -1.0 / math.log(decay)}


def _write_epsilon(settings: Values) -> Values:
    decay = settings["exploration_decay"]
    return {"epsilon_decay": math.exp(-1.0 / decay) if decay > 0 else None}


QSettings.machin = Machin(
    rules=(
        *COMMON_RULES,
        same("replay_size", "buffer"),
        Rule(
            ("update_rate", "update_steps", "mode"),
            ("target_every", "target_rate", "double"),
            _read_target,
            _write_target,
        ),
        Rule(("epsilon_decay",), ("exploration_decay",), _read_epsilon, _write_epsilon),
    ),
    # Machin plays an episode and then makes one update for each of its steps. Rounds of this many steps do the same.
    defaults={"updates": 0, "train_every": 32},
    own={
        **MACHIN_OWN,
        "learning_rate": 1e-3,
        "epsilon_decay": 0.9999,
        "update_rate": 0.005,
        "update_steps": None,
        "mode": "double",
        "replay_size": 500_000,
        "criterion": "MSELoss",
    },
)
DQNSettings.machin = replace(
    QSettings.machin,
    rules=(
        *QSettings.machin.rules,
        named("criterion", "loss", {"squared": "MSELoss", "huber": "SmoothL1Loss"}, {"HuberLoss": "huber"}),
    ),
)
