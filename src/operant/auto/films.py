"""Episodes as moving pictures, every so many episodes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from operant.envs import make_env
from operant.tracking import SummaryWriter
from operant.training.evaluating import Player
from operant.training.playback import write_gif

_FRAMES = 250
_SIDE = 320


class Films:
    """Plays an episode of its own and keeps it, whenever `every` more episodes have ended.

    The episode has random numbers of its own, so a training with films equals one without.
    """

    def __init__(
        self,
        tag: str,
        every: int | None,
        make: Callable[..., Any],
        folder: Path,
        writer: SummaryWriter,
        seed: int,
        say: Callable[[str], None],
        *,
        explore: bool,
    ) -> None:
        self.tag = tag
        self.seen = 0
        self._every = every
        self._make = make
        self._folder = folder
        self._writer = writer
        self._seed = seed
        self._say = say
        self._explore = explore

    def after(self, episodes: int, step: int, algorithm: Any, normalizer: Any = None) -> None:
        """So many episodes have ended in all."""
        before, self.seen = self.seen, episodes
        if not self._every or episodes // self._every == before // self._every:
            return
        try:
            frames = self._play(episodes, algorithm, normalizer)
            keep_film(self.tag, frames, episodes, step, self._folder, self._writer)
        except Exception as error:  # drawing depends on displays and packages; a training does not
            self._every = None
            self._say(f"{self.tag} cannot be drawn, so there will be no films of it: {type(error).__name__}: {error}")

    def _play(self, number: int, algorithm: Any, normalizer: Any) -> list[Any]:
        env = self._make()
        try:
            rng = np.random.default_rng([self._seed, 9, number]) if self._explore else None
            player = Player(algorithm, env, normalizer, rng)
            obs, frames = env.reset(self._seed + number), []
            while True:
                frames.append(env.render_frame())
                step = player.step(obs)
                obs = step.obs
                if bool(step.done[0]) or len(frames) >= 8 * _FRAMES:
                    return frames
        finally:
            env.close()


def keep_film(tag: str, frames: list[Any], episode: int, step: int, folder: Path, writer: SummaryWriter) -> Path:
    """Write a film as GIF into the folder and into the run."""
    path = folder / f"{tag}-{episode:06d}.gif"
    write_gif(shorten(frames), path)
    writer.add_video(tag, path, step)
    return path


def shorten(frames: list[Any]) -> list[Any]:
    """Few enough and small enough frames for a file that a page shows at once."""
    stride = -(-len(frames) // _FRAMES)
    size = max(1, -(-max(np.asarray(frames[0]).shape[:2]) // _SIDE))
    return [np.ascontiguousarray(frame[::size, ::size]) for frame in frames[::stride]]


def film_env(env_id: Any, wrappers: list[Any], arguments: dict[str, Any]) -> Callable[[], Any]:
    """What makes one environment that can be drawn."""
    return lambda: make_env(env_id, 1, wrappers=wrappers, **drawable(env_id, arguments))


def drawable(env_id: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments of an environment that is to be drawn; makers other than Gymnasium's see to it themselves."""
    return {**arguments, "render_mode": "rgb_array"} if isinstance(env_id, str) and ":" not in env_id else arguments
