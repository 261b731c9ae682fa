"""Several agents: which has which policy, what each learns from, exact resume, films, self-play; and what is wrong."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from operant._util.plain_yaml import parse_yaml
from operant.algorithms import find_algorithm
from operant.algorithms.agents import AgentsAdapter
from operant.algorithms.on_policy import advantages
from operant.data.batches import rollout_batch
from operant.data.sparse import SparsePrioritizedReplayBuffer, SparseReplayBuffer
from operant.envs import make_env
from operant.errors import OperantError, UsageError
from operant.framework import Task
from operant.tracking import Run
from operant.training import CheckpointStore, TrainConfig, load_config, load_policy, resume, train
from operant.training.agents.sources import pack_present
from operant.training.making import make_algorithm
from operant.training.middleware import collector, learner, source_of
from operant.training.normalizing import make_normalizer
from operant.training.playback import play_transitions, record_episodes
from operant.training.policies import assign, read_policies
from operant.training.trust import code_names

PPO = {"name": "ppo", "rollout": 16, "minibatch": 32, "epochs": 4, "learning_rate": 0.01}
DQN = {"name": "dqn", "train_every": 8, "learning_starts": 40, "buffer": 2000, "batch": 16, "learning_rate": 0.01}
SAC = {"name": "sac", "train_every": 8, "learning_starts": 40, "buffer": 2000, "batch": 16}
IDENTITY = {"id": "operant.envs.toys:AgentsIdentity", "num_envs": 4}
GOING = {**IDENTITY, "arguments": {"coming": True, "going": True, "length": 12}}
HIGHER = {"id": "operant.envs.toys:Higher", "num_envs": 4}
SPREAD = {"id": "mpe2.simple_spread_v3", "num_envs": 2, "arguments": {"max_cycles": 8, "continuous_actions": True}}
SMALL = {"model": {"hidden": [16]}, "evaluation": {"episodes": 4, "every": 400}}


def config(algorithm=PPO, env=IDENTITY, **more) -> dict:
    return {"algorithm": algorithm, "env": env, "total_steps": 800, **SMALL, **more}


def values_of(run_id, root):
    run = Run.open(run_id, root)
    return lambda tag: run.latest(tag).value


# -- which agent has which policy --------------------------------------------------------------------------------------
AGENTS = ("adversary_0", "adversary_1", "agent_0")
KINDS = {"adversary_0": 1, "adversary_1": 1, "agent_0": 2}


def called(agent: str) -> str:
    return f"of_{agent[-1]}"


def first_two(agent: str) -> str:
    return "both" if agent != "agent_0" else "alone"


@pytest.mark.parametrize(
    ("mapping", "named", "expected"),
    [
        ("shared", [], {"adversary": AGENTS[:2], "agent": AGENTS[2:]}),
        ("independent", [], {agent: (agent,) for agent in AGENTS}),
        ({"adversary_*": "chase", "agent_0": "run"}, [], {"chase": AGENTS[:2], "run": AGENTS[2:]}),
        ({"adversary_1": "b", "*_0": "a"}, ["a", "b"], None),  # adversary_0 and agent_0 are of two kinds
        (first_two, ["alone", "both"], {"alone": AGENTS[2:], "both": AGENTS[:2]}),
        (f"{__name__}:first_two", [], {"both": AGENTS[:2], "alone": AGENTS[2:]}),
    ],
)
def test_policies_are_given_to_agents(mapping, named, expected) -> None:
    if expected is None:
        with pytest.raises(UsageError, match="adversary_0 and agent_0 have different observations or actions"):
            assign(mapping, read_policies(named), AGENTS, KINDS)
    else:
        assert assign(mapping, read_policies(named), AGENTS, KINDS) == expected


def test_one_kind_shares_one_policy_and_names_are_made_where_there_are_none() -> None:
    assert assign("shared", {}, ("a", "b"), {"a": 1, "b": 1}) == {"shared": ("a", "b")}
    assert assign("shared", {}, ("1", "2"), {"1": 1, "2": 2}) == {"policy_0": ("1",), "policy_1": ("2",)}
    assert assign("shared", read_policies(["only"]), ("a", "b"), {"a": 1, "b": 1}) == {"only": ("a", "b")}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"policies": ["a", "b"]}, "policy_mapping says which agent has which"),
        ({"policies": ["a"], "policy_mapping": {"agent_*": "a", "other_0": "b"}}, "gives other_0 the policy 'b'"),
        ({"policies": ["a", "b"], "policy_mapping": {"*": "a"}}, "'b', which policy_mapping gives to none of"),
        ({"policy_mapping": {"agent_*": "a"}}, "says nothing of the agent other_0"),
        ({"policy_mapping": {"agnet_0": "a", "*": "b"}}, "did you mean 'agent_0'"),
        ({"policy_mapping": "share"}, "did you mean 'shared'"),
        ({"policies": {"a": {"modell": {}}}}, "did you mean 'model'"),
        ({"policies": {"a": {"algorithm": {"gama": 1}}}}, "no setting 'policies.a.algorithm.gama'"),
        ({"policies": {"a/b": {}}}, "made of letters, digits"),
        ({"policies": {"a": {"past_of": "b"}}}, "names a policy that learns"),
        ({"policies": 3}, "policies is a list of names"),
        ({"workers": 2}, "one process collects for and learns: workers is 0"),
        ({"learners": 2}, "one process collects for and learns: workers is 0, learners is 1"),
        (
            {"algorithm": {"name": "maddpg"}, "env": {**IDENTITY, "normalize_obs": True}},
            "maddpg takes observations and rewards as they are",
        ),
        ({"algorithm": {"name": "ars"}}, "learns from whole candidates, which several agents do not give"),
        (
            {"policy_mapping": "independent", "env": {"id": "CartPole-v1"}},
            "are for several agents; CartPole-v1 has one",
        ),
        ({"algorithm": {"name": "maddpg"}, "env": {"id": "CartPole-v1"}}, "maddpg is for several agents"),
        ({"algorithm": {"name": "maddpg"}, "policy_mapping": "independent"}, "leave policies and policy_mapping out"),
    ],
)
def test_what_is_wrong_is_said(change, message, root) -> None:
    with pytest.raises(UsageError, match=message):
        train({**config(), **change}, root=root)


def test_names_of_code_in_policies_are_found() -> None:
    policies = {"a": {"model": {"actor": "theirs.Net"}}}
    assert code_names({"policies": policies, "policy_mapping": "theirs:f"}) == ["theirs.Net", "theirs:f"]


# -- rows --------------------------------------------------------------------------------------------------------------
def test_a_policy_sees_its_agents_as_rows() -> None:
    env = make_env(IDENTITY["id"], 2, seed=0)
    team = make_algorithm(env, TrainConfig.from_mapping(config()))
    obs = env.reset(0)
    rows = team.adapter.adapt(obs)["policies"]["agent"]["obs"]
    np.testing.assert_array_equal(rows, np.stack([obs[agent][n] for n in range(2) for agent in ("agent_0", "agent_1")]))
    alone = team.adapter.adapt({"agent_1": obs["agent_1"]})  # as PettingZoo tells of those that are there
    assert alone["present"].tolist() == [[False, True, False]] * 2
    assert isinstance(team.adapter, AgentsAdapter) and not alone["policies"]["agent"]["obs"][::2].any()
    with pytest.raises(UsageError, match="an entry for each agent: agent_0, agent_1, other_0"):
        team.adapter.adapt(obs["agent_0"])


def test_a_rollout_is_packed_without_those_who_were_not_there() -> None:
    """Advantages of the packed rollout are those of each life by itself."""
    rng = np.random.default_rng(0)
    steps, rows = 9, 3
    present = np.ones((steps, rows), bool)
    present[3:6, 1], present[:4, 2], present[8, 2] = False, False, False
    obs = rng.random((steps + 1, rows, 1)).astype(np.float32)
    kept = [
        {
            "obs": obs[t],
            "action": np.full(rows, t),
            "reward": rng.random(rows).astype(np.float32),
            "terminated": np.array([False, t == 2, False]),  # row 1 ends for good after step 2; row 2 is cut after 7
            "truncated": np.zeros(rows, bool),
            "next_obs": obs[t + 1],
        }
        for t in range(steps)
    ]
    packed = pack_present(kept, present)
    assert len(packed) * len(packed[0]["reward"]) <= present.sum() < len(packed) * len(packed[0]["reward"]) + 3
    batch = rollout_batch(packed)

    def value(obs):
        return obs[..., 0] * 2

    def estimate(reward, terminated, truncated, obs, next_value):
        return advantages(reward, terminated, truncated, value(obs), next_value, gamma=0.9, lam=0.8)

    next_value = value(batch["obs"][1:]).copy()
    next_value.reshape(-1)[batch["final_at"]] = value(batch["final_obs"])
    found = estimate(batch["reward"], batch["terminated"], batch["truncated"], batch["obs"][:-1], next_value)
    by_reward = dict(zip(batch["reward"].ravel().tolist(), found.ravel().tolist(), strict=True))
    checked = 0
    for row, first, end in ((0, 0, 9), (1, 0, 3), (1, 6, 9), (2, 4, 8)):
        part = [kept[t] for t in range(first, end)]
        fields = {name: np.stack([step[name][row] for step in part])[:, None] for name in part[0]}
        alone = estimate(
            fields["reward"], fields["terminated"], fields["truncated"], fields["obs"], value(fields["next_obs"])
        )
        for t in range(len(part) - 1, -1, -1):
            key = float(fields["reward"][t, 0])
            if key not in by_reward or not np.isclose(by_reward[key], alone[t, 0], rtol=1e-5):
                break  # a column ended inside this life: what is before it was bootstrapped there
            checked += 1
    assert checked >= 12
    assert pack_present(kept, np.zeros_like(present)) == []


def test_scales_are_those_of_agents_that_were_there() -> None:
    values = config(env={**GOING, "normalize_obs": True, "normalize_reward": True})
    env = make_env(GOING["id"], 3, seed=0, **GOING["arguments"])
    team = make_algorithm(env, TrainConfig.from_mapping(values))
    scales = make_normalizer(TrainConfig.from_mapping(values).env, team, 3)
    seen, gained, total = [], [], np.zeros(6)
    obs = team.adapter.adapt(env.reset(0))
    member = team.members["agent"]
    for turn in range(30):
        there = member.rows(obs["present"])
        seen.append(obs["policies"]["agent"]["obs"][there])
        scaled = scales.observe(obs)
        step = env.step({agent: np.full(3, turn % 2) for agent in env.agents})
        told = step.info["agents"]
        rows = [member.rows(one) for one in (told.reward, told.terminated | told.truncated, told.present)]
        total = total * 0.99 + rows[0]
        gained.append(total[rows[2]])
        found = scales.rewards(member, *rows)
        np.testing.assert_allclose(found, rows[0] / np.sqrt(np.var(np.concatenate(gained)) + 1e-8), rtol=0.01)
        total[rows[1]] = 0.0
        obs = team.adapter.adapt(step.obs)
    expected = np.concatenate(seen)
    last = team.adapter.adapt(env.reset(1))
    scaled = scales.observe(last, learn=False)["policies"]["agent"]["obs"]
    wanted = (last["policies"]["agent"]["obs"] - expected.mean(axis=0)) / expected.std(axis=0)
    np.testing.assert_allclose(scaled, wanted, rtol=0.01)


@pytest.mark.parametrize("kind", [SparseReplayBuffer, SparsePrioritizedReplayBuffer])
def test_replay_draws_only_agents_that_were_there(kind, tmp_path) -> None:
    buffer, rng = kind(60, 3), np.random.default_rng(0)
    for t in range(30):
        present = np.array([t % 10 == 0, True, False]) if t < 25 else np.array([False, False, t == 27])
        reward = np.where(present, t, -1.0).astype(np.float32)
        flags = np.zeros(3, bool)
        obs = np.full((3, 2), t, np.float32)
        buffer.add(obs, np.zeros(3, int), reward, flags, flags | ~present, obs + 1, present=present)
    drawn = buffer.sample(500, rng)
    assert (drawn["reward"] >= 0).all() and drawn["present"].all() and 27 in drawn["reward"]
    other = kind(60, 3)
    other.load(tmp_path, buffer.save_chunks(tmp_path))
    one, two = buffer.sample(50, np.random.default_rng(1)), other.sample(50, np.random.default_rng(1))
    np.testing.assert_array_equal(one["index"], two["index"])


# -- learning ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("algorithm", "more"),
    [
        (PPO, {}),
        (PPO, {"env": GOING, "policy_mapping": "independent"}),
        (DQN, {"env": GOING, "total_steps": 1200}),
        (
            DQN,
            {
                "policy_mapping": "independent",
                "policies": {"other_0": {"algorithm": PPO}, "agent_0": {}, "agent_1": {}},
            },
        ),
    ],
)
def test_agents_learn(algorithm, more, root) -> None:
    result = train(config(algorithm, **{"total_steps": 1600, **more}), root=root)
    best = 30 if more.get("env") is not GOING else 12 + 9 + 6  # who comes and goes: turns 0-11, 1-9, 2-7
    assert result.best_return >= 0.9 * best and result.exact
    latest = values_of(result.run_id, root)
    by_agent = [latest(f"evaluation/agents/{agent}/return") for agent in ("agent_0", "agent_1", "other_0")]
    assert sum(by_agent) == pytest.approx(result.final_return)
    assert latest("agents/other_0/return") > 0
    if "policy_mapping" not in more:
        both = latest("agents/agent_0/return") + latest("agents/agent_1/return")
        assert latest("policies/agent/return") == pytest.approx(both)


MASKED = {**GOING, "arguments": {**GOING["arguments"], "masked": True, "choices": 4, "other": 5}}


@pytest.mark.parametrize(
    "algorithm",
    [PPO, DQN, {"name": "maddpg", "train_every": 8, "batch": 16, "learning_starts": 40}],
    ids=["ppo", "dqn", "maddpg"],
)
def test_masks_are_obeyed_and_learned_from(algorithm, root) -> None:
    """A forbidden answer is an error of the environment's."""
    result = train(config(algorithm, MASKED, total_steps=400), root=root)
    assert result.steps >= 400 and result.best_return > 27 / 4


