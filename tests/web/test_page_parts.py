"""The page's own library, part by part, in the browser that runs it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.web.browser import StartUi

ROWS = 20_000


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory, ui: StartUi) -> Iterator[str]:
    root: Path = tmp_path_factory.mktemp("parts") / ".operant"
    root.mkdir()
    with ui(root) as found:
        yield found


@pytest.fixture
def parts(page: Any, address: str) -> Any:
    page.goto(f"{address}/runs")
    page.wait_for_selector("text=No runs yet")
    return page


VALUES = {
    "number(0.123456)": "0.1235",
    "number(12345678)": "1.235e7",
    "number(-0.00001)": "−1e−5",
    "number(5)": "5",
    "number(null)": "–",
    "number(NaN)": "NaN",
    "number('-Infinity')": "−∞",
    "duration(0.0064)": "6.4 ms",
    "duration(59.4)": "59 s",
    "duration(245)": "4m 05s",
    "duration(11220)": "3h 07m",
    "duration(187200)": "2d 4h",
    "duration(null)": "–",
    "percent(0.031)": "3.1 %",
    "bytes(1536)": "1.5 KiB",
    "ago(1000, 1065)": "1m ago",
    "runName({id: 'grid/3', name: 'job'})": "grid/3",
    "setting({a: [1]})": '{"a":[1]}',
}


def test_values_as_people_read_them(parts: Any) -> None:
    calls = ", ".join(f"all.{call}" for call in VALUES)
    shown = parts.evaluate(f'async () => {{ const all = await import("/static/lib/format.js"); return [{calls}]; }}')
    assert dict(zip(VALUES, shown, strict=True)) == VALUES


def test_only_rows_in_view_are_in_the_document(parts: Any) -> None:
    parts.evaluate(
        """async (count) => {
            const { Table } = await import("/static/lib/table.js");
            const holder = document.createElement("div");
            document.querySelector("main").replaceChildren(holder);
            const value = (row) => row.n;
            const text = (row) => row.t;
            const columns = [{ key: "n", title: "n", value, num: true }, { key: "t", title: "t", value: text }];
            const rows = Array.from({ length: count }, (_, n) => ({ n, t: `row ${n}` }));
            Table(holder, { columns, rows, key: (row) => String(row.n), label: "Numbers" });
        }""",
        ROWS,
    )
    assert parts.locator("tr.data").count() < 80
    table = parts.get_by_role("grid", name="Numbers")
    assert table.get_attribute("aria-rowcount") == str(ROWS + 1)
    parts.locator("th[data-column=n] button").click()
    assert parts.locator("tr.data").first.inner_text().split() == [str(ROWS - 1), "row", str(ROWS - 1)]
    parts.locator("tr.data").first.focus()
    parts.keyboard.press("End")
    assert parts.evaluate("document.activeElement.textContent") == "0row 0"
    assert parts.locator("tr.data").count() < 80
    heights = parts.locator("tr.data").evaluate_all("rows => [...new Set(rows.map((one) => one.offsetHeight))]")
    assert heights == [34], "rows of one height are what lets them be left out"


def test_links_lead_to_this_server_or_nowhere(parts: Any) -> None:
    links = parts.evaluate(
        """async () => {
            const { h } = await import("/static/lib/dom.js");
            const given = ["/runs", "#main", "javascript:alert(1)", "//elsewhere.example", "data:text/html,x"];
            return given.map((href) => h("a", { href }, "x").getAttribute("href"));
        }"""
    )
    assert links == ["/runs", "#main", None, None, None]


def test_lists_in_the_address_may_hold_commas(parts: Any) -> None:
    found = parts.evaluate(
        """async () => {
            const { state } = await import("/static/lib/state.js");
            let told = 0;
            state.subscribe(() => { told += 1; });
            state.set({ list: ["a,b", "50%2C", "c/d"], gone: null });
            state.set({ list: ["a,b", "50%2C", "c/d"] });
            return [state.list("list"), location.search, told];
        }"""
    )
    assert found[0] == ["a,b", "50%2C", "c/d"] and found[2] == 1
    assert found[1].endswith("c/d")


def test_log_axes_have_ticks_in_every_range(parts: Any) -> None:
    ticks = parts.evaluate(
        """async () => {
            const { logTicks } = await import("/static/charts/paint.js");
            return [[1e-6, 1e3], [0.02, 7], [4500, 6100]].map(([low, high]) => logTicks(low, high));
        }"""
    )
    wide, middle, narrow = ticks
    assert wide[0] == pytest.approx(1e-6) and wide[-1] <= 1e3 and 3 <= len(wide) <= 10
    assert middle == pytest.approx([0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5])
    assert narrow == [4500, 5000, 5500, 6000]


def test_sorting_puts_what_is_absent_last(parts: Any) -> None:
    found = parts.evaluate(
        """async () => {
            const { compareValues } = await import("/static/lib/table.js");
            const values = [3, null, 20, NaN, 1];
            const sorted = (desc) => [...values].sort((a, b) => compareValues(a, b, desc)).slice(0, 3);
            return [sorted(false), sorted(true), ["job10", "job9"].sort((a, b) => compareValues(a, b, false))];
        }"""
    )
    assert found == [[1, 3, 20], [20, 3, 1], ["job9", "job10"]]
