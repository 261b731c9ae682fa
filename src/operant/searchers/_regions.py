"""The partition of LA-MCTS (Wang, Fonseca, Tian, NeurIPS 2020): a tree of regions with a learnt boundary at each node.

A node's samples are put into two clusters by 2-means on scaled [x, y], a support vector machine learns the boundary
between the clusters from x alone, and its prediction parts the samples. The side with the higher mean is the left one.
Nodes are split only when somebody looks below them: a walk costs one split for each level, not the whole tree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from operant.searchers._extras import require

Array = np.ndarray
# A machine that learns from more samples than these takes seconds; others of the node are only sorted by it.
_MOST_LEARNT = 400
_ROUNDS = 30


class Region:
    """A node: its samples by row, and, once it has been split, the boundary between its two halves."""

    def __init__(self, partition: Partition, rows: Array, path: str, conditions: tuple[tuple[Any, bool], ...]) -> None:
        self._partition = partition
        self.rows = rows
        self.path = path
        self._conditions = conditions
        self.count = len(rows)
        self.mean = float(partition.values[rows].mean()) if len(rows) else 0.0
        self._children: tuple[Region, Region] | None = None
        self._looked = False

    @property
    def children(self) -> tuple[Region, Region] | None:
        """The better half and the other; None of a leaf."""
        if not self._looked:
            self._looked = True
            self._children = self._split()
        return self._children

    def contains(self, points: Array) -> Array:
        """Whether each point is on the right side of all boundaries from the root on."""
        inside: Array = self.depth_of(points) == len(self._conditions)
        return inside

    def depth_of(self, points: Array) -> Array:
        """How many boundaries, from the root on, each point is on the right side of before the first wrong one."""
        depth = np.zeros(len(points), dtype=int)
        inside = np.ones(len(points), dtype=bool)
        for machine, side in self._conditions:
            if not inside.any():
                break
            inside[inside] = machine.predict(points[inside]) == side
            depth += inside
        return depth

    def child_of(self, point: Array) -> Region | None:
        """The half in which a point lies."""
        if self.children is None:
            return None
        left, right = self.children
        machine, side = left._conditions[-1]
        return left if bool(machine.predict(point[None])[0] == side) else right

    def _split(self) -> tuple[Region, Region] | None:
        partition, rows = self._partition, self.rows
        if len(rows) <= partition.leaf_size:
            return None
        points = partition.points[rows]
        clusters = two_means(np.column_stack([points, _scaled(partition.values[rows], points.shape[1])]))
        if clusters is None:
            return None
        machine = partition.learn(points, clusters)
        if machine is None:
            return None
        predicted = machine.predict(points).astype(bool)
        if predicted.all() or not predicted.any():
            return None
        values = partition.values[rows]
        better = bool(values[predicted].mean() >= values[~predicted].mean())
        halves = []
        for name, side in (("l", better), ("r", not better)):
            inside = rows[predicted == side]
            halves.append(Region(partition, inside, self.path + name, (*self._conditions, (machine, side))))
        return halves[0], halves[1]


class Partition:
    """The tree over some samples. `values` may have been changed so that finished regions count for less."""

    def __init__(self, points: Array, values: Array, leaf_size: int, kernel: str, gamma: str | float) -> None:
        self.points = points
        self.values = values
        self.leaf_size = leaf_size
        self._kernel = kernel
        self._gamma = gamma
        self._svm: Any = require("sklearn.svm")
        self.root = Region(self, np.arange(len(points)), "", ())

    def walk(self, exploration: float) -> Region:
        """The leaf that the upper confidence bound leads to."""
        node = self.root
        while (children := node.children) is not None:
            node = max(children, key=lambda child: upper_bound(child, node.count, exploration))
        return node

    def follow(self, point: Array) -> Region:
        """The leaf in which a point lies."""
        node = self.root
        while (child := node.child_of(point)) is not None:
            node = child
        return node

    def leaf(self, path: str) -> Region:
        """The region with a path, or the last one on it."""
        node = self.root
        for side in path:
            if (children := node.children) is None:
                break
            node = children[side == "r"]
        return node

    def learn(self, points: Array, labels: Array) -> Any:
        """The machine that tells two clusters apart; None when there is nothing to tell."""
        if len(points) > _MOST_LEARNT:
            chosen = np.linspace(0, len(points) - 1, _MOST_LEARNT).astype(int)
            points, labels = points[chosen], labels[chosen]
        if labels.all() or not labels.any():
            return None
        machine = self._svm.SVC(kernel=self._kernel, gamma=self._gamma, class_weight="balanced")
        return machine.fit(points, labels)


def upper_bound(child: Region, parent_count: int, exploration: float) -> float:
    """mean + 2 Cp sqrt(2 sqrt(n_parent) / n), the bound that the authors' experiments used."""
    return child.mean + 2 * exploration * math.sqrt(2 * math.sqrt(parent_count) / max(child.count, 1))


def two_means(features: Array) -> Array | None:
    """Which of two clusters each row belongs to; None when all rows are the same.

    It starts from the rows with the highest and the lowest last column, so there is nothing random about it.
    """
    start = features[[int(features[:, -1].argmin()), int(features[:, -1].argmax())]]
    if np.array_equal(start[0], start[1]):
        farthest = int(((features - start[0]) ** 2).sum(axis=1).argmax())
        start = np.stack([start[0], features[farthest]])
        if np.array_equal(start[0], start[1]):
            return None
    centres, labels = start, np.zeros(len(features), dtype=bool)
    for _ in range(_ROUNDS):
        # Nearer to the second centre is what lies beyond the middle between the two.
        direction = centres[1] - centres[0]
        new = features @ direction > centres.mean(axis=0) @ direction
        if new.all() or not new.any():
            return None
        if np.array_equal(new, labels):
            break
        labels = new
        centres = np.stack([features[~labels].mean(axis=0), features[labels].mean(axis=0)])
    return labels


def _scaled(values: Array, dimensions: int) -> Array:
    """Values so that their spread weighs as much as that of all coordinates together, whatever their unit."""
    low, high = float(values.min()), float(values.max())
    if not high > low:
        return np.zeros(len(values))
    scaled: Array = math.sqrt(dimensions) * (values / 2 - low / 2) / (high / 2 - low / 2)
    return scaled


def tree_nodes(partition: Partition, exploration: float, marked: str | None = None) -> list[dict[str, Any]]:
    """The regions as JSON, each before its halves: `first` is where its samples begin when all are put in a row."""
    nodes: list[dict[str, Any]] = []

    def add(node: Region, first: int, bound: float | None) -> None:
        nodes.append(
            {
                "path": node.path,
                "first": first,
                "count": node.count,
                "mean": node.mean,
                "bound": bound,
                "leaf": node.children is None,
                "marked": marked is not None and marked.startswith(node.path),
            }
        )
        for child in node.children or ():
            add(child, first, upper_bound(child, node.count, exploration))
            first += child.count

    add(partition.root, 0, None)
    return nodes


def tree_text(nodes: Sequence[Mapping[str, Any]], sign: int = 1) -> str:
    """One line for each region: how many samples, their mean and bound; a star on the marked path. With `sign` -1 the
    user knows both with the other sign.
    """
    lines = []
    for node in nodes:
        what = "leaf" if node["leaf"] else "region"
        bound = "" if node["bound"] is None else f", bound {sign * node['bound']:.6g}"
        text = f"{node['path'] or 'root'}: {what}, {node['count']} samples, mean {sign * node['mean']:.6g}{bound}"
        lines.append("  " * len(node["path"]) + text + (" *" if node["marked"] else ""))
    return "\n".join(lines)