def test_middleware_trains_them_too() -> None:
    for algorithm in (PPO, DQN, {"name": "maddpg", "train_every": 16, "batch": 16, "learning_starts": 40}):
        env = make_env(IDENTITY["id"], 4, seed=0)
        source = source_of(make_algorithm(env, TrainConfig.from_mapping(config(algorithm))), env)
        with Task() as task:
            task.use(collector(source, 1000)).use(learner(source, total_steps=1000))
            task.run(max_step=6)
        assert source.train_iter >= 2 and source.collector.env_step >= 48


class Interrupted(Exception):
    pass


def interrupt(training):
    def stop(ctx):
        if training.env_step >= 450:
            raise Interrupted

    return stop


def final_state(run_id, root):
    _, state = CheckpointStore(Run.open(run_id, root).folder / "checkpoints").load()
    return {key: state[key] for key in ("algorithm", "collector", "rng", "train_iter", "agents", "evaluations")}


LONG = pytest.mark.long
MIXED = {"policies": {"agent": {}, "other": {"algorithm": PPO}}, "policy_mapping": {"a*": "agent", "*": "other"}}
SELF_PLAY = {
    "env": HIGHER,
    "policies": {"me": {}, "past": {"past_of": "me", "every": 100, "keep": 3}},
    "policy_mapping": {"first": "me", "second": "past"},
}
MEMORY = {"model": {"hidden": [8], "recurrent": "gru", "recurrent_size": 8, "sequence": 8}}


