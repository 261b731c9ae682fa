"""REINFORCE with a baseline (Williams 1992): whole episodes, and the value of a state as what to expect of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from operant.algorithms import BaseAlgorithm, DataSpec
from operant.models import FlatAdam, FlatParameters, build_actor_critic
from operant.models.observations import to_tensors
from operant.settings import setting


@dataclass(frozen=True)
class ReinforceSettings:
    episodes: int = setting(8, "episodes of an update; more: less noise in the gradient, fewer updates")
    gamma: float = setting(0.99, "discount; smaller: less variance, but what comes late counts less")
    learning_rate: float = setting(3e-3, "step size of Adam; larger: faster, until it jumps about")


class Reinforce(BaseAlgorithm):
    Settings = ReinforceSettings
    model_roles = (("actor", "the policy"), ("critic", "the baseline"))

    @staticmethod
    def data_spec(settings: ReinforceSettings) -> DataSpec:
        fields = ("obs", "action", "reward", "length", "mask")
        return DataSpec("episode", "fresh", fields, gamma=settings.gamma, count=settings.episodes)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            self.network = build_actor_critic(self.adapter, self.actions, self.model)
        self.flat = FlatParameters(self.network)
        self.optimizer = FlatAdam(self.flat)  # its state can be saved, so resuming is exact

    def distribution(self, output: Any, mask: Any = None) -> Any:
        if not self.actions.discrete:
            return torch.distributions.Independent(torch.distributions.Normal(output, self.network.log_std.exp()), 1)
        masked = output if mask is None else torch.where(torch.as_tensor(mask), output, torch.tensor(-1e8))
        return torch.distributions.Categorical(logits=masked)

    def actor(self, rng: Any, steps: int, rows: int, *, epsilon: float | None = None) -> Any:
        def act(obs: Any, mask: Any, state: Any) -> tuple[Any, Any, dict[str, Any]]:
            with torch.no_grad():
                chosen = self.distribution(self.network(to_tensors(obs))[0], mask)
            if not self.actions.discrete:
                mean = chosen.mean.numpy()
                action = mean if rng is None else mean + chosen.stddev.numpy() * rng.standard_normal(mean.shape)
                return self.actions.to_env(action), action.astype(np.float32), {}
            logits = chosen.logits.numpy()
            action = (logits if rng is None else logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
            return action, action, {}

        return act

    def learn(self, batch: Any) -> tuple[dict[str, float], None]:
        returns = batch["reward"].astype(np.float32)  # Σ γᵏ r: what is to come, to the end of each episode
        last = set((np.cumsum(batch["length"]) - 1).tolist())
        for t in reversed(range(len(returns))):
            returns[t] += 0.0 if t in last else self.settings.gamma * returns[t + 1]
        output, value = self.network(to_tensors(batch["obs"]))
        target = torch.from_numpy(returns)
        advantage = target - value.detach()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        log_prob = self.distribution(output, batch["mask"]).log_prob(torch.from_numpy(batch["action"]))
        policy_loss, value_loss = -(log_prob * advantage).mean(), (value - target).square().mean()
        self.flat.grad_tensor.zero_()
        (policy_loss + 0.5 * value_loss).backward()
        self.optimizer.step(self.settings.learning_rate)
        return {"policy_loss": policy_loss.item(), "value_loss": value_loss.item()}, None
