"""How policies are learned: one file for each family of algorithms."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from operant.errors import UsageError, nearest

if TYPE_CHECKING:
    from operant.algorithms.a2c import A2C, A2CSettings
    from operant.algorithms.contracts import ActOut, Algorithm, DataSpec, Policy
    from operant.algorithms.dqn import DQN, DQNSettings
    from operant.algorithms.errors import DivergedError
    from operant.algorithms.ppo import PPO, PPOSettings

__all__ = [
    "A2C",
    "ALGORITHMS",
    "DQN",
    "PPO",
    "A2CSettings",
    "ActOut",
    "Algorithm",
    "DQNSettings",
    "DataSpec",
    "DivergedError",
    "PPOSettings",
    "Policy",
    "find_algorithm",
]

# Name in configs -> (module, algorithm, its settings); torch is loaded with the module.
ALGORITHMS = {
    "a2c": ("a2c", "A2C", "A2CSettings"),
    "dqn": ("dqn", "DQN", "DQNSettings"),
    "ppo": ("ppo", "PPO", "PPOSettings"),
}

_HOMES = {
    "A2C": "a2c",
    "A2CSettings": "a2c",
    "ActOut": "contracts",
    "Algorithm": "contracts",
    "DQN": "dqn",
    "DQNSettings": "dqn",
    "DataSpec": "contracts",
    "DivergedError": "errors",
    "PPO": "ppo",
    "PPOSettings": "ppo",
    "Policy": "contracts",
}


def find_algorithm(name: str) -> tuple[Any, Any]:
    """The class of an algorithm and of its settings, by its name in configs."""
    if name not in ALGORITHMS:
        raise UsageError(
            f"there is no algorithm {name!r}{nearest(name, ALGORITHMS)}; known: {', '.join(sorted(ALGORITHMS))}"
        )
    module, algorithm, settings = ALGORITHMS[name]
    home = importlib.import_module(f"operant.algorithms.{module}")
    return getattr(home, algorithm), getattr(home, settings)


def __getattr__(name: str) -> Any:
    try:
        home = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module 'operant.algorithms' has no attribute {name!r}") from None
    return getattr(importlib.import_module(f"operant.algorithms.{home}"), name)
