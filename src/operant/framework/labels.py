"""Which middleware runs where: labels of a process, matched by globs."""

from __future__ import annotations

import os
from collections.abc import Iterable
from fnmatch import fnmatchcase

LABELS_VARIABLE = "OPERANT_LABELS"


def split_labels(text: str) -> set[str]:
    """The labels in a comma-separated text."""
    return {label.strip() for label in text.split(",") if label.strip()}


def as_label_set(labels: str | Iterable[str] | None) -> set[str]:
    """Labels as a set, from a list or one comma-separated text."""
    if labels is None:
        return set()
    return split_labels(labels) if isinstance(labels, str) else set(labels)


def process_labels(
    *, node_id: int | None, async_mode: bool, extra: str | Iterable[str] | None = None
) -> frozenset[str]:
    """What a task of this process is called: its place, its mode, and what the user adds.

    `node_id` is None outside of a parallel run. The user adds labels by argument and by the environment
    variable ``OPERANT_LABELS``.
    """
    labels = {"standalone"} if node_id is None else {"distributed", f"node.{node_id}"}
    if async_mode:
        labels.add("async")
    return frozenset(labels | as_label_set(extra) | split_labels(os.environ.get(LABELS_VARIABLE, "")))


def match_labels(labels: Iterable[str], globs: str | Iterable[str]) -> bool:
    """Whether any of the labels matches any of the globs, such as ``node.*``."""
    patterns = as_label_set(globs)
    return any(fnmatchcase(label, pattern) for label in labels for pattern in patterns)
