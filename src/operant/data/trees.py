"""Trees of arrays: an array, or a dict or tuple of trees. Batches, observations and actions are such trees."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from operant.errors import UsageError

Array = NDArray[Any]
Tree = Any
TreeSpec = dict[str, tuple[tuple[int, ...], str]]
"""Path of each leaf -> its shape without the leading axes, and its dtype."""


def tree_map(function: Callable[..., Any], tree: Tree, *others: Tree) -> Tree:
    """Apply ``function`` to the leaves of trees of one shape."""
    if isinstance(tree, np.ndarray):
        return function(tree, *others)
    if isinstance(tree, dict):
        return {name: tree_map(function, part, *(other[name] for other in others)) for name, part in tree.items()}
    if isinstance(tree, tuple):
        return tuple(tree_map(function, part, *parts) for part, *parts in zip(tree, *others, strict=True))
    return function(tree, *others)


def tree_leaves(tree: Tree, path: str = "") -> Iterator[tuple[str, Any]]:
    """Each leaf with its path: ``"obs/position"``, or ``"0"`` in a tuple; a tree that is a leaf has the path ``""``."""
    if isinstance(tree, dict):
        for name, part in tree.items():
            yield from tree_leaves(part, f"{path}/{name}" if path else str(name))
    elif isinstance(tree, tuple):
        for i, part in enumerate(tree):
            yield from tree_leaves(part, f"{path}/{i}" if path else str(i))
    else:
        yield path, tree


def tree_flatten(tree: Tree, path: str = "") -> dict[str, Any]:
    """All leaves by path."""
    if isinstance(tree, np.ndarray):
        return {path: tree}
    leaves: dict[str, Any] = {}
    _gather(tree, path, leaves)
    return leaves


def _gather(tree: Tree, path: str, leaves: dict[str, Any]) -> None:
    # As `tree_leaves`, without its nested generators: every step that is stored goes through here.
    if isinstance(tree, dict):
        for name, part in tree.items():
            here = f"{path}/{name}" if path else str(name)
            if isinstance(part, np.ndarray):
                leaves[here] = part
            else:
                _gather(part, here, leaves)
    elif isinstance(tree, tuple):
        for i, part in enumerate(tree):
            _gather(part, f"{path}/{i}" if path else str(i), leaves)
    else:
        leaves[path] = tree


def tree_structure(tree: Tree, path: str = "") -> Any:
    """The tree with each leaf replaced by its path; JSON can hold it, with ``{"tuple": [...]}`` for tuples."""
    if isinstance(tree, dict):
        return {
            "dict": {name: tree_structure(part, f"{path}/{name}" if path else str(name)) for name, part in tree.items()}
        }
    if isinstance(tree, tuple):
        return {"tuple": [tree_structure(part, f"{path}/{i}" if path else str(i)) for i, part in enumerate(tree)]}
    return path


def tree_unflatten(structure: Any, leaves: Mapping[str, Any]) -> Tree:
    """The tree of this structure with these leaves: the inverse of ``tree_structure`` and ``tree_flatten``."""
    if isinstance(structure, str):
        return leaves[structure]
    if "dict" in structure:
        return {name: tree_unflatten(part, leaves) for name, part in structure["dict"].items()}
    return tuple(tree_unflatten(part, leaves) for part in structure["tuple"])


def tree_stack(trees: Sequence[Tree], axis: int = 0) -> Tree:
    """Trees of one shape along a new axis."""
    if not trees:
        raise UsageError("there is nothing to stack: the list of trees is empty")
    return tree_map(lambda *leaves: np.stack(leaves, axis=axis), *trees)


def tree_spec(tree: Tree, *, leading: int = 1) -> TreeSpec:
    """What to allocate for more of the same: shapes without the first ``leading`` axes. float64 is kept as float32."""
    spec = {}
    for path, leaf in tree_leaves(tree):
        array = np.asarray(leaf)
        if array.dtype == object:
            raise UsageError(f"{path or 'the value'!r} holds Python objects; only numbers and booleans can be stored")
        dtype = np.dtype(np.float32) if array.dtype == np.float64 else array.dtype
        spec[path] = (array.shape[leading:], dtype.str)
    return spec


def tree_zeros(spec: TreeSpec, leading: tuple[int, ...]) -> dict[str, Array]:
    """Zeroed arrays [*leading, ...] for each leaf of a spec, by path."""
    return {path: np.zeros((*leading, *shape), dtype) for path, (shape, dtype) in spec.items()}
