"""Recorded episodes in Minari's format, with the real package."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Graph

from operant.cli import main
from operant.data.batches import read_recorded, recorded_rows
from operant.data.minari import write_minari
from operant.errors import UsageError
from operant.training import load_policy, train

minari = pytest.importorskip("minari")
h5py = pytest.importorskip("h5py")

EPISODES = (3, 1, 5)


@pytest.fixture(autouse=True)
def datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Minari's own folder, within the test's."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))
    return tmp_path / "datasets"


def rows() -> dict[str, Any]:
    """Transitions of episodes of these lengths; the second ends by itself."""
    rng, count = np.random.default_rng(0), sum(EPISODES)
    ends = np.zeros(count, bool)
    ends[np.cumsum(EPISODES) - 1] = True
    by_itself = ends & (np.arange(count) == 3)
    seen = {"at": rng.normal(size=(count, 2)).astype(np.float32), "map": rng.integers(256, size=(count, 40, 40, 3))}
    seen["map"] = seen["map"].astype(np.uint8)
    after = {name: np.concatenate([part[1:], part[:1]]) for name, part in seen.items()}
    return {
        "obs": seen,
        "action": rng.integers(2, size=count),
        "reward": rng.normal(size=count).astype(np.float32),
        "terminated": by_itself,
        "truncated": ends & ~by_itself,
        "next_obs": after,
    }


SPACES = Dict({"at": Box(-9, 9, (2,)), "map": Box(0, 255, (40, 40, 3), np.uint8)}), Discrete(2)


def test_what_is_written_is_what_minari_reads_and_what_is_read_again(datasets: Path) -> None:
    recorded = rows()
    assert write_minari("toy/mixed-v0", recorded, *SPACES, None, "nobody") == datasets / "toy" / "mixed-v0"
    theirs = minari.load_dataset("toy/mixed-v0")
    assert [len(one) for one in theirs.iterate_episodes()] == list(EPISODES)
    assert theirs.observation_space == SPACES[0] and theirs.action_space == SPACES[1]
    last = theirs[2]
    np.testing.assert_array_equal(last.observations["map"][:-1], recorded["obs"]["map"][4:])
    np.testing.assert_array_equal(last.observations["at"][-1], recorded["next_obs"]["at"][-1])
    assert theirs[1].terminations.tolist() == [True] and last.truncations.tolist() == [False] * 4 + [True]
    for path in ("minari:toy/mixed-v0", datasets / "toy" / "mixed-v0", datasets / "toy" / "mixed-v0" / "data"):
        ours = read_recorded(path)
        for name in ("obs", "next_obs"):
            for key in ("at", "map"):
                np.testing.assert_array_equal(ours[name][key], recorded[name][key])
        for name in ("action", "reward", "terminated", "truncated"):
            np.testing.assert_array_equal(ours[name], recorded[name])


def test_a_run_is_recorded_and_learned_from(
    tmp_path: Path, datasets: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    root = tmp_path / ".operant"
    root.mkdir()
    config = {
        "total_steps": 300,
        "env": {"id": "Pendulum-v1", "arguments": {"max_episode_steps": 20, "g": 9.0}},
        "algorithm": {"name": "sac", "learning_starts": 100, "batch": 16},
        "model": {"hidden": [8]},
        "evaluation": {"episodes": 2, "every": 300},
    }
    run = train(config, root=root).run_id
    words = ["record", run, "--episodes", "3", "--format", "minari", "--root", str(root)]
    assert main([*words, "--output", "pendulum/sac-v0"]) == 0
    assert "wrote pendulum/sac-v0: 3 episodes, 60 transitions" in capsys.readouterr().out
    again = minari.load_dataset("pendulum/sac-v0").recover_environment()
    assert again.spec.max_episode_steps == 20 and again.unwrapped.g == 9.0
    found = read_recorded("minari:pendulum/sac-v0")
    np.testing.assert_allclose(load_policy(run, root).act(found["obs"][:5]), found["action"][:5], rtol=1e-5)
    for name, more in (("bc", {}), ("gail", {"rollout": 20, "minibatch": 20, "discriminator_updates": 2})):
        expert = {"name": name, "expert": "minari:pendulum/sac-v0", **more}
        result = train({**config, "algorithm": expert, "total_steps": 40}, root=root)
        assert result.steps == 40
    for output, why in (
        ("pendulum/sac-v0", "there is a dataset pendulum/sac-v0 already"),
        ("../x", "is no name"),
        ("x", "is no name"),
    ):
        assert main([*words, "--output", output]) != 0
        assert why in capsys.readouterr().err
    assert main(words) == 0  # its own name
    assert (datasets / "Pendulum-v1" / f"{run}-v0" / "data" / "main_data.hdf5").is_file()


def test_a_dataset_of_minaris_own_collector_with_jpegs(datasets: Path) -> None:
    buffers = [
        minari.data_collector.EpisodeBuffer(
            observations=np.full((count + 1, 40, 40, 3), 100, np.uint8),
            actions=np.zeros(count, np.int64),
            rewards=[1.0] * count,
            terminations=[False] * (count - 1) + [True],
            truncations=[False] * count,
            infos={"x": np.zeros(count + 1)},
        )
        for count in (2, 3)
    ]
    spaces = {"observation_space": Box(0, 255, (40, 40, 3), np.uint8), "action_space": Discrete(2)}
    with pytest.warns(UserWarning):
        minari.create_dataset_from_buffers("toy/pictures-v0", buffers, **spaces)
    found = read_recorded(datasets / "toy" / "pictures-v0")
    assert found["obs"].shape == (5, 40, 40, 3) and abs(int(found["obs"].mean()) - 100) < 3
    assert found["terminated"].tolist() == [False, True, False, False, True]


def _damaged(folder: Path, to: Path, how: str) -> Path:
    shutil.copytree(folder, to)
    about, file = to / "data" / "metadata.json", to / "data" / "main_data.hdf5"
    told = json.loads(about.read_text())
    if how == "link":
        with h5py.File(file, "a") as opened:
            opened["elsewhere"] = h5py.ExternalLink("/etc/passwd", "/")
    elif how == "virtual":
        layout = h5py.VirtualLayout((3,), "f4")
        layout[:] = h5py.VirtualSource("other.hdf5", "x", (3,))
        with h5py.File(file, "a") as opened:
            opened.create_virtual_dataset("more", layout)
    elif how == "bomb":
        with h5py.File(file, "a") as opened:
            opened.create_dataset("more", (1 << 50,), "f8", chunks=(1 << 20,), compression="gzip")
    elif how == "short":
        with h5py.File(file, "a") as opened:
            group = opened["episode_0"]
            del group["observations"]["at"]
            group["observations"]["at"] = np.zeros((3, 2))
    elif how == "code":  # Minari would make this environment
        told |= {"env_spec": json.dumps({"id": "Evil-v0", "entry_point": "antigravity:geohash"})}
        del told["observation_space"]
    elif how == "arrow":
        told["data_format"] = "arrow"
    elif how == "text":
        file.write_text("no HDF5")
    elif how == "missing":
        file.unlink()
    about.write_text("[" if how == "json" else json.dumps(told))
    return to


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("link", "it leads to other files"),
        ("virtual", "it leads to other files"),
        ("bomb", "larger than what is stored"),
        ("short", "episode 0 has 3 steps and 3 observations"),
        ("code", "it does not say its spaces"),
        ("arrow", "only hdf5 is read"),
        ("text", "OSError"),
        ("missing", "there is no file main_data.hdf5"),
        ("json", "JSONDecodeError"),
    ],
)
def test_a_dataset_is_read_without_running_or_opening_what_it_names(
    how: str, why: str, tmp_path: Path, datasets: Path
) -> None:
    folder = write_minari("toy/mixed-v0", rows(), *SPACES, None, "nobody")
    with pytest.raises(UsageError, match=f"holds no recorded transitions: .*{why}"):
        read_recorded(_damaged(folder, tmp_path / "damaged", how))
    assert "antigravity" not in sys.modules


def test_what_is_no_dataset_is_said(datasets: Path) -> None:
    for name, why in (("minari:nobody/none-v0", "holds no recorded transitions"), ("minari:none", "is no name of a")):
        with pytest.raises(UsageError, match=why):
            read_recorded(name)
    with pytest.raises(UsageError, match="Minari cannot hold this"):
        write_minari("toy/graph-v0", rows(), Graph(Discrete(2), None), SPACES[1], None, "nobody")
    assert not (datasets / "toy" / "graph-v0").exists()  # so that the name can be used
    with pytest.raises(UsageError, match="rows, pictures and dicts"):
        recorded_rows([{"obs": {"a": {"b": np.zeros((1, 2))}}}])
