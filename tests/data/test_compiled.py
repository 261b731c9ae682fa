"""The compiled loops of prioritised replay and the numpy code give the same bits, and get along with any cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operant.data import PrioritizedReplayBuffer, SumTree, compiled, tree_flatten
from operant.errors import UsageError

pytest.importorskip("numba")


def pair(*arguments: Any, **settings: Any) -> list[PrioritizedReplayBuffer]:
    return [PrioritizedReplayBuffer(*arguments, **settings, jit=jit) for jit in (True, False)]


def bits(tree: Any) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    return {path: (leaf.dtype.str, leaf.shape, leaf.tobytes()) for path, leaf in tree_flatten(tree).items()}


def state(buffer: PrioritizedReplayBuffer) -> tuple[bytes, float, float]:
    return buffer._tree.weights().tobytes(), buffer._tree.total, buffer._highest


def priorities(rng: np.random.Generator, count: int) -> np.ndarray[Any, Any]:
    """Of all sizes that numbers have, some of them zero, at least one not."""
    found = 10.0 ** rng.uniform(-300, 300, count) if rng.random() < 0.3 else rng.random(count)
    found[rng.random(count) < 0.3] = 0.0
    found[0] = 1.0
    return np.asarray(found)


@given(
    seed=st.integers(0, 10_000),
    rows=st.sampled_from([1, 2, 5, 40, 300, 1500]),
    num_envs=st.sampled_from([1, 3, 16]),
    n_step=st.sampled_from([1, 2, 3, 7]),
    reward=st.sampled_from([np.float32, np.int64]),
)
@settings(max_examples=settings.default.max_examples // 8)
def test_both_give_the_same_bits(seed: int, rows: int, num_envs: int, n_step: int, reward: Any) -> None:
    rng = np.random.default_rng(seed)
    buffers = pair(rows * num_envs, num_envs, n_step=n_step, alpha=rng.choice([0.0, 0.6, 1.0]), epsilon=1e-6)
    generators = [np.random.default_rng(seed) for _ in buffers]
    earlier: list[dict[str, Any]] = []
    for _ in range(rng.integers(3, 12)):
        for _ in range(rng.integers(1, max(2, rows // 2))):
            obs = {"here": rng.random((num_envs, 3), np.float32), "seen": rng.integers(9, size=(num_envs, 2, 2))}
            step = {
                "action": rng.integers(5, size=num_envs),
                "reward": (rng.standard_normal(num_envs) * 10).astype(reward),
                "terminated": rng.random(num_envs) < 0.1,
                "truncated": rng.random(num_envs) < 0.1,
                "next_obs": {name: part + 1 for name, part in obs.items()},
                "extra": {"of": rng.random((num_envs, 2), np.float32)},
            }
            for buffer in buffers:
                buffer.add(obs, **step)
        batch_size = int(rng.integers(1, 70))
        one, other = (buffer.sample(batch_size, own) for buffer, own in zip(buffers, generators, strict=True))
        assert bits(one) == bits(other)
        earlier.append(one)
        of = earlier[rng.integers(len(earlier))]  # some of these steps may have been overwritten
        again = rng.integers(len(of["index"]), size=rng.integers(1, 90))  # some of them more than once
        new = priorities(rng, again.size)
        for buffer in buffers:
            buffer.update_priorities(of["index"][again], new, of["generation"][again])
        assert state(buffers[0]) == state(buffers[1])


@given(size=st.integers(1, 9000), seed=st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_draws_at_the_edges_of_sums_are_the_same(size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    trees = [SumTree(size, compiled.kernels()[0]), SumTree(size)]
    for _ in range(5):
        index = rng.integers(size, size=50)
        weights = np.where(rng.random(50) < 0.5, 0.0, 10.0 ** rng.uniform(-12, 6, 50))
        index[-1], weights[-1] = size - 1, 1.0
        share = rng.choice([0.0, 0.5, np.nextafter(1.0, 0.0)], size=int(rng.integers(1, 300)))
        drawn = []
        for tree in trees:
            tree.set(index, weights)
            leaf, weight, least = tree.draw(share)
            assert (weight > 0).all() and (leaf < size).all()
            drawn.append((leaf.tobytes(), weight.tobytes(), least, tree.total))
        assert drawn[0] == drawn[1]


def test_a_training_goes_on_without_numba_as_it_would_have_with_it(tmp_path: Path) -> None:
    compiled_one, plain = pair(500, 2, n_step=3)
    rng = np.random.default_rng(0)
    for row in range(300):
        obs, nothing = np.full((2, 1), row, np.float32), np.zeros(2, np.bool_)
        compiled_one.add(obs, nothing, np.ones(2, np.float32), nothing, nothing, obs + 1)
    batch = compiled_one.sample(64, rng)
    compiled_one.update_priorities(batch["index"], rng.random(64), batch["generation"])
    plain.load(tmp_path, compiled_one.save_chunks(tmp_path))
    assert state(plain) == state(compiled_one)
    drawn = [buffer.sample(64, np.random.default_rng(1)) for buffer in (compiled_one, plain)]
    assert bits(drawn[0]) == bits(drawn[1])


def test_which_of_the_two_it_is_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = [buffer.path for buffer in pair(10)]
    assert chosen == ["compiled (numba)", "numpy"]
    monkeypatch.setattr(compiled, "kernels", lambda: (None, "numpy (numba is not there)"))
    assert PrioritizedReplayBuffer(10).path == "numpy (numba is not there)"
    with pytest.raises(UsageError, match=r"operant\[jit\]"):
        PrioritizedReplayBuffer(10, jit=True)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0])
def test_priorities_that_are_no_priorities_are_refused_by_both(bad: float) -> None:
    for buffer in pair(10):
        flag = np.zeros(1, np.bool_)
        buffer.add(np.zeros((1, 1)), flag, np.zeros(1), flag, flag, np.ones((1, 1)))
        batch = buffer.sample(2, np.random.default_rng(0))
        with pytest.raises(UsageError, match="finite and not negative"):
            buffer.update_priorities(batch["index"], np.array([1.0, bad]), batch["generation"])


PROGRAM = """
import numpy as np
from operant.data import PrioritizedReplayBuffer

buffer = PrioritizedReplayBuffer(100, jit=True)
flag = np.zeros(1, np.bool_)
for row in range(50):
    obs = np.full((1, 1), row, np.float32)
    buffer.add(obs, flag, np.ones(1, np.float32), flag, flag, obs + 1)
print(buffer.sample(8, np.random.default_rng(0))["obs"].tobytes().hex())
"""


def start(cache: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-W", "error", "-c", PROGRAM]
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
    return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def drawn_here() -> str:
    told: dict[str, Any] = {}
    exec(PROGRAM, {"print": lambda line: told.update(line=line)})
    return str(told["line"])


def test_without_a_place_for_a_cache_it_compiles_each_time(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    out, err = start(str(tmp_path / "file" / "below")).communicate()
    assert (out.strip(), err) == (drawn_here(), "")


@pytest.mark.long
@pytest.mark.timeout(300)
def test_programs_that_compile_at_the_same_time_do_not_disturb_each_other(tmp_path: Path) -> None:
    expected = (drawn_here(), "")
    for process in [start(str(tmp_path)) for _ in range(2)]:
        out, err = process.communicate()
        assert (out.strip(), err) == expected
    assert len(list(tmp_path.rglob("*.nbc"))) == 4
    for path in tmp_path.rglob("*.nb?"):
        path.write_bytes(path.read_bytes()[:40])
    out, err = start(str(tmp_path)).communicate()
    assert (out.strip(), err) == expected, "a damaged cache"
