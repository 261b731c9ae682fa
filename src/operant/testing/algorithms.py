"""What every algorithm must do, as tests: subclass `AlgorithmContract` and name yours.

class TestMine(AlgorithmContract):
    name = "cem"                       # as in configs: registered, or found by its entry point
    settings = {"population": 6}       # small ones, so that it is quick
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from operant.algorithms import Algorithm, DataSpec, Policy, find_algorithm
from operant.envs import make_env
from operant.envs.parallel import ParallelVectorEnv
from operant.envs.vector import VectorEnv
from operant.models.settings import ModelSettings
from operant.settings import describe, fill
from operant.training.checkpoints import pack_state, read_weights, unpack_state, write_weights
from operant.training.collecting import Collector, allowed_actions
from operant.training.sources import Source, make_source

# What a source makes of what was stored.
_MADE = {"discount", "weight", "next_mask", "index", "generation", "first", "mask", "length"}
_REPLAY_STORES = {"obs", "action", "reward", "terminated", "truncated", "next_obs", "mask"}


class _Watched(dict[str, Any]):
    """A batch that remembers which of its fields were read."""

    def __init__(self, batch: Mapping[str, Any], read: set[str]) -> None:
        super().__init__(batch)
        self._read = read

    def __getitem__(self, name: str) -> Any:
        self._read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self._read.add(name)
        return super().get(name, default)


class AlgorithmContract:
    """Subclass, set `name`, and pytest runs all of it."""

    name: ClassVar[str]
    """As in configs."""
    settings: ClassVar[dict[str, Any]] = {}
    """Such that a round of learning is short."""
    model: ClassVar[dict[str, Any]] = {}
    """Settings of the networks, where they are not to be the algorithm's own."""
    envs: ClassVar[tuple[str, ...]] = (
        "operant.envs.identity:DiscreteIdentity",
        "operant.envs.identity:MaskedIdentity",
        "CartPole-v1",
        "Pendulum-v1",
    )
    """Environments that it can learn on; all rounds are in the first, whose episodes are short and cut off."""
    rounds: ClassVar[int] = 4
    """Rounds of learning in each test."""

    # -- helpers -----------------------------------------------------------------------------------------------------
    def build(self, env: VectorEnv, seed: int = 0) -> Algorithm:
        """An instance for the spaces of some environments."""
        algorithm, settings = find_algorithm(self.name)
        spaces = env.single_observation_space, env.single_action_space
        model = fill(ModelSettings, self.model, "model") if self.model else None
        made: Algorithm = algorithm(*spaces, fill(settings, self.settings, "settings"), model, seed)
        return made

    def source(self, seed: int = 0, num_envs: int = 3) -> Source:
        """An instance with environments to collect in."""
        env = make_env(self.envs[0], num_envs, seed=seed)
        algorithm = self.build(env, seed)
        collector = Collector(env, algorithm, rng=np.random.default_rng([seed, 4]))
        collector.reset(seed)
        return make_source(algorithm, collector, np.random.default_rng([seed, 3]))

    def train(self, source: Source, rounds: int | None = None, total_steps: int = 10_000) -> dict[str, float]:
        """So many rounds that learn; returns the last metrics."""
        metrics: dict[str, float] = {}
        wanted = source.train_iter + (self.rounds if rounds is None else rounds)
        while source.train_iter < wanted:
            metrics = source.learn(source.collect(total_steps), total_steps)
        return metrics

    # -- the contract ------------------------------------------------------------------------------------------------
    def test_it_says_what_it_learns_from(self) -> None:
        algorithm = self.source().algorithm
        assert isinstance(algorithm.data, DataSpec)
        said = type(algorithm).data_spec(algorithm.settings)
        if "state" in algorithm.data.fields and "state" not in said.fields:  # its network has memory
            said = said.remembering(algorithm.model.sequence, algorithm.model.burn_in)
        assert algorithm.data == said

    def test_its_settings_are_frozen_and_explain_themselves(self) -> None:
        _, settings = find_algorithm(self.name)
        assert dataclasses.is_dataclass(settings) and vars(settings)["__dataclass_params__"].frozen
        for name, default, help in describe(settings):
            assert help, f"{name} has no help text: setting({default!r}, 'what it does')"

    def test_actions_lie_in_the_space_and_obey_the_mask(self) -> None:
        for name in self.envs:
            env = make_env(name, 4, seed=1)
            algorithm = self.build(env)
            obs, rng = env.reset(1), np.random.default_rng(0)
            for step in range(30):
                mask = allowed_actions(env, algorithm, obs)
                out = algorithm.act(obs, mask=mask, explore=step % 3 > 0, rng=rng)
                for space, actions in _by_agent(env, out.action):
                    assert len(actions) == 4
                    for row, action in enumerate(actions):
                        assert space.contains(_as_space_has_it(space, action)), (name, action)
                        assert mask is None or mask[row, action], f"{name}: action {action} is masked out"
                obs = env.step(out.action).obs

    def test_without_exploration_the_same_observation_gives_the_same_action(self) -> None:
        for name in self.envs:
            env = make_env(name, 4, seed=1)
            algorithm = self.build(env)
            obs = env.reset(1)
            mask = allowed_actions(env, algorithm, obs)
            answers = [
                algorithm.act(obs, mask=mask, explore=False, rng=np.random.default_rng(seed)).action for seed in (0, 1)
            ]
            np.testing.assert_equal(answers[0], answers[1])

    def test_an_actor_for_several_steps_acts_as_long_as_it_was_made_for(self) -> None:
        env = make_env(self.envs[0], 2, seed=0)
        algorithm = self.build(env)
        obs = algorithm.adapter.adapt(env.reset(0))
        for rng in (np.random.default_rng(0), None):
            act = algorithm.actor(rng, 5, 2)
            for _ in range(5):
                for_env, stored, extras = act(obs, None, None)
                assert isinstance(extras, dict)
                for _, actions in [*_by_agent(env, for_env), *_by_agent(env, stored)]:
                    assert len(actions) == 2

    def test_learning_changes_the_weights_and_says_finite_numbers(self) -> None:
        source = self.source()
        before = source.algorithm.weights()
        metrics = self.train(source)
        assert metrics, "learn returned no metrics though `measure` is true"
        for name, value in metrics.items():
            assert isinstance(value, float) and math.isfinite(value), (name, value)
        assert not _same(before, source.algorithm.weights()), "no weight has changed"

    def test_measuring_changes_nothing(self) -> None:
        weights = []
        for measure in (True, False):
            source = self.source()
            while source.train_iter < self.rounds:
                source.learn(source.collect(10_000), 10_000, measure)
            weights.append(source.algorithm.weights())
        assert _same(*weights)

    def test_it_reads_the_fields_it_asks_for_and_no_others(self) -> None:
        source = self.source()
        algorithm, read = source.algorithm, set[str]()
        learn = algorithm.learn
        algorithm.learn = lambda batch: learn(_Watched(batch, read))  # type: ignore[method-assign]
        made = set(_MADE)
        if algorithm.data.ahead > 1:
            foreseeing: Any = algorithm
            foresee = foreseeing.foresee

            def watch(batch: Any) -> Any:
                fields = foresee(_Watched(batch, read))
                made.update(fields)
                return fields

            foreseeing.foresee = watch
        asked = set(algorithm.data.fields)
        must = asked if algorithm.data.on_policy else asked - _REPLAY_STORES
        for _ in range(20):
            self.train(source, 1)
            if must <= read:
                break
        assert read <= asked | made, f"learn reads {sorted(read - asked - made)}, which DataSpec.fields does not list"
        assert must <= read, f"DataSpec.fields lists {sorted(must - read)}, which learn never reads"

    def test_the_same_seed_gives_the_same_weights(self) -> None:
        weights = []
        for seed in (1, 1, 2):
            source = self.source(seed)
            self.train(source)
            weights.append(source.algorithm.weights())
        assert _same(weights[0], weights[1])
        assert not _same(weights[0], weights[2])

    def test_what_is_foreseen_makes_no_difference(self) -> None:
        one, other = self.source(1), self.source(1)
        if one.algorithm.data.ahead == 1:
            return
        other.algorithm.data = dataclasses.replace(other.algorithm.data, ahead=1)
        for source in (one, other):
            self.train(source)
        weights = other.algorithm.weights()
        for name, value in one.algorithm.weights().items():
            np.testing.assert_allclose(value, weights[name], rtol=1e-3, atol=1e-5)

    def test_a_state_that_was_saved_goes_on_exactly(self) -> None:
        one, other = self.source(1), self.source(2)
        self.train(one)
        text, content = pack_state(1, one.algorithm.state_dict())
        other.algorithm.load_state_dict(unpack_state(text, bytes(content), "state", "arrays"))
        assert _same(one.algorithm.weights(), other.algorithm.weights())
        # What differs from here on would be state that was not saved: both learn from the same data.
        learn, set_progress = one.algorithm.learn, one.algorithm.set_progress

        def learn_both(batch: Any) -> Any:
            other.algorithm.learn(dict(batch))
            return learn(batch)

        def tell_both(steps: int, total_steps: int) -> None:
            other.algorithm.set_progress(steps, total_steps)
            set_progress(steps, total_steps)

        one.algorithm.learn = learn_both  # type: ignore[method-assign]
        one.algorithm.set_progress = tell_both  # type: ignore[method-assign]
        self.train(one)
        assert _same(one.algorithm.weights(), other.algorithm.weights())

    def test_weights_alone_make_another_instance_act_alike(self, tmp_path: Path) -> None:
        one, other = self.source(1), self.source(2)
        self.train(one)
        write_weights(tmp_path / "weights.safetensors", one.algorithm.weights(), {})
        other.algorithm.load_weights(read_weights(tmp_path / "weights.safetensors")[0])
        obs = make_env(self.envs[0], 5, seed=3).reset(3)
        answers = [_greedy(source.algorithm, obs) for source in (one, other)]
        np.testing.assert_equal(answers[0], answers[1])
        given = one.algorithm.weights()
        next(iter(given.values()))[...] += 1.0  # what was given away is the taker's
        assert not _same(given, one.algorithm.weights())

    def test_a_policy_without_its_learner_acts_and_collects_alike(self) -> None:
        source = self.source(1)
        algorithm = source.algorithm
        env = make_env(self.envs[0], 3, seed=5)
        spaces = env.single_observation_space, env.single_action_space
        policy = type(algorithm).make_policy(*spaces, algorithm.settings, algorithm.model, 2)
        assert policy.data == algorithm.data
        self.train(source)
        obs = env.reset(5)
        whole = self.build(env, 3)
        steps = []
        for one in (policy, whole):
            one.load_weights(algorithm.weights())
            np.testing.assert_equal(_greedy(one, obs), _greedy(algorithm, obs))
            one.set_progress(500, 1000)
            collector = Collector(env, one, rng=np.random.default_rng(6))
            collector.reset(5)
            steps.append(collector.trajectory(12))
        for mine, its in zip(*steps, strict=True):
            assert mine.keys() == its.keys()
            np.testing.assert_equal(mine["action"], its["action"])

    def test_schedules_go_by_progress(self) -> None:
        source = self.source()
        for steps in (0, 50, 100, 200):
            source.algorithm.set_progress(steps, 100)
            assert 0.0 <= source.algorithm.beta <= 1.0
        self.train(source, 1, total_steps=1)

    def test_it_says_where_and_how_it_computes(self) -> None:
        algorithm = self.source().algorithm
        assert algorithm.path and str(algorithm.device).partition(":")[0] in ("cpu", "cuda", "mps")
        assert algorithm.entropy_limit is None or algorithm.entropy_limit > 0.0


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def _greedy(policy: Policy, obs: Any) -> Any:
    return policy.act(obs, explore=False, rng=np.random.default_rng(0)).action


def _by_agent(env: VectorEnv, action: Any) -> list[tuple[Any, Any]]:
    """Action spaces with actions of them: one, or that of each agent."""
    if isinstance(env, ParallelVectorEnv):
        return [(env.action_spaces[agent], action[agent]) for agent in env.agents]
    return [(env.single_action_space, action)]


def _as_space_has_it(space: Any, action: Any) -> Any:
    dtype = space.dtype
    return np.asarray(action, dtype) if np.ndim(action) else np.asarray(action).astype(dtype)[()]
