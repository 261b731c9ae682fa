"""SimHarness's tree as its users have it: groups, values, interpolations and defects, written down in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

HARNESS = "simharness2.environments"
MAIN: dict[str, Any] = {
    "defaults": [
        {"simulation": "simfire"},
        {"training": "simfire"},
        *({group: "default"} for group in ("environment", "framework", "rollouts", "evaluation", "exploration")),
        {"resources": "default"},
        {"tunables": "none"},
        "_self_",
    ],
    "aim": {
        "run_hash": None,
        "repo": "${cli.data_dir}/simharness/aim",
        "experiment": "fires",
        "system_tracking_interval": None,
        "log_system_params": True,
        "capture_terminal_logs": True,
        "log_hydra_config": False,
    },
    "cli": {"mode": "???", "data_dir": "/nfs/somewhere"},
    "algo": {"name": "DQN", "checkpoint_path": None},
    "run": {"name": None, "storage_path": "${hydra:run.dir}", "log_to_file": True},
    "checkpoint": {"checkpoint_frequency": 20, "num_to_keep": None},
    "stop_conditions": {
        "training_iteration": 4,
        "timesteps_total": 2_000_000_000,
        "episodes_total": 1_000_000,
        "episode_reward_mean": 10_000_000,
    },
    "debugging": {
        "log_level": "INFO",
        "log_sys_usage": True,
        "seed": 2000,
        "logger_config": {
            "type": {"_target_": "hydra.utils.get_class", "path": "ray.tune.logger.TBXLogger"},
            "logdir": "${run.storage_path}",
        },
    },
}
SIMFIRE: dict[str, Any] = {
    "area": {"screen_size": "${simulation.screen_size}"},  # without pixel_scale
    "display": {"fire_size": 2, "control_line_size": 2, "agent_size": 4},
    "simulation": {"update_rate": 1, "runtime": "15h", "headless": True, "record": False, "sf_home": "~/.simfire"},
    "mitigation": {"ros_attenuation": True},
    "operational": {"seed": None, "latitude": 38.4, "longitude": -115.7, "height": 2000, "width": 2000, "year": 2019},
    "terrain": {"topography": {"type": "operational"}, "fuel": {"type": "operational"}},
    "fire": {
        "fire_initial_position": {"type": "static", "static": {"position": [6, 6]}},
        "max_fire_duration": 4,
        "diagonal_spread": True,
        "seed": "${simulation.fire_start_seed}",  # which nobody has
    },
    "environment": {"moisture": 0.001},
    "wind": {
        "function": "perlin",
        "perlin": {"speed": {"min": 7, "max": 47, "seed": 2345}, "direction": {"min": 0, "max": 360, "seed": 650}},
    },
}
ENV_CONFIG: dict[str, Any] = {
    "sim": {
        "_target_": "simfire.sim.simulation.FireSimulation",
        "config": {"_target_": "simfire.utils.config.Config", "config_dict": "${simulation.train}"},
    },
    "movements": ["up", "down", "left", "right"],
    "interactions": ["fireline"],
    "attributes": ["fire_map", "elevation", "w_0", "sigma", "delta", "M_x"],
    "normalized_attributes": ["elevation", "w_0"],
    "agent_speed": 4,
    "num_agents": 1,
    "agent_initialization_method": "automatic",
    "initial_agent_positions": None,
    "harness_analytics_partial": {"_target_": "simharness2.analytics.Reactive", "_partial_": True},
    "reward_cls_partial": {"_target_": "simharness2.rewards.base_reward.AreaSavedPropReward", "_partial_": True},
    "action_space_cls": {"_target_": "hydra.utils.get_class", "path": "gymnasium.spaces.Discrete"},
    "benchmark_sim": {"_target_": "simfire.sim.simulation.FireSimulation", "config": {}},
}
FILES: dict[str, dict[str, Any]] = {
    "config": MAIN,
    "marl_config": MAIN,
    "debug_marl": {
        "defaults": ["config", {"override environment": "marl"}, "_self_"],
        "rollouts": {"num_rollout_workers": 0},
    },
    "ccai_paper_config": {
        "defaults": ["config", "_self_"],
        "simulation": {"screen_size": 16},
        "rollouts": {"num_rollout_workers": 2},
        "training": {"gamma": 0.99, "lr": 0.0045, "train_batch_size": 64},
    },
    "environment/default": {
        "defaults": [{"env_config": "reactive"}, "_self_"],
        "env": f"{HARNESS}.ReactiveHarness",
        "env_task_fn": None,
        "render_env": False,
        "clip_rewards": None,
        "normalize_actions": True,
        "disable_env_checking": False,
        "is_atari": None,
    },
    "environment/marl": {
        "defaults": ["default", {"override env_config": "reactive_marl"}, "_self_"],
        "env": f"{HARNESS}.MultiAgentFireHarness",
    },
    "environment/env_config/reactive": ENV_CONFIG,
    "environment/env_config/reactive_marl": {**ENV_CONFIG, "num_agents": 3},
    "evaluation/default": {
        "defaults": [{"evaluation_config": "default"}, "_self_"],
        "evaluation_interval": 2,
        "evaluation_duration": 1,
        "evaluation_duration_unit": "episodes",
        "evaluation_num_workers": 1,
        "enable_async_evaluation": False,
    },
    "evaluation/evaluation_config/default": {"env_config": "${environment.env_config}", "explore": False},
    "exploration/default": {"defaults": [{"exploration_config": "epsilon_greedy"}, "_self_"], "explore": True},
    "exploration/exploration_config/epsilon_greedy": {
        "type": "EpsilonGreedy",
        "initial_epsilon": 1.0,
        "final_epsilon": 0.05,
        "warmup_timesteps": 1_000_000,
        "epsilon_timesteps": 10_000_000,
    },
    "framework/default": {"framework": "torch", "eager_tracing": False},
    "resources/default": {
        "num_gpus": 0.4,
        "num_cpus_per_worker": 1,
        "num_gpus_per_worker": 0,
        "num_cpus_for_local_worker": 1,
        "placement_strategy": "PACK",
    },
    "rollouts/default": {
        "num_rollout_workers": 8,
        "num_envs_per_worker": 1,
        "rollout_fragment_length": "auto",
        "batch_mode": "truncate_episodes",
        "validate_workers_after_construction": True,
        "ignore_worker_failures": False,
        "recreate_failed_workers": False,
        "restart_failed_sub_environments": False,
        "compress_observations": False,
    },
    "training/simfire": {
        "model": {"conv_filters": [[16, [8, 8], 4], [32, [4, 4], 2]], "post_fcnet_hiddens": [256]},
        "train_batch_size": 1000,
    },
    "tunables/none": {},
    "simulation/simfire": {"screen_size": 32, "train": SIMFIRE, "eval": SIMFIRE},
}


def write_simharness(folder: Path) -> Path:
    """Write the tree to a folder; returns it."""
    for name, values in FILES.items():
        file = folder / f"{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")
    return folder
