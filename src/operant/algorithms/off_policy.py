"""What DDPG, TD3 and SAC share: a policy over continuous actions, critics of them, and how both learn from replay.

Networks and replay know actions between −1 and 1; only the environment gets them in its own bounds.
"""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import nn

from operant.algorithms._own_modules import SHOWN, show_module
from operant.algorithms.base import BaseAlgorithm, BasePolicy
from operant.algorithms.contracts import Actor, Array, DataSpec, Metrics
from operant.algorithms.errors import DivergedError
from operant.algorithms.off_policy_settings import OffPolicySettings
from operant.data.trees import tree_map
from operant.errors import UsageError
from operant.models.builders import Critics, build_critics, build_memory, build_recurrent_critics
from operant.models.flat import FlatAdam, FlatParameters, FlatRMSprop, make_optimizer
from operant.models.fused import FusedCritics, FusedMLP, is_fusable
from operant.models.observations import to_array, to_tensors
from operant.models.settings import ModelSettings

if TYPE_CHECKING:
    from gymnasium import Space

    from operant.models.spaces import ActionSpec

_NOTHING: dict[str, Any] = {}
_EPS = 1e-8  # of the optimizers


def critic_loss(
    q: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None, increase: float = 1.0, decrease: float = 1.0
) -> torch.Tensor:
    """Σ over critics of E[w (Q(s, a) − y)²], with only a share of errors that raise or lower a value."""
    error = (target - q).detach()
    change = torch.where(error > 0, increase * error, decrease * error)
    square = (q - (q.detach() + change)).square()
    return (square if weight is None else weight * square).mean(dim=1).sum()


def critic_gradient(
    q: Array, target: Array, weight: Array | None, increase: float = 1.0, decrease: float = 1.0
) -> Array:
    """The gradient of `critic_loss` by Q."""
    gradient: Array = q - target
    if increase != 1.0 or decrease != 1.0:
        gradient *= np.where(gradient < 0, gradient.dtype.type(increase), gradient.dtype.type(decrease))
    if weight is not None:
        gradient *= weight
    gradient *= gradient.dtype.type(2.0 / q.shape[1])
    return gradient


class Followed:
    """A module and its target network, which follows it slowly."""

    def __init__(self, module: nn.Module, flat: FlatParameters, target: nn.Module, target_flat: FlatParameters) -> None:
        self.flat, self.target_flat = flat, target_flat
        # Looked up once: going through all layers at each move takes as long as the move.
        self._buffers = list(zip(module.buffers(), target.buffers(), strict=True))

    def move(self, share: float) -> None:
        """Become ``share`` of the module and the rest of what the target was."""
        self.target_flat.move_towards(self.flat, share)
        for mine, its in self._buffers:
            its.copy_(mine)


