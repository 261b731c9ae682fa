"""Targets, changes, presets, DI-engine's dialect; what is wrong is said with the nearest right thing."""

from __future__ import annotations

import dataclasses
import json
import math
import re

import pytest

from operant.algorithms import find_algorithm
from operant.errors import UsageError
from operant.models import ModelSettings
from operant.settings import describe
from operant.training import TrainConfig, list_presets, load_config
from operant.training.config import CheckpointSettings, EnvSettings, EvaluationSettings, LogSettings
from operant.training.dialects import from_di_engine, to_di_engine
from operant.training.seeds import parse_seeds
from operant.training.statistics import interval, iqm
from operant.training.targets import eject_preset

DOCUMENT = """
from easydict import EasyDict

cartpole_dqn_config = dict(
    exp_name='cartpole_dqn_seed0',
    env=dict(collector_env_num=8, evaluator_env_num=5, n_evaluator_episode=5, stop_value=195),
    policy=dict(
        cuda=True,
        model=dict(obs_shape=4, action_shape=2, encoder_hidden_size_list=[128, 128, 64], dueling=True),
        nstep=1,
        discount_factor=0.97,
        learn=dict(batch_size=64, learning_rate=0.001),
        collect=dict(n_sample=8),
        eval=dict(evaluator=dict(eval_freq=40)),
        other=dict(
            eps=dict(type='exp', start=0.95, end=0.1, decay=10000),
            replay_buffer=dict(replay_buffer_size=20000),
        ),
    ),
)
main_config = EasyDict(cartpole_dqn_config)
create_config = EasyDict(dict(
    env=dict(type='cartpole', import_names=['dizoo.classic_control.cartpole.envs.cartpole_env']),
    env_manager=dict(type='base'),
    policy=dict(type='dqn'),
))
assert main_config.policy.other.eps.decay == 10000

if __name__ == "__main__":
    raise SystemExit("only when it is run")
"""


@pytest.mark.parametrize("name", sorted(list_presets()))
def test_every_preset_is_a_config(name):
    config = load_config(name)
    assert config.name == name
    assert TrainConfig.from_mapping(config.to_mapping()).to_mapping() == config.to_mapping()


def test_changes_are_applied_in_order(tmp_path):
    config = load_config("cartpole-ppo", ["algorithm.gamma=0.5", "seed=3", "total_steps=1e3", "model.hidden=[8]"])
    assert (config.algorithm_settings.gamma, config.seed, config.total_steps) == (0.5, 3, 1000)
    assert config.model.hidden == (8,)
    path = tmp_path / "one.json"
    path.write_text(json.dumps({"algorithm": {"name": "a2c", "learning_rate": "1e-3"}}))
    assert load_config(path).algorithm_settings.learning_rate == 1e-3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["algorithm.gama=0.9"], "no setting 'algorithm.gama' .did you mean 'gamma'"),
        (["totl_steps=9"], "did you mean 'total_steps'"),
        (["algorithm.name=pppo"], "no algorithm 'pppo' .did you mean 'ppo'"),
        (["algorithm.gamma=much"], "'algorithm.gamma' is a number, got 'much'"),
        (["seed=1.5"], "'seed' is a whole number"),
        (["env.normalize_obs=3"], "true or false"),
        (["model.hidden=64"], "list such as"),
        (["env=CartPole-v1"], "'env' is a group of settings"),
        (["env.num_envs=0"], "at least one environment"),
        (["seed=-1"], "seed is -1; it lies between 0 and"),
        (["model.hidden=[64, -1]"], "each layer has at least 1 unit"),
        (["model.log_std=.nan"], "model.log_std is nan; it must be a finite number"),
        (["evaluation.every=-1"], "evaluation.every is -1; it must be at least 0"),
        (["evaluation.episodes=0"], "evaluation.episodes is 0; it must be at least 1"),
        (["evaluation.stop_value=.nan"], "evaluation.stop_value is nan"),
        (["checkpoint.keep=0"], "checkpoint.keep is 0; it must be at least 1"),
        (["log.window=-1"], "log.window is -1; it must be at least 1"),
        (["seed"], "write key=value"),
        (["total_steps.of=3"], "no place"),
    ],
)
def test_what_is_wrong_is_said_with_what_is_right(changes, message):
    with pytest.raises(UsageError, match=message):
        load_config("cartpole-ppo", changes)


def test_the_words_of_a_presets_name_come_in_any_order(tmp_path):
    assert load_config("impala-cartpole") == load_config("cartpole-impala")
    assert load_config("ppo-cartpole", ["algorithm.name=a3c"]).name == "cartpole-a3c"
    assert eject_preset("sac-pendulum", tmp_path).name == "pendulum-sac.yaml"
    with pytest.raises(UsageError, match=r"no preset 'sac-pendulmu' \(did you mean 'sac-pendulum'"):
        eject_preset("sac-pendulmu", tmp_path)
    with pytest.raises(UsageError, match="no preset 'cartpole-cartpole-ppo'"):
        load_config("cartpole-cartpole-ppo")


