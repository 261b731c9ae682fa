"""Recorded episodes in Minari's format (minari.farama.org): a folder with HDF5, in which an episode is a group.

Minari finds datasets by their names in a folder of its own (``MINARI_DATASETS_PATH``). Here one is ``minari:NAME``, or
the path of a dataset's folder wherever that is.
"""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

from operant.data.trees import Tree, tree_leaves, tree_map
from operant.errors import MissingExtraError, OperantError, UsageError

if TYPE_CHECKING:
    from gymnasium import Space
    from gymnasium.envs.registration import EnvSpec

PREFIX = "minari:"
_ABOUT = "metadata.json"
_MOST_PACKED = 1032  # bytes that one packed byte can stand for, by gzip


def is_minari(path: str | Path) -> bool:
    """Whether this names a dataset of Minari's."""
    try:
        return str(path).startswith(PREFIX) or any((Path(path) / at / _ABOUT).is_file() for at in ("", "data"))
    except (OSError, ValueError):  # no name of a file at all
        return False


def write_minari(
    name: str, recorded: dict[str, Tree], observations: Space[Any], actions: Space[Any], spec: EnvSpec | None, by: str
) -> Path:
    """Write transitions of whole episodes [B, …] as a dataset of this name; returns its folder.

    :param spec: of an environment that can be made again from it; `by`: what acted.
    """
    minari, folder = _load_minari(), new_folder(name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about what a dataset to be published should say
            minari.create_dataset_from_buffers(
                name,
                list(_episodes(recorded)),
                env=spec,
                observation_space=observations,
                action_space=actions,
                algorithm_name=by,
                description="recorded by `operant record`",
                data_format="hdf5",
                jpeg_encoding=False,
            )
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, NotImplementedError):
            raise UsageError(f"Minari cannot hold this: {error}") from None
        raise
    return folder


def new_folder(name: str) -> Path:
    """Where a dataset of this name will be, if it can be there."""
    folder = _folder_of(name)
    if folder.exists():
        raise UsageError(f"there is a dataset {name} already, in {folder}; give another name")
    return folder


def _episodes(recorded: dict[str, Tree]) -> Iterator[Any]:
    from minari.data_collector import EpisodeBuffer

    start = 0
    for last in np.flatnonzero(recorded["terminated"] | recorded["truncated"]).tolist():
        rows = slice(start, last + 1)
        yield EpisodeBuffer(
            observations=tree_map(
                lambda obs, after, rows=rows: np.concatenate([obs[rows], after[rows][-1:]]),
                recorded["obs"],
                recorded["next_obs"],
            ),
            actions=recorded["action"][rows],
            rewards=recorded["reward"][rows],
            terminations=recorded["terminated"][rows],
            truncations=recorded["truncated"][rows],
            infos={},
        )
        start = last + 1


def read_minari(path: str | Path) -> dict[str, Tree]:
    """Transitions of a dataset [B, …] in the order of its episodes. Nothing that it names is imported, or made."""
    _load_minari()
    from minari.dataset.minari_storage import MinariStorage

    said = str(path)
    folder = _folder_of(said.removeprefix(PREFIX)) if said.startswith(PREFIX) else Path(path)
    folder = folder if (folder / _ABOUT).is_file() else folder / "data"
    if not (folder / _ABOUT).is_file():
        raise UsageError(f"{path} holds no recorded transitions: there is no dataset in {folder.parent}")
    try:
        about = json.loads((folder / _ABOUT).read_text(encoding="utf-8"))
        if about["data_format"] != "hdf5":
            raise OperantError(f"its data_format is {about['data_format']!r}, and only hdf5 is read")
        if not all(isinstance(about.get(f"{one}_space"), str) for one in ("observation", "action")):
            # Minari would make the environment that the dataset names, and so run whatever code that is.
            raise OperantError("it does not say its spaces")
        _check_hdf5(folder / "main_data.hdf5")
        storage = MinariStorage.read(folder)
        episodes = [_transitions(one) for one in storage.get_episodes(range(storage.total_episodes))]
        return tree_map(lambda *parts: np.concatenate(parts), *episodes)  # type: ignore[no-any-return]
    except Exception as error:  # the parsers of JSON, HDF5 and spaces fail in many ways
        why = str(error) if isinstance(error, OperantError) else f"{type(error).__name__}: {error!s:.200}"
        raise UsageError(f"{path} holds no recorded transitions: {why}") from None


def _transitions(episode: dict[str, Any]) -> dict[str, Tree]:
    seen, count = episode["observations"], len(episode["rewards"])
    for name, leaf in tree_leaves(seen):
        if len(leaf) != count + 1:
            raise OperantError(
                f"episode {episode['id']} has {count} steps and {len(leaf)} observations {name}".rstrip()
            )
    return {
        "obs": tree_map(lambda leaf: leaf[:-1], seen),
        "action": episode["actions"],
        "reward": np.asarray(episode["rewards"], np.float32),
        "terminated": np.asarray(episode["terminations"], np.bool_),
        "truncated": np.asarray(episode["truncations"], np.bool_),
        "next_obs": tree_map(lambda leaf: leaf[1:], seen),
    }


def _check_hdf5(path: Path) -> None:
    """Refuse a file whose arrays lie elsewhere, or are more than fits into memory."""
    import h5py

    if not path.is_file():
        raise OperantError(f"there is no file {path.name}")
    with h5py.File(path, "r") as file:
        arrays: list[Any] = []
        file.visititems(lambda _, one: arrays.append(one) if isinstance(one, h5py.Dataset) else None)
        links: list[Any] = []
        file.visititems_links(lambda _, link: links.append(link))
        foreign = [one for one in links if not isinstance(one, h5py.HardLink)]
        if foreign or any(one.is_virtual or one.external for one in arrays):
            raise OperantError("it leads to other files")
        if any(one.nbytes > _MOST_PACKED * one.id.get_storage_size() for one in arrays):
            raise OperantError("an array is told to be larger than what is stored of it can be")
        size, free = sum(one.nbytes for one in arrays), psutil.virtual_memory().available
    if size > free:
        raise OperantError(f"its arrays take {size:,} bytes, and {free:,} of memory are free")


def _folder_of(name: str) -> Path:
    _load_minari()
    from minari.dataset.minari_dataset import parse_dataset_id
    from minari.storage import get_dataset_path

    try:
        parse_dataset_id(name)
    except (ValueError, TypeError):
        raise UsageError(f"{name!r} is no name of a dataset; Minari's are such as cartpole/expert-v0") from None
    return Path(get_dataset_path(name))


def _load_minari() -> Any:
    try:
        import h5py  # noqa: F401  Minari's own extra
        import minari
    except ImportError:
        raise MissingExtraError("Minari's format", "minari") from None
    return minari
