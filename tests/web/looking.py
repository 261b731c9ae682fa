"""What the tests of the page's runs and compares share: a folder with recorded runs, and looks at the page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.web import recorded
from tests.web.browser import StartUi


@dataclass
class Place:
    address: str
    root: Path
    agents: list[str]
    everything: str
    many_tags: str
    changed: str
    jobs: list[str]

    def compare(self, **values: str) -> str:
        rest = "".join(f"&{name}={value}" for name, value in values.items())
        return f"{self.address}/compare?runs={','.join(self.agents)}{rest}"

    def run(self, run_id: str, tab: str) -> str:
        return f"{self.address}/run?id={run_id}&tab={tab}"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, ui: StartUi) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("page")
    root = folder / ".operant"
    root.mkdir()
    made = {
        "agents": recorded.record_runs(root),
        "everything": recorded.record_everything(root, folder),
        "many_tags": recorded.record_many_tags(root),
        "changed": recorded.record_with_changes(root, folder),
        "jobs": recorded.run_search(root, folder, "grid"),
    }
    with ui(root) as address:
        yield Place(address, root, **made)


def state(page: Any) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).query).items()}


def wait_for_state(page: Any, name: str, wanted: str | None) -> None:
    page.wait_for_function(
        "([name, wanted]) => new URLSearchParams(location.search).get(name) === wanted", arg=[name, wanted]
    )


def wait_for_focus(page: Any, name: str) -> None:
    """Until a row that says this has the focus (the whole page says it, too)."""
    page.wait_for_function("name => document.activeElement.closest('tr.data')?.textContent.includes(name)", arg=name)


def names(page: Any) -> list[str]:
    page.wait_for_selector("tr.data td a")
    return page.locator("tr.data td[data-column=name]").all_inner_texts()  # type: ignore[no-any-return]


def chart(page: Any, tag: str) -> Any:
    found = page.locator(f'[data-tag="{tag}"] .chart')
    found.wait_for()
    return found


def fact(page: Any, tag: str, name: str) -> float:
    return float(chart(page, tag).get_attribute(f"data-{name}"))


def wait_for_lines(page: Any, tag: str, count: int) -> None:
    page.wait_for_selector(f'[data-tag="{tag}"] .chart[data-lines="{count}"]')


def expect_no_overflow(page: Any) -> None:
    wide, room = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert wide <= room, f"the page is {wide} px wide in a window of {room} px"