class ContinuousPolicy(BasePolicy):
    """A network over observations whose rows become actions between −1 and 1; a subclass says how."""

    settings: OffPolicySettings
    example_env = "Pendulum-v1"
    default_model = ModelSettings(hidden=(256, 256), activation="relu", orthogonal=False)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if self.model.network is not None:
            raise UsageError(
                f"{type(self).__name__} has two kinds of networks: model.actor and model.critic, no network"
            )
        self._size = self.actions.outputs
        assert self.actions.low is not None and self.actions.high is not None
        self._low, self._high = self.actions.low.reshape(-1), self.actions.high.reshape(-1)
        self._half, self._middle = (self._high - self._low) / 2, (self._high + self._low) / 2
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            self.network = self._build()
        self._remembers = self._remember()
        # Both sides take the same path, so that they live on the same device.
        own = self.model.critic is not None or self.model.layer_norm or self.model.state_noise
        plain = self.adapter.is_flat and not own and not self._remembers
        self._fused = self.model.fused and plain and is_fusable(self.network.actor)
        self._device = self._place(self.network, fused=self._fused)
        # The memory of the critics acts too, but learns with them.
        self._flat = FlatParameters(self.network.policy if self._remembers else self.network)
        self._fused = self._fused and self._flat.on_cpu
        self._actor: FusedMLP | None = FusedMLP(self.network.actor, self._flat) if self._fused else None
        self._steps = 0
        if self.model.actor is not None:
            show_module(self, "actor", self._first_output if self._remembers else self.network, (SHOWN, self.outputs))

    def _actions_of(self, space: Space[Any]) -> ActionSpec:
        spec = super()._actions_of(space)
        if not spec.bounded:
            told = " ".join(str(space).split())  # matrices of bounds take several lines
            raise UsageError(
                f"{type(self).__name__} needs continuous actions with bounds, not {told}: let the environment's "
                "action_space say how large actions can be"
            )
        return spec

    def _first_output(self, obs: Any) -> torch.Tensor:
        """Of a policy with memory at the beginning of episodes."""
        output: torch.Tensor = self.network.step(obs, to_tensors(self.initial_state(SHOWN), self._device))[0]
        return output

    def _build(self) -> Any:
        raise NotImplementedError

    @staticmethod
    def data_spec(settings: OffPolicySettings) -> DataSpec:
        return DataSpec(
            "step",
            "replay",
            ("obs", "action", "reward", "terminated", "truncated", "next_obs"),
            gamma=settings.gamma,
            capacity=settings.buffer,
            batch=settings.batch,
            every=settings.train_every,
            updates=settings.updates,
            starts=settings.learning_starts,
            n_step=settings.n_step,
            alpha=settings.priority_alpha if settings.prioritized else None,
        )

    @property
    def path(self) -> str:
        return "fused (closed-form gradients)" if self._fused else "torch (autograd)"

    def set_progress(self, steps: int, total_steps: int) -> None:
        super().set_progress(steps, total_steps)
        self._steps = steps

    def actor(self, rng: np.random.Generator | None, steps: int, rows: int, *, epsilon: float | None = None) -> Actor:
        """Actions of the policy, with a generator explored; random ones before `learning_starts`, or by `epsilon`."""

        def act(obs: Any, mask: Array | None, _state: Any) -> tuple[Array, Array, dict[str, Any]]:
            if mask is not None:
                raise UsageError("continuous actions cannot be masked")
            if rng is None:
                action = self._best(self._output(obs))
            elif epsilon is None and self._steps < self.settings.learning_starts:
                action = rng.uniform(-1.0, 1.0, (rows, self._size)).astype(np.float32)
            else:
                action = self._explore(obs, rng)
                if epsilon:
                    by_chance = rng.uniform(-1.0, 1.0, (rows, self._size)).astype(np.float32)
                    action = np.where(rng.random((rows, 1)) < epsilon, by_chance, action)
            return self.to_env(action), action, _NOTHING

        def act_with_memory(obs: Any, mask: Array | None, state: Any) -> tuple[Array, Array, dict[str, Any]]:
            if mask is not None:
                raise UsageError("continuous actions cannot be masked")
            state = self.initial_state(rows) if state is None else state
            with torch.no_grad(), self._modes.acting():
                output, after = self.network.step(to_tensors(obs, self._device), to_tensors(state, self._device))
            if rng is None:
                action = self._best(to_array(output))
            else:
                action = self._sampled(to_array(output), rng)
                starting = epsilon is None and self._steps < self.settings.learning_starts
                share = 1.0 if starting else epsilon or 0.0
                if share:
                    by_chance = rng.uniform(-1.0, 1.0, (rows, self._size)).astype(np.float32)
                    action = np.where(rng.random((rows, 1)) < share, by_chance, action)
            return self.to_env(action), action, {"state": tree_map(to_array, after)}

        return act_with_memory if self._remembers else act

    def _best(self, output: Array) -> Array:
        raise NotImplementedError

    def _explore(self, obs: Any, rng: np.random.Generator) -> Array:
        raise NotImplementedError

    def _sampled(self, output: Array, rng: np.random.Generator) -> Array:
        """Explored actions from what the network gave."""
        raise NotImplementedError

    def _output(self, obs: Any) -> Array:
        if self._actor is not None:
            return self._actor.forward(obs, 1)
        with torch.no_grad(), self._modes.acting():
            return to_array(self.network(to_tensors(obs, self._device)))

    def to_env(self, action: Array) -> Array:
        # What rounding adds goes; np.clip takes three times as long.
        within = np.minimum(np.maximum(action * self._half + self._middle, self._low), self._high)
        return np.asarray(within.reshape(len(action), *self.actions.shape))

    def from_env(self, action: Array) -> Array:
        wide = np.where(self._half > 0, self._half, 1)  # where the bounds are one value, it is the middle
        flat = (action.reshape(len(action), -1) - self._middle) / wide
        return np.asarray(np.clip(flat, -1.0, 1.0), np.float32)


