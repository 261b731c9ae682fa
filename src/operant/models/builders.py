"""Networks built from spaces, or wrapped around a module of the user's own."""

from __future__ import annotations

import inspect
import math
from typing import Any

import torch
from torch import nn

from operant.errors import UsageError, nearest
from operant.models.loading import load_module, load_module_apart
from operant.models.noisy import NoisyLinear
from operant.models.observations import ObservationAdapter
from operant.models.recurrent import (
    Memory,
    OwnRecurrentActorCritic,
    OwnRecurrentQNetwork,
    RecurrentActorCritic,
    RecurrentCritics,
    RecurrentPolicyNetwork,
    RecurrentQNetwork,
    Remembering,
    RememberingPolicy,
    remembers,
)
from operant.models.settings import ModelSettings
from operant.models.spaces import ActionSpec

_ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU}


def build_mlp(
    inputs: int, hidden: tuple[int, ...], outputs: int | None, activation: str, layer_norm: bool = False
) -> nn.Sequential:
    """Linear layers with an activation behind each but the last; without `outputs` the last hidden one ends it."""
    if activation not in _ACTIVATIONS:
        raise UsageError(f"there is no activation {activation!r}{nearest(activation, _ACTIVATIONS)}: tanh or relu")
    layers: list[nn.Module] = []
    size = inputs
    for width in hidden:
        layers += [nn.Linear(size, width), *([nn.LayerNorm(width)] if layer_norm else []), _ACTIVATIONS[activation]()]
        size = width
    if outputs is not None:
        layers.append(nn.Linear(size, outputs))
    return nn.Sequential(*layers)


def _orthogonal(module: nn.Module, last_gain: float) -> None:
    """Saxe et al. 2014; gains √2 for hidden layers as in the original PPO code, `last_gain` for the output."""
    layers = [part for part in module.modules() if isinstance(part, (nn.Linear, nn.Conv2d))]
    for number, layer in enumerate(layers):
        nn.init.orthogonal_(layer.weight, last_gain if number == len(layers) - 1 else math.sqrt(2))
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)


class Picture(nn.Module):
    """Convolutions over pictures (Mnih et al. 2015 for sides of 36 and more, two small layers below) and one Linear."""

    def __init__(self, shape: tuple[int, ...], features: int = 512) -> None:
        super().__init__()
        self.channels_last = shape[-1] <= 4 < shape[0] or shape[-1] < shape[0]
        height, width, channels = shape if self.channels_last else (shape[1], shape[2], shape[0])
        if min(height, width) >= 36:
            layers = [(32, 8, 4), (64, 4, 2), (64, 3, 1)]
        elif min(height, width) >= 5:
            layers = [(16, 3, 1), (32, 3, 1)]
            features = 128
        else:
            raise UsageError(f"pictures of {height}×{width} are too small for convolutions; give them as floats")
        parts: list[nn.Module] = []
        for filters, size, stride in layers:
            parts += [nn.Conv2d(channels, filters, size, stride), nn.ReLU()]
            channels = filters
        self.convolutions = nn.Sequential(*parts, nn.Flatten())
        with torch.no_grad():
            example = torch.zeros(1, shape[-1] if self.channels_last else shape[0], height, width)
            flat = self.convolutions(example).shape[1]
        self.linear = nn.Sequential(nn.Linear(flat, features), nn.ReLU())
        self.features = features

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        scaled = picture.float() / 255.0
        if self.channels_last:
            scaled = scaled.permute(0, 3, 1, 2)
        out: torch.Tensor = self.linear(self.convolutions(scaled))
        return out


class Encoder(nn.Module):
    """One row of features from any observation: pictures through convolutions, rows as they are, dicts side by side."""

    def __init__(self, adapter: ObservationAdapter) -> None:
        super().__init__()
        self._adapter = adapter
        self.parts = nn.ModuleDict()
        self.features = 0
        for key, part in (adapter.parts or {"picture": adapter}).items():
            if part.kind == "image":
                self.parts[key] = Picture(tuple(part.space.shape or ()))
                self.features += int(self.parts[key].features)  # type: ignore[arg-type]
            elif part.kind == "dict":
                self.parts[key] = Encoder(part)
                self.features += int(self.parts[key].features)  # type: ignore[arg-type]
            else:
                self.features += part.size

    def forward(self, obs: Any) -> torch.Tensor:
        named = obs if self._adapter.parts else {"picture": obs}
        rows = [self.parts[key](value) if key in self.parts else value.float() for key, value in named.items()]
        return rows[0] if len(rows) == 1 else torch.cat(rows, dim=1)


