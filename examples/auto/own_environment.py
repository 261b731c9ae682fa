"""Training on an environment of one's own: `corridor.py` beside this file is found by its import path."""

import sys
from pathlib import Path

from operant.auto import generate_algorithm_config, generate_env_config, generate_training_config, launch

sys.path.insert(0, str(Path(__file__).parent))


def main(algorithm: str = "DQN") -> float:
    settings = {"learning_rate": 1e-3, "update_rate": 0.01, "update_steps": None, "epsilon_decay": 0.998}
    if algorithm != "DQN":
        settings = {"actor_learning_rate": 3e-3, "critic_learning_rate": 3e-3, "rollout": 128}
    config = generate_algorithm_config(algorithm, {"frame_config": settings})
    config = generate_env_config("corridor", config)
    config = generate_training_config("corridor-trial", 20, 400, config, early_stopping_patience=None)
    config["stop_reward"] = 0.8  # three steps that cost, and the prize: 0.85
    result = launch(config, say=print)
    print(f"best total reward {result.best_reward:.2f} after {result.episodes} episodes")
    return result.best_reward


if __name__ == "__main__":
    main(*sys.argv[1:])
