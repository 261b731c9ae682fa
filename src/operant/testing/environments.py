"""What every environment must do, as tests: subclass `EnvironmentContract` and say how to make yours.

class TestMaze(EnvironmentContract):
    def build(self):
        return Maze(size=5)
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from operant.envs import Step, VectorEnv, make_env


class EnvironmentContract:
    """Subclass, override `build`, and pytest runs all of it."""

    # Steps of random play in each test; several episodes end in so many.
    steps: int = 300
    # Copies that step together where `build` gives a single environment.
    num_envs: int = 3
    # Whether the same seed and actions give the same episode bit by bit.
    deterministic: bool = True

    def build(self) -> gymnasium.Env[Any, Any] | VectorEnv:
        """A new environment: a Gymnasium one, or a vector environment of ours."""
        raise NotImplementedError("override build() to make your environment")

    # -- helpers ---------------------------------------------------------------------------------------------

    def make(self) -> VectorEnv:
        """The environment as a trainer sees it."""
        first = self.build()
        if isinstance(first, VectorEnv):
            return first
        return make_env(self.build, self.num_envs)

    def play(self, env: VectorEnv, seed: int, begin: int | None = 0) -> Iterator[tuple[Any, Any, Step]]:
        """Random allowed actions: what was observed, what was done, what came of it. `begin`: the seed of the reset."""
        rng = np.random.default_rng(seed)
        obs = env.reset(begin)
        for _ in range(self.steps):
            actions = choose(env, rng)
            step = env.step(actions)
            yield obs, actions, step
            obs = step.obs

    # -- the contract ----------------------------------------------------------------------------------------

    def test_observations_are_of_the_space(self) -> None:
        env = self.make()
        space = env.single_observation_space
        for index in range(env.num_envs):
            assert space.contains(row(env.reset(0), index)), f"the first observation of {index} is not in {space}"
        for _, _, step in self.play(env, 0):
            for tree in (step.obs, step.next_obs):
                for index in range(env.num_envs):
                    assert space.contains(row(tree, index)), f"{row(tree, index)} is not in {space}"
        env.close()

    def test_rewards_and_flags_are_arrays_of_finite_numbers_and_booleans(self) -> None:
        env = self.make()
        for _, _, step in self.play(env, 0):
            assert step.reward.shape == step.terminated.shape == step.truncated.shape == (env.num_envs,)
            assert np.isfinite(step.reward).all()
            assert step.terminated.dtype == step.truncated.dtype == np.bool_
        env.close()

    def test_a_seed_is_repeated(self) -> None:
        if not self.deterministic:
            pytest.skip("says that it is not deterministic")
        one, two = self.make(), self.make()
        played = zip(self.play(one, 1, begin=7), self.play(two, 1, begin=7), strict=True)
        for number, ((obs, _, step), (obs_again, _, step_again)) in enumerate(played):
            assert_same(obs, obs_again, f"two resets with one seed differ, seen in step {number}")
            assert_same(step[:5], step_again[:5], f"two plays with one seed differ in step {number}")
        one.close()
        two.close()

    def test_a_reset_without_a_seed_goes_on(self) -> None:
        """Environments that draw their starts must not begin every episode alike: that is what a fixed seed does."""
        env = self.make()
        if not same(env.reset(11), env.reset(12)):  # it draws its starts
            assert not same(env.reset(), env.reset()), "every reset without a seed begins the same episode"
        env.close()

    def test_an_end_gives_the_last_observation_and_begins_anew(self) -> None:
        env = self.make()
        lengths = np.zeros(env.num_envs, int)
        for _, _, step in self.play(env, 2):
            lengths += 1
            assert (step.final_obs is not None) == step.done.any(), "final_obs is there exactly when an episode ended"
            assert (step.episodes is not None) == step.done.any()
            if step.final_obs is not None and step.episodes is not None:
                for index in np.flatnonzero(~step.done).tolist():
                    assert_same(row(step.final_obs, index), row(step.obs, index), "a row that goes on has its own obs")
                np.testing.assert_array_equal(step.episodes.env, np.flatnonzero(step.done))
                np.testing.assert_array_equal(step.episodes.lengths, lengths[step.done])
                lengths[step.done] = 0
        env.close()

    def test_a_time_limit_truncates_and_does_not_terminate(self) -> None:
        env = self.make()
        limit = env.max_episode_steps
        lengths = np.zeros(env.num_envs, int)
        for _, _, step in self.play(env, 3):
            lengths += 1
            if limit is not None:
                assert (lengths <= limit).all(), f"an episode is longer than max_episode_steps, {limit}"
                assert step.truncated[lengths == limit].all(), "at max_episode_steps an episode is truncated"
            lengths[step.done] = 0
        env.close()

    def test_masks_are_there_always_or_never_and_allow_something(self) -> None:
        env = self.make()
        env.reset(0)
        masked = env.action_mask is not None
        for _, _, step in self.play(env, 4):
            mask = env.action_mask
            assert (mask is not None) == masked
            assert (step.final_mask is not None) == (masked and step.final_obs is not None)
            if mask is not None:
                assert mask.dtype == np.bool_ and mask.any(axis=1).all()
        env.close()

    def test_what_it_gave_is_not_changed_afterwards(self) -> None:
        env = self.make()
        before: tuple[Any, Any] | None = None
        for _, _, step in self.play(env, 5):
            if before is not None:
                assert_same(before[0], before[1], "an observation was changed by a later step")
            before = step.obs, copy.deepcopy(step.obs)
        env.close()

    def test_a_saved_state_goes_on_exactly_where_that_is_said(self) -> None:
        env, other = self.make(), self.make()
        for _ in self.play(env, 6):
            pass
        state = env.save_state()
        obs = other.load_state(state)
        if env.exact:
            rng, rng_again = np.random.default_rng(8), np.random.default_rng(8)
            for number in range(self.steps):
                actions = choose(env, rng)
                assert_same(actions, choose(other, rng_again), f"masks differ in step {number} after loading")
                step, again = env.step(actions), other.step(actions)
                assert_same(step[:5], again[:5], f"the loaded environment differs in step {number}")
        else:
            assert env.inexact_reason and env.single_observation_space.contains(row(obs, 0))
        env.close()
        other.close()


def choose(env: VectorEnv, rng: np.random.Generator) -> Any:
    """A random action for each row, one that its mask allows."""
    space, mask = env.single_action_space, env.action_mask
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        single = isinstance(space, spaces.Discrete)
        sizes = [int(space.n)] if isinstance(space, spaces.Discrete) else [int(n) for n in space.nvec.ravel()]
        scores = rng.random((env.num_envs, sum(sizes)))
        if mask is not None:
            scores[~mask] = -1.0
        parts = np.split(scores, np.cumsum(sizes)[:-1], axis=1)
        chosen = np.stack([part.argmax(axis=1) for part in parts], axis=1)
        if single:
            return chosen[:, 0] + int(space.start)
        return chosen.reshape(env.num_envs, *(space.shape or ()))
    space = copy.deepcopy(space)
    space.seed(int(rng.integers(2**31)))
    return np.stack([space.sample() for _ in range(env.num_envs)])


def row(tree: Any, index: int) -> Any:
    """One environment's part of a tree of arrays, as its space has it."""
    if isinstance(tree, dict):
        return {name: row(part, index) for name, part in tree.items()}
    if isinstance(tree, tuple):
        return tuple(row(part, index) for part in tree)
    return tree[index]


def same(one: Any, other: Any) -> bool:
    try:
        np.testing.assert_equal(one, other)
    except AssertionError:
        return False
    return True


def assert_same(one: Any, other: Any, message: str) -> None:
    assert same(one, other), message