class ActorCritic(nn.Module):
    """A policy and a value: `forward(obs) -> (logits or means, values)`; they may share an encoder."""

    def __init__(
        self,
        actor: nn.Module,
        critic: nn.Module | None,
        encoder: nn.Module | None = None,
        log_std: torch.Tensor | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.actor = actor
        self.critic = critic
        self.log_std = None if log_std is None else nn.Parameter(log_std)

    def forward(self, obs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        features = obs if self.encoder is None else self.encoder(obs)
        policy = call_module(self.actor, features)
        if self.critic is None:
            if not isinstance(policy, tuple) or len(policy) != 2:
                raise UsageError(f"{type(self.actor).__name__}.forward must return a pair: policy output and value")
            policy, value = policy
        else:
            value = call_module(self.critic, features)
        return policy, value.reshape(len(value))

    def policy_features(self, obs: Any) -> torch.Tensor:
        """What the last layer of the policy is given; only for policies that are a chain of layers."""
        assert isinstance(self.actor, nn.Sequential)
        out: torch.Tensor = self.actor[:-1](obs if self.encoder is None else self.encoder(obs))
        return out


class QNetwork(nn.Module):
    """`forward(obs) -> Q` with one column for each action, or of distributions several."""

    probabilities = False
    """Whether a user's module that gives [B, actions, atoms] gives probabilities, of which logits are made."""

    def __init__(self, q: nn.Module, encoder: nn.Module | None = None) -> None:
        super().__init__()
        self.encoder = encoder
        self.q = q

    def forward(self, obs: Any) -> torch.Tensor:
        out: torch.Tensor = call_module(self.q, obs if self.encoder is None else self.encoder(obs))
        if out.ndim == 2:
            return out
        return (torch.log(out + 1e-6) if self.probabilities else out).flatten(1)


class DuelingQNetwork(nn.Module):
    """Wang et al. 2016, equation 9: ``Q(s, a) = V(s) + A(s, a) − mean A(s, ·)``; of distributions, for each of
    ``atoms`` columns of an action."""

    def __init__(
        self,
        trunk: nn.Module,
        value: nn.Module,
        advantage: nn.Module,
        encoder: nn.Module | None = None,
        atoms: int = 1,
    ) -> None:
        super().__init__()
        self.atoms = atoms
        self.encoder = encoder
        self.trunk = trunk
        self.value = value
        self.advantage = advantage

    def forward(self, obs: Any) -> torch.Tensor:
        features = self.trunk(obs if self.encoder is None else self.encoder(obs))
        advantage = self.advantage(features).unflatten(1, (-1, self.atoms))
        out: torch.Tensor = self.value(features)[:, None] + advantage - advantage.mean(dim=1, keepdim=True)
        return out.flatten(1)


class PolicyNetwork(nn.Module):
    """`forward(obs)` -> what a policy is made of, one row for each observation."""

    def __init__(self, actor: nn.Module, encoder: nn.Module | None = None) -> None:
        super().__init__()
        self.encoder = encoder
        self.actor = actor

    def forward(self, obs: Any) -> torch.Tensor:
        out: torch.Tensor = call_module(self.actor, obs if self.encoder is None else self.encoder(obs))
        return out


class StateNoiseNetwork(PolicyNetwork):
    """A policy that explores by noise f(s) E, with f(s) its last hidden layer and E a matrix of random weights (gSDE,
    Raffin et al. 2021): `forward(obs)` -> means and logarithms of the deviations that this noise has, side by side."""

    def __init__(self, network: PolicyNetwork, outputs: int, log_std: float) -> None:
        super().__init__(network.actor, network.encoder)
        self.log_std = nn.Parameter(torch.full((_last_inputs(network.actor), outputs), log_std))

    def features(self, obs: Any) -> torch.Tensor:
        """f(s)."""
        assert isinstance(self.actor, nn.Sequential)
        out: torch.Tensor = self.actor[:-1](obs if self.encoder is None else self.encoder(obs))
        return out

    def forward(self, obs: Any) -> torch.Tensor:
        assert isinstance(self.actor, nn.Sequential)
        features = self.features(obs)
        variance = features.square() @ torch.exp(2.0 * self.log_std) + 1e-6  # the floor of the authors' code
        return torch.cat([self.actor[-1](features), 0.5 * torch.log(variance)], dim=1)


class Critic(nn.Module):
    """`forward(obs, action) -> Q` of each row; a module of the user's own is called with both."""

    def __init__(self, q: nn.Module, encoder: nn.Module | None = None, own: bool = False) -> None:
        super().__init__()
        self.encoder = encoder
        self.q = q
        self._own = own

    def forward(self, obs: Any, action: torch.Tensor) -> torch.Tensor:
        if self._own:
            value = call_module(self.q, obs if isinstance(obs, dict) else {"state": obs}, action=action)
        else:
            features = obs if self.encoder is None else self.encoder(obs)
            value = self.q(torch.cat([features, action], dim=1))
        return value.reshape(len(action))  # type: ignore[no-any-return]


class Critics(nn.Module):
    """Several critics of the same actions: `forward(obs, action) -> Q` [C, B]."""

    def __init__(self, critics: list[Critic]) -> None:
        super().__init__()
        self.critics = nn.ModuleList(critics)

    def forward(self, obs: Any, action: torch.Tensor) -> torch.Tensor:
        return torch.stack([critic(obs, action) for critic in self.critics])


def call_module(module: nn.Module, obs: Any, **further: Any) -> Any:
    """Call a module with an observation; the keys of a dict are matched to the arguments of `forward` by name."""
    if not isinstance(obs, dict):
        return module(obs)
    obs = {**obs, **further}
    names = [
        name
        for name, parameter in inspect.signature(module.forward).parameters.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]
    if len(names) == 1 and names[0] not in obs:
        return module(obs)
    missing = [name for name in names if name not in obs]
    if missing:
        raise UsageError(
            f"{type(module).__name__}.forward asks for {missing}, but the observation has the keys {sorted(obs)}"
        )
    return module(**{name: obs[name] for name in names})


def build_actor_critic(
    adapter: ObservationAdapter, actions: ActionSpec, settings: ModelSettings
) -> ActorCritic | RecurrentActorCritic | OwnRecurrentActorCritic:
    """The networks of PPO and A2C."""
    if settings.layer_norm:
        raise UsageError("model.layer_norm is for critics of continuous actions, not for a value of states")
    if settings.network is not None and (settings.actor is not None or settings.critic is not None):
        raise UsageError("model.network is both, policy and value: leave model.actor and model.critic out")
    log_std = None if actions.discrete else torch.full((actions.outputs,), float(settings.log_std))
    if settings.state_noise and (actions.discrete or settings.network is not None):
        raise UsageError("model.state_noise is for continuous actions, and for a policy that is a chain of layers")
    if settings.network is not None:
        own = load_module(settings.network, settings.arguments)
        return OwnRecurrentActorCritic(own, log_std) if remembers(own) else ActorCritic(own, None, None, log_std)
    own_actor = load_module(settings.actor, settings.arguments) if settings.actor is not None else None
    own_critic = load_module(settings.critic, settings.arguments) if settings.critic is not None else None
    if any(one is not None and remembers(one) for one in (own_actor, own_critic)):
        raise UsageError("a module with initial_state is both, policy and value: name it as model.network")
    if (own_actor is None or own_critic is None) and not adapter.is_flat and (own_actor or own_critic):
        raise UsageError("with pictures or dict observations give both `actor` and `critic`, `network`, or neither")
    encoder = None if adapter.is_flat or own_actor is not None else Encoder(adapter)
    size = adapter.size if encoder is None else encoder.features
    memories = None
    if settings.recurrent:
        memories = [Memory(settings.recurrent, size, settings.recurrent_size) for _ in ("actor", "critic")]
        size = settings.recurrent_size
    actor = own_actor or build_mlp(size, settings.hidden, actions.outputs, settings.activation)
    critic = own_critic or build_mlp(size, settings.hidden, 1, settings.activation)
    if settings.orthogonal:
        if encoder is not None:
            _orthogonal(encoder, math.sqrt(2))
        if own_actor is None:
            _orthogonal(actor, 0.01)
        if own_critic is None:
            _orthogonal(critic, 1.0)
    if settings.state_noise:
        log_std = torch.full((_last_inputs(actor), actions.outputs), float(settings.log_std))
    if memories:
        assert isinstance(actor, nn.Sequential) and isinstance(critic, nn.Sequential)
        return RecurrentActorCritic(memories[0], memories[1], actor, critic, encoder, log_std)
    return ActorCritic(actor, critic, encoder, log_std)


def _last_inputs(actor: nn.Module) -> int:
    last = actor[-1] if isinstance(actor, nn.Sequential) else None
    if not isinstance(last, nn.Linear):
        raise UsageError("model.state_noise needs a policy that is an nn.Sequential with a Linear layer at its end")
    return last.in_features


def build_policy(
    adapter: ObservationAdapter, outputs: int, settings: ModelSettings, last: nn.Module | None = None
) -> PolicyNetwork:
    """A policy by itself; `last` comes behind its last layer."""
    if settings.actor is not None:
        return PolicyNetwork(load_module(settings.actor, settings.arguments))
    encoder = None if adapter.is_flat else Encoder(adapter)
    size = adapter.size if encoder is None else encoder.features
    actor = build_mlp(size, settings.hidden, outputs, settings.activation)
    if settings.orthogonal:
        _orthogonal(actor, 0.01)
    if last is not None:
        actor.append(last)
    return PolicyNetwork(actor, encoder)


def build_recurrent_policy(
    adapter: ObservationAdapter, outputs: int, settings: ModelSettings
) -> RecurrentPolicyNetwork:
    """A policy with memory for critics of continuous actions, and the memory of these."""
    memory = build_memory(adapter, settings)
    actor = build_mlp(settings.recurrent_size, settings.hidden, outputs, settings.activation)
    if settings.orthogonal:
        _orthogonal(actor, 0.01)
    return RecurrentPolicyNetwork(RememberingPolicy(memory, actor), build_memory(adapter, settings))


def build_memory(adapter: ObservationAdapter, settings: ModelSettings) -> Remembering:
    """A memory of observations; beside a module of one's own an LSTM."""
    encoder = None if adapter.is_flat else Encoder(adapter)
    size = adapter.size if encoder is None else encoder.features
    return Remembering(Memory(settings.recurrent or "lstm", size, settings.recurrent_size), encoder)


def build_recurrent_critics(memory: Remembering, actions: int, settings: ModelSettings, count: int) -> RecurrentCritics:
    """Critics of continuous actions that share a memory, and nothing behind it."""
    critics = []
    for _ in range(count):
        size = settings.recurrent_size + actions
        q = build_mlp(size, settings.hidden, 1, settings.activation, settings.layer_norm)
        if settings.orthogonal:
            _orthogonal(q, 1.0)
        critics.append(Critic(q))
    return RecurrentCritics(memory, Critics(critics))


def build_critics(adapter: ObservationAdapter, actions: int, settings: ModelSettings, count: int) -> Critics:
    """Critics of continuous actions; they share nothing, so that the smaller of two is a cautious one."""
    critics = []
    for _ in range(count):
        if settings.critic is not None:
            critics.append(Critic(load_module_apart(settings.critic, settings.arguments), own=True))
            continue
        encoder = None if adapter.is_flat else Encoder(adapter)
        size = adapter.size if encoder is None else encoder.features
        q = build_mlp(size + actions, settings.hidden, 1, settings.activation, settings.layer_norm)
        if settings.orthogonal:
            _orthogonal(q, 1.0)
        critics.append(Critic(q, encoder))
    return Critics(critics)


def build_q_network(
    adapter: ObservationAdapter,
    actions: ActionSpec,
    settings: ModelSettings,
    dueling: bool,
    *,
    atoms: int = 1,
    noise: float = 0.0,
) -> QNetwork | DuelingQNetwork | RecurrentQNetwork | OwnRecurrentQNetwork:
    """The network of the DQN family.

    :param atoms: outputs for each action, those of one side by side.
    :param noise: start of the deviation of noise on the weights of the last layer, 0: none.
    """
    if settings.state_noise or settings.layer_norm:
        name = "state_noise" if settings.state_noise else "layer_norm"
        raise UsageError(f"model.{name} is for continuous actions, not for values of one of {actions.outputs}")
    if settings.actor is not None or settings.critic is not None:
        name = "critic" if settings.actor is None else "actor"
        raise UsageError(f"action values come from one network: name your module as model.network, not model.{name}")
    if settings.network is not None:
        own = load_module(settings.network, settings.arguments)
        return OwnRecurrentQNetwork(own) if remembers(own) else QNetwork(own)
    encoder = None if adapter.is_flat else Encoder(adapter)
    size = adapter.size if encoder is None else encoder.features
    if settings.recurrent:
        memory = Memory(settings.recurrent, size, settings.recurrent_size)
        head = _q_head(settings.recurrent_size, actions, settings, dueling, atoms, noise)
        return RecurrentQNetwork(memory, head, encoder)
    return _q_head(size, actions, settings, dueling, atoms, noise, encoder)


def _q_head(
    size: int,
    actions: ActionSpec,
    settings: ModelSettings,
    dueling: bool,
    atoms: int,
    noise: float,
    encoder: nn.Module | None = None,
) -> QNetwork | DuelingQNetwork:
    if not dueling and not noise:
        return QNetwork(build_mlp(size, settings.hidden, actions.outputs * atoms, settings.activation), encoder)
    if dueling and not settings.hidden:
        raise UsageError("a dueling network needs a hidden layer: model.hidden must not be empty")
    width = settings.hidden[-1] if settings.hidden else size
    trunk = build_mlp(size, settings.hidden, None, settings.activation)
    outputs = (1, actions.outputs) if dueling else (actions.outputs,)
    heads = [NoisyLinear(width, n * atoms, noise) if noise else nn.Linear(width, n * atoms) for n in outputs]
    if not dueling:
        return QNetwork(trunk.append(heads[0]), encoder)
    return DuelingQNetwork(trunk, nn.Sequential(heads[0]), nn.Sequential(heads[1]), encoder, atoms)
