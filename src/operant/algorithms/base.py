"""What most policies and algorithms share: spaces, progress, `act` over `actor`, and networks by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from operant.algorithms.contracts import Actor, ActOut, Array, DataSpec, Policy
from operant.errors import UsageError
from operant.models.observations import ObservationAdapter
from operant.models.settings import ModelSettings
from operant.models.spaces import ActionSpec, action_spec

if TYPE_CHECKING:
    from gymnasium import Space


class Acting:
    """`act` of what has an `actor`."""

    adapter: Any
    data: DataSpec
    actor: Callable[..., Actor]
    initial_state: Callable[[int], Any]

    def act(
        self,
        obs: Any,
        state: Any = None,
        *,
        mask: Array | None = None,
        explore: bool,
        rng: np.random.Generator,
        epsilon: float | None = None,
    ) -> ActOut:
        adapted = self.adapter.adapt(obs)
        rows = count_rows(adapted)
        if state is None and "state" in self.data.fields:
            state = self.initial_state(rows)
        act = self.actor(rng if explore else None, 1, rows, epsilon=epsilon)
        action, stored, extras = act(adapted, mask, state)
        told = {"action": stored, **extras, **self._about(adapted, stored, mask, state)}
        return ActOut(action, told.pop("state", None), told)

    def _about(self, obs: Any, action: Array, mask: Array | None, state: Any) -> dict[str, Any]:
        """What `act` says of actions besides what its actor does, such as their log-probability."""
        return {}


class BasePolicy(Acting):
    """A policy in the making: a subclass writes `data_spec` and `actor`, without a `network` also `weights` and
    `load_weights`."""

    Settings: ClassVar[type]
    default_model: ClassVar[ModelSettings] = ModelSettings()
    example_env: ClassVar[str] = "CartPole-v1"
    """A simple environment of Gymnasium that it can learn in: that of a generated config."""
    may_remember: ClassVar[bool] = False
    """Whether its network may have memory."""

    def __init__(
        self,
        observation_space: Space[Any],
        action_space: Space[Any],
        settings: Any = None,
        model: ModelSettings | None = None,
        seed: int = 0,
    ) -> None:
        self.settings: Any = self.Settings() if settings is None else settings
        self.model = self.default_model if model is None else model
        if self.model.recurrent and not self.may_remember:
            raise UsageError(f"{type(self).__name__} has no form with memory: leave model.recurrent empty")
        self.adapter = self._adapter_of(observation_space)
        self.actions = self._actions_of(action_space)
        self.data = self.data_spec(self.settings)
        self.seed = seed
        self.network: Any = None
        self.device = "cpu"
        self.progress = 0.0
        self._modes: Any = None

    def _adapter_of(self, space: Space[Any]) -> ObservationAdapter:
        return ObservationAdapter(space, as_row=not self.model.has_own_modules)

    def _actions_of(self, space: Space[Any]) -> ActionSpec:
        return action_spec(space)

    @staticmethod
    def data_spec(settings: Any) -> DataSpec:
        raise NotImplementedError("the algorithm does not say what it learns from: define data_spec")

    @property
    def path(self) -> str:
        return "numpy" if self.network is None else "torch (autograd)"

    def set_progress(self, steps: int, total_steps: int) -> None:
        self.progress = min(1.0, steps / max(1, total_steps))

    def explore_as(self, worker: int, workers: int) -> None:
        """Told in a process that only collects: which one it is, for policies that explore differently in each."""

    def actor(self, rng: np.random.Generator | None, steps: int, rows: int, *, epsilon: float | None = None) -> Actor:
        raise NotImplementedError(f"{type(self).__name__} does not say how it acts: define actor")

    def initial_state(self, rows: int) -> Any:
        """What a policy with memory remembers at the beginning of an episode [rows, …]."""
        return self.network.initial_state(rows)

    @property
    def outputs(self) -> int:
        return self.actions.outputs

    def to_env(self, action: Array) -> Array:
        return self.actions.to_env(action)

    def from_env(self, action: Array) -> Array:
        return action

    def _remember(self) -> bool:
        """Have states stored if the network has memory; returns whether it has."""
        remembers = hasattr(self.network, "initial_state")
        if remembers:
            self.data = self.data.remembering(self.model.sequence, self.model.burn_in)
        return remembers

    def _place(self, *networks: Any, fused: bool = False) -> Any:
        """Put networks on the device that the model's settings name, and set `_modes`, which holds them in evaluation
        mode except in updates (see `operant.models.NetworkModes`); returns the device.

        :param fused: whether they have a form without torch, which is the CPU's.
        """
        from operant.models.devices import choose_device
        from operant.models.modes import NetworkModes

        device = choose_device(self.model.device, fused=fused)
        for network in networks:
            network.to(device)
        self.device = str(device)
        self._modes = NetworkModes(networks, self.seed, device)
        return device

    def weights(self) -> dict[str, Array]:
        return {name: value.cpu().numpy().copy() for name, value in self.network.state_dict().items()}

    def load_weights(self, weights: dict[str, Array]) -> None:
        import torch

        self.network.load_state_dict({name: torch.as_tensor(np.array(value)) for name, value in weights.items()})


class BaseAlgorithm(BasePolicy):
    """An algorithm in the making: a subclass names its `Settings` and writes `data_spec`, `actor` and `learn`;
    without a `network` also `weights` and `load_weights`, and with state beside weights, optimizer and progress also
    `state_dict` and `load_state_dict`."""

    policy_class: ClassVar[type[BasePolicy] | None] = None
    """What `make_policy` makes; None: the whole algorithm, which then only acts."""
    model_roles: ClassVar[tuple[tuple[str, str], ...]] = ()
    takes_criterion: ClassVar[bool] = False
    joint: ClassVar[bool] = False
    """Whether it learns all agents of an environment together; its spaces are dicts of theirs."""
    takes_scaled: ClassVar[bool] = True
    """Whether observations may come scaled by what is seen in training; recorded ones are not."""

    criterion: Callable[[Any, Any], Any] | None = None
    optimizer: Any = None
    measure = True
    entropy_limit: float | None = None

    @classmethod
    def make_policy(
        cls,
        observation_space: Space[Any],
        action_space: Space[Any],
        settings: Any = None,
        model: ModelSettings | None = None,
        seed: int = 0,
    ) -> Policy:
        settings = cls.Settings() if settings is None else settings
        return (cls.policy_class or cls)(observation_space, action_space, settings, model, seed)

    @property
    def beta(self) -> float:
        return 1.0

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {"weights": self.weights(), "progress": self.progress}
        return state if self.optimizer is None else {**state, "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.load_weights(state["weights"])
        self.progress = float(state["progress"])
        if self.optimizer is not None:
            self.optimizer.load_state_dict(state["optimizer"])


def count_rows(obs: Any) -> int:
    """How many environments adapted observations are of."""
    while isinstance(obs, dict):
        obs = next(iter(obs.values()))
    return len(obs)


def refuse_epsilon(epsilon: float | None) -> None:
    """For policies that are sampled: they have no share of random actions."""
    if epsilon is not None:
        raise UsageError(f"epsilon is {epsilon}, but this policy is sampled: it has no share of random actions")


def recorded_actions(policy: Policy, action: Array) -> Array:
    """Actions that somebody recorded, as they are learned from; a ValueError says what does not fit."""
    spec = policy.actions
    if action.shape[1:] != spec.shape:
        raise ValueError(f"actions have the shape {action.shape[1:]}, not {spec.shape}")
    if spec.discrete:
        chosen = action.astype(np.int64)
        if ((chosen != action) | (chosen < 0) | (chosen >= np.reshape(spec.sizes, (1, *spec.shape)))).any():
            options = " and ".join(f"0 to {size - 1}" for size in spec.sizes)
            raise ValueError(f"actions are not all whole numbers from {options}")
        action = chosen
    return policy.from_env(action)
