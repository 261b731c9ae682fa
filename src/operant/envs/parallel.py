"""Several agents in one world: parallel environments of PettingZoo, N copies that step together."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from operant.envs._masks import MASK, mask_size
from operant.envs._observations import check, copy_tree, empty, row_of, set_row
from operant.envs.rng import pack_pcg64, seeded, unpack_pcg64
from operant.envs.vector import Array, EpisodeStatistics, Step, Tree, VectorEnv
from operant.errors import UsageError

PRESENT = "present"
"""Entry of the observations that says which agents there are: name -> [N] bool."""


class AgentSteps(NamedTuple):
    """What one step was to each agent: arrays [N, A] in the order of `ParallelVectorEnv.agents`."""

    present: Array  # who took part; the other columns of such a row say nothing
    reward: Array
    terminated: Array
    truncated: Array


class ParallelVectorEnv(VectorEnv):
    """Parallel environments of PettingZoo with the same agents, as one :class:`VectorEnv`.

    Observations are ``{agent: [N, …]}`` of all agents that there may be, actions too. Who is not there now has zeros;
    ``obs["present"]`` says who is, ``obs["action_mask"]`` what each may do, if infos say that. ``Step.reward`` is the
    sum over agents (over those that `count` names), ``Step.info["agents"]`` has `AgentSteps`, and with the end of
    episodes ``Step.info["agent_returns"]`` [K, A] those of each agent. ``final_obs`` is there when an agent has ended,
    also if others go on.

    An environment with ``save_state()`` and ``load_state(state)`` is asked; of any other the seed and the actions of
    the episode under way are saved and played again. One that then shows something else is found out and begun anew.
    """

    def __init__(self, envs: Sequence[Any], *, name: str = "", seed: int | None = None) -> None:
        self.envs = list(envs)
        self.num_envs = len(self.envs)
        first = self.envs[0]
        self.name = name or str(getattr(first, "metadata", {}).get("name") or type(first).__name__)
        self._ids = list(first.possible_agents)
        self.agents = tuple(str(one) for one in self._ids)
        self._column = {one: column for column, one in enumerate(self._ids)}
        self._check_agents()
        self.observation_spaces = {agent: first.observation_space(one) for agent, one in self._named()}
        self.action_spaces = {agent: first.action_space(one) for agent, one in self._named()}
        # Ordered: plain mappings would be sorted by name.
        self.single_observation_space = spaces.Dict(OrderedDict(self.observation_spaces))
        self.single_action_space = spaces.Dict(OrderedDict(self.action_spaces))
        self.counted = np.arange(len(self.agents))
        self._seed = seed
        self._generators: list[np.random.Generator] = []
        self._statistics = EpisodeStatistics(self.num_envs)
        self._returns = np.zeros((self.num_envs, len(self.agents)))
        self._saves = all(hasattr(type(env), verb) for env in self.envs for verb in ("save_state", "load_state"))
        self._seeds = [0] * self.num_envs
        self._played: list[list[dict[str, Any]]] = [[] for _ in self.envs]  # actions of the episode under way
        self._masked: set[str] = set()
        self._obs: Tree = None
        self._checked = False

    def _named(self) -> list[tuple[str, Any]]:
        return list(zip(self.agents, self._ids, strict=True))

    def _check_agents(self) -> None:
        if not self.agents:
            raise UsageError(f"{self.name} has no agents: possible_agents is empty")
        taken = sorted({PRESENT, MASK} & set(self.agents))
        if taken or len(set(self.agents)) < len(self.agents):
            raise UsageError(f"{self.name} has agents called {list(self.agents)}; names differ, and none is {taken}")
        for number, env in enumerate(self.envs):
            if list(env.possible_agents) != self._ids:
                raise UsageError(f"environment {number} of {self.name} has other agents than environment 0")

    def count(self, agents: Sequence[str]) -> None:
        """Let the rewards of these agents alone make up `Step.reward` and the returns of episodes."""
        self.counted = np.array([self.agents.index(one) for one in agents])

    # -- episodes ----------------------------------------------------------------------------------------------------
    def reset(self, seed: int | None = None) -> Tree:
        if seed is None and not self._generators:
            seed = self._seed
        fresh = seed is not None or not self._generators
        if fresh:
            self._generators = [seeded(None if seed is None else seed + i) for i in range(self.num_envs)]
        self._statistics.clear()
        self._returns[:] = 0.0
        self._obs = self._nobody()
        for i in range(self.num_envs):
            self._begin(i, self._obs, seed + i if seed is not None else None)
        return copy_tree(self._obs)

    def _nobody(self) -> Tree:
        """Observations while no agent is there."""
        obs: dict[str, Any] = {agent: empty(space, self.num_envs) for agent, space in self.observation_spaces.items()}
        obs[PRESENT] = {agent: np.zeros(self.num_envs, np.bool_) for agent in self.agents}
        if self._masked:
            sizes = {agent: mask_size(self.action_spaces[agent]) for agent in self.agents if agent in self._masked}
            obs[MASK] = {agent: np.ones((self.num_envs, size), np.bool_) for agent, size in sizes.items()}
        return obs

    def _begin(self, index: int, obs: Tree, seed: int | None = None) -> None:
        """Begin an episode and write its first observations."""
        self._seeds[index] = int(self._generators[index].integers(2**31)) if seed is None else int(seed)
        self._played[index] = []
        begun: Any = self.envs[index].reset(seed=self._seeds[index])
        if not (isinstance(begun, tuple) and len(begun) == 2 and isinstance(begun[0], Mapping)):
            raise UsageError(f"{self.name} has a reset() that gives no pair of mappings: observations, infos")
        seen, infos = begun
        if not self.envs[index].agents:
            raise UsageError(f"{self.name} began an episode without any agent: agents is empty after reset()")
        for agent, one in self._named():
            if not self._checked and one in seen:
                check(self.observation_spaces[agent], seen[one], f"the observation of {agent} at the reset")
        if not self._checked and any(MASK in (infos.get(one) or {}) for one in self._ids):
            self._expect_masks(obs)
        self._checked = True
        self._write(index, obs, list(self.envs[index].agents), seen, infos)

    def _expect_masks(self, obs: Tree) -> None:
        """One agent has a mask at the first reset: from now on all that can have one do."""
        self._masked = {agent for agent, space in self.action_spaces.items() if mask_size(space)}
        obs |= {MASK: self._nobody()[MASK]} if self._masked else {}

    def _write(self, index: int, obs: Tree, agents: Sequence[Any], seen: Mapping[Any, Any], infos: Any) -> None:
        """Write what these agents see."""
        for one in agents:
            agent = self.agents[self._column[one]]
            if one not in seen:
                raise UsageError(f"{self.name} gave no observation to {agent}, which is among its agents")
            set_row(obs[agent], index, seen[one])
            obs[PRESENT][agent][index] = True
            given = (infos.get(one) or {}).get(MASK)
            if given is not None and mask_size(self.action_spaces[agent]):
                self._write_mask(obs, agent, index, given)

    def _write_mask(self, obs: Tree, agent: str, index: int, given: Any) -> None:
        if MASK not in obs:
            raise UsageError(f"{self.name} gave {agent} an {MASK}, but nobody had one at the first reset")
        row = np.asarray(given, np.bool_).reshape(-1)
        if row.shape != obs[MASK][agent].shape[1:] or not row.any():
            raise UsageError(f"{self.name}: the {MASK} of {agent} is {row.tolist()!r:.100}, which fits no action")
        obs[MASK][agent][index] = row

    def step(self, actions: Any) -> Step:
        if self._obs is None:
            raise UsageError(f"{self.name} was stepped before it was reset")
        shape = (self.num_envs, len(self.agents))
        told = AgentSteps(np.zeros(shape, np.bool_), np.zeros(shape), *(np.zeros(shape, np.bool_) for _ in range(2)))
        singles = self._single_actions(actions)
        following = self._nobody()
        ends: list[tuple[int, str, Any]] = []  # environment, agent and what it saw last
        over = []
        for index, env in enumerate(self.envs):
            if self._step_one(index, env, singles, told, following, ends):
                over.append(index)
        reward = told.reward[:, self.counted].sum(axis=1)
        self._statistics.add(reward)
        self._returns += told.reward
        info: dict[str, Any] = {"agents": told}
        final = None
        if ends:
            final = copy_tree(following)
            for index, agent, seen in ends:
                set_row(final[agent], index, seen)
                final[PRESENT][agent][index] = True
        truncated = np.zeros(self.num_envs, np.bool_)
        done = np.zeros(self.num_envs, np.bool_)
        if over:
            where = np.array(over)
            done[where] = True
            truncated = done & (told.truncated & ~told.terminated).any(axis=1)
            info |= {"episodes": self._statistics.end(where), "agent_returns": self._returns[where].copy()}
            self._returns[where] = 0.0
            for index in over:
                self._begin(index, following)
        self._obs = following
        return Step(copy_tree(following), reward, done & ~truncated, truncated, final, info)

    def _step_one(
        self, index: int, env: Any, singles: dict[str, Any], told: AgentSteps, following: Tree, ends: list[Any]
    ) -> bool:
        """Move one environment; returns whether its episode is over."""
        acting = list(env.agents)
        given = {one: singles[self.agents[self._column[one]]][index] for one in acting}
        if not self._saves:
            self._played[index].append({self.agents[self._column[one]]: np.array(given[one]) for one in acting})
        try:
            seen, rewards, terminated, truncated, infos = env.step(given)
        except ValueError as error:
            if "unpack" not in str(error):
                raise
            raise UsageError(f"{self.name} has a step() that gives no five mappings: {error}") from error
        flagged = {one for one in acting if terminated.get(one) or truncated.get(one)}
        staying = [one for one in env.agents if one not in flagged]
        for one in acting:
            column = self._column[one]
            agent = self.agents[column]
            gained = float(rewards.get(one, 0.0))
            if not isfinite(gained):
                raise UsageError(
                    f"{self.name} gave {agent} the reward {gained} in environment {index}: rewards are finite numbers"
                )
            told.present[index, column], told.reward[index, column] = True, gained
            if one not in staying:
                ended = bool(terminated.get(one))
                # Who is gone without a word was cut off.
                told.terminated[index, column], told.truncated[index, column] = ended, not ended
                last = seen[one] if one in seen else row_of(self._obs[agent], index)
                ends.append((index, agent, last))
        if staying:
            self._write(index, following, staying, seen, infos)
        return not staying

    def _single_actions(self, actions: Any) -> dict[str, Any]:
        """Of each agent a list of actions as its space has them."""
        if not isinstance(actions, Mapping) or not set(self.agents) <= set(actions):
            raise UsageError(f"{self.name} takes a mapping of actions, one entry for each of {list(self.agents)}")
        singles: dict[str, Any] = {}
        for agent, space in self.action_spaces.items():
            batch = np.array(actions[agent], space.dtype)  # a copy: environments may keep the action they were given
            if batch.shape != (self.num_envs, *(space.shape or ())):
                wanted = (self.num_envs, *(space.shape or ()))
                raise UsageError(f"{self.name} takes actions of shape {wanted} of {agent}, not {batch.shape}")
            singles[agent] = batch.tolist() if isinstance(space, spaces.Discrete) else list(batch)
        return singles

    # -- pictures and states -----------------------------------------------------------------------------------------
    def render_frame(self, index: int = 0) -> Array:
        frame = self.envs[index].render() if getattr(self.envs[index], "render_mode", "rgb_array") else None
        if not isinstance(frame, np.ndarray) or frame.ndim != 3:
            raise UsageError(f"{self.name} has no picture: make it with render_mode='rgb_array'")
        return frame.astype(np.uint8, copy=False)

    def save_state(self) -> dict[str, Any]:
        if self._obs is None:
            raise UsageError(f"{self.name} has no state to save before it is reset")
        state: dict[str, Any] = {
            "kind": "parallel",
            "num_envs": self.num_envs,
            "agents": list(self.agents),
            "generators": pack_pcg64(self._generators),
            "seeds": list(self._seeds),
            "statistics": self._statistics.save_state(),
            "returns": self._returns.copy(),
            "obs": copy_tree(self._obs),
        }
        if self._saves:
            return state | {"envs": {str(i): env.save_state() for i, env in enumerate(self.envs)}}
        return state | {"played": {str(i): _joined(steps) for i, steps in enumerate(self._played)}}

    def load_state(self, state: dict[str, Any]) -> Tree:
        expected = {"kind": "parallel", "num_envs": self.num_envs, "agents": list(self.agents)}
        saved = {name: state.get(name) for name in expected}
        if saved != expected or ("envs" in state) != self._saves:
            raise UsageError(f"the saved state is of other environments ({saved}) than these ({expected})")
        self._generators = unpack_pcg64(state["generators"])
        self._seeds = [int(seed) for seed in state["seeds"]]
        self._obs = copy_tree(state["obs"])
        self._masked = set(self._obs.get(MASK, ()))
        self._checked = True
        if self._saves:
            for i, env in enumerate(self.envs):
                env.load_state(state["envs"][str(i)])
        elif not all(self._play_again(i, state["played"][str(i)]) for i in range(self.num_envs)):
            self.inexact_reason = f"{self.name} does not repeat an episode from its seed and actions"
            return self.reset()
        self._statistics.load_state(state["statistics"])
        self._returns[:] = state["returns"]
        return copy_tree(self._obs)

    def _play_again(self, index: int, played: dict[str, Any]) -> bool:
        """Bring an environment to where it was; returns whether it shows what it showed then."""
        env, steps = self.envs[index], _apart(played)
        try:
            seen, infos = env.reset(seed=self._seeds[index])
            for actions in steps:
                if {str(one) for one in env.agents} != set(actions):
                    return False
                given = {one: self._as_given(str(one), actions[str(one)]) for one in env.agents}
                seen, _, _, _, infos = env.step(given)
            now = self._nobody()
            self._write(index, now, list(env.agents), seen, infos)
        except Exception:  # an environment that is given what it was not given before may fail in any way
            return False
        self._played[index] = steps
        return _same(now, self._obs, index)

    def _as_given(self, agent: str, action: Array) -> Any:
        return int(action) if isinstance(self.action_spaces[agent], spaces.Discrete) else np.array(action)

    def close(self) -> None:
        for env in self.envs:
            env.close()


def is_parallel(env: Any) -> bool:
    """Whether something is a parallel environment of PettingZoo."""
    return all(
        hasattr(env, name) for name in ("possible_agents", "observation_space", "reset", "step")
    ) and not hasattr(env, "agent_iter")


def _same(one: Tree, other: Tree, index: int) -> bool:
    if isinstance(one, dict):
        return all(_same(one[name], other[name], index) for name in one)
    if isinstance(one, tuple):
        return all(_same(part, its, index) for part, its in zip(one, other, strict=True))
    return np.array_equal(one[index], other[index], equal_nan=one.dtype.kind == "f")


def _joined(steps: list[dict[str, Any]]) -> dict[str, Any]:
    """Actions of an episode as arrays: of each agent those it took, and in which steps."""
    agents = dict.fromkeys(agent for step in steps for agent in step)
    there = {agent: [number for number, step in enumerate(steps) if agent in step] for agent in agents}
    taken = {
        agent: {"steps": np.array(numbers), "actions": np.stack([steps[number][agent] for number in numbers])}
        for agent, numbers in there.items()
    }
    return {"length": len(steps), "taken": taken}


def _apart(played: dict[str, Any]) -> list[dict[str, Any]]:
    length, known = int(played["length"]), sum(len(taken["steps"]) for taken in played["taken"].values())
    if not 0 <= length <= known:  # in each step somebody acts
        raise ValueError(f"{known} actions do not make {length} steps of an episode")
    steps: list[dict[str, Any]] = [{} for _ in range(length)]
    for agent, taken in played["taken"].items():
        for number, action in zip(taken["steps"].tolist(), taken["actions"], strict=True):
            steps[number][agent] = action
    return steps
