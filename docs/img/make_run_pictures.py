"""Make the pictures of runs and compares: `PYTHONPATH=src:. python docs/img/make_run_pictures.py`.

Records a few runs with the real recorder, opens the real page on them, and takes each picture in light and dark.
"""

from __future__ import annotations

import math
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import sync_playwright
from tests.web.browser import ARGUMENTS, run_ui

from operant.tracking import SummaryWriter

HERE = Path(__file__).parent
POINTS = 3000


def record(root: Path, number: int, rng: np.random.Generator) -> str:
    """One run that looks like a small agent learning to balance a pole."""
    rate = (3e-4, 1e-3, 3e-3)[number % 3]
    batch = (32, 64)[number % 2]
    began = time.time()
    tags = ["baseline"] if number % 4 == 0 else []
    with SummaryWriter(f"cartpole-{number:02d}", root=root, tags=tags, system_metrics=False) as writer:
        writer.add_hparams({"lr": rate, "batch": batch, "gamma": 0.99, "seed": number, "env": "CartPole-v1"})
        for index in range(POINTS):
            step, part, wall = index * 10, index / POINTS, began + index * 0.2
            grown = 1 - math.exp(-5 * part * math.sqrt(rate / 1e-3))
            writer.add_scalar("eval/return", min(500.0, 20 + 470 * grown + rng.normal() * 18), step, wall)
            if index % 10:
                continue
            writer.add_scalar("eval/length", 15 + 400 * grown + rng.normal() * 9, step, wall)
            writer.add_scalar(
                "train/loss", 2.5 * math.exp(-5 * part) * (1 + 0.3 * rng.normal()) ** 2 + 0.01, step, wall
            )
            writer.add_scalar("train/entropy", 0.69 * math.exp(-2 * part) + 0.01 * rng.normal(), step, wall)
            writer.add_scalar("train/grad_norm", abs(rng.normal()) * (1.2 - part) + 0.2, step, wall)
            writer.add_scalar("train/steps_per_second", 5200 + 300 * rng.normal(), step, wall)
            for name, mean in (
                ("collect", 3.1),
                ("learn", 6.4),
                ("evaluate", 0.7),
                ("checkpoint", 0.15),
                ("step", 10.4),
            ):
                writer.add_scalar(f"time/{name}", mean * (1 + 0.05 * rng.normal()), step, wall)
        for step in range(0, 30_000, 6_000):
            writer.add_image("view/state", picture(step), step)
        writer.add_video("episode", film(), 29_990, fps=12)
        writer.add_text("notes", "The target network is copied every 500 steps.", 0)
    return writer.run_id


def picture(step: int) -> Any:
    across, down = np.meshgrid(np.linspace(0, 1, 96), np.linspace(0, 1, 64))
    waves = 0.5 + 0.5 * np.sin(6 * across + step / 4000) * np.cos(5 * down)
    return (np.stack([waves * 90, 80 + waves * 110, 140 + waves * 100])).astype(np.uint8)


def film() -> Any:
    """A cart that keeps its pole up."""
    frames = np.full((24, 64, 96, 3), 245, np.uint8)
    for at in range(24):
        x = int(48 + 14 * math.sin(at / 24 * 2 * math.pi))
        frames[at, 50:52, :] = (170, 176, 186)
        frames[at, 42:50, x - 9 : x + 9] = (0, 114, 178)
        lean = math.cos(at / 24 * 2 * math.pi) * 0.25
        for height in range(30):
            column = int(x + lean * height)
            frames[at, 42 - height, column - 1 : column + 2] = (230, 159, 0)
    return frames


def take(address: str, ids: list[str]) -> None:
    some = ",".join(ids[:6])
    everything = ",".join(ids)
    chromium = shutil.which("chromium")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        for scheme in ("light", "dark"):
            context = browser.new_context(viewport={"width": 1280, "height": 800}, color_scheme=scheme)
            page = context.new_page()
            page.goto(f"{address}/runs")
            page.wait_for_selector("tr.data")
            page.screenshot(path=HERE / f"runs-{scheme}.png")
            page.goto(f"{address}/compare?runs={some}&smooth=0.8")
            page.wait_for_selector('[data-tag="train/loss"][data-ready]')
            page.locator('[data-tag="eval/return"] .u-over').hover(position={"x": 150, "y": 50})
            page.screenshot(path=HERE / f"compare-{scheme}.png")
            page.goto(f"{address}/compare?runs={everything}&group=lr")
            page.wait_for_selector('[data-tag="train/loss"][data-ready]')
            page.screenshot(path=HERE / f"compare-groups-{scheme}.png")
            page.goto(f"{address}/run?id={ids[0]}&tab=media")
            page.wait_for_function(
                "() => [...document.images].length > 1 && [...document.images].every((one) => one.complete)"
            )
            page.screenshot(path=HERE / f"run-media-{scheme}.png")
            page.set_viewport_size({"width": 390, "height": 800})
            page.goto(f"{address}/compare?runs={some}&smooth=0.8")
            page.wait_for_selector('[data-tag="eval/return"] .chart[data-lines="6"]')
            page.locator('[data-tag="eval/return"]').scroll_into_view_if_needed()
            page.screenshot(path=HERE / f"compare-narrow-{scheme}.png")
            context.close()
        browser.close()


def main() -> None:
    if shutil.which("chromium") is None:
        sys.exit("the package `chromium` is not installed")
    rng = np.random.default_rng(7)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "cartpole" / ".operant"
        root.mkdir(parents=True)
        ids = [record(root, number, rng) for number in range(12)]
        with run_ui(root) as address:
            take(address, ids)


if __name__ == "__main__":
    main()
