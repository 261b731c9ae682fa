"""One browser, several pages, one stopwatch: what `page.py` measures with. Times end when the picture is there.

A page can say "loaded" long before anything is drawn, and some draw in a worker that no script can look into. So the
picture itself is looked at: small screenshots of the first chart, for every tool alike. Something is *drawn* when the
chart shows enough coloured pixels, and *settled* at the last change before it stays the same for a while.
"""

from __future__ import annotations

import io
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
VIEWPORT = {"width": 1280, "height": 860}
LIMIT = 180.0
QUIET_SECONDS = 0.6
INK = 300  # coloured pixels of a chart: more than its axes, marks and chips have together


@contextmanager
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        try:
            yield started
        finally:
            started.close()


class Watch:
    """A page and the clock that started with the last action."""

    def __init__(self, opened: Any) -> None:
        self.page = opened.new_context(viewport=VIEWPORT, color_scheme="light").new_page()
        self.page.set_default_timeout(LIMIT * 1000)
        self._began = 0.0

    def close(self) -> None:
        self.page.context.close()

    def start(self) -> None:
        self._began = time.perf_counter()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._began

    def until_shown(self, function: str, argument: Any = None) -> float:
        """Until a function of the page says true, looked at with every frame it draws."""
        self.page.wait_for_function(function, arg=argument, polling="raf")
        return self.seconds

    def until_drawn(self, chart: str, ink: int = INK) -> float:
        """Until the first element that fits has enough colour in it."""
        self.page.wait_for_selector(chart, state="attached")
        while self.seconds < LIMIT:
            box = self.page.locator(chart).first.bounding_box()
            if box is not None and box["width"] > 40 and box["height"] > 40:
                seen = self.seconds  # what a screenshot shows was there before it was taken
                if coloured(self._shot(box)) >= ink:
                    return seen
        raise TimeoutError(f"nothing was drawn in {chart} within {LIMIT:.0f} s")

    def until_settled(self, chart: str, act: Callable[[], None]) -> float:
        """Do something; until the element stops changing. What never changed took no time at all."""
        box = self.page.locator(chart).first.bounding_box()
        assert box is not None
        shown = self._shot(box)
        self.start()
        act()
        changed: float | None = None
        quiet_since = self.seconds
        while self.seconds < LIMIT:
            at = self.seconds
            now = self._shot(box)
            if now != shown:
                shown, changed, quiet_since = now, at, self.seconds
            elif changed is not None and self.seconds - quiet_since > QUIET_SECONDS:
                return changed
            elif changed is None and at > 60:
                raise TimeoutError(f"{chart} did not change within 60 s")
        raise TimeoutError(f"{chart} did not settle within {LIMIT:.0f} s")

    def settle(self, chart: str) -> None:
        """Wait until the element stays as it is, so that what follows starts from rest."""
        box = self.page.locator(chart).first.bounding_box()
        assert box is not None
        shown, since = self._shot(box), time.perf_counter()
        while time.perf_counter() - since < 2 * QUIET_SECONDS:
            now = self._shot(box)
            if now != shown:
                shown, since = now, time.perf_counter()

    def drag(self, chart: str) -> None:
        """Over the middle third of a chart, aslant: some zoom into a range of steps, some into a box."""
        box = self.page.locator(chart).first.bounding_box()
        assert box is not None
        mouse = self.page.mouse
        mouse.move(box["x"] + box["width"] * 0.4, box["y"] + box["height"] * 0.2)
        mouse.down()
        mouse.move(box["x"] + box["width"] * 0.7, box["y"] + box["height"] * 0.7, steps=3)
        mouse.up()
        mouse.move(5, 5)  # a tooltip that follows the pointer is no part of the picture

    def _shot(self, box: dict[str, float]) -> Any:
        clip = {"x": box["x"], "y": box["y"], "width": box["width"], "height": min(box["height"], 860 - box["y"])}
        return pixels(self.page.screenshot(clip=clip, animations="allow"))


def pixels(png: bytes) -> Any:
    from PIL import Image

    return Image.open(io.BytesIO(png)).convert("RGB")


def coloured(image: Any) -> int:
    """How many pixels are neither grey nor nearly so."""
    import numpy as np

    table = np.asarray(image, np.int16)
    return int(((table.max(axis=2) - table.min(axis=2)) > 40).sum())
