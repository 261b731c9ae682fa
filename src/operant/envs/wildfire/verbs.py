"""What agents can do: movements, and lines that they lay with one tool or another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from operant.errors import UsageError, nearest

UNBURNED, BURNING, BURNED = 0, 1, 2  # and the codes of tools from 3 on, as SimFire counts

MOVEMENTS: dict[str, tuple[int, int]] = {  # rows and columns; row 0 is the north
    "none": (0, 0),
    "up": (-1, 0),
    "down": (1, 0),
    "left": (0, -1),
    "right": (0, 1),
    "up_left": (-1, -1),
    "up_right": (-1, 1),
    "down_left": (1, -1),
    "down_right": (1, 1),
}


@dataclass(frozen=True)
class Tool:
    """What an interaction leaves in the ground.

    :param code: its number in ``fire_map``.
    :param keeps: what is left of the rate of spread; 0 stops the fire.
    :param width: of the square of cells that one use covers.
    :param every: agent steps between two uses; more: a slower tool.
    """

    code: int
    keeps: float
    width: int = 1
    every: int = 1


TOOLS: dict[str, Tool] = {
    "fireline": Tool(3, 0.0),
    "scratchline": Tool(4, 0.2),
    "wetline": Tool(5, 0.5),
    "crew": Tool(6, 0.0, every=3),  # a line by hand: complete, and three times as slow
    "bulldozer": Tool(7, 0.0, width=3, every=2),  # a broad line
    "air_drop": Tool(8, 0.1, width=5, every=20),  # retardant over a wide place, then back to the airfield
}
AGENT = 9  # the first agent in ``fire_map_with_agents``; the next is 10


class Verbs:
    """The numbers of actions: ``action % movements`` is the movement, ``action // movements`` the interaction."""

    def __init__(self, movements: Sequence[str], interactions: Sequence[str]) -> None:
        for given, known, what in ((movements, MOVEMENTS, "movement"), (interactions, ("none", *TOOLS), "interaction")):
            for name in given:
                if name not in known:
                    raise UsageError(f"there is no {what} {name!r}{nearest(name, known)}; known: {', '.join(known)}")
            if not given:
                raise UsageError(f"at least one {what} is needed, such as 'none'")
        self.movements, self.interactions = tuple(movements), tuple(interactions)
        self.counts = len(movements), len(interactions)
        self.count = len(movements) * len(interactions)
        self.delta = np.array([MOVEMENTS[name] for name in movements])
        tools = [TOOLS.get(name, Tool(UNBURNED, 1.0, every=0)) for name in interactions]
        self.tools = np.array([(tool.code, tool.width, tool.every) for tool in tools])
        self.keeps = np.array([tool.keeps for tool in tools])
