"""Environments as datasets of episodes: the base that an environment extension builds on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch.utils.data import IterableDataset

Log = Any
"""A number, or a pair of a value and what logs it: ``(value, function(module, name, value))``."""


class DatasetResult:
    """One episode: its transitions, and what is to be logged of it."""

    def __init__(
        self, observations: list[dict[str, Any]] | None = None, logs: list[Mapping[str, Log]] | None = None
    ) -> None:
        self.observations: list[dict[str, Any]] = observations or []
        self.logs: list[Mapping[str, Log]] = logs or []

    def add_observation(self, observation: dict[str, Any]) -> None:
        """Add a transition: a dict with ``state``, ``action``, ``next_state`` (dicts of arrays or tensors), ``reward``,
        ``terminal``, and maybe ``truncated`` (the episode was cut off, but its end was not the task's)."""
        self.observations.append(observation)

    def add_log(self, log: Mapping[str, Log]) -> None:
        """Add values to log; a function beside a value says how: ``{"film": (frames, my_logger)}``."""
        self.logs.append(log)

    @property
    def total_reward(self) -> float:
        """The sum of the rewards."""
        return float(sum(float(one["reward"]) for one in self.observations))

    def __len__(self) -> int:
        return len(self.observations)


class RLDataset(IterableDataset[DatasetResult]):
    """Episodes of an environment, played with a frame: each `next` plays one and returns a `DatasetResult`.

    A subclass sets ``observation_space`` and ``action_space`` (Gymnasium's) before the first episode is asked for: the
    frame is made from them. With ``state_dict`` and ``load_state_dict`` as well, a resumed training is exact.
    """

    observation_space: Any = None
    action_space: Any = None
    viewed_in: Mapping[str, Any] | None = None
    """The environment in which `operant view` plays the policy, as `operant train` names it: ``{"id": …}`` with
    Gymnasium's id or `package.module:callable`, maybe with ``arguments`` and ``wrappers``. None: it plays in none."""

    def __iter__(self) -> Iterator[DatasetResult]:
        return self

    def __next__(self) -> DatasetResult:
        raise NotImplementedError(f"{type(self).__name__} does not say how to play an episode: define __next__")

    def close(self) -> None:
        """Release what the environment holds."""


Creator = Callable[[Any, Mapping[str, Any]], RLDataset]
"""Makes a dataset: called with the frame and `train_env_config` or `test_env_config`."""
