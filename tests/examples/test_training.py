from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "training"


def printed(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return capsys.readouterr().out


def test_a_policy_is_used_in_a_program_of_ones_own(capsys: pytest.CaptureFixture[str]) -> None:
    [total] = re.findall(r"return (\d+)", printed("play.py", capsys))
    assert int(total) >= 60  # an untrained policy gets 9 to 22


def test_a_continuous_policy_acts_without_its_learner(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["continuous.py", "400"])
    out = printed("continuous.py", capsys)
    assert re.search(r"best mean return -\d+ at step \d+\nfour episodes elsewhere: \[-\d+, -\d+, -\d+, -\d+\]", out)


def test_several_agents(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed("several_agents.py", capsys)
    [(alone, together)] = re.findall(r"independent DQN ([\d.]+), MADDPG ([\d.]+)", out)
    assert float(alone) < 1.4 < 1.6 < float(together)
    assert out.count("{'keeper': ") == 4  # actions and rewards of two turns


@pytest.mark.long
def test_presets_from_python(capsys: pytest.CaptureFixture[str]) -> None:
    found = re.findall(r"best mean return ([\d.]+)", printed("train_presets.py", capsys))
    assert max(map(float, found)) >= 300