@pytest.mark.parametrize(
    ("algorithm", "more"),
    [
        pytest.param(PPO, {"env": {**GOING, "normalize_obs": True, "normalize_reward": True}}, id="ppo"),
        # Checkpoints come in the middle of PPO's rollouts, which are of other lengths than DQN's rounds.
        pytest.param(DQN, {"env": GOING, "checkpoint": {"every": 40}, **MIXED}, id="mixed"),
        pytest.param(PPO, SELF_PLAY, id="self-play"),
        pytest.param({**PPO, "epochs": 1}, {"env": GOING, **MEMORY}, id="memory"),
        pytest.param(DQN, {"env": GOING, **MEMORY}, id="memory in replay", marks=LONG),
        pytest.param({**DQN, "prioritized": True, "n_step": 3}, {"env": GOING, **MIXED}, id="priorities", marks=LONG),
        pytest.param(DQN, {"env": GOING, "policy_mapping": "independent"}, id="independent", marks=LONG),
        pytest.param(SAC, {"env": SPREAD}, id="sac", marks=LONG),
    ],
)
def test_a_resumed_training_equals_one_that_was_not_interrupted(algorithm, more, root) -> None:
    if more.get("env") is SPREAD:
        pytest.importorskip("mpe2")
    values = config(algorithm, name="one", **{"checkpoint": {"every": 128}, **more})
    whole = train(values, root=root)
    with pytest.raises(Interrupted):
        train({**values, "callbacks": [interrupt]}, root=root)
    broken = next(
        run
        for run in sorted((root / "runs").iterdir(), key=lambda path: path.stat().st_mtime)
        if run.name != whole.run_id
    )
    resumed = resume(broken.name, root=root, config=TrainConfig.from_mapping(values))
    np.testing.assert_equal(final_state(resumed.run_id, root), final_state(whole.run_id, root))
    assert resumed.evaluations == whole.evaluations


