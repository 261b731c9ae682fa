"""Self-play: rivals that are past selves of a policy that learns."""

from __future__ import annotations

from typing import Any

import numpy as np

from operant.algorithms.contracts import Array, Metrics
from operant.training.agents.team import Member, Team


class PastSelves:
    """Keeps weights of policies as they learn, and lets their rivals play one of them in each round.

    They lie in the checkpoints, so a resumed training plays the same rivals. In evaluations, and whenever the policies
    are loaded, a rival is the newest of them.
    """

    def __init__(self, team: Team) -> None:
        self._team = team
        self._rivals = [one for one in team.members.values() if one.past_of]
        self._pools: dict[str, list[tuple[int, dict[str, Array]]]] = {one.name: [] for one in self._rivals}
        self._playing: dict[str, int] = {}

    def describe(self) -> list[str]:
        return [f"self-play: {one.name} plays past selves of {one.past_of}" for one in self._rivals]

    def choose(self, env_step: int, total_steps: int, rng: np.random.Generator) -> None:
        """Keep a self where one is due, and draw who plays in the coming round."""
        for one in self._rivals:
            pool = self._pools[one.name]
            every = one.settings.every or max(1, total_steps // 20)
            if not pool or env_step // every > pool[-1][0] // every:
                pool.append((env_step, self._team.members[one.past_of].policy.weights()))
                del pool[: -one.settings.keep]
            self._load(one, int(rng.integers(len(pool))))

    def newest(self) -> None:
        """Let every rival be the newest of its selves."""
        for one in self._rivals:
            if self._pools[one.name]:
                self._load(one, len(self._pools[one.name]) - 1)

    def _load(self, rival: Member, number: int) -> None:
        step, weights = self._pools[rival.name][number]
        if self._playing.get(rival.name) != step:
            rival.policy.load_weights(weights)
            self._playing[rival.name] = step

    def figures(self) -> Metrics:
        return {f"selves/{name}/step": float(step) for name, step in self._playing.items()}

    def state_dict(self) -> dict[str, Any]:
        return {
            name: {"steps": [step for step, _ in pool], "weights": {str(n): one for n, (_, one) in enumerate(pool)}}
            for name, pool in self._pools.items()
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for rival in self._rivals:
            saved = state[rival.name]
            pool = [(int(step), saved["weights"][str(number)]) for number, step in enumerate(saved["steps"])]
            for _, weights in pool:  # what does not fit is found now, and not in the middle of a training
                rival.policy.load_weights(weights)
            self._pools[rival.name] = pool
        self._playing = {}