def test_another_algorithm_takes_what_it_knows_of_a_preset(caplog):
    config = load_config("cartpole-ppo", ["algorithm.name=a3c", "algorithm.gamma=0.9"])
    assert (
        config.name == "cartpole-a3c" and config.algorithm["name"] == "a3c" and config.algorithm_settings.rollout == 32
    )
    assert config.algorithm_settings.gamma == 0.9
    (told,) = caplog.messages
    assert told == "what a3c does not have is left out of cartpole-ppo: epochs, clip, anneal_clip"


def test_what_the_user_wrote_is_not_left_out(tmp_path):
    with pytest.raises(UsageError, match=r"algorithm\.clip"):
        load_config("cartpole-ppo", ["algorithm.name=a3c", "algorithm.clip=0.1"])
    with pytest.raises(UsageError, match=r"algorithm\.epochs"):
        load_config(eject_preset("cartpole-ppo", tmp_path), ["algorithm.name=a3c"])


def test_an_unknown_target_names_the_nearest():
    with pytest.raises(UsageError, match="did you mean 'cartpole-ppo'"):
        load_config("cartpole-pp")
    with pytest.raises(UsageError, match=r"no file nowhere\.yaml"):
        load_config("nowhere.yaml")


def test_a_config_file_of_di_engine_is_understood(tmp_path):
    path = tmp_path / "cartpole_dqn_config.py"
    path.write_text(DOCUMENT)
    config = load_config(path)
    settings = config.algorithm_settings
    assert (config.name, config.env.id, config.env.num_envs) == ("cartpole_dqn_seed0", "CartPole-v1", 8)
    assert config.env.arguments == {"max_episode_steps": 200}
    assert (settings.gamma, settings.batch, settings.learning_rate, settings.dueling) == (0.97, 64, 0.001, True)
    assert (settings.exploration_start, settings.exploration_end, settings.exploration_decay) == (0.95, 0.1, 10_000)
    assert (settings.buffer, settings.train_every, config.model.hidden) == (20_000, 8, (128, 128, 64))
    assert (config.evaluation.stop_value, config.evaluation.episodes) == (195, 5)
    assert config.device == "auto"  # cuda=True: a GPU where there is one


def test_di_engines_continuous_control():
    """Its configs for Pendulum, as they are shipped."""
    env = {"collector_env_num": 8, "evaluator_env_num": 5, "act_scale": True, "n_evaluator_episode": 5}
    learn = {"update_per_collect": 2, "batch_size": 128, "learning_rate_actor": 0.0005, "learning_rate_critic": 0.001}
    td3 = {
        "priority": False,
        "model": {"obs_shape": 3, "action_shape": 1, "twin_critic": True, "action_space": "regression"},
        "learn": {
            **learn,
            "ignore_done": True,
            "actor_update_freq": 2,
            "noise": True,
            "noise_sigma": 0.1,
            "noise_range": {"min": -0.5, "max": 0.5},
        },
        "collect": {"n_sample": 48, "noise_sigma": 0.1, "collector": {"collect_print_freq": 1000}},
        "other": {"replay_buffer": {"replay_buffer_size": 20_000, "max_use": 16}},
    }
    create = {"env": {"type": "pendulum"}, "policy": {"type": "td3"}}
    config = load_config({"main_config": {"env": env, "policy": td3}, "create_config": create})
    found = config.algorithm_settings
    assert (found.train_every, found.updates, found.smoothing, found.noise_scale, found.critics) == (48, 2, 0.1, 0.1, 2)
    assert (found.learning_rate, found.actor_learning_rate, found.learning_starts) == (1e-3, 5e-4, 25_000)
    assert config.model.hidden == (64, 64) and config.evaluation.every == 1000 * 24
    sac = {
        "random_collect_size": 1000,
        "model": {"obs_shape": 3, "action_shape": 1, "actor_head_hidden_size": 128, "critic_head_hidden_size": 128},
        "learn": {"learning_rate_q": 0.001, "learning_rate_policy": 0.001, "auto_alpha": True, "value_network": False},
        "collect": {"n_sample": 10, "noise_sigma": 0.2},
    }
    create["policy"] = {"type": "sac"}
    config = load_config({"main_config": {"seed": 3, "env": env, "policy": sac}, "create_config": create})
    found = config.algorithm_settings
    assert (found.temperature, found.temperature_rate, found.actor_learning_rate) == (0.2, 3e-4, None)
    assert (config.seed, config.model.hidden, found.learning_starts) == (3, (128, 128), 1000)


