"""From a config and its environments to what learns or acts in them: one policy, or those of several agents."""

from __future__ import annotations

from typing import Any, cast

from operant.algorithms import Algorithm, Policy, find_algorithm
from operant.envs.parallel import ParallelVectorEnv
from operant.envs.vector import VectorEnv
from operant.errors import UsageError
from operant.training.config import TrainConfig
from operant.training.policies import SHARED


def make_algorithm(env: VectorEnv, config: TrainConfig) -> Algorithm:
    """What learns as a config says."""
    return cast(Algorithm, _make(env, config, learn=True))


def make_policy(env: VectorEnv, config: TrainConfig) -> Policy:
    """What acts as it would, without what learns."""
    return cast(Policy, _make(env, config, learn=False))


def _make(env: VectorEnv, config: TrainConfig, learn: bool) -> Any:
    kind, _ = find_algorithm(config.algorithm["name"])
    joint = bool(getattr(kind, "joint", False))
    if isinstance(env, ParallelVectorEnv):
        _check_several(config)
        if not joint:
            from operant.training.agents.team import make_team

            team = make_team(env, config, learn=learn)
            env.count([agent for one in team.learning for agent in one.agents])
            return team
        if config.env.normalize_obs or config.env.normalize_reward:
            raise UsageError(
                f"{config.algorithm['name']} takes observations and rewards as they are: do not scale them"
            )
        if config.policies or config.policy_mapping != SHARED:
            raise UsageError(
                f"{config.algorithm['name']} has a policy for each agent and learns them together: "
                "leave policies and policy_mapping out"
            )
    elif joint:
        raise UsageError(f"{config.algorithm['name']} is for several agents; {config.env.id} has one")
    elif config.policies or config.policy_mapping != SHARED:
        raise UsageError(f"policies and policy_mapping are for several agents; {config.env.id} has one")
    make = kind if learn else kind.make_policy
    spaces = env.single_observation_space, env.single_action_space
    return make(*spaces, config.algorithm_settings, config.model, config.seed)


def _check_several(config: TrainConfig) -> None:
    if config.workers or config.learners > 1:
        raise UsageError(
            f"{config.env.id} has several agents, which one process collects for and learns: workers is 0, "
            "learners is 1"
        )


def counting_alike(env: VectorEnv, other: VectorEnv) -> VectorEnv:
    """Environments whose returns are counted as those of others are: of the same agents."""
    if isinstance(env, ParallelVectorEnv) and isinstance(other, ParallelVectorEnv):
        env.counted = other.counted
    return env


def drawable(env: VectorEnv, arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments of environments like this one that pictures are wanted of: PettingZoo's must be asked for them."""
    if not isinstance(env, ParallelVectorEnv) or getattr(env.envs[0], "render_mode", None) is not None:
        return arguments
    modes = getattr(env.envs[0], "metadata", {}).get("render_modes", ())
    return {"render_mode": "rgb_array", **arguments} if "rgb_array" in modes else arguments
