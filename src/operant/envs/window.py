"""A window that shows frames of an environment as they come."""

from __future__ import annotations

import importlib
from typing import Any

import gymnasium
import numpy as np

from operant.envs.vector import Array


class Window:
    """Opened by the first frame. Where it cannot be, Gymnasium's ``DependencyNotInstalled`` says why."""

    def __init__(self, title: str, *, fps: float = 10.0) -> None:
        try:
            self._pygame: Any = importlib.import_module("pygame")
        except ImportError:
            raise gymnasium.error.DependencyNotInstalled("pygame; pip install pygame") from None
        self._title, self._fps = title, fps
        self._screen: Any = None

    def show(self, frame: Array) -> None:
        """Draw [height, width, 3] uint8 and wait as long as a frame stands; closing the window is as Ctrl-C."""
        pygame = self._pygame
        size = (frame.shape[1], frame.shape[0])
        if self._screen is None:
            try:
                pygame.display.init()
                self._screen, self._clock = pygame.display.set_mode(size), pygame.time.Clock()
            except pygame.error as error:
                raise gymnasium.error.DependencyNotInstalled(f"a screen ({error})") from None
            pygame.display.set_caption(self._title)
        if any(event.type == pygame.QUIT for event in pygame.event.get()):
            self.close()
            raise KeyboardInterrupt
        surface = pygame.surfarray.make_surface(np.ascontiguousarray(frame.swapaxes(0, 1)))
        self._screen.blit(surface, (0, 0))
        pygame.display.flip()
        self._clock.tick(self._fps)

    def close(self) -> None:
        if self._screen is not None:
            self._pygame.display.quit()
            self._screen = None
