"""How policies are learned: one file for each family of algorithms."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, cast

from operant.errors import UsageError, nearest
from operant.registry import Registry

if TYPE_CHECKING:
    from operant.algorithms.a2c import A2C, A2CSettings
    from operant.algorithms.base import BaseAlgorithm
    from operant.algorithms.contracts import Actor, ActOut, Algorithm, DataSpec, Policy
    from operant.algorithms.ddpg import DDPG, TD3, DDPGSettings, TD3Settings
    from operant.algorithms.dqn import DQN
    from operant.algorithms.dqn_settings import DQNSettings
    from operant.algorithms.errors import DivergedError
    from operant.algorithms.ppo import PPO, PPOSettings
    from operant.algorithms.sac import SAC, SACSettings

__all__ = [
    "A2C",
    "ALGORITHMS",
    "DDPG",
    "DQN",
    "PPO",
    "SAC",
    "TD3",
    "A2CSettings",
    "ActOut",
    "Actor",
    "Algorithm",
    "BaseAlgorithm",
    "DDPGSettings",
    "DQNSettings",
    "DataSpec",
    "DivergedError",
    "PPOSettings",
    "Policy",
    "SACSettings",
    "TD3Settings",
    "find_algorithm",
]

ALGORITHMS = Registry("algorithm", entry_point_group="operant.algorithms")
"""Classes of `Algorithm` by their names in configs."""
# torch is loaded with the module, when the name is asked for.
for _name, _class in {
    "a2c": "a2c:A2C",
    "a3c": "a3c:A3C",
    "apex_ddpg": "apex:ApexDDPG",
    "apex_dqn": "apex:ApexDQN",
    "appo": "impala:APPO",
    "ars": "evolution:ARS",
    "bc": "imitation:BC",
    "c51": "distributional:C51",
    "ddpg": "ddpg:DDPG",
    "discrete_sac": "discrete_sac:DiscreteSAC",
    "dqn": "dqn:DQN",
    "es": "evolution:ES",
    "gail": "imitation:GAIL",
    "gail_trpo": "imitation:TrustRegionGAIL",
    "impala": "impala:IMPALA",
    "maddpg": "maddpg:MADDPG",
    "ppo": "ppo:PPO",
    "qrdqn": "distributional:QRDQN",
    "rainbow": "distributional:Rainbow",
    "sac": "sac:SAC",
    "td3": "ddpg:TD3",
    "trpo": "trpo:TRPO",
}.items():
    ALGORITHMS.declare(_name, f"operant.algorithms.{_class}")

_HOMES = {
    "A2C": "a2c",
    "A2CSettings": "a2c",
    "ActOut": "contracts",
    "Actor": "contracts",
    "Algorithm": "contracts",
    "BaseAlgorithm": "base",
    "DDPG": "ddpg",
    "DDPGSettings": "ddpg",
    "DQN": "dqn",
    "DQNSettings": "dqn_settings",
    "DataSpec": "contracts",
    "DivergedError": "errors",
    "PPO": "ppo",
    "PPOSettings": "ppo",
    "Policy": "contracts",
    "SAC": "sac",
    "SACSettings": "sac",
    "TD3": "ddpg",
    "TD3Settings": "ddpg",
}


def find_algorithm(name: str) -> tuple[type[Algorithm], type[Any]]:
    """The class of an algorithm and of its settings, by its name in configs."""
    if name not in ALGORITHMS:
        known = ALGORITHMS.names
        raise UsageError(f"there is no algorithm {name!r}{nearest(name, known)}; known: {', '.join(known)}")
    found = cast("type[Algorithm]", ALGORITHMS.get(name))
    return found, found.Settings


def __getattr__(name: str) -> Any:
    try:
        home = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module 'operant.algorithms' has no attribute {name!r}") from None
    return getattr(importlib.import_module(f"operant.algorithms.{home}"), name)
