"""Learning from policies that are a little behind: V-trace (Espeholt et al. 2018, arXiv 1802.01561), with one gradient
step for each batch (IMPALA) or PPO's clipped epochs (APPO, arXiv 1912.00167 and 2006.11751)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from operant.algorithms.a2c import A2C, A2CSettings
from operant.algorithms.contracts import Array, DataSpec, Metrics
from operant.algorithms.on_policy import ActorCriticPolicy, OnPolicy, Prepared
from operant.algorithms.ppo import PPO, PPOSettings
from operant.data.sequences import by_environment
from operant.errors import UsageError
from operant.settings import setting

_RHO = "ρ̄, how much a step counts in the value's target at most; smaller: steadier, nearer the older policy's value"
_C = "c̄, how far what comes later reaches back through off-policy steps; smaller: less variance, slower"
_PG_RHO = "how much a step counts in the policy's gradient at most; smaller: less variance, more bias when lag is large"
_LAMBDA = "λ in the trace c; 1: the paper's n-step target; smaller: less variance, more bias by a wrong value function"
_V_TRACE = (
    "correct targets for lag; false: those of generalised advantage estimation, as if the learning policy had acted. "
    "The correction cuts traces wherever an action has become less likely, so that what comes late teaches less"
)
_LAG = "rounds of learning that the policy that acted may be behind, beyond it data are dropped; larger: less is wasted"


@dataclass(frozen=True)
class IMPALASettings(A2CSettings):
    """Settings of IMPALA; the defaults are those of the paper for short rollouts, with Adam."""

    rollout: int = setting(
        20, "steps of each environment in a trajectory; more: less bias, more variance, an older policy at its end"
    )
    gae_lambda: float = setting(1.0, _LAMBDA)
    optimizer: str = setting("adam", "adam, or rmsprop as in the paper: without momentum")
    entropy_weight: float = setting(0.01, "weight of the entropy bonus; larger: explores longer, ends less sure")
    v_trace: bool = setting(True, _V_TRACE)
    clip_rho: float = setting(1.0, _RHO)
    clip_c: float = setting(1.0, _C)
    clip_pg_rho: float = setting(1.0, _PG_RHO)
    max_lag: int = setting(16, _LAG)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check(self)


@dataclass(frozen=True)
class APPOSettings(PPOSettings):
    """Settings of APPO."""

    gae_lambda: float = setting(0.95, _LAMBDA)
    v_trace: bool = setting(True, _V_TRACE)
    clip_rho: float = setting(1.0, _RHO)
    clip_c: float = setting(1.0, _C)
    clip_pg_rho: float = setting(1.0, _PG_RHO)
    max_lag: int = setting(16, _LAG)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check(self)


# DI-engine's words for these are not read; its ppo and a2c are.
IMPALASettings.di_engine = APPOSettings.di_engine = None  # type: ignore[assignment]


def _check(settings: Any) -> None:
    for name in ("clip_rho", "clip_c", "clip_pg_rho"):
        if getattr(settings, name, 1.0) <= 0:
            raise UsageError(f"algorithm.{name} is {getattr(settings, name):g}; it must be above 0")
    if settings.max_lag < 1:
        raise UsageError(f"algorithm.max_lag is {settings.max_lag}; it must be at least 1 (a2c and ppo allow no lag)")


def v_trace(
    ratio: Array,
    reward: Array,
    terminated: Array,
    truncated: Array,
    value: Array,
    next_value: Array,
    *,
    gamma: float,
    lam: float = 1.0,
    clip_rho: float = 1.0,
    clip_c: float = 1.0,
) -> tuple[Array, Array]:
    """Targets v_s of the value (equation 1) and r_s + γ v_{s+1} − V(x_s), the advantage of section 4.2 before it is
    weighed; all arrays [T, N], none with a gradient.

    ``ratio`` is π(a)/μ(a), ``next_value[t]`` the value of what step t truly led to: at a truncation that of the last
    observation, from which the target is bootstrapped; the trace never goes on into the next episode.
    """
    alive, goes_on = 1.0 - terminated, 1.0 - (terminated | truncated)
    rho = np.minimum(ratio, clip_rho)
    trace = gamma * lam * np.minimum(ratio, clip_c) * goes_on
    delta = rho * (reward + gamma * next_value * alive - value)
    beyond = np.empty_like(delta)  # v_s − V(x_s)
    carried = np.zeros_like(delta[0])
    for t in range(len(delta) - 1, -1, -1):
        carried = beyond[t] = delta[t] + trace[t] * carried
    target = value + beyond
    following = next_value.copy()
    following[:-1] = np.where(goes_on[:-1] > 0, target[1:], next_value[:-1])
    return target, reward + gamma * following * alive - value


class _LaggingPolicy(ActorCriticPolicy):
    """Tells the log-probability of what it did: its learner may be another policy by then."""

    @staticmethod
    def data_spec(settings: Any) -> DataSpec:
        spec = ActorCriticPolicy.data_spec(settings)
        return replace(spec, fields=(*spec.fields, "log_prob"), lag=settings.max_lag)


class _VTrace(_LaggingPolicy, OnPolicy):
    """Targets and advantages by V-trace instead of generalised advantage estimation."""

    policy_class = _LaggingPolicy
    settings: Any

    def _prepare(self, batch: Any, with_log_prob: bool = True) -> Prepared:
        data = super()._prepare(batch, True)
        steps, rows = batch["reward"].shape
        by_step = data.sequences is None
        value, log_prob = (
            part.reshape(steps, rows) if by_step else part.reshape(rows, steps).T
            for part in (data.value, data.log_prob)
        )
        acted = batch.get("log_prob", log_prob)  # without it: played by the policy that learns
        ratio = np.exp(log_prob - acted)
        target, advantage = v_trace(
            ratio if self.settings.v_trace else np.ones_like(ratio),
            batch["reward"],
            batch["terminated"],
            batch["truncated"],
            value,
            self._following,
            gamma=self.settings.gamma,
            lam=self.settings.gae_lambda,
            clip_rho=self.settings.clip_rho,
            clip_c=self.settings.clip_c,
        )
        data.target, data.advantage, self._ratio, self._acted = (
            (part.reshape(-1) if by_step else by_environment(part)).astype(np.float32, copy=False)
            for part in (target, advantage, ratio, acted)
        )
        return data

    def _estimate(self, batch: Any, value: Array, next_value: Array) -> Array:
        self._following = next_value  # for `_prepare`, which knows the ratios
        return np.zeros_like(value)

    def _told(self, metrics: Metrics) -> Metrics:
        if not metrics:
            return metrics
        clipped = float((self._ratio > self.settings.clip_rho).mean())
        return {**metrics, "ratio": float(self._ratio.mean()), "ratio_clipped": clipped}


class IMPALA(_VTrace, A2C):
    """A2C that weighs each step by how much more likely it is now than when it was made."""

    Settings = IMPALASettings
    settings: IMPALASettings

    def _prepare(self, batch: Any, with_log_prob: bool = True) -> Prepared:
        data = super()._prepare(batch)
        data.log_prob = self._acted  # the ratio to it is found anew for each gradient step
        return data

    def _weighed(self, data: Prepared, log_prob: Array) -> Array:
        # After advantages were scaled: E_μ[ρ b ∇log π] is zero for any b, E_μ[b ∇log π] is not when the policy that
        # acted was another.
        ratio = np.exp(log_prob - data.log_prob)
        weighed: Array = data.advantage * np.minimum(ratio, np.float32(self.settings.clip_pg_rho))
        return weighed

    def learn(self, batch: Any) -> tuple[Metrics, None]:
        """Update from one batch; beside what `OnPolicy` names it has ``log_prob`` [T, N] of the policy that acted."""
        metrics, _ = super().learn(batch)
        return self._told(metrics), None


class APPO(_VTrace, PPO):
    """Several clipped epochs for each batch of trajectories.

    The policy is kept close to what it was when the batch came, as in IMPACT (Luo et al. 2020, arXiv 1912.00167), and a
    step counts by how much more likely it was then than when it was made. Kept close to the policy that acted, which is
    some updates behind, what has become likelier since would not be learned from at all.
    """

    Settings = APPOSettings
    settings: APPOSettings

    def _prepare(self, batch: Any, with_log_prob: bool = True) -> Prepared:
        data = super()._prepare(batch)
        data.weight = np.minimum(self._ratio, np.float32(self.settings.clip_pg_rho))
        return data

    def learn(self, batch: Any) -> tuple[Metrics, None]:
        """Update from one batch; beside what `OnPolicy` names it has ``log_prob`` [T, N] of the policy that acted."""
        metrics, _ = super().learn(batch)
        return self._told(metrics), None
