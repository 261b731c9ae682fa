"""Where the values of a configuration file stand in its text."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Node:
    """A value at `text[start:end]` and what is inside it, by key; positions of a list are the keys "0",
    "1", …

    `lead` is text that must come before a new value (a space after the colon of an empty one, an anchor).
    """

    start: int
    end: int
    children: dict[str, Node] = field(default_factory=dict)
    lead: str = ""
    # Set where the text cannot be edited without changing something else; says why.
    locked: str | None = None
