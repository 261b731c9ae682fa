"""SimHarness's environments in the words of `operant.envs.wildfire`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from operant._util.dotted import put
from operant.envs.wildfire.attributes import ATTRIBUTES
from operant.envs.wildfire.simfire import from_simfire
from operant.harness.words import Tree, lookup, take

_REWARDS = {"SimpleReward": "simple", "AreaSavedPropReward": "area_saved", "AreaSavedPropRewardV2": "area_saved_v2"}
_SAME = ("movements", "interactions", "agent_speed", "num_agents", "deterministic")
_DROPPED = {
    "harness_analytics_partial": "metrics of each fire are in info when it ends",
    "benchmark_sim": "the unfought fire is always simulated beside it",
    "in_evaluation": "evaluations have settings of their own",
    "save_history": "runs are recorded; `operant fire simulate` writes maps",
    "initial_agent_positions": "agents start where the seed puts them; give rows and columns to set them",
    "agent_initialization_method": "agents start where the seed puts them; give rows and columns to set them",
}


def migrate_environment(tree: Tree, library: str) -> list[str]:
    """Put our wildfire in the place of SimHarness's; other environments stay. A line for each change."""
    name = str(lookup(tree, "environment.env") or "")
    if not name.startswith("simharness"):
        return []
    notes: list[str] = []
    several = name.endswith("MultiAgentFireHarness")
    ours = "operant.envs.wildfire.parallel:WildfireParallel" if several else "wildfire"
    notes.append(f"environment.env: {name} is {ours}")
    put(tree, "environment.env", ours)
    trained = _arguments(lookup(tree, "environment.env_config") or {}, notes, several)
    put(tree, "environment.env_config", trained)
    judged = lookup(tree, "evaluation.evaluation_config.env_config")
    if judged:
        held = _arguments(judged, [], several)
        put(
            tree,
            "evaluation.evaluation_config.env_config",
            {key: value for key, value in held.items() if value != trained.get(key)},
        )
    for part in ("train", "eval", "screen_size", "fire_initial_position"):
        take(tree, f"simulation.{part}")
    if not tree.get("simulation"):
        tree.pop("simulation", None)
    if several:
        agents = [f"agent_{number}" for number in range(int(trained.get("num_agents", 2)))]
        put(tree, "multi_agent", {"policies": agents, "policy_mapping_fn": {one: one for one in agents}})
        notes.append(f"multi_agent: a policy for each of {', '.join(agents)}")
    if library == "rllib":
        flat = {"_target_": "operant.harness.rllib.flat_observations", "_partial_": True, "multi_agent": several}
        put(tree, "rollouts.env_to_module_connector", flat)
    return notes


def _arguments(theirs: Mapping[str, Any], notes: list[str], several: bool) -> Tree:
    ours: Tree = {name: theirs[name] for name in _SAME if theirs.get(name) is not None}
    if several:
        ours.setdefault("num_agents", 2)
    simulation = lookup(theirs, "sim.config.config_dict") or theirs.get("simulation")
    if isinstance(simulation, Mapping) and simulation:
        ours["simulation"] = dict(simulation)
        notes += [f"SimFire's {note}" for note in from_simfire(simulation)[1]]
    for name in ("attributes", "normalized_attributes"):
        given = list(theirs.get(name) or [])
        ours[name] = [one for one in given if one in ATTRIBUTES]
        notes += [f"{name}: there is no {one!r}" for one in given if one not in ATTRIBUTES]
    if not ours["attributes"]:
        del ours["attributes"], ours["normalized_attributes"]
    reward = str(lookup(theirs, "reward_cls_partial._target_") or "").rpartition(".")[2]
    if reward:
        ours["reward"] = _REWARDS.get(reward, "area_saved")
        notes.append(f"reward_cls_partial: {reward} is reward: {ours['reward']}")
    if "MultiDiscrete" in str(theirs.get("action_space_cls", "")) and not several:
        ours["action_space"] = "multi_discrete"
    notes += [f"env_config.{name}: {why}" for name, why in _DROPPED.items() if theirs.get(name) is not None]
    return ours