def _td3_of_di_engine(**learn):
    policy = {"type": "td3"}
    main = {"env": {"env_id": "Pendulum-v1"}, "policy": {"learn": learn}}
    return load_config({"main_config": main, "create_config": {"env": {"type": "pendulum"}, "policy": policy}})


def test_di_engines_range_of_noise():
    assert _td3_of_di_engine(noise_range={"min": -0.3, "max": 0.3}).algorithm_settings.smoothing_limit == 0.3
    endless = _td3_of_di_engine(noise_range=None)
    assert endless.algorithm_settings.smoothing_limit == math.inf
    assert to_di_engine(endless.to_mapping())[0]["policy"]["learn"]["noise_range"] is None
    with pytest.raises(UsageError, match=r"noise_range goes from -0\.2 to 0\.5; here noise ends at the same distance"):
        _td3_of_di_engine(noise_range={"min": -0.2, "max": 0.5})


@pytest.mark.parametrize(
    ("group", "values", "message"),
    [
        ("learn", {"noise_range": 3}, r"policy\.learn\.noise_range is 3; it has min and max"),
        ("learn", {"noise": None}, r"policy\.learn\.noise is None; it is true or false"),
        ("model", {"twin_critic": "no"}, r"policy\.model\.twin_critic is 'no'; it is true or false"),
        ("model", {"encoder_hidden_size_list": 3}, r"encoder_hidden_size_list is 3; it is a list"),
        ("eval", {"evaluator": {"eval_freq": "often"}}, r"eval_freq is 'often'; it is a whole number from 1 up"),
    ],
)
def test_what_di_engine_could_not_mean_is_told(group, values, message):
    main = {"env": {"env_id": "Pendulum-v1"}, "policy": {group: values}}
    with pytest.raises(UsageError, match=message):
        load_config({"main_config": main, "create_config": {"policy": {"type": "td3"}}})
    with pytest.raises(UsageError, match=r"main_config\.policy is 3; it is a group of settings"):
        load_config({"main_config": {"policy": 3}, "create_config": {"policy": {"type": "td3"}}})


def test_di_engines_scaled_observations():
    """As its configs for MuJoCo have it."""
    env = {"env_id": "Hopper-v5", "norm_obs": {"use_norm": True}, "norm_reward": {"use_norm": False}}
    create = {"env": {"type": "mujoco"}, "policy": {"type": "td3"}}
    config = load_config({"main_config": {"env": {**env, "use_act_scale": True}}, "create_config": create})
    assert config.env.normalize_obs and not config.env.normalize_reward
    assert to_di_engine(config.to_mapping())[0]["env"]["norm_obs"] == {"use_norm": True}


@pytest.mark.parametrize("count", [0, -1, None, "2", True])
def test_what_di_engines_iterations_are_counted_by_is_a_number(count):
    with pytest.raises(UsageError, match=r"main_config\.policy\.learn\.update_per_collect is .*; it is a whole number"):
        _td3_of_di_engine(update_per_collect=count)


@pytest.mark.parametrize("name", sorted(list_presets()))
def test_the_dialect_goes_both_ways(name):
    """Every setting that both know comes back as it was; what DI-engine cannot say is listed here."""
    config = load_config(name, ["evaluation.every=40960", "env.num_envs=8", "evaluation.num_envs=4"])
    if getattr(config.algorithm_settings, "di_engine", None) is None:
        with pytest.raises(UsageError, match="DI-engine"):
            to_di_engine(config.to_mapping())
        return
    main, create = to_di_engine(config.to_mapping())
    again = load_config({"main_config": main, "create_config": create})
    of_dqn = {"double", "exploration_fraction", "exploration_steps", "learning_starts"}
    unsaid = {
        **dict.fromkeys(("dqn", "c51", "qrdqn", "rainbow"), of_dqn),
        "ppo": {"anneal_learning_rate", "anneal_clip", "optimizer_eps"},
        "a2c": {"anneal_learning_rate", "optimizer"},
        "ddpg": {"target_every"},
        "td3": {"target_every"},
        "sac": {"target_every"},
    }[config.algorithm["name"]]
    for one in dataclasses.fields(config.algorithm_settings):
        if one.name not in unsaid:
            expected = getattr(config.algorithm_settings, one.name)
            if one.name == "updates" and expected == 0:  # as many as environment steps
                expected = config.algorithm_settings.train_every
            assert getattr(again.algorithm_settings, one.name) == expected, one.name
    assert (again.model.hidden, again.env.num_envs) == (config.model.hidden, 8)
    assert (again.name, again.env.id, again.device) == (config.name, config.env.id, config.device)
    judged = ("episodes", "num_envs", "stop_value")
    assert all(getattr(again.evaluation, one) == getattr(config.evaluation, one) for one in judged)
    assert again.evaluation.every == pytest.approx(40960, rel=0.01)  # whole iterations of theirs


