"""Aim's page for `page.py`.

Its metrics explorer shows nothing until a metric is chosen and a search is made, and keeps both in its address. So they
are made once, without the clock, and what is measured is the opening of that address: one metric, drawn on one chart.
Its other charts, its zoom and its filter work in ways too different to be put into the same line of a table.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from _page_browser import Watch
from _page_data import tag_name
from _page_tools import RUNS_COMPARED, Times, free_port, serving


class Aim:
    chart = ".LineChart"

    def __init__(self, python: Path, folder: Path) -> None:
        self.python, self.folder = python, folder

    @contextmanager
    def serve(self) -> Iterator[str]:
        port = free_port()
        command = [str(self.python.parent / "aim"), "up", "--repo", str(self.folder), "--port", str(port), "--yes"]
        with serving(command, port, "/", self.folder, {"HOME": str(self.folder)}) as address:
            yield address

    def use(self, address: str, browser: Any, runs: int) -> Times:
        found: Times = {}
        everything = self._searched(address, browser, "")
        found["open: first chart"] = self._opened(browser, everything)
        some = self._searched(address, browser, f"run.hparams.seed < {RUNS_COMPARED}")
        found["compare 50 runs"] = self._opened(browser, some)
        watch = Watch(browser)
        watch.start()
        watch.page.goto(f"{address}/runs", wait_until="commit")
        found["open: list of runs"] = watch.until_shown(
            "() => [...document.querySelectorAll('a')].filter(one => one.pathname.startsWith('/runs/')).length > 3"
        )
        watch.close()
        return found

    def _searched(self, address: str, browser: Any, condition: str) -> str:
        """The address of the explorer after a search for one metric of the runs that fit."""
        watch = Watch(browser)
        page = watch.page
        page.goto(f"{address}/metrics")
        page.locator("button:has-text('Metrics')").click()
        page.get_by_text(tag_name(0), exact=True).last.click()
        page.keyboard.press("Escape")
        if condition:
            page.locator(".view-lines").first.click(force=True)  # its placeholder lies above it
            page.keyboard.type(condition)
        page.locator("button:has-text('Search')").click()
        watch.start()
        watch.until_drawn(self.chart)
        reached = str(page.url)
        watch.close()
        return reached

    def _opened(self, browser: Any, address: str) -> float:
        watch = Watch(browser)
        watch.start()
        watch.page.goto(address, wait_until="commit")
        seconds = watch.until_drawn(self.chart)
        watch.close()
        return seconds
