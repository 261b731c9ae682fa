"""An environment extension, as a user writes one: a dataset of episodes, its creator, a config, a launch.

    operant auto generate --algo DQN --env corridor --output corridor.json
    operant auto launch --config corridor.json

The agent stands in the middle of a corridor and sees a sign: at the end that it points to is a prize, at the other one
a fine; every step costs a little.
"""

import numpy as np
from gymnasium import spaces

from operant.auto import DatasetResult, RLDataset, launch_dataset


class CorridorDataset(RLDataset):
    """Each item is one episode, played with the frame."""

    def __init__(self, frame, length: int = 4, max_steps: int = 30) -> None:
        self.frame = frame
        self.length = length  # from the middle to each end
        self.max_steps = max_steps
        self.played = 0
        self.observation_space = spaces.Box(-1.0, 1.0, (2,))
        self.action_space = spaces.Discrete(2)

    def __next__(self) -> DatasetResult:
        result = DatasetResult()
        sign = 1 if self.played % 2 else -1
        self.played += 1
        place = 0
        for step in range(self.max_steps):
            state = {"state": self._seen(place, sign)}
            action = self._act(state)
            place += 1 if action == 1 else -1
            arrived = abs(place) >= self.length
            prize = 1.0 if place * sign > 0 else -1.0
            result.add_observation(
                {
                    "state": state,
                    "action": {"action": action},
                    "next_state": {"state": self._seen(place, sign)},
                    "reward": prize if arrived else -0.05,
                    "terminal": arrived,
                    "truncated": not arrived and step == self.max_steps - 1,
                }
            )
            if arrived:
                break
        result.add_log({"corridor/steps": len(result)})
        return result

    def _seen(self, place: int, sign: int) -> np.ndarray:
        return np.array([[place / self.length, sign]], np.float32)

    def _act(self, state) -> int:
        if self.frame.sampled:
            return int(self.frame.act(state)[0])
        return int(self.frame.act_discrete_with_noise(state))

    # What lasts from one episode to the next; with it a resumed training is exact.
    def state_dict(self) -> dict:
        return {"played": self.played}

    def load_state_dict(self, state: dict) -> None:
        self.played = state["played"]


def corridor_dataset_creator(frame, env_config) -> CorridorDataset:
    return CorridorDataset(frame, **env_config)


def generate_env_config(config=None) -> dict:
    config = dict(config or {})
    usual = {"length": 4, "max_steps": 30}
    return {
        **config,
        "env": "corridor",
        "train_env_config": {**usual, **config.get("train_env_config", {})},
        "test_env_config": {**usual, **config.get("test_env_config", {})},
    }


def launch(config, callbacks=None):
    return launch_dataset(config, corridor_dataset_creator, callbacks, test_episodes=4)