class OffPolicy(ContinuousPolicy, BaseAlgorithm):
    """Critics, their targets, and a policy that follows them.

    A batch is a mapping with ``obs``, ``action`` (between −1 and 1), ``reward``, ``next_obs`` [B] and either
    ``discount`` [B] (what the value of ``next_obs`` counts: γ to the number of rewards summed, 0 after a termination)
    or ``terminated`` [B]; maybe with ``weight`` [B].
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        count = self.settings.critics
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed + 1_000_003)  # numbers that the policy did not get
            self._critics, self._target_critics = (self._build_critics(count, target) for target in (False, True))
            self._target_network = self._build() if self._has_target_actor else None
        if self._target_network is not None and self._target_network.actor is self.network.actor:
            self._target_network.actor = copy.deepcopy(self.network.actor)  # one instance was given, two are needed
        others = [self._critics, self._target_critics, *([self._target_network] if self._target_network else [])]
        self._place(self.network, *others, fused=self._fused)
        self._critic_flat = FlatParameters(self._critics)
        target_flat = FlatParameters(self._target_critics)
        self._moved = [Followed(self._critics, self._critic_flat, self._target_critics, target_flat)]
        if self._target_network is not None:
            actor_flat = FlatParameters(self._target_network)
            self._moved += [Followed(self.network, self._flat, self._target_network, actor_flat)]
            if self._fused:
                assert isinstance(self._target_network.actor, nn.Sequential)
                self._target_actor = FusedMLP(self._target_network.actor, actor_flat)
        self._q: FusedCritics | None = None
        if self._fused:
            self._q = _fused(self._critics, self._critic_flat, self.adapter.size)
            self._target_q = _fused(self._target_critics, target_flat, self.adapter.size)
        for one in self._moved:
            one.move(1.0)
        if self.model.critic is not None:
            action = torch.zeros(SHOWN, self._size, device=self._device, requires_grad=True)
            show_module(self, "critic", self._critics, (count, SHOWN), action)
        self._actor_optimizer = make_optimizer(self.settings.optimizer, self._flat, _EPS)
        self._critic_optimizer = make_optimizer(self.settings.optimizer, self._critic_flat, _EPS)
        self._rng = np.random.default_rng([self.seed, 1])
        self._updates = 0
        self._actor_metrics: Metrics = {}

    _has_target_actor: ClassVar[bool] = False

    def _build_critics(self, count: int, target: bool) -> Any:
        if not self._remembers:
            return build_critics(self.adapter, self._size, self.model, count)
        memory = build_memory(self.adapter, self.model) if target else self.network.critic_memory
        return build_recurrent_critics(memory, self._size, self.model, count)

    @property
    def beta(self) -> float:
        return self.settings.priority_beta + self.progress * (1.0 - self.settings.priority_beta)

    def optimized(self) -> dict[str, Any]:
        """Names of the optimizers, and the network that each of them steps."""
        actor = self.network.policy if self._remembers else self.network
        return {"_actor_optimizer": actor, "_critic_optimizer": self._critics}

    @property
    def _actor_rate(self) -> float:
        rate = self.settings.actor_learning_rate
        return self.settings.learning_rate if rate is None else rate

    def learn(self, batch: Any) -> tuple[Metrics, Array | None]:
        """One gradient step of the critics, in its turn one of the policy; the new priorities are sizes of errors."""
        settings = self.settings
        self._updates += 1
        fused = self._q is not None
        q, target = self._fused_critic_gradient(batch) if fused else self._critic_gradient(batch)
        error = np.abs(q - target)
        norm = self._step(self._critic_flat, self._critic_optimizer, settings.learning_rate, error.max())
        if self._actor_is_due:
            self._actor_metrics = self._fused_actor_gradient(batch["obs"]) if fused else self._actor_gradient(batch)
            self._step(self._flat, self._actor_optimizer, self._actor_rate)
        if self._updates % settings.target_every == 0:
            for one in self._moved:
                one.move(settings.target_rate)
        size = error.mean(axis=0) if settings.prioritized or self.measure else None
        if not self.measure:
            return {}, size
        assert size is not None
        metrics = {
            "q_loss": float(np.square(error).mean(axis=1).sum()),
            "q_mean": float(q.mean()),
            "td_error": float(size.mean()),
            "gradient_norm": norm,
            "learning_rate": settings.learning_rate,
        }
        return metrics | self._actor_metrics, size

    @property
    def _actor_is_due(self) -> bool:
        """Whether the policy learns in the update under way."""
        return self._updates % self.settings.actor_every == 0

    def _step(
        self, flat: FlatParameters, optimizer: FlatAdam | FlatRMSprop, rate: float, largest: float = 0.0
    ) -> float:
        norm = flat.clip_gradient(self.settings.max_gradient_norm)
        if not (math.isfinite(norm) and math.isfinite(largest)):
            raise DivergedError
        optimizer.step(rate)
        return norm

    def _discounted(self, batch: Any, following: Array) -> Array:
        """y = R + γⁿ V(s′)."""
        discount = batch.get("discount")
        if discount is None:
            discount = np.float32(self.settings.gamma) * (1.0 - batch["terminated"])
        return np.asarray(batch["reward"] + discount * following, following.dtype)

    # -- in closed form ----------------------------------------------------------------------------------------------
    def _fused_critic_gradient(self, batch: Any) -> tuple[Array, Array]:
        assert self._q is not None
        target = self._discounted(batch, self._fused_next_value(batch))
        q = self._q.forward(batch["obs"], batch["action"])
        settings = self.settings
        self._q.backward(
            critic_gradient(q, target, batch.get("weight"), settings.increase_rate, settings.decrease_rate)
        )
        return q, target

    def _fused_next_value(self, batch: Any) -> Array:
        """V(s′) by the target networks [B]."""
        raise NotImplementedError

    def _fused_actor_gradient(self, obs: Array) -> Metrics:
        """Gradient of the policy's loss; returns what to log of it."""
        raise NotImplementedError

    # -- by autograd -------------------------------------------------------------------------------------------------
    def _critic_gradient(self, batch: Any) -> tuple[Array, Array]:
        """Gradient of the critics' loss; returns Q [C, B] and the targets [B]."""
        settings, device = self.settings, self._device
        with torch.no_grad(), self._modes.acting():
            following = to_array(self._next_value(to_tensors(batch["next_obs"], device)))
        target = self._discounted(batch, following)
        weight = batch.get("weight")
        with self._modes.updating():
            q = self._critics(to_tensors(batch["obs"], device), to_tensors(batch["action"], device))
            loss = critic_loss(
                q,
                to_tensors(target, device),
                None if weight is None else torch.as_tensor(weight, dtype=q.dtype, device=device),
                settings.increase_rate,
                settings.decrease_rate,
            )
            self._critic_flat.grad_tensor.zero_()
            loss.backward()  # type: ignore[no-untyped-call]
        return to_array(q), target

    def _actor_gradient(self, batch: Any) -> Metrics:
        """Gradient of the policy's loss; returns what to log of it."""
        with self._modes.updating():
            loss, metrics = self._actor_loss(to_tensors(batch["obs"], self._device))
            self._flat.grad_tensor.zero_()
            # By the policy alone: the critics' weights stay as they are, so their gradients are not worked out.
            torch.autograd.backward(loss, inputs=list(self.network.parameters()))
        return {"policy_loss": loss.item(), **metrics()} if self.measure else {}

    def _next_value(self, next_obs: Any) -> torch.Tensor:
        """V(s′) by the target networks [B]."""
        raise NotImplementedError

    def _actor_loss(self, obs: Any) -> tuple[torch.Tensor, Any]:
        """The policy's loss, and a function of what else to log."""
        raise NotImplementedError

    # -- saving ------------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        return {
            "weights": self.weights(),
            "critics": _arrays(self._critics),
            "target_critics": _arrays(self._target_critics),
            "target": {} if self._target_network is None else _arrays(self._target_network),
            "optimizer": {"actor": self._actor_optimizer.state_dict(), "critics": self._critic_optimizer.state_dict()},
            "rng": self._rng.bit_generator.state,
            "progress": self.progress,
            "steps": self._steps,
            "updates": self._updates,
            "actor_metrics": self._actor_metrics,
            "module_rng": self._modes.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.load_weights(state["weights"])
        _load(self._critics, state["critics"])
        _load(self._target_critics, state["target_critics"])
        if self._target_network is not None:
            _load(self._target_network, state["target"])
        self._actor_optimizer.load_state_dict(state["optimizer"]["actor"])
        self._critic_optimizer.load_state_dict(state["optimizer"]["critics"])
        self._rng.bit_generator.state = state["rng"]
        self.progress = float(state["progress"])
        self._steps, self._updates = int(state["steps"]), int(state["updates"])
        self._actor_metrics = dict(state["actor_metrics"])
        self._modes.load_state_dict(state["module_rng"])


def _fused(critics: Critics, flat: FlatParameters, observed: int) -> FusedCritics:
    chains = [critic.q for critic in critics.critics]
    return FusedCritics([chain for chain in chains if isinstance(chain, nn.Sequential)], flat, observed)


def _arrays(module: nn.Module) -> dict[str, Array]:
    return {name: to_array(value).copy() for name, value in module.state_dict().items()}


def _load(module: nn.Module, weights: dict[str, Array]) -> None:
    module.load_state_dict({name: torch.as_tensor(np.array(value)) for name, value in weights.items()})
