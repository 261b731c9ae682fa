"""A program that is killed while it saves leaves every finished checkpoint loadable."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from operant.data import PrioritizedReplayBuffer, prune_chunks

PROGRAM = """
import json, sys
from pathlib import Path
import numpy as np
from operant.data import PrioritizedReplayBuffer, prune_chunks

folder = Path(sys.argv[1])
buffer, rng, row = PrioritizedReplayBuffer(4000, 4, jit=False), np.random.default_rng(0), 0
latest = folder / "latest.json"
if latest.exists():
    manifest = json.loads(latest.read_text())
    buffer.load(folder, manifest)
    row = manifest["written"]
print("ready", flush=True)
while True:
    for _ in range(150):
        obs = np.full((4, 2), row, np.float32)
        ended = np.full(4, row % 9 == 8)
        buffer.add(obs, np.full(4, row), np.ones(4), ended, ~ended & False, obs + 1)
        row += 1
    manifest = buffer.save_chunks(folder)
    unfinished = folder / "latest.tmp"
    unfinished.write_text(json.dumps(manifest))
    unfinished.replace(latest)
    prune_chunks(folder, [manifest])
    print(row, flush=True)
"""


@pytest.mark.parametrize("kills", [3, pytest.param(60, marks=pytest.mark.long)])
def test_kill_while_saving(kills: int, tmp_path: Path) -> None:
    folder = tmp_path / "replay"
    folder.mkdir()
    chance = random.Random(0)
    last = 0
    for _ in range(kills):
        process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(folder)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        told = 0
        assert process.stdout.readline() == "ready\n"
        for _ in range(chance.randint(1, 6)):
            told = int(process.stdout.readline())
        threading.Event().wait(chance.random() * 0.01)  # somewhere between this checkpoint and the next
        process.kill()
        process.communicate()
        manifest = json.loads((folder / "latest.json").read_text())
        buffer = PrioritizedReplayBuffer(4000, 4)
        buffer.load(folder, manifest)
        assert manifest["written"] >= told > last
        batch = buffer.sample(500, np.random.default_rng(0))
        np.testing.assert_array_equal(batch["obs"][:, 0], batch["action"])
        np.testing.assert_array_equal(batch["next_obs"][:, 0], batch["action"] + 1)
        np.testing.assert_array_equal(batch["generation"], batch["action"])
        np.testing.assert_array_equal(batch["discount"] == 0, batch["action"] % 9 == 8)
        last = manifest["written"]
        prune_chunks(folder, [manifest])


@pytest.mark.long
def test_a_million_steps_go_through(tmp_path: Path) -> None:
    """Many times around the ring, with checkpoints: what is drawn is always what was added."""
    buffer, rng = PrioritizedReplayBuffer(100_000, 16, n_step=3, gamma=0.5), np.random.default_rng(0)
    envs, right = np.arange(16), np.array([1, 0], np.float32)
    for row in range(62_500):
        obs = np.stack([np.full(16, row), envs], axis=1).astype(np.float32)
        ended = (row + envs) % 11 == 10
        buffer.add(obs, envs, np.ones(16), ended & (envs % 2 == 0), ended & (envs % 2 == 1), obs + right)
        if row % 50 == 0:
            batch = buffer.sample(256, rng)
            start, env = batch["obs"][:, 0].astype(int), batch["action"]
            taken = np.minimum(np.minimum(3, 11 - (start + env) % 11), row + 1 - start)
            np.testing.assert_array_equal(batch["reward"], 2 - 2 * 0.5**taken)
            np.testing.assert_array_equal(batch["next_obs"][:, 0], start + taken)
            np.testing.assert_array_equal(batch["next_obs"][:, 1], env)
            over = ((start + taken - 1 + env) % 11 == 10) & (env % 2 == 0)
            np.testing.assert_array_equal(batch["discount"], np.where(over, 0, 0.5**taken))
            buffer.update_priorities(batch["index"], rng.random(256), batch["generation"])
        if row % 9000 == 8999:
            manifest = buffer.save_chunks(tmp_path)
            prune_chunks(tmp_path, [manifest])
            resumed = PrioritizedReplayBuffer(100_000, 16, n_step=3, gamma=0.5)
            resumed.load(tmp_path, manifest)
            buffer = resumed
