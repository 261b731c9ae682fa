"""Train with a Hydra tree: our own algorithms or RLlib, from one config."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from operant.harness.command import main
from operant.harness.tree import CONF

if TYPE_CHECKING:
    from operant.cluster.spec import ClusterSpec

_FOLDER_FLAGS = ("--config-dir", "-cd", "--config-path", "-cp")


def run_words(words: Sequence[str] | None = None) -> int:
    """Here; or with ``cluster=NAME`` of `operant cluster` as a job there, with the files of this folder."""
    given = list(sys.argv[1:] if words is None else words)
    named = [word for word in given if word.startswith("cluster=")]
    spec = _cluster_of(given, named[-1].partition("=")[2]) if named else None
    if spec is None:
        return main(given)
    from operant.cli.cluster import submit_and_follow
    from operant.cluster.jobs import JobRequest

    rest = [word for word in given if word not in named]
    command = [spec.python, "-m", "operant", "harness", *rest, "cluster=running"]
    return submit_and_follow(spec, None, JobRequest(words=command, folder=Path.cwd(), python=spec.python))


def _cluster_of(words: Sequence[str], name: str) -> ClusterSpec | None:
    """The cluster that is meant; None where it is a file of the tree's own group."""
    folders = [CONF, *(Path(after) for word, after in pairwise(words) if word in _FOLDER_FLAGS)]
    folders += [Path(word.partition("=")[2]) for word in words if word.partition("=")[0] in _FOLDER_FLAGS]
    from operant.cluster.spec import find_cluster, load_cluster, read_cluster

    of_tree = [path for folder in folders if (path := folder / "cluster" / f"{name}.yaml").is_file()]
    described = find_cluster(name)
    if of_tree and (described is None or not _describes(of_tree[-1])):
        return None
    return read_cluster(described) if described is not None else load_cluster(name)


def _describes(path: Path) -> bool:
    """Whether a file describes a cluster, and is not the tree's way to a Ray that runs."""
    from operant._util.plain_yaml import read_yaml

    content = read_yaml(path)
    return isinstance(content, dict) and "image" in content
