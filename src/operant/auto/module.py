"""The Lightning module: a training step is one `task.step()`, an epoch is so many episodes and then an evaluation."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule

from operant.auto.learners import Learner
from operant.auto.saving import KEY, ReplayKeeper, pack, unpack
from operant.framework import Standalone, Task
from operant.tracking import SummaryWriter
from operant.training.checkpoints import CheckpointError


class Passes:
    """What Lightning iterates over: passes without end. When an epoch is over is told by its episodes."""

    def __iter__(self) -> Iterator[int]:
        return itertools.count()

    # They are all the same, so an epoch may go on in its middle. Lightning asks whether that is so.
    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class PassCounter(torch.optim.Optimizer):
    """Optimizes nothing: the algorithm does. Lightning counts its `global_step` by optimizer steps, so one is made."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        return None

    def zero_grad(self, set_to_none: bool = True) -> None:
        return None


class TaskModule(LightningModule):
    """Drives a learner: passes by `task.step()`, the test environment after each epoch, all state in checkpoints."""

    def __init__(
        self,
        learner: Learner,
        writer: SummaryWriter,
        episode_per_epoch: int,
        max_episodes: int,
        router: Standalone | None = None,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.network = learner.network
        self.learner = learner
        self.writer = writer
        self.task = Task(router=router)
        for middleware in learner.middleware():
            self.task.use(middleware)
        self.episode_per_epoch = episode_per_epoch
        self.max_episodes = max_episodes
        self.rewards: list[float] = []
        self.evaluated: Any = None
        """Called with epoch, total reward and whether it is the best, after each epoch."""
        self._keeper = ReplayKeeper()
        self._passes = 0

    def zero_grad(self, set_to_none: bool = True) -> None:
        # Gradients are views into one vector, which the algorithm clears itself; dropping them would cut it off.
        return None

    def configure_optimizers(self) -> Any:
        # An algorithm without a network has its weights elsewhere; an optimizer wants a parameter all the same.
        parameters = [torch.zeros(1)] if self.network is None else self.network.parameters()
        return PassCounter(parameters)

    def train_dataloader(self) -> Any:
        return Passes()

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> int | None:
        self.learner.due = min(self.max_episodes, self.episode_per_epoch * (self.current_epoch + 1))
        # −1 ends the epoch. Each has at least one pass: many environments may end many episodes in one. Passes are
        # counted here: `batch_idx` begins anew where an epoch goes on in its middle.
        return -1 if self._passes and self.learner.episodes >= self.learner.due else None

    def training_step(self, batch: Any, batch_idx: int) -> None:
        self.task.step()
        self._passes += 1
        self.optimizers().step()  # type: ignore[union-attr]

    def on_train_epoch_end(self) -> None:
        learner = self.learner
        self._passes = 0
        reward, best = learner.end_epoch()
        self.rewards.append(reward)
        # Recorded by environment steps, like all else; Lightning gets it for its callbacks and its bar.
        self.writer.add_scalar("total_reward", reward, learner.env_step)
        self.writer.add_scalar("epoch", float(self.current_epoch), learner.env_step)
        self.log("total_reward", reward, prog_bar=True, logger=False, batch_size=1)
        self.log("training_reward", learner.training_reward, prog_bar=True, logger=False, batch_size=1)
        if learner.episodes >= self.max_episodes:
            self.trainer.should_stop = True
        if self.evaluated is not None:
            self.evaluated(self.current_epoch, reward, best)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        state = {**self.learner.state_dict(), "rewards": self.rewards, "passes": self._passes}
        checkpoint[KEY] = pack(self.learner.env_step, self.writer.run_id, state)
        if "replay" in state:
            places = [getattr(one, "dirpath", None) for one in self.trainer.checkpoint_callbacks]
            folders = [Path(str(place)) for place in places if place]
            self._keeper.prune(self.learner.replay_folder, state["replay"], folders)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        state = unpack(checkpoint, "the checkpoint")
        try:
            self.rewards = [float(one) for one in state.pop("rewards")]
            self._passes = int(state.pop("passes", 0))
            self.learner.load_state_dict(state)
        except KeyError as error:
            raise CheckpointError(f"the checkpoint lacks {error}, so a training cannot go on from it") from error
