"""Networks with memory: one step at a time while acting, whole sequences while learning."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from operant.errors import UsageError, nearest

_LAYERS: dict[str, Any] = {"lstm": nn.LSTM, "gru": nn.GRU}


class Memory(nn.Module):
    """An LSTM or GRU layer whose state is one row of numbers: what comes out, behind it an LSTM's cell."""

    def __init__(self, kind: str, inputs: int, size: int) -> None:
        super().__init__()
        if kind not in _LAYERS:
            raise UsageError(f"model.recurrent is {kind!r}{nearest(kind, _LAYERS)}: lstm or gru")
        self.layer = _LAYERS[kind](inputs, size)
        self._lstm = kind == "lstm"
        self.size = size
        self.state_size = 2 * size if self._lstm else size

    def forward(self, features: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        """What comes out of whole sequences [L, S, F] that begin with `state` [S, K]."""
        before = state[None].contiguous()
        pair = before[..., : self.size].contiguous(), before[..., self.size :].contiguous()
        out: torch.Tensor = self.layer(features, pair if self._lstm else before)[0]
        return out

    def step(self, features: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What comes out of one step [N, F], and the state after it. A cell's own operator: the layer takes four times
        as long for a sequence of one."""
        layer = self.layer
        weights = layer.weight_ih_l0, layer.weight_hh_l0, layer.bias_ih_l0, layer.bias_hh_l0
        if not self._lstm:
            out = torch.gru_cell(features, state, *weights)
            return out, out
        out, cell = torch.lstm_cell(features, [state[:, : self.size], state[:, self.size :]], *weights)
        return out, torch.cat([out, cell], dim=1)


class RecurrentActorCritic(nn.Module):
    """A policy and a value, each behind a memory of its own; they may share an encoder."""

    def __init__(
        self,
        actor_memory: Memory,
        critic_memory: Memory,
        actor: nn.Sequential,
        critic: nn.Sequential,
        encoder: nn.Module | None,
        log_std: torch.Tensor | None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.actor_memory = actor_memory
        self.critic_memory = critic_memory
        self.actor = actor
        self.critic = critic
        self.log_std = None if log_std is None else nn.Parameter(log_std)

    def initial_state(self, rows: int) -> npt.NDArray[np.float32]:
        return np.zeros((rows, self.actor_memory.state_size + self.critic_memory.state_size), np.float32)

    def step(self, obs: Any, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Logits or means, what the policy's last layer was given, and the state after the step."""
        features = obs if self.encoder is None else self.encoder(obs)
        end = self.actor_memory.state_size
        out, after = self.actor_memory.step(features, state[:, :end])
        _, critic_after = self.critic_memory.step(features, state[:, end:])
        policy, hidden = self._policy(out)
        return policy, hidden, torch.cat([after, critic_after], dim=1)

    def unroll(
        self, obs: Any, state: torch.Tensor, place: torch.Tensor, at: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Logits or means, values and what the policy's last layer was given, of rows that are steps of sequences.

        :param place: the row at each step of each sequence [L, S]; behind the end of one stands any row.
        :param at: where in that (flat) stand the rows that are asked for.
        """
        features = (obs if self.encoder is None else self.encoder(obs))[place]
        end = self.actor_memory.state_size
        out = self.actor_memory(features, state[:, :end]).flatten(0, 1)[at]
        critic_out = self.critic_memory(features, state[:, end:]).flatten(0, 1)[at]
        policy, hidden = self._policy(out)
        return policy, self.critic(critic_out)[:, 0], hidden

    def _policy(self, out: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        *hidden, last = self.actor
        for layer in hidden:
            out = layer(out)
        return last(out), out


class OwnRecurrentActorCritic(nn.Module):
    """A module of the user's own that remembers: `forward(obs, state) -> (policy output, value, state)`, and
    `initial_state(rows)` gives its state at the beginning of episodes, a tensor [rows, …] or a dict of these."""

    encoder = critic = None

    def __init__(self, module: nn.Module, log_std: torch.Tensor | None) -> None:
        super().__init__()
        self.actor = module
        self.log_std = None if log_std is None else nn.Parameter(log_std)

    def initial_state(self, rows: int) -> Any:
        return _arrays(self.actor.initial_state(rows), type(self.actor).__name__)  # type: ignore[operator]

    def step(self, obs: Any, state: Any) -> tuple[torch.Tensor, torch.Tensor, Any]:
        policy, _, after = self._call(obs, state)
        return policy, policy, after

    def unroll(
        self, obs: Any, state: Any, place: torch.Tensor, at: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        policies, values = [], []
        for rows in place:
            policy, value, state = self._call(_rows(obs, rows), state)
            policies.append(policy)
            values.append(value.reshape(len(policy)))
        policy = torch.cat(policies)[at]
        return policy, torch.cat(values)[at], policy

    def _call(self, obs: Any, state: Any) -> tuple[torch.Tensor, torch.Tensor, Any]:
        told = self.actor(obs, state)
        if not isinstance(told, tuple) or len(told) != 3:
            raise UsageError(f"{type(self.actor).__name__}.forward must return three: policy output, value and state")
        return told


class RecurrentQNetwork(nn.Module):
    """Action values behind a memory: `head` is a network as there is without one, over what the memory gives."""

    def __init__(self, memory: Memory, head: nn.Module, encoder: nn.Module | None) -> None:
        super().__init__()
        self.encoder = encoder
        self.memory = memory
        self.head = head

    def initial_state(self, rows: int) -> npt.NDArray[np.float32]:
        return np.zeros((rows, self.memory.state_size), np.float32)

    def step(self, obs: Any, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Values of one step [N, …] and the state after it."""
        out, after = self.memory.step(obs if self.encoder is None else self.encoder(obs), state)
        return self.head(out), after

    def unroll(self, obs: Any, state: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
        """Values [L·S, …] of sequences that lie step by step in rows [L·S, …]; `shape`: L and S."""
        features: torch.Tensor = obs if self.encoder is None else self.encoder(obs)
        values: torch.Tensor = self.head(self.memory(features.reshape(*shape, -1), state).flatten(0, 1))
        return values


class OwnRecurrentQNetwork(nn.Module):
    """A module of the user's own that remembers: `forward(obs, state) -> (Q, state)`, with `initial_state(rows)`."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.q = module

    def initial_state(self, rows: int) -> Any:
        return _arrays(self.q.initial_state(rows), type(self.q).__name__)  # type: ignore[operator]

    def step(self, obs: Any, state: Any) -> tuple[torch.Tensor, Any]:
        return _pair(self.q, obs, state, "Q values")

    def unroll(self, obs: Any, state: Any, shape: tuple[int, int]) -> torch.Tensor:
        return _unrolled(self.step, obs, state, shape)


class Remembering(nn.Module):
    """A memory behind an encoder, if there is one."""

    def __init__(self, memory: Memory, encoder: nn.Module | None) -> None:
        super().__init__()
        self.encoder = encoder
        self.memory = memory

    def step(self, obs: Any, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What comes out of one step [N, …], and the state after it."""
        return self.memory.step(obs if self.encoder is None else self.encoder(obs), state)

    def unroll(self, obs: Any, state: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
        """What comes out of sequences that lie step by step in rows [L·S, …]; `shape`: L and S."""
        features: torch.Tensor = obs if self.encoder is None else self.encoder(obs)
        return self.memory(features.reshape(*shape, -1), state).flatten(0, 1)  # type: ignore[no-any-return]


class RememberingPolicy(nn.Module):
    """A policy behind a memory of its own."""

    def __init__(self, memory: Remembering, actor: nn.Sequential) -> None:
        super().__init__()
        self.memory = memory
        self.actor = actor


class RecurrentPolicyNetwork(nn.Module):
    """A policy with memory; and the memory of its critics, whose state is kept while it acts.

    Both states lie side by side in one row, that of the policy first.
    """

    def __init__(self, policy: RememberingPolicy, critic_memory: Remembering) -> None:
        super().__init__()
        self.policy = policy
        self.critic_memory = critic_memory
        self.own_state = policy.memory.memory.state_size

    @property
    def actor(self) -> nn.Module:
        return self.policy.actor

    def initial_state(self, rows: int) -> npt.NDArray[np.float32]:
        return np.zeros((rows, self.own_state + self.critic_memory.memory.state_size), np.float32)

    def critics_part(self, state: torch.Tensor) -> torch.Tensor:
        """The state of the critics' memory."""
        return state[:, self.own_state :]

    def with_critics_part(self, state: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
        """The same state of the policy beside another of the critics' memory."""
        return torch.cat([state[:, : self.own_state], part], dim=1)

    def step(self, obs: Any, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What the policy is made of in one step [N, …], and the state after it."""
        out, after = self.policy.memory.step(obs, state[:, : self.own_state])
        _, critic_after = self.critic_memory.step(obs, self.critics_part(state))
        return self.policy.actor(out), torch.cat([after, critic_after], dim=1)

    def unroll(self, obs: Any, state: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
        """The same of sequences that lie step by step in rows [L·S, …]; `shape`: L and S."""
        out = self.policy.memory.unroll(obs, state[:, : self.own_state], shape)
        return self.policy.actor(out)  # type: ignore[no-any-return]


class OwnRecurrentPolicyNetwork(nn.Module):
    """A policy of the user's own that remembers: `forward(obs, state) -> (policy output, state)`, with
    `initial_state(rows)`; and the memory of its critics, whose state is kept beside its own."""

    def __init__(self, module: nn.Module, critic_memory: Remembering) -> None:
        super().__init__()
        self.policy = module
        self.critic_memory = critic_memory

    @property
    def actor(self) -> nn.Module:
        return self.policy

    def initial_state(self, rows: int) -> dict[str, Any]:
        own = _arrays(self.policy.initial_state(rows), type(self.policy).__name__)  # type: ignore[operator]
        return {"policy": own, "critics": np.zeros((rows, self.critic_memory.memory.state_size), np.float32)}

    def critics_part(self, state: dict[str, Any]) -> torch.Tensor:
        return state["critics"]  # type: ignore[no-any-return]

    def with_critics_part(self, state: dict[str, Any], part: torch.Tensor) -> dict[str, Any]:
        return {**state, "critics": part}

    def step(self, obs: Any, state: dict[str, Any]) -> tuple[torch.Tensor, dict[str, Any]]:
        out, after = self._own_step(obs, state["policy"])
        return out, {"policy": after, "critics": self.critic_memory.step(obs, state["critics"])[1]}

    def unroll(self, obs: Any, state: dict[str, Any], shape: tuple[int, int]) -> torch.Tensor:
        return _unrolled(self._own_step, obs, state["policy"], shape)

    def _own_step(self, obs: Any, state: Any) -> tuple[torch.Tensor, Any]:
        return _pair(self.policy, obs, state, "policy output")


class RecurrentCritics(nn.Module):
    """Critics of actions behind one memory."""

    def __init__(self, memory: Remembering, critics: nn.Module) -> None:
        super().__init__()
        self.memory = memory
        self.heads = critics

    def forward(self, features: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """Q [C, B] from what came out of the memory."""
        return self.heads(features, action)  # type: ignore[no-any-return]


def remembers(module: nn.Module) -> bool:
    """Whether a module of the user's own has a state."""
    return hasattr(module, "initial_state")


def _pair(module: nn.Module, obs: Any, state: Any, what: str) -> tuple[torch.Tensor, Any]:
    told = module(obs, state)
    if not isinstance(told, tuple) or len(told) != 2:
        raise UsageError(f"{type(module).__name__}.forward must return a pair: {what} and state")
    return told


def _unrolled(step: Any, obs: Any, state: Any, shape: tuple[int, int]) -> torch.Tensor:
    """What `step` gives of sequences that lie step by step in rows [L·S, …]; `shape`: L and S."""
    outputs = []
    for rows in torch.arange(shape[0] * shape[1]).reshape(shape):
        output, state = step(_rows(obs, rows), state)
        outputs.append(output)
    return torch.cat(outputs)


def _rows(tree: Any, rows: torch.Tensor) -> Any:
    return {key: _rows(part, rows) for key, part in tree.items()} if isinstance(tree, dict) else tree[rows]


def _arrays(tree: Any, owner: str) -> Any:
    if isinstance(tree, dict):
        return {key: _arrays(part, owner) for key, part in tree.items()}
    if not isinstance(tree, (torch.Tensor, np.ndarray)):
        raise UsageError(f"{owner}.initial_state gives a {type(tree).__name__}; it must be a tensor or a dict of them")
    return np.asarray(tree.detach().cpu() if isinstance(tree, torch.Tensor) else tree)