@pytest.mark.parametrize(
    "where",
    [
        "agents",
        "collector.env.played",
        pytest.param("collector.env.obs", marks=LONG),
        pytest.param("collector.env.seeds", marks=LONG),
    ],
)
def test_a_checkpoint_with_nonsense_in_it_is_a_sentence_or_begins_anew(where, root) -> None:
    """Whatever stands there (its checksum is right): never a traceback, never more memory than the file has."""
    values = config(PPO, **SELF_PLAY, name="broken", checkpoint={"every": 400})
    run_id = train({**values, "total_steps": 440}, root=root).run_id
    store = CheckpointStore(Run.open(run_id, root).folder / "checkpoints")
    newest, state = store.load()
    rng = np.random.default_rng(0)
    more = TrainConfig.from_mapping(values)

    def leaves(tree):
        items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
        for key, value in items:
            yield tree, key
            yield from leaves(value)

    part = state
    for key in where.split("."):
        part = part[key]
    places = list(leaves(part))
    for number in rng.choice(len(places), min(4, len(places)), replace=False):
        owner, key = places[number]
        before = owner[key]
        for nonsense in (None, 10**15, np.zeros((2, 0))):
            owner[key] = nonsense
            store.save(newest, state)
            try:
                assert resume(run_id, root=root, config=more, step=newest).steps >= 800
            except OperantError as error:
                assert "\n" not in str(error)
        owner[key] = before


