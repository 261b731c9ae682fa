"""Checkpoints: a folder of arrays and JSON that appears whole or not at all. No pickle, so reading one runs no code.

checkpoints/step-000000012800/state.json       what is not an array, and the checksums of both
                              state.npz        arrays by their path in the tree
checkpoints/replay/                            chunks of replay that never change; manifests refer to them
best/weights.safetensors, best.json            the policy of the best evaluation
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from operant._util.files import read_regular, replacing, sync_folder, write_file
from operant.data.chunks import check_chunks, read_arrays
from operant.errors import OperantError

FORMAT = "operant-checkpoint-2"
_EARLIER = "operant-checkpoint-1"  # whose documents need not have a checksum of their own
_ARRAY = "__array__"
_DAMAGE = (ValueError, KeyError, TypeError, AttributeError, RecursionError, MemoryError, OSError, EOFError)


class CheckpointError(OperantError):
    """A checkpoint that cannot be read: cut short, changed, or made by something else."""


class CheckpointStore:
    """The checkpoints of one run, the newest few of which are kept."""

    def __init__(self, folder: Path, keep: int = 2) -> None:
        self.folder = folder
        self.keep = keep
        self.notes: list[str] = []
        """What whoever goes on from what :meth:`load` gave should know of it."""

    @property
    def replay_folder(self) -> Path:
        return self.folder / "replay"

    def steps(self) -> list[int]:
        """The steps that there are checkpoints of, oldest first."""
        numbers = (path.name.removeprefix("step-") for path in self.folder.glob("step-*"))
        return sorted(int(number) for number in numbers if re.fullmatch("[0-9]{12,18}", number))

    def save(self, step: int, state: Mapping[str, Any]) -> Path:
        """Write the state beside the others, then rename it into place; older ones than `keep` go."""
        document, content = pack_state(step, state)
        self.folder.mkdir(parents=True, exist_ok=True)
        for left in self.folder.glob(".step-*"):  # by a writer that was killed; a run has one at a time
            shutil.rmtree(left, ignore_errors=True)
        target = self.folder / f"step-{step:012d}"
        with replacing(target) as staged:
            write_file(staged / "state.npz", content, sync=True)
            write_file(staged / "state.json", document, sync=True)
            _remove(target)
        sync_folder(self.folder)
        self._forget_old()
        return target

    def load(self, step: int | None = None, before: int | None = None) -> tuple[int, dict[str, Any]]:
        """The state of a step, or the newest (``before`` another); an unreadable one gives way to the one before."""
        steps = [one for one in self.steps() if before is None or one < before]
        if not steps:
            raise CheckpointError(f"there is no checkpoint in {self.folder}")
        if step is not None:
            return step, self._read(step)
        problems: list[str] = []
        for number in reversed(steps):
            try:
                state = self._read(number)
            except CheckpointError as error:
                problems.append(str(error))
                continue
            self.notes += [f"the checkpoint before it serves, of step {number:,}: {one}" for one in problems]
            return number, state
        raise CheckpointError("no checkpoint can be read: " + "; ".join(problems))

    def _read(self, step: int) -> dict[str, Any]:
        path = self.folder / f"step-{step:012d}"
        state = read_checkpoint(path, self.notes)
        try:
            check_chunks(self.replay_folder, state.get("replay"))
        except OperantError as error:
            raise CheckpointError(f"{path}: {error}") from None
        return state

    def replay_manifests(self) -> Iterator[Any]:
        """What the checkpoints that can be read need of the replay folder."""
        for step in self.steps():
            try:
                yield read_checkpoint(self.folder / f"step-{step:012d}").get("replay")
            except CheckpointError:
                continue

    def _forget_old(self) -> None:
        for number in self.steps()[: -self.keep]:
            _remove(self.folder / f"step-{number:012d}")


def _remove(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
    if path.is_symlink() or path.is_file():  # no checkpoint of ours, but in its place
        path.unlink()


def read_checkpoint(path: Path, notes: list[str] | None = None) -> dict[str, Any]:
    """The state in one checkpoint folder; ``notes`` takes what is to be said of it."""
    try:
        text = read_regular(path / "state.json").decode()
        content = read_regular(path / "state.npz")
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} is no checkpoint: {Path(str(error.filename)).name} is missing") from None
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path / 'state.json'} is cut short or not JSON: {error}") from None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from None
    return unpack_state(text, content, str(path / "state.json"), str(path / "state.npz"), notes)


def pack_state(step: int, state: Mapping[str, Any]) -> tuple[str, memoryview]:
    """A state as a JSON document and the arrays of it as the bytes of an npz file; the document has their checksums."""
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    plain = _split(state, "", arrays)
    packed = io.BytesIO()
    np.savez(packed, **arrays)  # type: ignore[arg-type]
    content = packed.getbuffer()
    document = {"format": FORMAT, "step": step, "sha256": hashlib.sha256(content).hexdigest(), "state": plain}
    return json.dumps({**document, "own_sha256": _own_checksum(document)}), content


def unpack_state(
    text: str, content: bytes, document_name: str, arrays_name: str, notes: list[str] | None = None
) -> dict[str, Any]:
    """The state that `pack_state` packed; the names are for messages. Nothing in it is executed."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{document_name} is cut short or not JSON: {error}") from None
    if not isinstance(document, dict) or document.get("format") not in (FORMAT, _EARLIER):
        raise CheckpointError(f"{document_name} is not of the format {FORMAT}")
    _check_own(document, document_name, notes)
    if hashlib.sha256(content).hexdigest() != document.get("sha256"):
        raise CheckpointError(f"{arrays_name} is cut short or changed: its checksum differs")
    try:
        arrays = read_arrays(io.BytesIO(content))
    except OperantError as error:
        raise CheckpointError(f"{arrays_name} {error}") from None
    return _joined(document.get("state"), arrays, document_name)


