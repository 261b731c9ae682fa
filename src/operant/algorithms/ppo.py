"""Proximal policy optimization (Schulman et al. 2017, arXiv 1707.06347)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch

from operant.algorithms.contracts import Array, Metrics
from operant.algorithms.dialects import Values, both, same
from operant.algorithms.on_policy import OnPolicy, Prepared, explained_variance, normalized
from operant.algorithms.on_policy_settings import OnPolicySettings, collected
from operant.algorithms.teams import Shares, Team
from operant.errors import UsageError
from operant.models.observations import to_array, to_tensors
from operant.settings import setting


@dataclass(frozen=True)
class PPOSettings(OnPolicySettings):
    """Settings of PPO; the defaults are those of the original code for continuous control."""

    minibatch: int = setting(64, "rows of one gradient step; fewer: more steps and more noise in each pass")
    epochs: int = setting(10, "passes over a rollout; more: more is learned from it, until the policy moves too far")
    clip: float = setting(0.2, "ε, how far the probability ratio may move; smaller: steadier, slower")
    anneal_clip: bool = setting(
        False, "let ε fall to zero over the training: settles better, but learns nothing new at the end"
    )
    target_kl: float | None = setting(
        None,
        "end the epochs when the policy has moved 1.5 times this far (KL), looked at after each; smaller: steadier",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.minibatch < 2 or self.epochs < 1:
            raise UsageError("PPO needs epochs ≥ 1 and minibatch ≥ 2")


def _steps_per_iteration(theirs: Values) -> float:
    rows = collected(theirs)
    batches = math.ceil(rows / theirs["policy.learn.batch_size"])
    return float(rows / (theirs["policy.learn.epoch_per_collect"] * batches))


_COMMON, _MACHIN = OnPolicySettings.di_engine, OnPolicySettings.machin
PPOSettings.di_engine = replace(
    _COMMON,
    table={
        **_COMMON.table,
        "policy.learn.epoch_per_collect": "algorithm.epochs",
        "policy.learn.batch_size": "algorithm.minibatch",
        "policy.learn.clip_ratio": "algorithm.clip",
        "policy.learn.adv_norm": "algorithm.normalize_advantage",
        "policy.learn.grad_clip_value": "algorithm.max_gradient_norm",
        "policy.learn.ppo_param_init": "model.orthogonal",
    },
    defaults={
        "policy.learn.epoch_per_collect": 10,
        "policy.learn.batch_size": 64,
        "policy.learn.ppo_param_init": True,
    },
    # `value_norm` works around what the scale of returns does to DI-engine's targets.
    elsewhere=(
        *_COMMON.elsewhere,
        "policy.continuous",
        "policy.recompute_adv",
        "policy.learn.grad_clip_type",
        "policy.learn.value_norm",
    ),
    steps_per_iteration=_steps_per_iteration,
)
PPOSettings.machin = replace(
    _MACHIN,
    rules=(
        *_MACHIN.rules,
        same("batch_size", "minibatch"),
        both("actor_update_times", "critic_update_times", "epochs"),
        same("surrogate_loss_clip", "clip"),
    ),
    own={**_MACHIN.own, "surrogate_loss_clip": 0.2},
)


def ppo_loss(
    log_prob: torch.Tensor,
    entropy: torch.Tensor,
    value: torch.Tensor,
    *,
    old_log_prob: torch.Tensor,
    advantage: torch.Tensor,
    target: torch.Tensor,
    clip: float,
    entropy_weight: float,
    value_weight: float,
) -> torch.Tensor:
    """Equations 7 and 9: −E[min(r A, clip(r, 1−ε, 1+ε) A)] + c₁ E[(V − V̂)²] − c₂ E[H], r = π(a)/π_old(a)."""
    ratio = torch.exp(log_prob - old_log_prob)
    surrogate = torch.minimum(ratio * advantage, torch.clamp(ratio, 1.0 - clip, 1.0 + clip) * advantage)
    return -surrogate.mean() + value_weight * (value - target).square().mean() - entropy_weight * entropy.mean()


def ppo_gradients(
    log_prob: Array,
    value: Array,
    *,
    old_log_prob: Array,
    advantage: Array,
    target: Array,
    clip: float,
    value_weight: float,
) -> tuple[Array, Array, Array]:
    """The gradient of `ppo_loss` by log-probability and by value, and the ratio.

    Where the clipped term is the smaller one the gradient is zero: r > 1+ε with A > 0, r < 1−ε with A < 0.
    """
    count = len(log_prob)
    ratio = np.exp(log_prob - old_log_prob)
    weighted = ratio * advantage
    # The clipped product is smaller exactly where it differs from the plain one in this direction.
    kind = ratio.dtype.type
    clipped = np.minimum(np.maximum(ratio, kind(1.0 - clip)), kind(1.0 + clip))  # np.clip costs three times as much
    active = weighted <= clipped * advantage
    weighted *= active
    weighted *= weighted.dtype.type(-1.0 / count)
    value_grad = value - target
    value_grad *= value_grad.dtype.type(2.0 * value_weight / count)
    return weighted, value_grad, ratio


class PPO(OnPolicy):
    """Learns from each rollout for several epochs, with the policy kept close to the one that acted."""

    Settings = PPOSettings
    settings: PPOSettings
    learns_together: ClassVar[bool] = True
    team: Team | None = None
    """Who else learns with this one; each `learn` is then one update of all, from what each of them is given."""

    @property
    def _clip(self) -> float:
        return self.settings.clip * (1.0 - self.progress if self.settings.anneal_clip else 1.0)

    def learn(self, batch: Any) -> tuple[Metrics, None]:
        """Update from one rollout; see `OnPolicy` for its keys."""
        settings = self.settings
        data = self._prepare(batch)
        shares = None if self.team is None else Shares(self.team, data.advantage, *batch["reward"].shape)
        rows = len(data) if shares is None else shares.rows
        target, value = data.target, data.value
        whole = settings.minibatch >= rows
        if whole and shares is not None:
            data = self._shared(data, np.arange(rows), shares)
        elif whole:
            # One minibatch is the whole rollout: its order does not matter and its scale is the same each time.
            data = self._scaled(data, data.advantage)
        clip, rate = self._clip, self._learning_rate
        metrics: Metrics = {}
        updates = 0
        for epoch in range(settings.epochs):
            # The figures of the last epoch tell how far the policy has moved; a limit on that needs them always.
            measure = (self.measure and epoch == settings.epochs - 1) or settings.target_kl is not None
            gathered: list[Metrics] = []
            moved = 0.0
            parts = [data] if whole else self._minibatches(data, shares)
            for part in parts:
                told = self._step(part, clip, rate, measure)
                moved += part.share * told.get("approx_kl", 0.0)
                gathered += [told] if told else []
                updates += 1
            if gathered:
                metrics = {key: float(np.mean([one[key] for one in gathered])) for key in gathered[0]}
            if settings.target_kl is not None and self._of_all(moved) / len(parts) > 1.5 * settings.target_kl:
                break
        if not self.measure:
            return {}, None
        metrics["explained_variance"] = explained_variance(value, target)
        metrics["learning_rate"] = rate
        metrics["clip"] = clip
        metrics["updates"] = float(updates)
        if self._log_std is not None:
            metrics["std"] = float(np.exp(self._log_std).mean())
        return metrics, None

    def _of_all(self, value: float) -> float:
        """The sum of a number over all learners."""
        return value if self.team is None else float(self.team.total(np.array([value]))[0])

    def _shared(self, data: Prepared, index: Array, shares: Shares) -> Prepared:
        """This learner's rows of a minibatch of all."""
        place, own = shares.of(index)
        part = data.take(own)
        part.share = len(own) / len(index)
        return self._scaled(part, shares.advantage[index], place)

    def _scaled(self, part: Prepared, advantage: Array, place: Array | slice = slice(None)) -> Prepared:
        """The rows with their advantages as they count, scaled by all of the minibatch, of which they have a place."""
        if self.settings.normalize_advantage:
            advantage = normalized(advantage)
        part.advantage = advantage[place] if part.weight is None else advantage[place] * part.weight
        return part

    def _minibatches(self, data: Prepared, shares: Shares | None) -> list[Prepared]:
        if shares is not None:
            return [
                self._shared(data, index, shares)
                for index in self._in_parts(shares.rows, self.settings.minibatch)
                if len(index) > 1
            ]
        parts = []
        for index in self._shuffled(data, self.settings.minibatch):
            part = data.take(index)
            if len(part) < 2:
                continue  # one row has no deviation to scale by
            parts.append(self._scaled(part, part.advantage))
        return parts

    def _step(self, part: Prepared, clip: float, rate: float, measure: bool) -> Metrics:
        settings = self.settings
        if not len(part):  # all of the minibatch is with other learners
            self._flat.grad_tensor.zero_()
            self._apply_gradient(settings.max_gradient_norm, rate, 0.0)
            return {}
        if self._actor is None or self._critic is None:
            log_prob, entropy, value, ratio = self._torch_gradient(part, clip)
        else:
            output = self._head.mask(self._actor.forward(part.obs), part.mask)
            with_entropy = measure or settings.entropy_weight != 0.0
            log_prob, entropy, kept = self._head.evaluate(output, part.action, self._spread(part.obs, 0), with_entropy)
            value = self._critic.forward(part.obs)[:, 0]
            log_prob_grad, value_grad, ratio = ppo_gradients(
                log_prob,
                value,
                old_log_prob=part.log_prob,
                advantage=part.advantage,
                target=part.target,
                clip=clip,
                value_weight=settings.value_weight,
            )
            entropy_grad = -settings.entropy_weight / len(part)
            self._fused_backward(kept, log_prob_grad, entropy_grad, value_grad)
        norm = self._apply_gradient(settings.max_gradient_norm, rate, part.share)
        if not measure:
            return {}
        surrogate = np.minimum(ratio * part.advantage, np.clip(ratio, 1 - clip, 1 + clip) * part.advantage)
        return {
            "policy_loss": -float(surrogate.mean()),
            "value_loss": float(np.square(value - part.target).mean()),
            "entropy": float(np.mean(entropy)),
            # The k3 estimator (Schulman 2020): E[(r − 1) − log r], never negative.
            "approx_kl": float((ratio - 1.0 - (log_prob - part.log_prob)).mean()),
            "clip_fraction": float((np.abs(ratio - 1.0) > clip).mean()),
            "gradient_norm": norm,
        }

    def _apply_gradient(self, limit: float, rate: float, share: float = 1.0) -> float:
        if self.team is not None:
            # Each has the mean over its own rows; the mean over all is their sum, each with its share of the rows.
            mine = self._flat.grad_tensor.mul_(share).cpu().numpy()
            self._flat.grad_tensor.copy_(torch.from_numpy(self.team.total(mine)))
        return super()._apply_gradient(limit, rate)

    def _torch_gradient(self, part: Prepared, clip: float) -> tuple[Array, Array, Array, Array]:
        with self._modes.updating():
            log_prob, entropy, value = self._torch_forward(part)
            old_log_prob, advantage, target = (
                to_tensors(one, self._device) for one in (part.log_prob, part.advantage, part.target)
            )
            loss = ppo_loss(
                log_prob,
                entropy,
                value,
                old_log_prob=old_log_prob,
                advantage=advantage,
                target=target,
                clip=clip,
                entropy_weight=self.settings.entropy_weight,
                value_weight=self.settings.value_weight,
            )
            self._flat.grad_tensor.zero_()
            loss.backward()  # type: ignore[no-untyped-call]
        ratio = torch.exp(log_prob.detach() - old_log_prob)
        return to_array(log_prob), to_array(entropy), to_array(value), to_array(ratio)
