"""Q-learning of distributions of returns: C51, QR-DQN, and Rainbow, which is C51 with all that the family has."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from operant.algorithms.contracts import Array, Metrics
from operant.algorithms.dialects import same
from operant.algorithms.dqn import DQN, QPolicy
from operant.algorithms.dqn_settings import QSettings
from operant.algorithms.errors import DivergedError
from operant.errors import UsageError
from operant.models.builders import QNetwork
from operant.settings import setting


@dataclass(frozen=True)
class C51Settings(QSettings):
    """Settings of C51."""

    atoms: int = setting(51, "values that a return may have; more: finer, takes more time")
    value_min: float = setting(-10.0, "the smallest of them, which all smaller returns count as; lower: coarser")
    value_max: float = setting(10.0, "the largest of them, which all larger returns count as; higher: coarser")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.atoms < 2 or not self.value_min < self.value_max:
            raise UsageError("C51 needs atoms from 2 up, and value_min below value_max")


@dataclass(frozen=True)
class RainbowSettings(C51Settings):
    """Settings of Rainbow: those of C51, with everything that the family has switched on."""

    n_step: int = setting(
        3, "rewards summed before bootstrapping; larger: less bias of Q, more variance, rewards travel faster"
    )
    dueling: bool = setting(
        True, "split the network into value and advantage (Wang et al. 2016): helps where many actions are alike"
    )
    prioritized: bool = setting(
        True, "sample by the size of the last error (Schaul et al. 2016): learns more from rare rewards, takes longer"
    )
    noisy: bool = setting(
        True,
        "noise of a learned size on the last layer explores, beside random actions if any (Fortunato et al. 2018)",
    )
    exploration_start: float = setting(
        0.0, "share of random actions at the start; larger: more is seen before anything is learned"
    )
    exploration_end: float = setting(
        0.0, "share of random actions in the end; larger: goes on exploring, but training returns stay lower"
    )


@dataclass(frozen=True)
class QRDQNSettings(QSettings):
    """Settings of QR-DQN."""

    quantiles: int = setting(200, "quantiles of a return that are learned; more: finer, takes more time")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.quantiles < 1:
            raise UsageError(f"algorithm.quantiles is {self.quantiles}; it must be at least 1")


_COMMON = QSettings.di_engine
C51Settings.di_engine = replace(
    _COMMON,
    table={
        **_COMMON.table,
        "policy.model.n_atom": "algorithm.atoms",
        "policy.model.v_min": "algorithm.value_min",
        "policy.model.v_max": "algorithm.value_max",
    },
    elsewhere=(*_COMMON.elsewhere, "policy.on_policy"),
)
RainbowSettings.di_engine = replace(
    C51Settings.di_engine,
    table={**C51Settings.di_engine.table, "policy.noisy_net": "algorithm.noisy"},
    elsewhere=(*C51Settings.di_engine.elsewhere, "policy.learn.iqn"),
    defaults={**_COMMON.defaults, **{f"policy.other.eps.{end}": 0.05 for end in ("start", "end")}},
)
QRDQNSettings.di_engine = replace(
    _COMMON,
    table={**_COMMON.table, "policy.model.num_quantiles": "algorithm.quantiles"},
    defaults={**_COMMON.defaults, "policy.model.num_quantiles": 64},
    elsewhere=(*_COMMON.elsewhere, "policy.on_policy", "policy.learn.kappa"),
)
C51Settings.machin = QRDQNSettings.machin = replace(QSettings.machin, own={})  # it has neither
_NOT_OF_RAINBOW = {"mode", "criterion"}
RainbowSettings.machin = replace(
    QSettings.machin,
    rules=(*QSettings.machin.rules, same("reward_future_steps", "n_step")),
    own={
        **{key: value for key, value in QSettings.machin.own.items() if key not in _NOT_OF_RAINBOW},
        "update_rate": 0.001,
        "reward_future_steps": 3,
    },
)


_FEW_PAIRS = 400  # of a quantile and a target: up to so many, a row is quicker without sorting


def project(probability: Array, reward: Array, discount: Array, support: Array) -> Array:
    """Bellemare et al. 2017, equation 7: the distribution of R + γ Z on the atoms of Z; what falls between two atoms
    is shared by them, so that mass and (within the bounds) mean are kept.

    :param probability: of each atom [B, K]; `reward` and `discount`: [B]; `support`: the atoms [K].
    """
    rows, atoms = probability.shape
    step = (support[-1] - support[0]) / (atoms - 1)
    moved = reward[:, None] + discount[:, None] * support
    place = np.minimum(np.maximum((moved - support[0]) / step, 0.0), atoms - 1.0)
    below = np.minimum(place.astype(np.int64), atoms - 2)
    upper = probability * (place - below)
    flat = (below + np.arange(rows)[:, None] * atoms).reshape(-1)
    size = rows * atoms
    try:
        mass = np.bincount(flat, (probability - upper).reshape(-1), size)
    except ValueError:  # a place below 0, which only a reward that is not a number has
        raise DivergedError from None
    mass[1:] += np.bincount(flat, upper.reshape(-1), size)[:-1]
    return mass.reshape(rows, atoms).astype(probability.dtype)


def categorical_gradient(logits: Array, target: Array) -> tuple[Array, Array]:
    """The gradient by the logits of each row's loss, the cross-entropy −Σ m log p (its own gradient is p − m), and the
    divergence of each row, which is that loss without the target's own entropy: KL(m ‖ p)."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    exponents = np.exp(shifted)
    total = exponents.sum(axis=1, keepdims=True)
    known = np.log(np.maximum(target, np.finfo(target.dtype).tiny))
    divergence = (target * (known - shifted + np.log(total))).sum(axis=1)
    return exponents / total - target, np.maximum(divergence, 0.0)