def _own_checksum(document: Mapping[str, Any]) -> str:
    """Over all that a document says, as JSON that reads and writes the same."""
    said = {key: value for key, value in document.items() if key != "own_sha256"}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def _check_own(document: Mapping[str, Any], name: str, notes: list[str] | None) -> None:
    if "own_sha256" not in document and document.get("format") in (None, _EARLIER):
        if notes is not None:
            notes.append(f"{name} is of an earlier version and has no checksum of its own: a change would not be found")
    elif document.get("own_sha256") != _own_checksum(document):
        raise CheckpointError(f"{name} was changed: its checksum differs")


def write_weights(path: Path, weights: Mapping[str, np.ndarray[Any, Any]], about: Mapping[str, Any]) -> None:
    """Weights as safetensors with their `state_dict` names, and a JSON file beside them; both atomically."""
    from safetensors.numpy import save

    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    plain = _split(about, "about", arrays)
    tensors = {name: np.asarray(value, order="C") for name, value in weights.items()}
    tensors |= {f"operant.{name}": value for name, value in arrays.items()}
    content = save(tensors)
    document = {"format": FORMAT, "sha256": hashlib.sha256(content).hexdigest(), "about": plain}
    document["own_sha256"] = _own_checksum(document)
    write_file(path, content, sync=True)
    write_file(path.with_suffix(".json"), json.dumps(document), sync=True)


def read_weights(path: Path) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, Any]]:
    """Weights and what was written about them."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        content = read_regular(path)
        document = json.loads(read_regular(path.with_suffix(".json")).decode())
        about = document["about"]
        _check_own(document, str(path.with_suffix(".json")), None)
        if document.get("sha256", "") not in ("", hashlib.sha256(content).hexdigest()):
            raise CheckpointError(f"{path} is cut short or changed: its checksum differs")
        tensors = load(content)
    except FileNotFoundError as error:
        raise CheckpointError(f"there are no weights at {error.filename}") from None
    except (SafetensorError, *_DAMAGE) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{path} is cut short or no file of weights: {error!s:.200}") from None
    arrays = {name.removeprefix("operant."): value for name, value in tensors.items() if name.startswith("operant.")}
    weights = {name: value for name, value in tensors.items() if not name.startswith("operant.")}
    return weights, _joined(about, arrays, str(path.with_suffix(".json")))


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


def _joined(tree: Any, arrays: Mapping[str, np.ndarray[Any, Any]], name: str) -> dict[str, Any]:
    try:
        joined = _join(tree, arrays)
    except (RecursionError, TypeError) as error:
        raise CheckpointError(f"{name} holds no state: {error}") from None
    if not isinstance(joined, dict):
        raise CheckpointError(f"{name} holds no state: it is a {type(joined).__name__}")
    return joined


def _join(tree: Any, arrays: Mapping[str, np.ndarray[Any, Any]]) -> Any:
    if isinstance(tree, dict):
        if set(tree) == {_ARRAY}:
            try:
                return arrays[tree[_ARRAY]]
            except KeyError:
                raise CheckpointError(f"the array {tree[_ARRAY]!r:.80} is missing from the checkpoint") from None
        return {key: _join(value, arrays) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_join(value, arrays) for value in tree]
    return tree
