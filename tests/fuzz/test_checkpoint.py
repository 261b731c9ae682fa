"""Checkpoints and weights: state and arrays, under checksums that fit or do not."""

from __future__ import annotations

import hashlib
import io
import json
import random
import struct
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.fuzz.driver import Fuzz, confused, few_or_many

from operant.training import checkpoints, train
from operant.training.checkpoints import CheckpointStore, read_weights, write_weights
from operant.training.playback import LoadedPolicy

STATE = {
    "config": {"env": {"id": "CartPole-v1"}, "seed": 3, "lr": 0.1},
    "counts": [1, 2, {"x": None}],
    "weights": {"a": np.arange(12.0).reshape(3, 4), "b": np.arange(5, dtype=np.int64), "c": np.zeros(3, bool)},
}


def plain(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: plain(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [plain(one) for one in tree]
    return (tree.dtype.str, tree.shape, tree.tobytes()) if isinstance(tree, np.ndarray) else tree


def joined(*parts: bytes) -> bytes:
    """Two files as one, so that either can be damaged."""
    return b"".join(struct.pack("<I", len(part)) + part for part in parts)


def parts_of(data: bytes) -> tuple[bytes, bytes]:
    length = min(int.from_bytes(data[:4], "little"), len(data))
    return data[4 : 4 + length], data[8 + length :]


def with_checksums(document: Any, content: bytes) -> bytes:
    if isinstance(document, dict):
        document["sha256"] = hashlib.sha256(content).hexdigest()
        document["own_sha256"] = checkpoints._own_checksum(document)
    return joined(json.dumps(document).encode(), content)


def other_arrays(rng: random.Random, content: bytes) -> bytes:
    """An npz file whose members say other things of themselves than is so."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as archive, zipfile.ZipFile(made, "w", rng.choice((0, 8))) as other:
        for name in archive.namelist():
            data = archive.read(name)
            if rng.random() < 0.5:
                shape = rng.choice(
                    (b"(99999999999,), ", b"(-3, 4), ", b"(3, 4, 0), ", b"((3,)), ", b"(4294967296, 4), ")
                )
                start, end = data.index(b"(", 60), data.index(b"}", 60)
                data = data[:start] + (shape + b" " * 50)[: end - start] + data[end:]
            if rng.random() < 0.3:
                data = data.replace(b"<f8", rng.choice((b"|O ", b"<f9", b"<U8", b">f8", b"V99")))
            other.writestr(rng.choice((name, name, name, f"../{name}", f"{name}x")), data)
    return made.getvalue()


@cache
def bomb() -> bytes:
    """A hundred megabytes of zeros, as an npz file of a hundred kilobytes."""
    made = io.BytesIO()
    np.savez_compressed(made, a=np.zeros(13 << 20))
    return made.getvalue()


def read_checkpoint(folder: Path, data: bytes) -> Any:
    document, content = parts_of(data)
    target = folder / "step-000000000007"
    target.mkdir(exist_ok=True)
    (target / "state.json").write_bytes(document)
    (target / "state.npz").write_bytes(content)
    return plain(CheckpointStore(folder).load()[1])


def forge_checkpoint(rng: random.Random, data: bytes) -> bytes:
    document, content = json.loads(parts_of(data)[0]), parts_of(data)[1]
    if rng.random() < 0.5:
        return with_checksums(document, bomb() if rng.random() < 0.05 else other_arrays(rng, content))
    return with_checksums(confused(rng, document), content)


@few_or_many(500)
def test_checkpoints(tmp_path: Path, tries: int, first: int) -> None:
    document, content = checkpoints.pack_state(7, STATE)
    sound = [joined(document.encode(), bytes(content))]
    Fuzz("checkpoint", read_checkpoint, sound, lambda _: False, forge_checkpoint).run(tmp_path, tries, first)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    path = tmp_path_factory.mktemp("weights") / "weights.safetensors"
    about = {"config": {"env": {"id": "CartPole-v1"}}, "step": 3, "return": 1.5, "normalizer": {"mean": np.ones(4)}}
    write_weights(path, {"policy.0.weight": np.ones((4, 3), np.float32)}, about)
    return [joined(path.with_suffix(".json").read_bytes(), path.read_bytes())]


def read_both(folder: Path, data: bytes) -> Any:
    path = folder / "weights.safetensors"
    for suffix, part in zip((".json", ".safetensors"), parts_of(data), strict=True):
        path.with_suffix(suffix).write_bytes(part)
    return plain(list(read_weights(path)))


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    config = {
        "env": {"id": "CartPole-v1", "normalize_obs": True},
        "algorithm": {"name": "a2c"},
        "model": {"hidden": [8]},
        "total_steps": 100,
        "evaluation": {"episodes": 1},
    }
    path = train(config, root=tmp_path_factory.mktemp("policy")).folder / "best" / "weights.safetensors"
    return [joined(path.with_suffix(".json").read_bytes(), path.read_bytes())]


def read_policy(folder: Path, data: bytes) -> Any:
    path = folder / "weights.safetensors"
    for suffix, part in zip((".json", ".safetensors"), parts_of(data), strict=True):
        path.with_suffix(suffix).write_bytes(part)
    found = LoadedPolicy(path)
    found.play(found.env.reset(0))
    found.env.close()
    return found.step, found.mean_return, plain(found.policy.weights())


def forge_weights(rng: random.Random, data: bytes) -> bytes:
    document, content = json.loads(parts_of(data)[0]), parts_of(data)[1]
    if rng.random() < 0.5:
        return with_checksums(confused(rng, document), content)
    length = int.from_bytes(content[:8], "little")
    try:
        header = json.dumps(confused(rng, json.loads(content[8 : 8 + length]))).encode()
    except UnicodeEncodeError:
        header = b"{}"
    return with_checksums(document, len(header).to_bytes(8, "little") + header + content[8 + length :])


@few_or_many(60)
def test_policies(policy: list[bytes], tmp_path: Path, tries: int, first: int) -> None:
    Fuzz("policy", read_policy, policy, lambda _: False, forge_weights).run(tmp_path, tries, first)


@few_or_many(500)
def test_weights(weights: list[bytes], tmp_path: Path, tries: int, first: int) -> None:
    Fuzz("weights", read_both, weights, lambda _: False, forge_weights).run(tmp_path, tries, first)
