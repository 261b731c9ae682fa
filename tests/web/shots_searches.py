"""Makes the pictures of searches in docs/img: ``python -m tests.web.shots_searches`` from the repository's folder."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from tests.web.browser import ARGUMENTS, run_ui
from tests.web.searching import FIRST_GATE, start_search, wait_for

IMAGES = Path(__file__).parents[2] / "docs" / "img"
BRUSHES = "focus=1&brush=lr:0.0005~0.02;activation:%22relu|%22gelu"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "mnist"
        with start_search(home, "digits-coarse") as coarse:
            coarse.open_gate("first")
            coarse.open_gate("second")
            coarse.wait_until_it_ends()
        with start_search(home, "digits", every=1) as running:
            wait_for((running.folder / "journal.log").exists, "the search to begin")
            running.wait_until_it_stands(FIRST_GATE)
            with run_ui(running.root) as address:
                photograph(address)


def photograph(address: str) -> None:
    from playwright.sync_api import sync_playwright

    IMAGES.mkdir(exist_ok=True)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        for theme in ("light", "dark"):
            context = browser.new_context(
                viewport={"width": 1280, "height": 1000}, color_scheme=theme, reduced_motion="reduce"
            )
            page = context.new_page()
            page.goto(f"{address}/searches")
            page.wait_for_selector("tr.data")
            keep(page, f"searches-{theme}", clip={"x": 0, "y": 0, "width": 1280, "height": 300})
            page.goto(f"{address}/searches/digits?{BRUSHES}")
            show(page, {"jobs": ".spark", "parallel": "[data-selected]", "history": "[data-points]"})
            page.evaluate("scrollTo(0, 0)")
            keep(page, f"search-{theme}")
            page.goto(f"{address}/searches/digits?fold=slices")
            show(page, {"contour": "[data-points]", "timeline": "[data-points]", "importance": ".bars"})
            page.evaluate("scrollTo(0, document.querySelector('[data-card=intermediate]').offsetTop - 60)")
            keep(page, f"search-analysis-{theme}")
            context.close()
        browser.close()


def show(page: Any, parts: dict[str, str]) -> None:
    """Bring cards into view, one after the other, and wait for what must be drawn in each."""
    for card, part in parts.items():
        page.locator(f'[data-card="{card}"]').scroll_into_view_if_needed()
        page.wait_for_selector(f'[data-card="{card}"] {part}')


def keep(page: Any, name: str, **options: Any) -> None:
    """A picture of 256 colours: a quarter of the bytes, and nobody sees the difference."""
    from PIL import Image

    page.wait_for_timeout(1000)
    path = IMAGES / f"{name}.png"
    page.screenshot(path=path, **options)
    with Image.open(path) as picture:
        picture.convert("RGB").quantize(256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(
            path, optimize=True
        )


if __name__ == "__main__":
    main()
