"""What is learned on: environments as N rows that step together, reset themselves and can be saved."""

from __future__ import annotations

from operant.errors import MissingExtraError

try:
    import gymnasium as _gymnasium  # noqa: F401
except ImportError:
    raise MissingExtraError("an environment", "rl") from None

from operant.envs.gymnasium_vector import GymnasiumVectorAdapter
from operant.envs.in_process import InProcessVectorEnv
from operant.envs.making import make_env
from operant.envs.numpy_vector import NumpyVectorEnv
from operant.envs.vector import Episodes, EpisodeStatistics, Step, VectorEnv

__all__ = [
    "EpisodeStatistics",
    "Episodes",
    "GymnasiumVectorAdapter",
    "InProcessVectorEnv",
    "NumpyVectorEnv",
    "Step",
    "VectorEnv",
    "make_env",
]
