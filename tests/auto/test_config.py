"""Configs: complete in Machin's layout, strict about what they get, the user's values before the defaults."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from operant.algorithms import find_algorithm
from operant.auto import (
    check_config,
    generate_algorithm_config,
    generate_env_config,
    generate_training_config,
    get_available_algorithms,
    get_available_environments,
    read_config,
    write_config,
)
from operant.auto.config import asked_gpus, config_of_preset
from operant.auto.parts import prepare_parts
from operant.errors import UsageError
from operant.training.targets import list_presets, load_config

DOCUMENT = Path(__file__).parents[2] / "examples" / "auto" / "declarative" / "config.json"


def complete(algorithm="DQN", config=None):
    return generate_training_config(
        config=generate_env_config("openai_gym", generate_algorithm_config(algorithm, config))
    )


def keys(tree):
    """The paths of a config, down to the groups whose keys are its layout."""
    groups = ("frame_config", "train_env_config", "test_env_config")
    return set(tree) | {f"{group}.{key}" for group in groups for key in tree[group]}


def test_a_generated_config_has_machins_layout():
    assert keys(complete()) == keys(read_config(DOCUMENT))


@pytest.mark.parametrize("algorithm", get_available_algorithms())
def test_a_generated_config_means_the_settings_it_was_made_from(algorithm):
    plan = check_config(complete(algorithm))
    _, settings = find_algorithm(plan.algorithm)
    differing = {
        key for key in settings.__dataclass_fields__ if getattr(plan.settings, key) != getattr(settings(), key)
    }
    # How often Machin updates is not said in a config; the names of some of its frames say that replay is prioritised.
    assert differing - ({"prioritized"} if algorithm.endswith("PER") else set()) <= {"train_every", "updates"}


def test_what_the_user_gave_wins():
    config = complete(config={"frame_config": {"batch_size": 7}, "root_dir": "mine", "gpus": None, "max_episodes": 5})
    assert config["frame_config"]["batch_size"] == 7 and config["frame_config"]["discount"] == 0.99
    assert config["root_dir"] == "mine" and config["gpus"] is None and config["max_episodes"] == 5
    config = generate_env_config("openai_gym", {"train_env_config": {"env_name": "Acrobot-v1"}})
    assert config["train_env_config"]["env_name"] == "Acrobot-v1"
    assert config["train_env_config"]["render_every_episode"] == 100
    assert generate_training_config("other", 4, 8, {"root_dir": "mine"})["root_dir"] == "other"


def test_generating_changes_nothing_that_was_given():
    given = {"frame_config": {"batch_size": 7}}
    complete(config=given)
    assert given == {"frame_config": {"batch_size": 7}}


def test_the_file_is_json_for_every_reader(tmp_path):
    config = complete()
    config["frame_config"]["gradient_max"] = math.inf
    write_config(config, tmp_path / "config.json")

    def refuse(constant):
        raise AssertionError(constant)

    strict = json.loads((tmp_path / "config.json").read_text(), parse_constant=refuse)
    assert strict["frame_config"]["gradient_max"] == "Infinity"
    assert check_config(read_config(tmp_path / "config.json")).settings.max_gradient_norm == math.inf
    assert check_config(read_config(DOCUMENT)).settings.max_gradient_norm == math.inf  # written bare there


@pytest.mark.parametrize("preset", list_presets())
def test_every_preset_of_train_is_a_config(preset):
    algorithm = config_of_preset(preset)["frame"]
    plan = check_config(complete(algorithm, config_of_preset(preset)))
    assert plan.settings == load_config(preset).algorithm_settings


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_episode": 3}, "did you mean 'max_episodes'"),
        ({"frame": "DQM"}, "did you mean 'DQN'"),
        ({"frame": None}, "has no 'frame'"),
        ({"env": ""}, "has no 'env'"),
        ({"frame_config": {"batchsize": 3}}, "did you mean 'batch_size'"),
        ({"frame_config": {"batch_size": "many"}}, "'frame_config.batch' is a whole number"),
        ({"frame_config": {"mode": "triple"}}, "double, fixed_target or vanilla"),
        ({"frame_config": {"epsilon_decay": 1.5}}, "between 0 and 1"),
        ({"frame_config": {"update_rate": None, "update_steps": None}}, "both null"),
        ({"frame_config": {"model": 5}}, "group of settings"),
        ({"episode_per_epoch": 0}, "at least 1"),
        ({"early_stopping_patience": 0}, "or null for none"),
        ({"num_processes": 0}, "must be at least 1"),
        ({"num_nodes": 0}, "must be at least 1"),
        ({"batch_num": {"samplers": 10}}, "sampler and learner, not 'samplers'"),
        ({"batch_num": {"sampler": 0}}, "a whole number from 1 up"),
        ({"gpus": "a"}, "write numbers"),
        ({"gpus": [-1]}, "by their numbers"),
        ({"gpus": {"0": 1}}, "a list, a number, a string or null"),
        ({"gpus": -2}, "a count from 0 up"),
    ],
    ids=str,
)
def test_mistakes_are_sentences(change, message):
    config = complete()
    config["frame_config"] |= change.pop("frame_config", {})
    with pytest.raises(UsageError, match=message):
        check_config({**config, **change})


def test_of_all_processes_one_learns():
    assert check_config({**complete(), "num_nodes": 1, "num_processes": 1}).workers == 0
    assert check_config({**complete(), "num_nodes": 2, "num_processes": 3, "engine": "ray"}).workers == 5
    assert check_config({**complete(), "num_nodes": 2, "num_processes": 2}).workers == 3
    # Each GPU is a process where the algorithm is made for it.
    assert check_config({**complete("IMPALA"), "gpus": [0, 1, 2], "num_nodes": 2}).workers == 5
    assert check_config({**complete(), "gpus": [0, 1, 2]}).workers == 0


def test_batch_num_counts_episodes_of_each_sampler_and_updates_of_the_learner():
    config = {**complete("DQNApex"), "num_processes": 3, "batch_num": {"sampler": 4, "learner": 2}, "max_episodes": 30}
    plan = check_config(config)
    assert (plan.episode_per_epoch, plan.epochs) == (8, 4)
    plain = check_config({**config, "batch_num": {}})
    assert plain.episode_per_epoch == plain.launch.episode_per_epoch
    assert plan.settings.updates == 2 * (plain.settings.updates or plain.settings.train_every)
    with pytest.raises(UsageError, match="IMPALA learns once from what was collected"):
        check_config({**complete("IMPALA"), "batch_num": {"learner": 2}})


@pytest.mark.parametrize("frame", ["IMPALA", "DQNApex", "DDPGApex", "ARS", "A3C"])
def test_a_distributed_frame_is_generated_for_three_processes(frame):
    config = generate_algorithm_config(frame)
    assert (config["num_nodes"], config["num_processes"]) == (1, 3)
    assert "batch_num" not in config
    assert "num_processes" not in generate_algorithm_config("PPO")


def test_machins_own_values_have_its_batch_num():
    assert generate_algorithm_config("DQNApex", defaults="machin")["batch_num"] == {"sampler": 10, "learner": 1}


@pytest.mark.parametrize(
    ("frame", "algorithm"), [("DQNApex", "apex_dqn"), ("DDPGApex", "apex_ddpg"), ("IMPALA", "impala"), ("ARS", "ars")]
)
def test_distributed_frames_have_their_names_in_machin(frame, algorithm):
    assert check_config(complete(frame)).algorithm == algorithm


@pytest.mark.parametrize(
    ("gpus", "numbers"),
    [
        *[([0], [0]), ([0, 2], [0, 2]), (2, [0, 1]), (0, []), (None, []), (-1, [-1])],
        *[("0,1", [0, 1]), ("3", [0, 1, 2]), ("3,", [3]), ("-1", [-1]), ("", [])],
    ],
)
def test_gpus(gpus, numbers):
    assert asked_gpus(gpus) == numbers


@pytest.mark.parametrize(
    ("config", "there", "device", "said"),
    [
        ({"gpus": [1]}, 2, "cuda:1", ""),
        ({"gpus": [1, 0]}, 2, "cuda:1", "gpus is [1, 0], but DQN is not distributed: training on GPU 1 alone"),
        ({"gpus": -1}, 1, "cuda:0", ""),
        ({"gpus": "-1"}, 2, "cuda:0", "gpus is '-1', but DQN is not distributed: training on GPU 0 alone"),
        ({"gpus": [0]}, 0, "cpu", "gpus is [0], but this machine has no GPU: training on the CPU"),
        ({"gpus": None}, 2, "cpu", ""),
        ({"gpus": None, "frame_config": {"replay_device": "cuda:1"}}, 2, "cuda:1", ""),
        ({"gpus": [0], "device": "mps"}, 2, "mps", ""),
    ],
)
def test_where_networks_live(config, there, device, said, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: there)
    whole = complete()
    whole["frame_config"] |= config.pop("frame_config", {})
    parts = prepare_parts(check_config({**whole, **config}))
    assert (parts.model.device, parts.about_device) == (device, said)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"device": "gpu"}, "device is auto, cpu, cuda"),
        ({"gpus": None, "frame_config": {"replay_device": "disk"}}, "device is auto, cpu, cuda"),
        ({"frame_config": {"model": {"device": "cuda"}}}, "stands at the top of a config"),
    ],
)
def test_devices_that_cannot_be(change, message):
    whole = complete()
    whole["frame_config"] |= change.pop("frame_config", {})
    with pytest.raises(UsageError, match=message):
        prepare_parts(check_config({**whole, **change}))


def test_the_seed_of_a_job(monkeypatch):
    monkeypatch.setenv("OPERANT_SEED", "7")
    assert check_config(complete()).seed == 7
    assert check_config({**complete(), "seed": 3}).seed == 3


def test_what_is_there():
    assert {"DQN", "PPO", "A2C"} <= set(get_available_algorithms())
    assert get_available_environments() == ["openai_gym"]


def test_unreadable_files(tmp_path):
    with pytest.raises(UsageError, match="there is no file"):
        read_config(tmp_path / "none.json")
    (tmp_path / "half.json").write_text('{"frame":')
    with pytest.raises(UsageError, match="is not JSON"):
        read_config(tmp_path / "half.json")
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(UsageError, match="must hold a mapping"):
        read_config(tmp_path / "list.json")