PPO_DOCUMENT = {
    "exp_name": "cartpole_ppo",
    "env": {"collector_env_num": 8, "evaluator_env_num": 5, "n_evaluator_episode": 5, "stop_value": 195},
    "policy": {
        "cuda": False,
        "action_space": "discrete",
        "model": {"obs_shape": 4, "encoder_hidden_size_list": [64, 64], "actor_head_hidden_size": 128},
        "learn": {"epoch_per_collect": 2, "batch_size": 64, "learning_rate": 0.001, "entropy_weight": 0.01},
        "collect": {"n_sample": 256, "unroll_len": 1, "discount_factor": 0.9, "gae_lambda": 0.95},
        "eval": {"evaluator": {"eval_freq": 100}},
    },
}


def test_configs_of_its_on_policy_algorithms_are_understood():
    env = {"type": "cartpole"}
    ppo = load_config({"main_config": PPO_DOCUMENT, "create_config": {"env": env, "policy": {"type": "ppo"}}})
    settings = ppo.algorithm_settings
    assert (settings.rollout, settings.minibatch, settings.epochs, settings.gamma) == (32, 64, 2, 0.9)
    assert (ppo.model.hidden, ppo.model.orthogonal) == ((64, 64, 128), True)
    assert ppo.device == "cpu"
    assert ppo.evaluation.every == 100 // (2 * 4) * 256 + 128  # 12.5 rollouts of eight gradient steps

    learn = {"batch_size": 40, "learning_rate": 0.002, "betas": [0.9, 0.999]}
    policy = {"learn": learn, "collect": {"n_sample": 80}, "eval": {"evaluator": {"eval_freq": 50}}}
    main = {**PPO_DOCUMENT, "policy": policy}
    a2c = load_config({"main_config": main, "create_config": {"env": env, "policy": {"type": "a2c"}}})
    settings = a2c.algorithm_settings
    assert (settings.rollout, settings.learning_rate, settings.entropy_weight) == (10, 0.002, 0.01)
    assert (settings.gamma, settings.gae_lambda, settings.optimizer) == (0.9, 0.95, "adam")
    assert a2c.evaluation.every == 50 * 80


@pytest.mark.parametrize(
    ("main", "kind", "message"),
    [
        ({"policy": {"lern": {"batch_size": 3}}}, "dqn", "no counterpart"),
        ({"policy": {"learn": {"clip_rato": 3}, "collect": {"n_sample": 8}}}, "ppo", "did you mean"),
        ({"policy": {"learn": {"clip_ratio": 0.2}, "collect": {"n_sample": 8}}}, "a2c", "no counterpart"),
        ({"policy": {}}, "ppo", "n_sample is missing"),
        ({"policy": {}}, "pppo", "did you mean 'ppo'"),
        (
            {
                "policy": {
                    "model": {"actor_head_hidden_size": 3, "critic_head_hidden_size": 4},
                    "collect": {"n_sample": 8},
                }
            },
            "ppo",
            "differ",
        ),
    ],
)
def test_what_the_dialect_cannot_say_is_an_error(main, kind, message):
    with pytest.raises(UsageError, match=message):
        from_di_engine(main, {"env": {"type": "cartpole"}, "policy": {"type": kind}})


def test_a_preset_can_be_copied_out_once(tmp_path):
    path = eject_preset("cartpole-ppo", tmp_path)
    assert load_config(path) == load_config("cartpole-ppo")
    with pytest.raises(UsageError, match="exists already"):
        eject_preset("cartpole-ppo", tmp_path)


def test_seeds_and_their_figure():
    assert parse_seeds("0..4") == [0, 1, 2, 3, 4]
    assert parse_seeds("0,3,7") == [0, 3, 7]
    for wrong in ("4..0", "a", "1,1", ""):
        with pytest.raises(UsageError, match="no seeds"):
            parse_seeds(wrong)
    assert iqm([0, 1, 2, 1000]) == pytest.approx(1.5)
    assert iqm([1, 2, 3]) == pytest.approx(2.0)
    middle, low, high = interval([10, 11, 12, 13, 14])
    assert low <= middle <= high
    assert low < high


EFFECT = re.compile("larger|smaller|more|fewer")


@pytest.mark.parametrize(
    "settings",
    [
        *(find_algorithm(name)[1] for name in ("a2c", "dqn", "ppo")),
        *(ModelSettings, EnvSettings, EvaluationSettings, CheckpointSettings, LogSettings),
    ],
    ids=lambda one: one.__name__,
)
def test_settings_say_what_changing_them_does(settings):
    for name, default, help in describe(settings):
        if isinstance(default, (int, float)) and not isinstance(default, bool) and name != "seed":
            assert EFFECT.search(help), f"{name}: {help!r} says what it is, not what a larger or smaller one does"
