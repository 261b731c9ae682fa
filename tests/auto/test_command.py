"""The commands, as a user types them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from tests.machine import patience

from operant.auto.command import main
from operant.auto.config import read_config, write_config
from operant.cli import main as operant


def test_list(capsys):
    assert main(["list"]) == 0
    assert {"algorithms:", "  DQN", "environments:", "  openai_gym"} <= set(capsys.readouterr().out.splitlines())
    assert main(["list", "--algo"]) == 0
    assert "openai_gym" not in capsys.readouterr().out


def test_listing_loads_neither_torch_nor_lightning():
    program = (
        "import sys; from operant.auto.command import main; main(['list']); "
        "sys.exit([name for name in ('torch', 'lightning', 'gymnasium') if name in sys.modules] or 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=patience(100))
    assert done.returncode == 0, done.stderr


def test_generate_and_launch(make_config, capsys, tmp_path):
    assert operant(["auto", "generate", "--algo", "PPO", "--output", "mine.json"]) == 0
    assert read_config("mine.json")["frame"] == "PPO"
    assert operant(["auto", "generate", "--algo", "PPO", "--output", "mine.json"]) == 1
    assert "exists already" in capsys.readouterr().err
    write_config(make_config(max_episodes=3), "small.json")
    assert operant(["auto", "launch", "--config", "small.json", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["episodes"] >= 3 and result["checkpoint"].endswith("best.ckpt")
    write_config(make_config(max_episodes=6), "small.json")
    assert operant(["auto", "launch", "--config", "small.json", "--resume"]) == 0
    out = capsys.readouterr().out
    assert "best total reward" in out and result["run_id"] in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["generate", "--algo", "DQM"], "did you mean 'DQN'"),
        (["generate", "--algo", "DQN", "--env", "openai_gim"], "did you mean 'openai_gym'"),
        (["generate"], "which algorithm"),
        (["generate", "--preset", "cartpole-ppo", "--algo", "DQN"], "is of PPO"),
        (["launch", "--config", "none.json"], "there is no file none.json"),
    ],
)
def test_mistakes_are_one_line(capsys, words, message):
    assert main(words) == 1
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1


def test_presets(capsys):
    assert main(["generate", "--preset", "cartpole-ppo", "--print"]) == 0
    assert json.loads(capsys.readouterr().out)["train_env_config"]["num_envs"] == 8
