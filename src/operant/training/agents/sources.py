"""How policies of several agents come by their data: one collector, and of each step every policy keeps its rows."""

from __future__ import annotations

import math
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np

from operant.algorithms.contracts import Array, Metrics
from operant.data.batches import add_step, rollout_batch
from operant.data.replay import ReplayBuffer
from operant.data.sparse import SparsePrioritizedReplayBuffer, SparseReplayBuffer
from operant.data.trees import tree_map, tree_stack
from operant.envs.parallel import AgentSteps, ParallelVectorEnv
from operant.envs.vector import Step
from operant.errors import UsageError
from operant.training.agents.selves import PastSelves
from operant.training.agents.team import Member, Team
from operant.training.collecting import Collector, only
from operant.training.sources import Replay, Source, learn_from, learn_from_replay

_FIELDS = {"obs", "action", "reward", "terminated", "truncated", "next_obs"}


class RolloutShare:
    """Steps of one policy's agents, up to a whole rollout."""

    def __init__(self, member: Member, num_envs: int) -> None:
        self.policy = member.policy
        self.steps = self.policy.data.count
        self._rows = num_envs * len(member.agents)
        self._kept: list[dict[str, Any]] = []
        self._present: list[Array] = []

    def keep(self, step: dict[str, Any], present: Array) -> None:
        self._kept.append(step)
        self._present.append(present)

    def learn(self, env_step: int, total_steps: int, measure: bool, rng: np.random.Generator) -> tuple[int, Metrics]:
        """Learn if a rollout is whole; returns how often, and what to log."""
        if len(self._kept) < self.steps:
            return 0, {}
        kept, present = self._kept, np.stack(self._present)
        self._kept, self._present = [], []
        if not present.all():
            kept = pack_present(kept, present)
            if not kept:
                return 0, {}
        self.policy.measure = measure
        metrics, _ = learn_from(self.policy, only(rollout_batch(kept), self.policy.data.fields))
        return 1, dict(metrics)

    def save(self, folder: Path) -> dict[str, Any]:
        """What is there of a rollout: policies with other rhythms may have ended theirs before."""
        return {"kept": self._kept, "present": np.stack(self._present)} if self._kept else {}

    def load(self, folder: Path, state: dict[str, Any]) -> None:
        kept = list(state.get("kept", ()))
        present = list(state.get("present", ()))
        whole = all(one.keys() >= _FIELDS and len(one["reward"]) == self._rows for one in kept)
        if len(kept) != len(present) or len(kept) >= self.steps or not whole:
            raise ValueError(f"{len(kept)} steps are no beginning of a rollout")
        self._kept, self._present = kept, present


