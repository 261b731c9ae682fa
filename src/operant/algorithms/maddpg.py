"""Multi-agent DDPG (Lowe et al. 2017, arXiv 1706.02275): each agent acts by what it sees itself, and is taught by a
critic that sees what all do. Discrete actions are learned through the Gumbel-softmax, as in the authors' code."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from operant.algorithms.agents import AgentsAdapter, JointActions, choose, gumbel_softmax, in_bounds, masked, one_hot
from operant.algorithms.base import BaseAlgorithm, BasePolicy
from operant.algorithms.contracts import Actor, Array, DataSpec, Metrics
from operant.algorithms.errors import DivergedError
from operant.algorithms.maddpg_settings import MADDPGSettings
from operant.algorithms.off_policy import Followed
from operant.errors import UsageError
from operant.models.builders import Critic, PolicyNetwork, build_mlp, build_policy
from operant.models.flat import FlatParameters, make_optimizer
from operant.models.fused import FusedMLP, is_fusable
from operant.models.loading import load_module_apart
from operant.models.observations import ObservationAdapter, to_array, to_tensors
from operant.models.settings import ModelSettings
from operant.models.spaces import ActionSpec, action_spec

if TYPE_CHECKING:
    from gymnasium import Space

_EPS = 1e-8
_FIELDS = ("obs", "action", "reward", "terminated", "truncated", "next_obs")
_OF_AGENTS = ("agent_reward", "agent_terminated", "present")


def joint_critic_loss(q: torch.Tensor, target: torch.Tensor, present: torch.Tensor) -> torch.Tensor:
    """Equation 6, Σ over agents of E[(Q_i(x, a) − y_i)²], over the steps [A, B] in which agent i was present."""
    square = (q - target).square() * present
    return (square.sum(dim=1) / present.sum(dim=1).clamp(min=1.0)).sum()


class Actors(nn.Module):
    """The policies of all agents, of each agent one or several."""

    def __init__(self, actors: Sequence[Sequence[PolicyNetwork]]) -> None:
        super().__init__()
        self.agents = nn.ModuleList([nn.ModuleList(its) for its in actors])

    def forward(self, agent: int, policy: int, obs: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.agents[agent][policy](obs)  # type: ignore[index]
        return out


class MADDPGPolicy(BasePolicy):
    """A policy for each agent, which sees what the agent sees."""

    Settings = MADDPGSettings
    settings: MADDPGSettings
    adapter: Any  # of all agents
    actions: Any
    example_env = "mpe2.simple_spread_v3"
    default_model = ModelSettings(hidden=(64, 64), activation="relu", orthogonal=False)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.agents: tuple[str, ...] = self.adapter.agents
        self._specs: list[ActionSpec] = list(self.actions.of.values())
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            self.network = self._build()
        fused = self.model.fused and all(is_fusable(one.actor) for its in self.network.agents for one in its)
        self._device = self._place(self.network)
        self._flat = FlatParameters(self.network)
        self._fast: list[list[FusedMLP]] = []
        if fused and self._flat.on_cpu:
            self._fast = [[FusedMLP(one.actor, self._flat) for one in its] for its in self.network.agents]
        self._steps = 0
        if self.settings.sub_policies > 1:
            self.data = DataSpec(**{**vars(self.data), "fields": (*self.data.fields, "state", "chosen")})

    def _adapter_of(self, space: Space[Any]) -> Any:
        parts = getattr(space, "spaces", None)
        if not isinstance(parts, dict):
            raise UsageError(f"{type(self).__name__} is for several agents, whose observations are a Dict, not {space}")
        policies = {agent: ((agent,), ObservationAdapter(part, as_row=True)) for agent, part in parts.items()}
        for agent, (_, adapter) in policies.items():
            if not adapter.is_flat:
                raise UsageError(f"MADDPG learns from rows of numbers; {agent} observes {adapter.space}")
        return AgentsAdapter(list(parts), policies)

    def _actions_of(self, space: Space[Any]) -> Any:
        specs = {agent: action_spec(part) for agent, part in space.spaces.items()}  # type: ignore[attr-defined]
        for agent, spec in specs.items():
            if not (spec.one_choice or spec.bounded):
                raise UsageError(
                    f"MADDPG takes one choice or continuous actions with bounds; {agent} has {space.spaces[agent]}"  # type: ignore[attr-defined]
                )
        return JointActions(specs)

    def _build(self) -> Actors:
        actors = []
        for agent, spec in zip(self.agents, self._specs, strict=True):
            adapter = self.adapter.policies[agent][1]
            last = (lambda: None) if spec.discrete else nn.Tanh
            its = [build_policy(adapter, spec.outputs, self.model, last()) for _ in range(self.settings.sub_policies)]
            # Of a module that was made already, given or named, each has a copy.
            actors.append(its if self.model.actor is None else [copy.deepcopy(one) for one in its])
        return Actors(actors)

    @staticmethod
    def data_spec(settings: MADDPGSettings) -> DataSpec:
        return DataSpec(
            "step",
            "replay",
            (*_FIELDS, *_OF_AGENTS),
            gamma=settings.gamma,
            capacity=settings.buffer,
            batch=settings.batch,
            every=settings.train_every,
            updates=settings.updates,
            starts=settings.learning_starts,
        )

    def set_progress(self, steps: int, total_steps: int) -> None:
        super().set_progress(steps, total_steps)
        self._steps = steps

    @property
    def path(self) -> str:
        return "torch (autograd)"

    # -- acting ------------------------------------------------------------------------------------------------------
    def initial_state(self, rows: int) -> Any:
        """Which of its policies each agent plays in an episode; −1: it is drawn with the first step."""
        return np.full((rows, len(self.agents)), -1, np.int64)

    def actor(self, rng: np.random.Generator | None, steps: int, rows: int, *, epsilon: float | None = None) -> Actor:
        count = self.settings.sub_policies

        def act(obs: Any, _mask: Array | None, state: Any) -> tuple[Any, Any, dict[str, Any]]:
            chosen = self._chosen(state, rng, rows) if count > 1 else None
            by_chance = rng is not None and epsilon is None and self._steps < self.settings.learning_starts
            for_env: dict[str, Any] = {}
            stored: dict[str, Any] = {}
            for number, (agent, spec) in enumerate(zip(self.agents, self._specs, strict=True)):
                seen = obs["policies"][agent]
                output = self._output(number, seen["obs"], None if chosen is None else chosen[:, number])
                if spec.discrete:
                    action = choose(output, seen.get("mask"), rng, by_chance)
                    if rng is not None and epsilon:
                        anything = choose(output, seen.get("mask"), rng, True)
                        action = np.where(rng.random(rows) < epsilon, anything, action)
                    for_env[agent] = stored[agent] = action
                else:
                    action = output if rng is None else self._explored(output, rng, by_chance, epsilon)
                    for_env[agent], stored[agent] = in_bounds(action, spec), action
            extras = {} if chosen is None else {"state": chosen, "chosen": chosen}
            return for_env, stored, extras

        return act

    def _chosen(self, state: Any, rng: np.random.Generator | None, rows: int) -> Array:
        """Which policy each agent plays [N, A]; without a generator that of row n is n modulo their number."""
        count, agents = self.settings.sub_policies, len(self.agents)
        state = self.initial_state(rows) if state is None else np.asarray(state)
        drawn = (
            np.repeat((np.arange(rows) % count)[:, None], agents, axis=1)
            if rng is None
            else rng.integers(count, size=(rows, agents))
        )
        return np.where(state < 0, drawn, state)

    def _output(self, agent: int, obs: Array, chosen: Array | None) -> Array:
        if chosen is None:
            return self._of_policy(agent, 0, obs)
        outputs = np.stack([self._of_policy(agent, one, obs) for one in range(self.settings.sub_policies)])
        return np.asarray(outputs[chosen, np.arange(len(obs))])

    def _of_policy(self, agent: int, policy: int, obs: Array) -> Array:
        if self._fast:
            return self._fast[agent][policy].forward(obs, 1).copy()
        with torch.no_grad(), self._modes.acting():
            return to_array(self.network(agent, policy, to_tensors(obs, self._device))).copy()

    def _explored(self, output: Array, rng: np.random.Generator, by_chance: bool, epsilon: float | None) -> Array:
        anything = rng.uniform(-1.0, 1.0, output.shape).astype(np.float32) if by_chance or epsilon else output
        if by_chance:
            return anything
        noise = rng.standard_normal(output.shape, dtype=np.float32) * np.float32(self.settings.noise_scale)
        action = np.clip(output + noise, -1.0, 1.0)
        return np.where(rng.random((len(output), 1)) < epsilon, anything, action) if epsilon else action


class MADDPG(MADDPGPolicy, BaseAlgorithm):
    """Learns the policies of all agents by a critic for each, of what the agents that it sees observe and do.

    A batch is a mapping with ``obs`` and ``next_obs`` as `AgentsAdapter` makes them, ``action`` by agent, and
    ``agent_reward``, ``agent_terminated`` and ``present`` [B, A]; with several policies of an agent also ``chosen``.
    """

    policy_class = MADDPGPolicy
    joint = True
    model_roles = (("actor", "actor"), ("actor", "its target"), ("critic", "critic"), ("critic", "its target"))

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._visible = [self._seen_by(number) for number in range(len(self.agents))]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed + 1_000_003)
            self._critics, self._target_critics = self._build_critics(), self._build_critics()
            self._target_network = self._build()
        self._place(self.network, self._critics, self._target_critics, self._target_network)
        self._critic_flat = FlatParameters(self._critics)
        self._moved = [
            Followed(self._critics, self._critic_flat, self._target_critics, FlatParameters(self._target_critics)),
            Followed(self.network, self._flat, self._target_network, FlatParameters(self._target_network)),
        ]
        for one in self._moved:
            one.move(1.0)
        self._actor_optimizer = make_optimizer(self.settings.optimizer, self._flat, _EPS)
        self._critic_optimizer = make_optimizer(self.settings.optimizer, self._critic_flat, _EPS)
        self._rng = np.random.default_rng([self.seed, 1])
        self._updates = 0

    def _seen_by(self, number: int) -> list[int]:
        """The agents that a critic sees."""
        told = self.settings.critic_visible_actors
        if not told:
            return list(range(len(self.agents)))
        if len(told) != len(self.agents) or not isinstance(told[number], (list, tuple)):
            raise UsageError(
                f"algorithm.critic_visible_actors has {len(told)} entries; there is a list for each of "
                f"{', '.join(self.agents)}"
            )
        names: dict[Any, int] = {key: n for n, agent in enumerate(self.agents) for key in (n, agent)}
        known = [one for one in told[number] if isinstance(one, (int, str)) and one in names]
        wrong = len(known) < len(told[number])
        seen = sorted({names[one] for one in known})
        if wrong or number not in seen:
            raise UsageError(
                f"algorithm.critic_visible_actors[{number}] is {list(told[number])}; the critic of "
                f"{self.agents[number]} sees agents by number or name, this one among them"
            )
        return seen

    def _build_critics(self) -> nn.ModuleList:
        critics = []
        for seen in self._visible:
            size = sum(self.adapter.policies[self.agents[one]][1].size + self._specs[one].outputs for one in seen)
            if self.model.critic is not None:
                critics.append(Critic(load_module_apart(self.model.critic, self.model.arguments), own=True))
            else:
                layers = build_mlp(size, self.model.hidden, 1, self.model.activation, self.model.layer_norm)
                critics.append(Critic(layers))
        return nn.ModuleList(critics)

    def optimized(self) -> dict[str, Any]:
        """Names of the optimizers, and the networks that each of them steps."""
        return {"_actor_optimizer": self.network, "_critic_optimizer": self._critics}

    # -- learning ----------------------------------------------------------------------------------------------------
    def learn(self, batch: Any) -> tuple[Metrics, Array | None]:
        """One gradient step of all critics and one of all policies."""
        settings = self.settings
        self._updates += 1
        obs, actions, present = self._tensors(batch)
        target = self._targets(batch)
        with self._modes.updating():
            q = torch.stack([self._q(self._critics, n, obs, actions) for n in range(len(self.agents))])
            critic_loss = joint_critic_loss(q, target, present)
            self._critic_flat.grad_tensor.zero_()
            critic_loss.backward()  # type: ignore[no-untyped-call]
        norm = self._step(self._critic_flat, self._critic_optimizer, settings.learning_rate)
        with self._modes.updating():
            actor_loss = self._actor_loss(batch, obs, actions, present)
            self._flat.grad_tensor.zero_()
            # By the policies alone: the critics stay as they are.
            torch.autograd.backward(actor_loss, inputs=list(self.network.parameters()))
        rate = settings.actor_learning_rate
        self._step(self._flat, self._actor_optimizer, settings.learning_rate if rate is None else rate)
        if self._updates % settings.target_every == 0:
            for one in self._moved:
                one.move(settings.target_rate)
        if not self.measure:
            return {}, None
        return {
            "q_loss": float(critic_loss.detach()),
            "q_mean": float(q.detach().mean()),
            "policy_loss": float(actor_loss.detach()),
            "gradient_norm": norm,
            "learning_rate": settings.learning_rate,
        }, None

    def _step(self, flat: FlatParameters, optimizer: Any, rate: float) -> float:
        norm = flat.clip_gradient(self.settings.max_gradient_norm)
        if not math.isfinite(norm):
            raise DivergedError
        optimizer.step(rate)
        return norm

    def _tensors(self, batch: Any) -> tuple[list[torch.Tensor], list[torch.Tensor], torch.Tensor]:
        """Of each agent what it saw and did; and where it was present [A, B]."""
        device = self._device
        obs = [to_tensors(batch["obs"]["policies"][agent]["obs"], device) for agent in self.agents]
        actions = []
        for agent, spec in zip(self.agents, self._specs, strict=True):
            action = to_tensors(batch["action"][agent], device)
            actions.append(one_hot(action, spec.outputs) if spec.discrete else action)
        present = to_tensors(np.ascontiguousarray(batch["present"].T, np.float32), device)
        return obs, actions, present

    def _q(self, critics: nn.ModuleList, agent: int, obs: list[Any], actions: list[Any]) -> torch.Tensor:
        """Q_i(x, a) of the agents that its critic sees [B]."""
        seen = self._visible[agent]
        rows = torch.cat([obs[one] for one in seen], dim=1)
        out: torch.Tensor = critics[agent](rows, torch.cat([actions[one] for one in seen], dim=1))
        return out

    def _targets(self, batch: Any) -> torch.Tensor:
        """y_i = r_i + γ Q⁻_i(x′, μ⁻(o′)) of each agent [A, B]; nothing follows where it has terminated."""
        device = self._device
        following = batch["next_obs"]["policies"]
        with torch.no_grad(), self._modes.acting():
            obs = [to_tensors(following[agent]["obs"], device) for agent in self.agents]
            actions = []
            for number, (agent, spec) in enumerate(zip(self.agents, self._specs, strict=True)):
                # Of several policies one for the whole batch: each is drawn in turn.
                policy = int(self._rng.integers(self.settings.sub_policies)) if self.settings.sub_policies > 1 else 0
                output = self._target_network(number, policy, obs[number])
                if spec.discrete:
                    output = masked(output, following[agent].get("mask"), device)
                    output = one_hot(output.argmax(dim=1), spec.outputs)
                actions.append(output)
            value = torch.stack([self._q(self._target_critics, n, obs, actions) for n in range(len(self.agents))])
        reward = to_tensors(np.ascontiguousarray(batch["agent_reward"].T, np.float32), device)
        goes_on = to_tensors(np.ascontiguousarray(~batch["agent_terminated"].T, dtype=np.float32), device)
        return reward + self.settings.gamma * goes_on * value  # type: ignore[no-any-return]

    def _actor_loss(self, batch: Any, obs: list[Any], actions: list[Any], present: torch.Tensor) -> torch.Tensor:
        """Equation 5: −Σ E[Q_i(x, a_1, …, μ_i(o_i), …, a_N)], the actions of others as they were; of discrete actions
        also the squared logits."""
        losses = []
        for number, (agent, spec) in enumerate(zip(self.agents, self._specs, strict=True)):
            mask = batch["obs"]["policies"][agent].get("mask")
            for policy in range(self.settings.sub_policies):
                rows = present[number]
                if self.settings.sub_policies > 1:
                    played = np.ascontiguousarray(batch["chosen"][:, number] == policy, np.float32)
                    rows = rows * to_tensors(played, self._device)
                output = self.network(number, policy, obs[number])
                action, size = output, None
                if spec.discrete:
                    size = output.square().mean(dim=1)
                    action = gumbel_softmax(masked(output, mask, self._device), self._gumbel(output.shape))
                own = [*actions[:number], action, *actions[number + 1 :]]
                each = -self._q(self._critics, number, obs, own)
                each = each if size is None else each + self.settings.logit_weight * size
                losses.append((each * rows).sum() / rows.sum().clamp(min=1.0))
        return torch.stack(losses).sum()

    def _gumbel(self, shape: Any) -> torch.Tensor:
        drawn = self._rng.gumbel(size=tuple(shape)).astype(np.float32)
        return to_tensors(drawn, self._device)  # type: ignore[no-any-return]

    # -- saving ------------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        return {
            "weights": self.weights(),
            "critics": _arrays(self._critics),
            "target_critics": _arrays(self._target_critics),
            "target": _arrays(self._target_network),
            "optimizer": {"actor": self._actor_optimizer.state_dict(), "critics": self._critic_optimizer.state_dict()},
            "rng": self._rng.bit_generator.state,
            "progress": self.progress,
            "steps": self._steps,
            "updates": self._updates,
            "module_rng": self._modes.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.load_weights(state["weights"])
        for module, name in (
            (self._critics, "critics"),
            (self._target_critics, "target_critics"),
            (self._target_network, "target"),
        ):
            module.load_state_dict({key: torch.as_tensor(np.array(value)) for key, value in state[name].items()})
        self._actor_optimizer.load_state_dict(state["optimizer"]["actor"])
        self._critic_optimizer.load_state_dict(state["optimizer"]["critics"])
        self._rng.bit_generator.state = state["rng"]
        self.progress = float(state["progress"])
        self._steps, self._updates = int(state["steps"]), int(state["updates"])
        self._modes.load_state_dict(state["module_rng"])


def _arrays(module: nn.Module) -> dict[str, Array]:
    return {name: to_array(value).copy() for name, value in module.state_dict().items()}
