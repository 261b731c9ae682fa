"""Who is linked to whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

Topology = Literal["star", "mesh", "alone"]
TOPOLOGIES: tuple[Topology, ...] = ("star", "mesh", "alone")


def neighbours(topology: Topology, node_ids: Sequence[int], node_id: int) -> list[int]:
    """The workers of the same runner that a worker has a link to; the first is the centre of a star."""
    others = [other for other in node_ids if other != node_id]
    if topology == "mesh":
        return others
    if topology == "alone":
        return []
    centre = min(node_ids)
    return others if node_id == centre else [centre]
