"""Checkpoints: a folder of arrays and JSON that appears whole or not at all. No pickle, so reading one runs no code.

checkpoints/step-000000012800/state.json       what is not an array, and the checksum of the arrays
                              state.npz        arrays by their path in the tree
checkpoints/replay/                            chunks of replay that never change; manifests refer to them
best/weights.safetensors, best.json            the policy of the best evaluation
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from operant._util.files import replacing, sync_folder, write_file
from operant.errors import OperantError

__all__ = ["CheckpointError", "CheckpointStore", "pack_state", "read_weights", "unpack_state", "write_weights"]

FORMAT = "operant-checkpoint-1"
_ARRAY = "__array__"


class CheckpointError(OperantError):
    """A checkpoint that cannot be read: cut short, changed, or made by something else."""


class CheckpointStore:
    """The checkpoints of one run, the newest few of which are kept."""

    def __init__(self, folder: Path, keep: int = 2) -> None:
        self.folder = folder
        self.keep = keep

    @property
    def replay_folder(self) -> Path:
        return self.folder / "replay"

    def steps(self) -> list[int]:
        """The steps that there are checkpoints of, oldest first."""
        found = []
        for path in self.folder.glob("step-*"):
            number = path.name.removeprefix("step-")
            if number.isdigit() and (path / "state.json").is_file():
                found.append(int(number))
        return sorted(found)

    def save(self, step: int, state: Mapping[str, Any]) -> Path:
        """Write the state beside the others, then rename it into place; older ones than `keep` go."""
        document, content = pack_state(step, state)
        self.folder.mkdir(parents=True, exist_ok=True)
        target = self.folder / f"step-{step:012d}"
        with replacing(target) as staged:
            write_file(staged / "state.npz", content, sync=True)
            write_file(staged / "state.json", document, sync=True)
            if target.exists():
                shutil.rmtree(target)
        sync_folder(self.folder)
        self._forget_old()
        return target

    def load(self, step: int | None = None) -> tuple[int, dict[str, Any]]:
        """The state of a step, or the newest; an unreadable newest one gives way to the one before."""
        steps = self.steps()
        if not steps:
            raise CheckpointError(f"there is no checkpoint in {self.folder}")
        if step is not None:
            return step, read_checkpoint(self.folder / f"step-{step:012d}")
        problems = []
        for number in reversed(steps):
            try:
                return number, read_checkpoint(self.folder / f"step-{number:012d}")
            except CheckpointError as error:
                problems.append(str(error))
        raise CheckpointError("no checkpoint can be read: " + "; ".join(problems))

    def _forget_old(self) -> None:
        for number in self.steps()[: -self.keep]:
            shutil.rmtree(self.folder / f"step-{number:012d}", ignore_errors=True)


def read_checkpoint(path: Path) -> dict[str, Any]:
    """The state in one checkpoint folder."""
    try:
        text = (path / "state.json").read_text(encoding="utf-8")
        content = (path / "state.npz").read_bytes()
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} is no checkpoint: {Path(str(error.filename)).name} is missing") from None
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path / 'state.json'} is cut short or not JSON: {error}") from None
    return unpack_state(text, content, str(path / "state.json"), str(path / "state.npz"))


def pack_state(step: int, state: Mapping[str, Any]) -> tuple[str, memoryview]:
    """A state as a JSON document and the arrays of it as the bytes of an npz file, whose checksum the document has."""
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    plain = _split(state, "", arrays)
    packed = io.BytesIO()
    np.savez(packed, **arrays)  # type: ignore[arg-type]
    content = packed.getbuffer()
    checksum = hashlib.sha256(content).hexdigest()
    return json.dumps({"format": FORMAT, "step": step, "sha256": checksum, "state": plain}), content


def unpack_state(text: str, content: bytes, document_name: str, arrays_name: str) -> dict[str, Any]:
    """The state that `pack_state` packed; the names are for messages. Nothing in it is executed."""
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise CheckpointError(f"{document_name} is cut short or not JSON: {error}") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise CheckpointError(f"{document_name} is not of the format {FORMAT}")
    if hashlib.sha256(content).hexdigest() != document.get("sha256"):
        raise CheckpointError(f"{arrays_name} is cut short or changed: its checksum differs")
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (ValueError, zipfile.BadZipFile, OSError) as error:
        raise CheckpointError(f"{arrays_name} cannot be read: {error}") from None
    joined = _join(document["state"], arrays)
    assert isinstance(joined, dict)
    return joined


def write_weights(path: Path, weights: Mapping[str, np.ndarray[Any, Any]], about: Mapping[str, Any]) -> None:
    """Weights as safetensors with their `state_dict` names, and a JSON file beside them; both atomically."""
    from safetensors.numpy import save

    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    plain = _split(about, "about", arrays)
    tensors = {name: np.ascontiguousarray(value) for name, value in weights.items()}
    tensors |= {f"operant.{name}": value for name, value in arrays.items()}
    write_file(path, save(tensors), sync=True)
    write_file(path.with_suffix(".json"), json.dumps({"format": FORMAT, "about": plain}), sync=True)


def read_weights(path: Path) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, Any]]:
    """Weights and what was written about them."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        tensors = load(path.read_bytes())
        document = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        about = document["about"]
    except FileNotFoundError as error:
        raise CheckpointError(f"there are no weights at {error.filename}") from None
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} is cut short or no file of weights: {error}") from None
    arrays = {name.removeprefix("operant."): value for name, value in tensors.items() if name.startswith("operant.")}
    weights = {name: value for name, value in tensors.items() if not name.startswith("operant.")}
    joined = _join(about, arrays)
    assert isinstance(joined, dict)
    return weights, joined


def _split(tree: Any, path: str, arrays: dict[str, np.ndarray[Any, Any]]) -> Any:
    """The tree as JSON, with arrays taken out under their path."""
    if isinstance(tree, np.ndarray):
        if tree.dtype.hasobject:
            raise TypeError(f"{path} holds Python objects, which a checkpoint does not take")
        arrays[path] = tree
        return {_ARRAY: path}
    if isinstance(tree, Mapping):
        return {str(key): _split(value, f"{path}.{key}" if path else str(key), arrays) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [_split(value, f"{path}.{number}", arrays) for number, value in enumerate(tree)]
    if isinstance(tree, np.generic):
        return tree.item()
    if tree is None or isinstance(tree, (bool, int, float, str)):
        return tree
    raise TypeError(f"{path} is a {type(tree).__name__}, which a checkpoint does not take")


def _join(tree: Any, arrays: Mapping[str, np.ndarray[Any, Any]]) -> Any:
    if isinstance(tree, dict):
        if set(tree) == {_ARRAY}:
            try:
                return arrays[tree[_ARRAY]]
            except KeyError:
                raise CheckpointError(f"the array {tree[_ARRAY]!r} is missing from the checkpoint") from None
        return {key: _join(value, arrays) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_join(value, arrays) for value in tree]
    return tree