class ReplayShare:
    """Replay of one policy's agents."""

    def __init__(self, member: Member, num_envs: int) -> None:
        self.policy = member.policy
        self.spec = self.policy.data
        rows = num_envs * len(member.agents)
        self.steps = max(1, -(-self.spec.every // num_envs))  # of each environment in a round
        self._updates = self.spec.updates or self.steps * num_envs
        self._owed = 0
        capacity, sizes = max(self.spec.capacity, rows), {"n_step": self.spec.n_step, "gamma": self.spec.gamma}
        self.buffer: ReplayBuffer = (
            SparseReplayBuffer(capacity, rows, **sizes)
            if self.spec.alpha is None
            else SparsePrioritizedReplayBuffer(capacity, rows, alpha=self.spec.alpha, **sizes)
        )
        self._nobody_for = self.buffer.rows  # steps since one of its agents was there

    def keep(self, step: dict[str, Any], present: Array) -> None:
        self._owed += 1
        self._nobody_for = 0 if present.any() else self._nobody_for + 1
        # Who is not there has no episode that could go on.
        add_step(self.buffer, {**step, "truncated": step["truncated"] | ~present, "present": present})

    def learn(self, env_step: int, total_steps: int, measure: bool, rng: np.random.Generator) -> tuple[int, Metrics]:
        rounds, self._owed = divmod(self._owed, self.steps)
        if env_step < self.spec.starts or not rounds or self._nobody_for >= self.buffer.rows:
            return 0, {}  # replay may hold no step of any of them any more
        self.policy.set_progress(env_step, total_steps)
        metrics: Metrics = {}
        updates = rounds * self._updates
        for number in range(updates):
            self.policy.measure = measure and number == updates - 1
            metrics = learn_from_replay(self.policy, self.buffer, rng)
        return updates, metrics

    def save(self, folder: Path) -> dict[str, Any]:
        return {"buffer": self.buffer.save_chunks(folder), "owed": self._owed, "nobody_for": self._nobody_for}

    def load(self, folder: Path, state: dict[str, Any]) -> None:
        self.buffer.load(folder, state["buffer"])
        self._owed = int(state["owed"])
        # Checkpoints of older versions say only whether anybody has ever been there.
        since = 0 if state.get("anybody") else self.buffer.rows
        self._nobody_for = int(state.get("nobody_for", since))


def pack_present(kept: list[dict[str, Any]], present: Array) -> list[dict[str, Any]]:
    """A rollout without the rows of agents that were not there.

    What each agent met without a break is laid one behind the other, and cut into columns of one length; a break counts
    as a truncation, behind which values are bootstrapped. At most as many steps as there are columns are left out.
    """
    steps = len(kept)
    row, t = present.T.nonzero()
    count = len(row)
    columns = max(1, round(count / steps))
    length = count // columns
    if count < 2 or not length:
        return []
    row, t = row[: length * columns], t[: length * columns]
    flat = tree_map(lambda leaf: leaf[t, row], tree_stack(kept))
    goes_on = np.zeros(len(row), np.bool_)
    goes_on[:-1] = (row[1:] == row[:-1]) & (t[1:] == t[:-1] + 1)
    ended = flat["terminated"] | flat["truncated"]
    flat["truncated"] = flat["truncated"] | (~goes_on & ~ended)
    laid = tree_map(lambda leaf: np.swapaxes(leaf.reshape(columns, length, *leaf.shape[1:]), 0, 1), flat)
    return [tree_map(lambda leaf, number=number: leaf[number], laid) for number in range(length)]


class TeamSource(Source):
    """One collector for all policies; each learns in its own rhythm, counted in steps of the environments."""

    def __init__(self, team: Team, collector: Collector, rng: np.random.Generator) -> None:
        self.algorithm: Any = team
        self.collector = collector
        self.rng = rng
        self.train_iter = 0
        self.inexact_reason = ""
        assert isinstance(collector.env, ParallelVectorEnv)
        self.env = collector.env
        self.shares = {one.name: _share(one, collector.env.num_envs) for one in team.learning}
        self._steps = math.gcd(*(share.steps for share in self.shares.values()))
        self._falling = any(one.policy.data.source == "replay" for one in team.learning)
        self.returns = AgentReturns(self.env, collector.episodes.returns.maxlen or 100, team)
        self.selves = PastSelves(team)
        self._scales: Any = collector.normalizer

    @property
    def steps_per_round(self) -> int:
        return self._steps * self.env.num_envs

    def describe(self) -> list[str]:
        who = "; ".join(f"{one.name} for {', '.join(one.agents)}" for one in self.algorithm.members.values())
        return [f"policies: {who}", *self.selves.describe()]

    def collect(self, total_steps: int) -> None:
        self.algorithm.set_progress(self.collector.env_step, total_steps)
        self.selves.choose(self.collector.env_step, total_steps, self.rng)
        self.collector.run(self._steps, self._keep, total_steps=total_steps if self._falling else None)

    def _keep(
        self,
        _t: int,
        obs: Any,
        _mask: Any,
        action: Any,
        _reward: Array,
        step: Step,
        following: Any,
        _next_mask: Any,
        extras: dict[str, Any],
    ) -> None:
        told: AgentSteps = step.info["agents"]
        after, scales = self.collector.next_obs(step, following), self._scales
        for one in self.algorithm.learning:
            seen, then = obs["policies"][one.name], after["policies"][one.name]
            reward, present = one.rows(told.reward), one.rows(told.present)
            terminated, truncated = one.rows(told.terminated), one.rows(told.truncated)
            if scales is not None:
                reward = scales.rewards(one, reward, terminated | truncated, present)
            happened = {
                "obs": seen["obs"],
                "action": action[one.name],
                "reward": reward.astype(np.float32),
                "terminated": terminated,
                "truncated": truncated,
                "next_obs": then["obs"],
            }
            if "mask" in seen:
                happened |= {"mask": seen["mask"], "next_mask": then["mask"]}
            fields = one.policy.data.fields
            happened |= {name: value for name, value in extras["policies"][one.name].items() if name in fields}
            if "state" in fields:
                state = extras["state"][one.name]
                happened["state"] = tree_map(lambda part: part.reshape(-1, *part.shape[2:]), state)
            self.shares[one.name].keep(happened, present)
        self.returns.add(step)

    def learn(self, batch: Any, total_steps: int, measure: bool = True) -> Metrics:
        metrics: Metrics = {}
        for name, share in self.shares.items():
            count, found = share.learn(self.collector.env_step, total_steps, measure, self.rng)
            self.train_iter += count
            metrics |= found if len(self.shares) == 1 else {f"{name}/{key}": value for key, value in found.items()}
        return metrics

    def before_evaluation(self) -> None:
        self.selves.newest()

    def figures(self) -> Metrics:
        return self.returns.means() | self.selves.figures()

    def save(self, folder: Path) -> dict[str, Any]:
        shares = {name: saved for name, share in self.shares.items() if (saved := share.save(folder))}
        state: dict[str, Any] = {"agents": {"returns": self.returns.state_dict(), "selves": self.selves.state_dict()}}
        return state | {"replay": shares} if shares else state

    def load(self, folder: Path, state: dict[str, Any]) -> None:
        self.returns.load_state_dict(state["agents"]["returns"])
        self.selves.load_state_dict(state["agents"]["selves"])
        for name, share in self.shares.items():
            share.load(folder, state.get("replay", {}).get(name, {}))


def _share(member: Member, num_envs: int) -> RolloutShare | ReplayShare:
    spec = member.policy.data
    if spec.source == "fresh" and spec.unit == "step":
        return RolloutShare(member, num_envs)
    if spec.source == "replay":
        return ReplayShare(member, num_envs)
    what = "recorded transitions" if spec.source == "dataset" else f"whole {spec.unit}s"
    raise UsageError(
        f"the policy {member.name!r} learns from {what}, which several agents do not give: "
        "take an algorithm that learns from rollouts or replay"
    )


class AgentReturns:
    """Returns of the latest episodes, of each agent and of the agents of each policy."""

    def __init__(self, env: ParallelVectorEnv, window: int, team: Team | None = None) -> None:
        self._agents = env.agents
        several = [one for one in team.members.values() if len(one.agents) > 1] if team is not None else []
        self._groups = {one.name: one.columns for one in several} if team and len(team.members) > 1 else {}
        self._latest: deque[Array] = deque(maxlen=window)

    def add(self, step: Step) -> None:
        ended = step.info.get("agent_returns")
        if ended is not None:
            self._latest.extend(ended)

    def means(self) -> Metrics:
        if not self._latest:
            return {}
        mean = np.mean(self._latest, axis=0)
        by_agent = {f"agents/{agent}/return": float(value) for agent, value in zip(self._agents, mean, strict=True)}
        return by_agent | {f"policies/{name}/return": float(mean[of].sum()) for name, of in self._groups.items()}

    def state_dict(self) -> dict[str, Any]:
        return {"latest": np.array(self._latest).reshape(-1, len(self._agents))}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        latest = np.asarray(state["latest"], float).reshape(-1, len(self._agents))
        self._latest.clear()
        self._latest.extend(latest)


class JointReplay(Replay):
    """Replay of what all agents met at the same time, for what learns them together. Beside the fields of any replay a
    step has ``agent_reward``, ``agent_terminated`` and ``present`` [N, A]."""

    def __init__(
        self, algorithm: Any, collector: Collector, rng: np.random.Generator, buffer: ReplayBuffer | None = None
    ) -> None:
        super().__init__(algorithm, collector, rng, buffer)
        assert isinstance(collector.env, ParallelVectorEnv)
        self.returns = AgentReturns(collector.env, collector.episodes.returns.maxlen or 100)
        self._keep = self._keep_joint
        self._plain = collector.each_step(lambda step: add_step(self.buffer, step))

    def _keep_joint(
        self,
        t: int,
        obs: Any,
        mask: Any,
        action: Any,
        reward: Array,
        step: Step,
        following: Any,
        next_mask: Any,
        extras: dict[str, Any],
    ) -> None:
        told: AgentSteps = step.info["agents"]
        extras = extras | {
            "agent_reward": told.reward.astype(np.float32),
            "agent_terminated": told.terminated,
            "present": told.present,
        }
        self._plain(t, obs, mask, action, reward, step, following, next_mask, extras)
        self.returns.add(step)

    def figures(self) -> Metrics:
        return self.returns.means()

    def save(self, folder: Path) -> dict[str, Any]:
        return {**super().save(folder), "agents": {"returns": self.returns.state_dict()}}

    def load(self, folder: Path, state: dict[str, Any]) -> None:
        super().load(folder, state)
        self.returns.load_state_dict(state["agents"]["returns"])