def quantile_gradient(theta: Array, target: Array) -> tuple[Array, Array]:
    """Dabney et al. 2018, equation 10 with κ = 1: of each row the gradient by θ of Σᵢ Eⱼ |τᵢ − 1[uⱼᵢ < 0]| ℓ(uⱼᵢ) with
    uⱼᵢ = Tⱼ − θᵢ and ℓ the Huber loss, and that loss.

    Of many, targets are sorted, so that sums over those that lie more than 1 below θ, up to 1 below it, and so on are
    differences of running sums: K log K instead of K² (200 quantiles, 32 rows: 1.2 ms, by autograd over all pairs 21).
    """
    rows, count = theta.shape
    levels = (np.arange(count, dtype=theta.dtype) + 0.5) / count
    if count * target.shape[1] <= _FEW_PAIRS:
        # With the rows last [K, K, B] inner loops are long: two thirds of the time.
        u = np.ascontiguousarray(target.T) - np.ascontiguousarray(theta.T)[:, None]
        weighed = np.minimum(np.maximum(u, -1.0), 1.0)  # ∂ℓ/∂u
        u -= 0.5 * weighed
        above = levels[:, None, None]
        weighed *= np.where(weighed < 0.0, 1.0 - above, above)
        u *= weighed
        return weighed.mean(axis=1).T * theta.dtype.type(-1.0), np.asarray(u.sum(axis=(0, 1)) / target.shape[1])
    ordered = np.sort(target, axis=1)
    many = ordered.shape[1]
    known = torch.from_numpy(ordered)
    row = np.arange(rows)[:, None] * (many + 1)
    running = np.zeros((2, rows, many + 1), theta.dtype)
    # Around the mean of each row: differences of running sums of large numbers would lose digits.
    middle = ordered.mean(axis=1, keepdims=True)
    centred, at = ordered - middle, theta - middle
    np.cumsum(centred, axis=1, out=running[0, :, 1:])
    np.cumsum(centred * centred, axis=1, out=running[1, :, 1:])

    def until(bound: Array, right: bool) -> tuple[Array, Array, Array]:
        """How many targets lie below a bound, the sum of u of these and that of u²/2."""
        number = torch.searchsorted(known, torch.from_numpy(bound), right=right).numpy()
        first, square = (one.take(number + row) for one in running)
        sum_of_u = first - number * at
        return number, sum_of_u, 0.5 * (square - at * (first + sum_of_u))

    far_below, far_below_u, far_below_square = until(theta - 1.0, False)
    _, below_u, below_square = until(theta, False)
    near, near_u, near_square = until(theta + 1.0, True)
    all_u = running[0, :, -1:] - many * at
    gradient = (1.0 - levels) * (far_below - below_u + far_below_u) - levels * (near_u - below_u + many - near)
    loss_below = below_square - far_below_square - far_below_u - 0.5 * far_below
    loss_above = near_square - below_square + all_u - near_u - 0.5 * (many - near)
    loss = ((1.0 - levels) * loss_below + levels * loss_above).sum(axis=1) / many
    return np.asarray(gradient / many, theta.dtype), np.asarray(np.maximum(loss, 0.0), theta.dtype)


