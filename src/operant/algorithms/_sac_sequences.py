"""SAC with memory: what it learns from sequences of replay."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from operant.algorithms._q_sequences import renewed, sequence_targets, with_last
from operant.algorithms.contracts import Array, Metrics
from operant.algorithms.off_policy import critic_loss
from operant.models.observations import to_array, to_tensors


class _TargetMemory:
    """The target critics' memory, as `renewed` walks through a burn-in: the policy's part of a state stays."""

    def __init__(self, critics: Any, network: Any) -> None:
        self._memory, self._network = critics.memory, network

    def step(self, obs: Any, state: Any) -> tuple[None, Any]:
        _, after = self._memory.step(obs, self._network.critics_part(state))
        return None, self._network.with_critics_part(state, after)


class SequenceLearning:
    """What SAC adds for networks with memory: both losses over the steps of sequences, from states that are renewed
    through the steps of the burn-in (as R2D2 does, Kapturowski et al. 2019)."""

    def _learn_from_sequences(self: Any, batch: Any) -> tuple[Metrics, Array | None]:
        settings = self.settings
        self._updates += 1
        begin = self.data.burn_in
        there = batch["mask"][begin:]
        steps, columns = there.shape
        length = there.sum(axis=0)
        shape = steps + 1, columns
        at = to_tensors(np.flatnonzero(there), self._device)
        obs = with_last(batch, begin, length, self._device)
        with torch.no_grad(), self._modes.acting():
            state = renewed(self.network, batch, begin, self._device)
            targets = _TargetMemory(self._target_critics, self.network)
            target_state = self.network.critics_part(renewed(targets, batch, begin, self._device))
            value = self._sequence_values(obs, state, target_state, shape)
        reward, discount = batch["reward"][begin:], batch["discount"][begin:]
        target = sequence_targets(reward, discount, to_array(value).reshape(shape)[1:], length, settings.n_step)
        action = to_tensors(batch["action"][begin:].reshape(steps * columns, -1), self._device)[at]
        wanted = to_tensors(np.ascontiguousarray(target.reshape(-1), np.float32), self._device)[at]
        weight = batch.get("weight")
        if weight is not None:
            weight = np.ascontiguousarray(np.broadcast_to(weight, there.shape).reshape(-1), np.float32)
            weight = to_tensors(weight, self._device)[at]
        with self._modes.updating():
            features = self._critics.memory.unroll(obs, self.network.critics_part(state), shape)[at]
            q = self._critics(features, action)
            loss = critic_loss(q, wanted, weight, settings.increase_rate, settings.decrease_rate)
            self._critic_flat.grad_tensor.zero_()
            loss.backward()  # type: ignore[no-untyped-call]
        error = np.zeros(there.shape, np.float32)
        error.reshape(-1)[np.flatnonzero(there)] = np.abs(to_array(q) - to_array(wanted)).mean(axis=0)
        norm = self._step(self._critic_flat, self._critic_optimizer, settings.learning_rate, float(error.max()))
        if self._updates % settings.actor_every == 0:
            self._actor_metrics = self._sequence_actor_gradient(obs, state, shape, at)
            self._step(self._flat, self._actor_optimizer, self._actor_rate)
        if self._updates % settings.target_every == 0:
            for one in self._moved:
                one.move(settings.target_rate)
        size = 0.9 * error.max(axis=0) + 0.1 * error.sum(axis=0) / length
        if not self.measure:
            return {}, size
        metrics = {
            "q_loss": float(loss.detach()),
            "q_mean": float(q.detach().mean()),
            "td_error": float(error.sum() / there.sum()),
            "gradient_norm": norm,
            "learning_rate": settings.learning_rate,
        }
        return metrics | self._actor_metrics, size

    def _sequence_values(self: Any, obs: Any, state: Any, target_state: Any, shape: tuple[int, int]) -> torch.Tensor:
        """min Q⁻(s, a) − α log π(a|s) of all steps of sequences, with a sampled action each."""
        action, log_prob = self._sample(self.network.unroll(obs, state, shape))
        features = self._target_critics.memory.unroll(obs, target_state, shape)
        q: torch.Tensor = self._target_critics(features, action).amin(dim=0)
        return q - self._temperature * log_prob  # type: ignore[no-any-return]

    def _sequence_actor_gradient(self: Any, obs: Any, state: Any, shape: tuple[int, int], at: torch.Tensor) -> Metrics:
        """As `SAC._actor_loss`, over the steps of sequences; the critics and their memory stay as they are."""
        with self._modes.updating():
            action, log_prob = self._sample(self.network.unroll(obs, state, shape)[at])
            with torch.no_grad():
                features = self._critics.memory.unroll(obs, self.network.critics_part(state), shape)[at]
            temperature = self._temperature
            entropy = -float(log_prob.detach().mean())
            self._learn_temperature(entropy)
            loss = (temperature * log_prob - self._critics(features, action).amin(dim=0)).mean()
            self._flat.grad_tensor.zero_()
            torch.autograd.backward(loss, inputs=list(self.network.policy.parameters()))
        if not self.measure:
            return {}
        return {"policy_loss": loss.item(), "entropy": entropy, "temperature": temperature}