# -- watching ----------------------------------------------------------------------------------------------------------
def test_the_policies_of_a_run_act_and_are_filmed(root) -> None:
    pytest.importorskip("mpe2")
    values = config(PPO, {**SPREAD, "arguments": {"max_cycles": 8}}, total_steps=64)
    result = train({**values, "evaluation": {"episodes": 2, "frames": 5}}, root=root)
    assert len(Run.open(result.run_id, root).media("evaluation/episode")) == len(result.evaluations)
    policy = load_policy(result.run_id, root)
    rng = np.random.default_rng(0)
    actions = policy.act({f"agent_{n}": rng.random((1, 18)).astype(np.float32) for n in range(3)})
    assert {agent: action.shape for agent, action in actions.items()} == {f"agent_{n}": (1,) for n in range(3)}
    frames = record_episodes(policy, 2, seed=4)
    assert len(frames) == 17 and frames[0].shape[2] == 3 and (frames[0] != frames[5]).any()
    assert len(policy.returns) == 2
    with pytest.raises(UsageError, match="recorded of one agent"):
        play_transitions(load_policy(result.run_id, root), 1)


def test_who_comes_back_has_forgotten(root) -> None:
    env = make_env(IDENTITY["id"], 2, seed=0)
    team = make_algorithm(env, TrainConfig.from_mapping(config(**MEMORY)))
    obs = env.reset(0)
    act = team.actor(None, 1, 2)
    _, _, extras = act(team.adapter.adapt(obs), None, team.initial_state(2))
    assert extras["state"]["agent"].any(axis=2).all()
    obs["present"]["agent_1"][0] = False
    _, _, extras = act(team.adapter.adapt(obs), None, extras["state"])
    assert extras["state"]["agent"].any(axis=2).tolist() == [[True, False], [True, True]]


