"""What agents do in a step, compiled by numba."""

from __future__ import annotations

from operant.envs.vector import Array
from operant.envs.wildfire.physics._numba import compiled


@compiled
def act(
    actions: Array, delta: Array, tools: Array, position: Array, wait: Array, status: Array,
    burnable: Array, lines: Array,
) -> int:  # fmt: skip
    """Agents mark lines in ``status`` [N, H, W] where they can, then move; returns how many cells ``lines`` [., 4] has.

    ``tools`` [interactions, 3] are code (0: none), width and steps between uses; ``delta`` [N, movements, 2] are rows
    and columns. Each line is a fire, its row, its column and the interaction. Of several in one cell the first counts.
    Where one of ``actions`` [N, agents] does not exist, nothing is done and -1 returned.
    """
    height, width = status.shape[1:]
    movements = delta.shape[1]
    for n in range(actions.shape[0]):
        for agent in range(actions.shape[1]):
            if not 0 <= actions[n, agent] < movements * tools.shape[0]:
                return -1
    count = 0
    for n in range(actions.shape[0]):
        for agent in range(actions.shape[1]):
            tool, movement = actions[n, agent] // movements, actions[n, agent] % movements
            wait[n, agent] = max(wait[n, agent] - 1, 0)
            if tools[tool, 0] and not wait[n, agent]:
                wait[n, agent] = tools[tool, 2]
                reach = tools[tool, 1] // 2
                top, left = position[n, agent, 0] - reach, position[n, agent, 1] - reach
                for row in range(max(top, 0), min(top + 2 * reach + 1, height)):
                    for column in range(max(left, 0), min(left + 2 * reach + 1, width)):
                        if status[n, row, column] == 0 and burnable[n, row, column]:
                            status[n, row, column] = tools[tool, 0]
                            lines[count, 0], lines[count, 1], lines[count, 2], lines[count, 3] = n, row, column, tool
                            count += 1
            for axis, last in ((0, height - 1), (1, width - 1)):
                moved = position[n, agent, axis] + delta[n, movement, axis]
                position[n, agent, axis] = min(max(moved, 0), last)
    return count
