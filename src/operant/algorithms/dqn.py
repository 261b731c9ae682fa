"""Deep Q-learning (Mnih et al. 2015) and its relatives, by settings: double, dueling, n-step, noisy, …"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import nn

from operant.algorithms._q_sequences import renewed, sequence_targets, with_last
from operant.algorithms.base import BaseAlgorithm, BasePolicy
from operant.algorithms.contracts import Actor, Array, DataSpec, Metrics
from operant.algorithms.dqn_settings import DQNSettings, QSettings
from operant.algorithms.errors import DivergedError
from operant.algorithms.q_functions import QFunction, can_fuse
from operant.data.trees import tree_map
from operant.errors import UsageError
from operant.models.builders import build_q_network
from operant.models.flat import FlatParameters, make_optimizer
from operant.models.noisy import noisy_layers
from operant.models.observations import to_array, to_tensors
from operant.models.settings import ModelSettings

if TYPE_CHECKING:
    from gymnasium import Space

    from operant.models.spaces import ActionSpec

_NOTHING: dict[str, Any] = {}
_AHEAD = 8  # batches of 64 for two layers of 256: an update then takes an eighth less time; with 16 it is the same


def dqn_loss(
    q: torch.Tensor, action: torch.Tensor, target: torch.Tensor, weight: torch.Tensor, loss: str
) -> torch.Tensor:
    """Equation 2 of the Nature paper, E[w ℓ(Q(s, a) − y)]; ℓ is the Huber loss (errors clipped to ±1) or the square."""
    error = q.gather(1, action[:, None])[:, 0] - target
    if loss == "huber":
        each = nn.functional.smooth_l1_loss(error, torch.zeros_like(error), reduction="none")
    else:
        each = error.square()
    return (weight * each).mean()


def own_loss(
    q: torch.Tensor,
    action: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor,
    criterion: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    """E[w ℓ(Q(s, a), y)] with a criterion ℓ that gives a loss for each row, or one for all where nothing is weighed."""
    each = criterion(q.gather(1, action[:, None])[:, 0], target)
    if each.ndim:
        return (weight * each).mean()
    if bool((weight != 1.0).any()):
        raise UsageError("with prioritised replay the criterion must give one loss for each row: reduction='none'")
    return each


def dqn_gradient(q: Array, action: Array, target: Array, weight: Array | None, loss: str) -> tuple[Array, Array]:
    """The gradient of `dqn_loss` by Q, and the errors."""
    rows = np.arange(len(q))
    error = q[rows, action] - target
    # np.clip costs three times as much as the two bounds.
    each = np.minimum(np.maximum(error, -1.0), 1.0) if loss == "huber" else 2.0 * error
    if weight is not None:
        each = each * weight
    grad = np.zeros(q.shape, q.dtype)  # a quarter of what zeros_like takes
    grad[rows, action] = each / len(q)
    return grad, error


class QPolicy(BasePolicy):
    """Acts ε-greedily by the action values of one network."""

    Settings: ClassVar[type[QSettings]] = DQNSettings
    settings: QSettings
    default_model = ModelSettings(hidden=(64, 64), activation="relu", orthogonal=False)
    may_remember = True

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            self.network = self._build()
        if self.settings.noisy and not noisy_layers(self.network):
            raise UsageError("algorithm.noisy needs layers with noise: operant.models.noisy.NoisyLinear in your module")
        self._remembers = self._remember()
        if self._remembers and not self.may_remember:
            raise UsageError(f"{type(self).__name__} has no form with memory: name a module without initial_state")
        if self._remembers and self.settings.noisy:
            raise UsageError("algorithm.noisy is not for networks with memory: leave one of the two")
        self._fused = self.model.fused and not self._remembers and can_fuse(self.network, self.adapter)
        self._device = self._place(self.network, fused=self._fused)
        self._flat = FlatParameters(self.network)
        self._q = self._function(self.network, self._flat)
        self._exploring_q = self._function(self.network, self._flat, noisy=True)
        self._steps = 0

    def _actions_of(self, space: Space[Any]) -> ActionSpec:
        spec = super()._actions_of(space)
        if not spec.one_choice:
            raise UsageError(f"DQN chooses one of n actions; {space} is not Discrete (PPO, A2C or SAC may take it)")
        return spec

    _atoms = 1
    """Outputs of the network for each action."""

    def _build(self) -> Any:
        settings = self.settings
        noise = settings.noisy_std if settings.noisy else 0.0
        return build_q_network(self.adapter, self.actions, self.model, settings.dueling, atoms=self._atoms, noise=noise)

    def _function(self, network: Any, flat: FlatParameters, noisy: bool = False) -> QFunction:
        return QFunction(network, flat, self._fused, self._modes, noisy and self.settings.noisy)

    @property
    def outputs(self) -> int:
        return self.actions.outputs * self._atoms

    def _expected(self, outputs: Array) -> Array:
        """Action values [B, A] from what the network gives."""
        return outputs

    @staticmethod
    def data_spec(settings: QSettings) -> DataSpec:
        return DataSpec(
            "step",
            "replay",
            ("obs", "action", "reward", "terminated", "truncated", "next_obs", "mask"),
            gamma=settings.gamma,
            capacity=settings.buffer,
            batch=settings.batch,
            every=settings.train_every,
            updates=settings.updates,
            # Within a round the target network stays as it is; its noise does not, nor do priorities.
            ahead=_AHEAD if settings.target_every and not (settings.noisy or settings.prioritized) else 1,
            starts=settings.learning_starts,
            n_step=settings.n_step,
            alpha=settings.priority_alpha if settings.prioritized else None,
        )

    @property
    def path(self) -> str:
        return self._q.path

    @property
    def _epsilon(self) -> float:
        """The share of random actions now."""
        s = self.settings
        if s.exploration_decay > 0:
            return s.exploration_end + (s.exploration_start - s.exploration_end) * math.exp(
                -self._steps / s.exploration_decay
            )
        if s.exploration_steps > 0:
            done = min(1.0, self._steps / s.exploration_steps)
        else:
            done = 1.0 if s.exploration_fraction <= 0 else min(1.0, self.progress / s.exploration_fraction)
        return s.exploration_start + done * (s.exploration_end - s.exploration_start)

    def set_progress(self, steps: int, total_steps: int) -> None:
        self.progress = min(1.0, steps / max(1, total_steps))
        self._steps = steps

    def actor(self, rng: np.random.Generator | None, steps: int, rows: int, *, epsilon: float | None = None) -> Actor:
        """The best action by Q, or with a generator a random one with probability ε."""

        def act(obs: Any, mask: Array | None, _state: Any) -> tuple[Array, Array, dict[str, Any]]:
            if rng is None:
                action = self._greedy(self._q, obs, mask)
            else:
                self._exploring_q.draw_noise(rng)
                action = self._explore(obs, rng, rows, mask, epsilon)
            return action, action, _NOTHING

        def act_with_memory(obs: Any, mask: Array | None, state: Any) -> tuple[Array, Array, dict[str, Any]]:
            state = self.initial_state(rows) if state is None else state
            with torch.no_grad(), self._modes.acting():
                q, after = self.network.step(to_tensors(obs, self._device), to_tensors(state, self._device))
            action = _best(to_array(q), mask)
            if rng is not None:
                random = rng.random(rows) < (self._epsilon if epsilon is None else epsilon)
                action = np.where(random, self._any(rng, rows, mask), action)
            return action, action, {"state": tree_map(to_array, after)}

        return act_with_memory if self._remembers else act

    def _explore(
        self, obs: Any, rng: np.random.Generator, rows: int, mask: Array | None, epsilon: float | None
    ) -> Array:
        share = self._epsilon if epsilon is None else epsilon
        random = rng.random(rows) < share
        by_chance = np.count_nonzero(random)
        if by_chance == rows:
            return self._any(rng, rows, mask)
        action = self._greedy(self._exploring_q, obs, mask)
        if by_chance:
            action[random] = self._any(rng, rows, mask)[random]
        return action

    def _greedy(self, function: QFunction, obs: Any, mask: Array | None) -> Array:
        return _best(self._expected(function.values(obs)), mask)

    def _any(self, rng: np.random.Generator, rows: int, mask: Array | None) -> Array:
        if mask is None:
            return rng.integers(self.actions.outputs, size=rows)
        return np.asarray(np.where(mask, rng.random(mask.shape), -1.0).argmax(axis=1))


class DQN(QPolicy, BaseAlgorithm):
    """Learns action values from replayed transitions.

    A batch is a mapping with ``obs``, ``action``, ``reward``, ``next_obs`` [B] and either ``discount`` [B] (what the
    value of ``next_obs`` counts: γ to the number of rewards summed, 0 after a termination) or ``terminated`` [B];
    maybe with ``weight`` [B] and ``next_mask`` [B, A].
    """

    policy_class = QPolicy
    model_roles = (("network", "the network"), ("network", "its target"))
    takes_criterion = True

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        settings = self.settings
        with torch.random.fork_rng(devices=[]):
            other = self._build()
        if getattr(other, "q", None) is getattr(self.network, "q", other):
            other.q = copy.deepcopy(self.network.q)  # the user gave one instance; the target network is a second one
        self._place(self.network, other, fused=self._fused)  # one stream of random numbers for what both draw
        self._q = self._function(self.network, self._flat)
        self._exploring_q = self._function(self.network, self._flat, noisy=True)
        self._learning_q = self._function(self.network, self._flat, noisy=True)
        self._target_network = other
        self._target_flat = FlatParameters(other)
        self._target_q = self._function(other, self._target_flat, noisy=True)
        self._noise_rng = np.random.default_rng([self.seed, 2])
        self._learned = True  # whether the weights have changed since the last copy
        self._copy_to_target(1.0)
        self.optimizer = make_optimizer(settings.optimizer, self._flat, settings.optimizer_eps)
        self._copied_at = 0

    @property
    def beta(self) -> float:
        """How far importance weights correct for prioritised sampling now."""
        return self.settings.priority_beta + self.progress * (1.0 - self.settings.priority_beta)

    def set_progress(self, steps: int, total_steps: int) -> None:
        super().set_progress(steps, total_steps)
        every = self.settings.target_every
        if every and steps - self._copied_at >= every:
            self._copied_at = steps - steps % every
            self._copy_to_target(self.settings.target_rate)

    # -- learning ----------------------------------------------------------------------------------------------------
    def foresee(self, batch: Any) -> dict[str, Any]:
        """The targets y, or if the online network takes part in them what the target network gives for s′."""
        if self.settings.double:
            return {"following": self._target_q.values(batch["next_obs"]).copy()}
        return {"target": self._targets(batch)}

    def _following(self, batch: Any) -> tuple[Array, Array]:
        """What the network that bootstraps gives for s′, and the action a* there: by the online network if double
        (equation 4 of the paper), else by that network itself."""
        target_q = self._target_q if self.settings.target_every else self._learning_q
        mask = batch.get("next_mask")
        following = batch["following"] if "following" in batch else target_q.values(batch["next_obs"], 1)
        chooses = following
        if self.settings.double and target_q is not self._learning_q:
            chooses = self._learning_q.values(batch["next_obs"], 1)
        return following, _best(self._expected(chooses), mask)

    def _discount(self, batch: Any) -> Any:
        discount = batch.get("discount")
        return np.float32(self.settings.gamma) * (1.0 - batch["terminated"]) if discount is None else discount

    def _targets(self, batch: Any) -> Array:
        """y = R + γⁿ Q⁻(s′, a*)."""
        next_q, best = self._following(batch)
        following = next_q[np.arange(len(next_q)), best]
        return np.asarray(batch["reward"] + self._discount(batch) * following, following.dtype)

    def learn(self, batch: Any) -> tuple[Metrics, Array | None]:
        """One gradient step; the new priorities are the sizes of the errors."""
        settings = self.settings
        for function in (self._learning_q, self._target_q):
            function.draw_noise(self._noise_rng)
        outputs, size = self._gradient(batch)
        norm = self._flat.clip_gradient(settings.max_gradient_norm)
        # The gradient of a Huber loss stays finite where an error does not.
        if not (math.isfinite(norm) and math.isfinite(size.max())):
            raise DivergedError
        self.optimizer.step(settings.learning_rate)
        self._learned = True
        if not self.measure:
            return {}, size
        metrics = {
            **self._errors(size),
            "q_mean": float(self._expected(outputs).mean()),
            "gradient_norm": norm,
            "learning_rate": settings.learning_rate,
            "epsilon": self._epsilon,
        }
        return metrics, size

    @property
    def _loss(self) -> str:
        assert isinstance(self.settings, DQNSettings)
        return self.settings.loss

    def _gradient(self, batch: Any) -> tuple[Array, Array]:
        """Gradients of the loss; returns what the network gives for the batch, and the size of each row's error."""
        if self._remembers:
            return self._sequence_gradient(batch)
        kind = self._loss
        action = batch["action"].reshape(-1)
        weight = batch.get("weight")
        target = batch["target"] if "target" in batch else self._targets(batch)
        if self._learning_q.fused and self.criterion is None:
            q = self._learning_q.forward(batch["obs"])
            grad, error = dqn_gradient(q, action, target, weight, kind)
            self._learning_q.backward(grad)
            return q, np.abs(error)
        with self._modes.updating():
            q_tensor = self._learning_q.tensors(batch["obs"])
            weights = q_tensor.new_ones(len(action))
            if weight is not None:
                weights = torch.as_tensor(weight, dtype=q_tensor.dtype, device=self._device)
            of = q_tensor, to_tensors(action, self._device), to_tensors(target, self._device), weights
            loss = dqn_loss(*of, kind) if self.criterion is None else own_loss(*of, self.criterion)
            self._flat.grad_tensor.zero_()
            loss.backward()  # type: ignore[no-untyped-call]
        q = to_array(q_tensor)
        return q, np.abs(q[np.arange(len(q)), action] - target)

    def _sequence_gradient(self, batch: Any) -> tuple[Array, Array]:
        """As `_gradient`, from sequences (R2D2, Kapturowski et al. 2019): both networks first renew the stored state
        through the steps of the burn-in, then run through the rest. The size of a sequence's error is 0.9 of the
        largest of its steps and 0.1 of their mean."""
        begin, there = self.data.burn_in, batch["mask"][self.data.burn_in :]
        steps, columns = there.shape
        length = there.sum(axis=0)
        obs = with_last(batch, begin, length, self._device)
        with torch.no_grad(), self._modes.acting():
            state, target_state = (
                renewed(one, batch, begin, self._device) for one in (self.network, self._target_network)
            )
            following = to_array(self._target_network.unroll(obs, target_state, (steps + 1, columns)))
        with self._modes.updating():
            outputs = self.network.unroll(obs, state, (steps + 1, columns))
            q = to_array(outputs).reshape(steps + 1, columns, -1)
            following = following.reshape(q.shape) if self.settings.target_every else q
            mask = batch.get("next_mask")
            best = _best(
                (q if self.settings.double else following)[1:].reshape(steps * columns, -1), _rows(mask, begin)
            )
            value = following[1:].reshape(len(best), -1)[np.arange(len(best)), best].reshape(steps, columns)
            reward, discount = batch["reward"][begin:], batch["discount"][begin:]
            target = sequence_targets(reward, discount, value, length, self.settings.n_step)
            at = np.flatnonzero(there)
            action = batch["action"].reshape(begin + steps, columns)[begin:].reshape(-1)[at]
            chosen, wanted = (to_tensors(one, self._device) for one in (action, target.reshape(-1)[at]))
            weight = np.broadcast_to(np.float32(1.0) if (given := batch.get("weight")) is None else given, there.shape)
            weights = to_tensors(np.ascontiguousarray(weight.reshape(-1)[at]), self._device).to(outputs.dtype)
            rows = outputs[to_tensors(at, self._device)]
            self._flat.grad_tensor.zero_()
            dqn_loss(rows, chosen, wanted, weights, self._loss).backward()  # type: ignore[no-untyped-call]
        error = np.zeros(there.shape, np.float32)
        error.reshape(-1)[at] = np.abs(q.reshape(len(q) * columns, -1)[at, action] - target.reshape(-1)[at])
        size = 0.9 * error.max(axis=0) + 0.1 * error.sum(axis=0) / length
        return q.reshape(len(q) * columns, -1)[at], size

    def _errors(self, size: Array) -> Metrics:
        """What to log of the sizes of errors."""
        huber = np.where(size < 1.0, 0.5 * size * size, size - 0.5)
        loss = huber if self._loss == "huber" else size * size
        return {"q_loss": float(loss.mean()), "td_error": float(size.mean())}

    def _copy_to_target(self, rate: float) -> None:
        if rate == 1.0 and not self._learned:
            return  # many environment steps between rounds of updates: the target network has these weights already
        self._learned = False
        self._target_flat.move_towards(self._flat, rate)
        for mine, its in zip(self.network.buffers(), self._target_network.buffers(), strict=True):
            its.copy_(mine)

    # -- saving ------------------------------------------------------------------------------------------------------
    def load_weights(self, weights: dict[str, Array]) -> None:
        super().load_weights(weights)
        self._learned = True

    def state_dict(self) -> dict[str, Any]:
        target = {name: to_array(value).copy() for name, value in self._target_network.state_dict().items()}
        state = {
            "weights": self.weights(),
            "target": target,
            "optimizer": self.optimizer.state_dict(),
            "progress": self.progress,
            "steps": self._steps,
            "copied_at": self._copied_at,
            "module_rng": self._modes.state_dict(),
        }
        return {**state, "noise_rng": self._noise_rng.bit_generator.state} if self.settings.noisy else state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.load_weights(state["weights"])
        tensors = {name: torch.as_tensor(np.array(value)) for name, value in state["target"].items()}
        self._target_network.load_state_dict(tensors)
        self.optimizer.load_state_dict(state["optimizer"])
        self._modes.load_state_dict(state.get("module_rng", {}))
        self.progress = float(state["progress"])
        self._steps = int(state["steps"])
        self._copied_at = int(state["copied_at"])
        if "noise_rng" in state:
            self._noise_rng.bit_generator.state = state["noise_rng"]


def _best(q: Array, mask: Array | None) -> Array:
    return np.asarray((q if mask is None else np.where(mask, q, -np.inf)).argmax(axis=1))


def _rows(mask: Array | None, begin: int) -> Array | None:
    return None if mask is None else mask[begin:].reshape(-1, mask.shape[-1])