def test_where_returns_always_sum_to_the_same_the_newest_policies_are_kept(root) -> None:
    result = train(config(PPO, HIGHER, policy_mapping="independent"), root=root)
    assert result.best_return == 0.0 and result.best_step == result.steps


def test_a_policy_of_its_own_for_some_agents_has_its_own_settings() -> None:
    found = load_config(config(policies={"a": {"algorithm": {"gamma": 0.5}, "model": {"hidden": [4]}}, "b": {}}))
    algorithm, settings, model = found.policy("a")
    assert (algorithm, settings.gamma, settings.rollout, model.hidden) == ("ppo", 0.5, 16, (4,))
    assert found.policy("b") == ("ppo", found.algorithm_settings, found.model)
    assert load_config(found.to_mapping()).to_mapping() == found.to_mapping()


# -- self-play ---------------------------------------------------------------------------------------------------------
def test_a_policy_learns_against_its_past_selves(root) -> None:
    rival = {"past_of": "me", "every": 160, "keep": 4}
    values = config(
        {**PPO, "entropy_weight": 0.01},
        HIGHER,
        total_steps=1600,
        policies={"me": {}, "past": rival},
        policy_mapping={"first": "me", "second": "past"},
    )
    result = train(values, root=root)
    _, state = CheckpointStore(Run.open(result.run_id, root).folder / "checkpoints").load()
    pool = state["agents"]["selves"]["past"]
    assert len(pool["steps"]) == 4 and pool["steps"] == sorted(pool["steps"]) and pool["steps"][-1] >= 1280
    # The best number is found: it loses to no past self, and wins against the first.
    kind, _ = find_algorithm("ppo")
    env = make_env(HIGHER["id"], 1)
    me = kind(env.observation_spaces["first"], env.action_spaces["first"], None, load_config(values).model)
    me.load_weights(state["algorithm"]["me"]["weights"])
    answer = me.act(np.zeros((1, 1), np.float32), explore=False, rng=np.random.default_rng(0)).action
    assert answer[0] == 4
    latest = values_of(result.run_id, root)
    assert latest("agents/first/return") == pytest.approx(-latest("agents/second/return"))
    assert latest("episodes/return") == pytest.approx(latest("agents/first/return"))
    assert latest("selves/past/step") in pool["steps"]


# -- the how-to --------------------------------------------------------------------------------------------------------
def test_the_configs_of_the_how_to_train(root) -> None:
    pytest.importorskip("mpe2")
    text = (Path(__file__).parents[2] / "docs" / "several-agents.md").read_text()
    found = [parse_yaml(part, "a config") for part in re.findall(r"```yaml\n(.*?)```", text, re.S)]
    assert len(found) == 2
    quick = ["env.num_envs=2", "total_steps=64", "algorithm.rollout=16", "evaluation.episodes=2"]
    for values in found:
        assert train(values, quick, root=root).steps == 64


@pytest.mark.parametrize("prioritized", [False, True])
def test_a_policy_whose_agents_are_gone_for_longer_than_replay_keeps_waits(prioritized, root) -> None:
    algorithm = {**DQN, "buffer": 8, "batch": 4, "train_every": 4, "prioritized": prioritized}
    result = train(config(algorithm, GOING, policy_mapping="independent", total_steps=300), root=root)
    assert result.steps == 300
