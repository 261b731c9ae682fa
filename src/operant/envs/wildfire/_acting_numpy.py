"""What agents do in a step, without numba."""

from __future__ import annotations

import numpy as np

from operant.envs.vector import Array


def act(
    actions: Array, delta: Array, tools: Array, position: Array, wait: Array, status: Array,
    burnable: Array, lines: Array,
) -> int:  # fmt: skip
    """As `_acting_numba.act`."""
    code, width, every = tools.T
    interaction, movement = np.divmod(actions, delta.shape[1])
    if interaction.min() < 0 or interaction.max() >= len(tools):
        return -1
    np.maximum(wait - 1, 0, out=wait)
    n, agent = ((code[interaction] > 0) & (wait == 0)).nonzero()
    tool = interaction[n, agent]
    wait[n, agent] = every[tool]
    reach = np.arange(width.max()) - width.max() // 2
    near = np.abs(reach) <= width[tool, None] // 2
    which, down, right = (near[:, :, None] & near[:, None, :]).nonzero()
    n, tool, (row, column) = n[which], tool[which], position[n, agent][which].T + reach[np.stack([down, right])]
    inside = (row >= 0) & (row < status.shape[1]) & (column >= 0) & (column < status.shape[2])
    n, tool, row, column = n[inside], tool[inside], row[inside], column[inside]
    able = (status[n, row, column] == 0) & burnable[n, row, column]
    cells = np.stack([n, row, column, tool])[:, able]
    _, first = np.unique(np.ravel_multi_index(tuple(cells[:3]), status.shape), return_index=True)
    laid = cells[:, np.sort(first)].T  # of several in one cell the first agent's
    lines[: len(laid)] = laid
    status[laid[:, 0], laid[:, 1], laid[:, 2]] = code[laid[:, 3]]
    position += delta[np.arange(len(delta))[:, None], movement]
    np.clip(position, 0, np.array(status.shape[1:]) - 1, out=position)
    return len(laid)