class CategoricalQPolicy(QPolicy):
    """Acts by the means of distributions over fixed values."""

    Settings = C51Settings
    settings: C51Settings
    may_remember = False

    @property
    def _atoms(self) -> int:  # type: ignore[override]
        return self.settings.atoms

    @cached_property
    def _support(self) -> Array:
        s = self.settings
        return np.linspace(s.value_min, s.value_max, s.atoms, dtype=np.float32)

    def _build(self) -> Any:
        network = super()._build()
        if isinstance(network, QNetwork):
            network.probabilities = True
        return network

    def _probabilities(self, outputs: Array) -> Array:
        logits = _by_action(outputs, self._atoms, self.actions.outputs)
        exponents: Array = np.exp(logits - logits.max(axis=2, keepdims=True))
        exponents /= exponents.sum(axis=2, keepdims=True)
        return exponents

    def _expected(self, outputs: Array) -> Array:
        return np.asarray(self._probabilities(outputs) @ self._support)


class QuantilePolicy(QPolicy):
    """Acts by the means of quantiles."""

    Settings = QRDQNSettings
    settings: QRDQNSettings
    may_remember = False

    @property
    def _atoms(self) -> int:  # type: ignore[override]
        return self.settings.quantiles

    def _expected(self, outputs: Array) -> Array:
        return np.asarray(_by_action(outputs, self._atoms, self.actions.outputs).mean(axis=2))


class Distributional(DQN):
    """What C51 and QR-DQN share; a batch is as for DQN. The new priorities are the losses of the rows."""

    takes_criterion = False

    def _gradient(self, batch: Any) -> tuple[Array, Array]:
        action = batch["action"].reshape(-1)
        target = batch["target"] if "target" in batch else self._targets(batch)
        rows = np.arange(len(action))
        if not self._learning_q.fused:
            self._flat.grad_tensor.zero_()
        with self._modes.updating():
            outputs, backward = self._learning_q.evaluate(batch["obs"])
            gradient = np.zeros((len(rows), self.actions.outputs, self._atoms), outputs.dtype)
            chosen = _by_action(outputs, self._atoms, self.actions.outputs)[rows, action]
            of_chosen, loss = self._row_gradient(chosen, target)
            weight = np.ones(1, outputs.dtype) if (given := batch.get("weight")) is None else given
            gradient[rows, action] = of_chosen * (weight / len(rows))[:, None]
            outputs = outputs.copy() if self.measure else outputs  # going back uses up the memory they lie in
            backward(gradient.reshape(len(rows), -1))
        return outputs, loss

    def _row_gradient(self, chosen: Array, target: Array) -> tuple[Array, Array]:
        """The gradient of each row's loss by what the network gave for the action taken [B, K], and its size."""
        raise NotImplementedError

    def _errors(self, size: Array) -> Metrics:
        return {"q_loss": float(size.mean())}


class C51(CategoricalQPolicy, Distributional):
    """Learns how likely each of some fixed values is as the return (Bellemare et al. 2017, arXiv 1707.06887)."""

    policy_class = CategoricalQPolicy

    def _targets(self, batch: Any) -> Array:
        following, best = self._following(batch)
        probability = self._probabilities(following)[np.arange(len(best)), best]
        return project(probability, batch["reward"], np.asarray(self._discount(batch)), self._support)

    def _row_gradient(self, chosen: Array, target: Array) -> tuple[Array, Array]:
        return categorical_gradient(chosen, target)


class Rainbow(C51):
    """C51 with double choice, dueling heads, n-step returns, priorities and noisy layers (Hessel et al. 2018, arXiv
    1710.02298)."""

    Settings = RainbowSettings


class QRDQN(QuantilePolicy, Distributional):
    """Learns quantiles of the return (Dabney et al. 2018, arXiv 1710.10044)."""

    policy_class = QuantilePolicy

    def _targets(self, batch: Any) -> Array:
        following, best = self._following(batch)
        quantiles = _by_action(following, self._atoms, self.actions.outputs)[np.arange(len(best)), best]
        target = batch["reward"][:, None] + np.asarray(self._discount(batch))[:, None] * quantiles
        return np.asarray(target, quantiles.dtype)

    def _row_gradient(self, chosen: Array, target: Array) -> tuple[Array, Array]:
        return quantile_gradient(chosen, target)


def _by_action(outputs: Array, atoms: int, actions: int) -> Array:
    """[B, A, K]."""
    if outputs.shape[1] != atoms * actions:
        raise UsageError(
            f"the network gives {outputs.shape[1]} numbers for an observation; with {actions} actions and {atoms} "
            f"atoms or quantiles it must be {atoms * actions}"
        )
    return outputs.reshape(len(outputs), actions, atoms)
