"""Every unit and source that a `DataSpec` may ask for trains, is resumed exactly, and stores what was asked for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from tests.training.test_resume import Interrupted, assert_same, final_state, interrupt_at

from operant.algorithms import ALGORITHMS, PPO, BaseAlgorithm, DataSpec
from operant.envs import make_env
from operant.errors import UsageError
from operant.settings import setting
from operant.tracking import Run
from operant.training import resume, train
from operant.training.collecting import Collector
from operant.training.sources import SOURCES, make_source


@dataclass(frozen=True)
class ProbeSettings:
    unit: str = setting("step", "")
    source: str = setting("fresh", "")
    count: int = setting(3, "")
    path: str = setting("", "")
    fields: tuple[str, ...] = setting(("obs", "action", "reward", "terminated", "truncated"), "")


class Probe(BaseAlgorithm):
    """Learns nothing but what it was shown; its policy counts the steps of an episode as its state."""

    Settings = ProbeSettings

    @staticmethod
    def data_spec(settings):
        sizes = {"batch": 4, "length": 5, "burn_in": 2, "capacity": 400, "every": 8, "alpha": 0.5}
        kind = settings.unit, settings.source, settings.fields
        return DataSpec(*kind, count=settings.count, path=settings.path, **sizes)

    def __init__(self, *args):
        super().__init__(*args)
        self.weight = np.zeros(1)
        self.shown = None

    def initial_state(self, rows):
        return {"count": np.zeros((rows, 1), np.float32)}

    def candidates(self, count, rng):
        return rng.standard_normal((count, 1))

    def candidate_actor(self, candidates):
        return lambda obs, mask, state: ((candidates[:, 0] > 0).astype(int),) * 2 + ({},)

    def actor(self, rng, steps, rows, *, epsilon=None):
        def act(obs, mask, state):
            action = np.zeros(rows, int) if rng is None else rng.integers(2, size=rows)
            extras = {"log_prob": np.full(rows, -0.5, np.float32), "unasked": np.zeros(rows)}
            if state is not None:
                extras["state"] = {"count": state["count"] + 1}
            return action, action, extras

        return act

    def learn(self, batch):
        self.shown = {key: value.copy() if isinstance(value, np.ndarray) else value for key, value in batch.items()}
        leaf = batch["candidate"] if "candidate" in batch else batch["reward"]
        self.weight = self.weight + leaf.sum() + 1
        priorities = np.ones(len(batch["index"])) if "index" in batch else None
        return {"weight": float(self.weight[0])}, priorities

    def weights(self):
        return {"weight": self.weight.copy()}

    def load_weights(self, weights):
        self.weight = weights["weight"].copy()

    def state_dict(self):
        return {"weights": self.weights()}

    def load_state_dict(self, state):
        self.load_weights(state["weights"])


@pytest.fixture(autouse=True)
def probe():
    ALGORITHMS.register_module("probe", force=True)(Probe)
    yield
    ALGORITHMS._classes.pop("probe")


@pytest.fixture
def recorded(tmp_path):
    """Transitions of a random policy, as an npz file."""
    path = tmp_path / "recorded.npz"
    env = make_env("CartPole-v1", 1, seed=3)
    algorithm = Probe(env.single_observation_space, env.single_action_space)
    collector = Collector(env, algorithm, rng=np.random.default_rng(0))
    collector.reset(0)
    steps = collector.trajectory(120)
    np.savez(path, **{name: np.concatenate([step[name] for step in steps]) for name in steps[0]})
    return path


PLAIN = ("obs", "action", "reward", "terminated", "truncated")
UNITS = {
    "steps": {"unit": "step", "source": "fresh", "fields": [*PLAIN, "log_prob", "final_at"]},
    "steps with state": {"unit": "step", "source": "fresh", "fields": [*PLAIN, "state"]},
    "episodes": {"unit": "episode", "source": "fresh", "fields": [*PLAIN, "length", "log_prob"]},
    "candidates": {"unit": "candidate", "source": "fresh", "fields": ["candidate", "return"]},
    "replay": {"unit": "step", "source": "replay", "fields": [*PLAIN, "next_obs", "log_prob"]},
    "sequences": {"unit": "sequence", "source": "replay", "fields": [*PLAIN, "next_obs", "state"]},
    "dataset": {"unit": "step", "source": "dataset", "fields": [*PLAIN, "next_obs"]},
    "dataset of sequences": {"unit": "sequence", "source": "dataset", "fields": [*PLAIN, "next_obs"]},
}


@pytest.mark.parametrize("name", UNITS)
def test_it_trains_and_resume_is_exact(root, name, recorded):
    given = {"name": "probe", **UNITS[name], "path": str(recorded) if "dataset" in name else ""}
    config = {
        "total_steps": 400,
        "env": {"id": "CartPole-v1", "num_envs": 3},
        "algorithm": given,
        "evaluation": {"episodes": 2, "every": 200},
        "checkpoint": {"every": 100},
        "log": {"every": 50},
    }
    whole = train(config, root=root)
    assert whole.steps >= 400 and whole.train_iter > 1
    assert len(Run.open(whole.run_id, root).scalars("train/weight")) > 1
    with pytest.raises(Interrupted):
        train({**config, "name": "cut", "callbacks": [interrupt_at(250)]}, root=root)
    again = resume("last", ["callbacks=[]"], root=root)
    one, other = final_state(root, whole.run_id), final_state(root, again.run_id)
    for state in (one, other):
        state.pop("config")
        state.pop("signature")  # of a config with another name
        state.get("replay", {}).pop("chunks", None)
        state.get("replay", {}).pop("tail", None)
    assert_same(one, other)


def source_for(name, path="", num_envs=3, **changes):
    env = make_env("CartPole-v1", num_envs, seed=0)
    given = {**UNITS[name], **changes}
    settings = ProbeSettings(**{**given, "fields": tuple(given["fields"])}, path=str(path))
    algorithm = Probe(env.single_observation_space, env.single_action_space, settings)
    collector = Collector(env, algorithm, rng=np.random.default_rng(0))
    collector.reset(0)
    return make_source(algorithm, collector, np.random.default_rng(1))


def rounds(source, count=1):
    for _ in range(count):
        source.learn(source.collect(1000), 1000)
    return source.algorithm.shown


def test_the_table_has_every_source():
    assert set(SOURCES) == {"fresh", "replay", "dataset"}
    with pytest.raises(UsageError, match=r"DataSpec.source is fresh, replay, dataset; got 'online'"):
        DataSpec("step", "online", ())
    with pytest.raises(UsageError, match=r"fresh data come by step, episode, candidate; DataSpec.unit is 'sequence'"):
        DataSpec("sequence", "fresh", ())


def test_a_rollout_has_the_fields_that_were_asked_for_and_no_other():
    shown = rounds(source_for("steps"))
    assert set(shown) == {*PLAIN, "log_prob", "final_at"}
    assert shown["log_prob"].shape == (3, 3) and shown["obs"].shape == (4, 3, 4)
    states = rounds(source_for("steps with state"), 20)["state"]["count"]
    assert states.shape == (3, 3, 1) and states.max() > 5 and (np.diff(states[:, :, 0], axis=0) >= -states.max()).all()


def test_a_field_that_nobody_gives_is_named():
    with pytest.raises(UsageError, match="DataSpec asks for 'entropie', which its actor does not give"):
        rounds(source_for("steps", fields=["obs", "entropie"]))


def test_episodes_come_whole_and_every_environment_plays_its_share():
    source = source_for("episodes")
    for _ in range(3):
        shown = rounds(source)
        assert len(shown["length"]) == 3 and shown["length"].sum() == len(shown["reward"]) == len(shown["log_prob"])
        ends = np.cumsum(shown["length"]) - 1
        done = shown["terminated"] | shown["truncated"]
        assert done[ends].all() and done.sum() == 3


def test_each_candidate_plays_one_episode():
    env = make_env("operant.envs.identity:DiscreteIdentity", 2, seed=0)
    algorithm = Probe(env.single_observation_space, env.single_action_space, ProbeSettings("candidate", count=5))

    class Fixed:
        """Candidate k always gives the answer k: its return is how often that is the right one."""

        def __getattr__(self, name):
            return getattr(algorithm, name)

        def candidate_actor(self, candidates):
            return lambda obs, mask, state: (candidates[:, 0], candidates[:, 0], {})

    collector = Collector(env, Fixed(), rng=np.random.default_rng(0))
    collector.reset(0)
    for _ in range(2):
        returns, _ = collector.candidate_returns(np.array([[0], [1], [2], [3], [0]]))
        assert returns.shape == (5,) and (returns >= 0).all() and returns.max() > 0
    assert collector.episodes.count >= 10


def test_replay_keeps_what_the_policy_gave_beside_its_action():
    shown = rounds(source_for("replay"), 5)
    assert (shown["log_prob"] == -0.5).all() and "unasked" not in shown and "weight" in shown
    shown = rounds(source_for("sequences"), 30)
    assert shown["reward"].shape == (7, 4) and shown["mask"].dtype == bool
    counts = np.where(shown["mask"], shown["state"]["count"][:, :, 0], -1)
    for column in counts.T:
        steps = column[column >= 0]
        np.testing.assert_array_equal(steps, np.arange(steps[0], steps[0] + len(steps)))


def test_a_dataset_is_drawn_from_and_not_added_to(recorded):
    source = source_for("dataset", recorded)
    shown = rounds(source, 3)
    with np.load(recorded) as file:
        for obs, reward in zip(shown["obs"], shown["reward"], strict=True):
            assert reward == 1.0 and (file["obs"] == obs).all(axis=1).any()
    assert (len(source.buffer), source.collector.env_step, source.train_iter) == (120, 3, 3)


def test_what_is_no_dataset_is_said(tmp_path, recorded):
    with pytest.raises(UsageError, match=r"there is no file .*none.npz; `operant record"):
        source_for("dataset", tmp_path / "none.npz")
    with np.load(recorded) as file:
        np.savez(tmp_path / "short.npz", **{name: file[name] for name in file.files if name != "next_obs"})
        np.savez(tmp_path / "odd.npz", **{name: file[name][: 7 if name == "reward" else 9] for name in file.files})
    with pytest.raises(UsageError, match=r"short.npz has no next_obs; recorded transitions have obs, action"):
        source_for("dataset", tmp_path / "short.npz")
    with pytest.raises(UsageError, match="different lengths"):
        source_for("dataset", tmp_path / "odd.npz")


def test_ppo_stores_behaviour_log_probabilities_where_they_are_asked_for():
    class VTraceLike(PPO):
        @staticmethod
        def data_spec(settings):
            return DataSpec("step", "fresh", (*PPO.data_spec(settings).fields, "log_prob"), count=4)

    env = make_env("CartPole-v1", 2, seed=0)
    algorithm = VTraceLike(env.single_observation_space, env.single_action_space)
    collector = Collector(env, algorithm, rng=np.random.default_rng(0))
    collector.reset(0)
    batch = make_source(algorithm, collector, np.random.default_rng(1)).collect(100)
    flat = batch["obs"][:-1].reshape(-1, 4)
    np.testing.assert_allclose(
        batch["log_prob"].reshape(-1), algorithm._log_prob(flat, batch["action"].reshape(-1))[0], rtol=1e-6
    )
