"""Compares of runs, in a real browser on runs that the real recorder wrote."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.web import recorded
from tests.web.browser import StartUi
from tests.web.looking import Place, chart, fact, state, wait_for_lines, wait_for_state

from operant.tracking import Run

SCRIPT = recorded.SCRIPT


def test_charts_show_the_recorded_values(page: Any, place: Place) -> None:
    page.goto(place.compare())
    wait_for_lines(page, "eval/return", 6)
    label = chart(page, "eval/return").get_attribute("aria-label")
    latest = Run.open(place.agents[0], place.root).chart("eval/return", 500).mean[-1]
    said = re.search(r"agent-0 ends at ([0-9.]+)", label)
    assert said and float(said[1]) == pytest.approx(latest, rel=1e-3)
    # A bucket stands at its last step; there are 500 of eight steps each.
    assert (fact(page, "eval/return", "from"), fact(page, "eval/return", "to")) == (7, recorded.POINTS - 1)
    page.get_by_role("radio", name="Relative").click()
    wait_for_state(page, "x", "relative")
    page.wait_for_function("() => Number(document.querySelector('[data-tag=\"eval/return\"] .chart').dataset.to) < 600")


def test_a_dragged_range_is_fetched_finer_and_a_double_click_leaves_it(page: Any, place: Place) -> None:
    page.goto(place.compare(smooth="0.6"))
    wait_for_lines(page, "eval/return", 6)
    whole = fact(page, "eval/return", "points")
    box = page.locator('[data-tag="eval/return"] .u-over').bounding_box()
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.25, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.29, y, steps=4)
    with page.expect_request("**/api/charts") as asked:
        page.mouse.up()
    request = asked.value.post_data_json
    assert request["start"] == pytest.approx(0.25 * recorded.POINTS, abs=60)
    assert request["end"] == pytest.approx(0.29 * recorded.POINTS, abs=60)
    low, high = (float(part) for part in state(page)["zoom"].split(","))
    page.wait_for_function(
        "zoom => Number(document.querySelector('[data-tag=\"eval/return\"] .chart').dataset.from) === zoom", arg=low
    )
    # Every step has a point of its own now: about as many as the range is long, for each run.
    page.wait_for_function(
        """([least, most]) => {
            const found = Number(document.querySelector('[data-tag="eval/return"] .chart').dataset.points);
            return found >= least && found <= most;
        }""",
        arg=[6 * (high - low - 1), 6 * (high - low + 1)],
    )
    page.reload()
    wait_for_lines(page, "eval/return", 6)
    assert (fact(page, "eval/return", "from"), fact(page, "eval/return", "to")) == (low, high)
    page.locator('[data-tag="eval/return"] .u-over').dblclick()
    wait_for_state(page, "zoom", None)
    page.wait_for_function(
        "n => Number(document.querySelector('[data-tag=\"eval/return\"] .chart').dataset.points) === n", arg=whole
    )


def test_the_cursor_is_shared_and_tells_smoothed_and_raw(page: Any, place: Place) -> None:
    page.goto(place.compare(smooth="0.9"))
    wait_for_lines(page, "eval/return", 6)
    wait_for_lines(page, "train/loss", 6)
    page.locator('[data-tag="eval/return"] .u-over').hover()
    tip = page.locator('[data-tag="eval/return"] .chart-tip')
    assert "raw" in tip.inner_text() and "agent-0" in tip.inner_text()
    guest = page.locator('[data-tag="train/loss"] .chart-tip')
    assert guest.inner_text().split("\n")[0] == "step 2000" or abs(int(guest.inner_text().split()[1]) - 2000) < 40


def test_smoothing_draws_above_the_raw_line_and_never_instead_of_it(page: Any, place: Place) -> None:
    page.goto(place.compare())
    found = page.evaluate(
        """async () => {
            const { paintLines, smooth } = await import("/static/charts/paint.js");
            const strokes = [];
            const still = () => undefined;
            const context = new Proxy({ globalAlpha: 1 }, {
                get: (target, name) => {
                    if (name === "stroke") return () => strokes.push(target.globalAlpha);
                    return name in target ? target[name] : still;
                },
                set: (target, name, value) => { target[name] = value; return true; },
            });
            const mean = [0, 10, 0, 10, NaN, 10];
            const line = { key: "a", label: "a", color: "red", x: [0, 1, 2, 3, 4, 5], mean };
            const smoothed = smooth(mean, 0.5);
            const box = { left: 0, top: 0, width: 100, height: 100, scale: 1 };
            const view = { ...box, x: [0, 5], y: [0, 10], log: false, focus: null };
            paintLines(context, [line], { ...view, smoothed: new Map([["a", smoothed]]) });
            paintLines(context, [line], { ...view, smoothed: new Map() });
            return { strokes, smoothed: Array.from(smoothed) };
        }"""
    )
    assert found["strokes"] == [pytest.approx(0.32), 1, 1], "raw, smoothed; and raw alone"
    assert found["smoothed"][:2] == [0, pytest.approx(20 / 3)] and np.isnan(found["smoothed"][4])


def test_of_more_runs_than_can_be_drawn_the_page_says_so(page: Any, ui: StartUi, tmp_path: Path) -> None:
    ids = recorded.record_small_runs(tmp_path / ".operant", 104)
    with ui(tmp_path / ".operant") as address:
        page.goto(f"{address}/compare?runs={','.join(ids)}")
        told = page.locator(".capped")
        told.wait_for()
        assert told.inner_text().startswith("100 of 104 runs are drawn, as many as there can be one by one.")
        assert "104 runs, 100 drawn" in page.locator(".page-head").inner_text()
        wait_for_lines(page, "loss", 100)
        # Settings that make few groups first; the seed, which is another in each run, makes none.
        assert told.get_by_role("button").all_inner_texts() == ["Group by batch", "Group by rate"]
        page.get_by_role("radio", name="Settings").click()
        wait_for_state(page, "show", "table")
        assert told.is_hidden()
        page.get_by_role("radio", name="Charts").click()
        told.get_by_role("button", name="Group by rate").click()
        wait_for_state(page, "group", "rate")
        wait_for_lines(page, "loss", 4)
        assert told.is_hidden() and "drawn" not in page.locator(".page-head").inner_text()
        page.goto(f"{address}/compare?runs={','.join(ids)}&hide={','.join(ids[:4])}")
        wait_for_lines(page, "loss", 100)
        assert told.is_hidden()


def test_runs_are_grouped_by_a_setting(page: Any, place: Place) -> None:
    page.goto(place.compare())
    wait_for_lines(page, "eval/return", 6)
    page.get_by_label("Group runs by a setting").select_option("rate")
    wait_for_lines(page, "eval/return", 3)
    label = chart(page, "eval/return").get_attribute("aria-label")
    assert "rate=0.001 (2) ends at" in label
    assert "rate=0.001 n = 2" in page.locator(".board-legend li").all_inner_texts()
    ends = [Run.open(place.agents[n], place.root).chart("eval/return", 500).mean[-1] for n in (1, 4)]
    said = re.search(r"rate=0.001 \(2\) ends at ([0-9.]+)", label)
    assert said and float(said[1]) == pytest.approx(np.mean(ends), rel=1e-3)
    page.reload()
    wait_for_lines(page, "eval/return", 3)


def test_a_hidden_run_stays_hidden_after_a_reload(page: Any, place: Place) -> None:
    page.goto(place.compare())
    wait_for_lines(page, "eval/return", 6)
    page.get_by_role("button", name="Hide agent-2").click()
    wait_for_lines(page, "eval/return", 5)
    page.reload()
    wait_for_lines(page, "eval/return", 5)
    page.get_by_role("button", name="Show agent-2").click()
    wait_for_lines(page, "eval/return", 6)


def test_sections_fold_and_charts_are_found_by_name(page: Any, place: Place) -> None:
    page.goto(place.compare())
    wait_for_lines(page, "train/loss", 6)
    page.locator("summary:has-text('train')").click()
    wait_for_state(page, "fold", "train")
    page.reload()
    wait_for_lines(page, "eval/return", 6)
    assert not page.locator('[data-tag="train/loss"]').is_visible()
    page.get_by_label("Find charts by name").fill("retu")
    page.wait_for_function("() => document.querySelectorAll('.chart-card').length === 1")
    wait_for_state(page, "find", "retu")
    page.get_by_role("button", name="Log scale").click()
    wait_for_state(page, "log", "1")


def test_a_compare_is_saved_and_runs_are_added_by_name(page: Any, place: Place) -> None:
    page.goto(f"{place.address}/compare?runs={place.agents[0]}")
    wait_for_lines(page, "eval/return", 1)
    page.get_by_role("button", name="Save this compare").click()
    page.get_by_label("Name of the compare").fill(f"mine {SCRIPT}")
    page.keyboard.press("Enter")
    page.wait_for_url("**/compare/mine-*")
    address = page.url
    page.wait_for_selector(f"h1:has-text('mine {SCRIPT}')")
    page.get_by_role("button", name="Add runs").click()
    page.get_by_label("Name or id of runs to add").fill("agent-4")
    page.keyboard.press("Enter")
    wait_for_lines(page, "eval/return", 2)
    page.goto(f"{place.address}/compare")
    page.get_by_role("link", name=f"mine {SCRIPT}").click()
    wait_for_lines(page, "eval/return", 2)
    assert page.url == address


def test_the_settings_of_compared_runs_stand_side_by_side(page: Any, place: Place) -> None:
    page.goto(place.compare(show="table"))
    page.wait_for_selector("text=3 settings differ, 0 are the same")
    page.locator("th[data-column='param.seed'] button").click()
    assert names_of_settings(page) == [f"agent-{n}" for n in (5, 4, 3, 2, 1, 0)]
    page.reload()
    page.wait_for_selector("tr.data")
    assert names_of_settings(page)[0] == "agent-5"


def test_scores_over_seeds_are_a_table_and_a_picture(page: Any, ui: StartUi, tmp_path: Path) -> None:
    root = tmp_path / ".operant"
    runs = recorded.record_seeds(root, "old", [10, 20, 30]) + recorded.record_seeds(root, "new", [25, 35])
    with ui(root) as address:
        page.goto(f"{address}/compare?runs={','.join(runs)}")
        page.get_by_role("radio", name="Scores").click()
        wait_for_state(page, "show", "scores")
        rows = page.get_by_label("Scores over seeds", exact=True).locator("tbody tr")
        rows.first.wait_for()
        assert rows.count() == 2 and rows.nth(0).inner_text().split("\t")[:2] == ["new", "2"]
        page.wait_for_function("() => document.querySelector('.score-picture')?.naturalWidth > 0")
        assert not page.get_by_text("Not of one kind").count()
        other = recorded.record_seeds(root, "new", [45], first=2, rate=0.1)
        page.goto(f"{address}/compare?runs={','.join(runs + other)}&show=scores")
        page.get_by_text("Not of one kind: runs of new differ in rate", exact=True).wait_for()
        page.goto(f"{address}/compare?runs={runs[0]}&show=scores&judged=best")
        page.get_by_role("radio", name="Best", exact=True, checked=True).wait_for()


def names_of_settings(page: Any) -> list[str]:
    return page.locator("tr.data [data-column=name]").all_inner_texts()  # type: ignore[no-any-return]


def test_a_search_has_a_compare_of_its_own(page: Any, place: Place) -> None:
    page.goto(f"{place.address}/compare/search:grid")
    wait_for_lines(page, "reward", 2)
    assert "38" in chart(page, "reward").get_attribute("aria-label")


def test_a_chart_is_zoomed_with_the_keyboard(page: Any, place: Place) -> None:
    page.goto(place.compare())
    wait_for_lines(page, "eval/return", 6)
    chart(page, "eval/return").focus()
    page.keyboard.press("+")
    page.wait_for_url("**zoom=*")
    low, high = (float(part) for part in state(page)["zoom"].split(","))
    assert high - low == pytest.approx(recorded.POINTS / 2, rel=0.01)
    page.keyboard.press("Escape")
    wait_for_state(page, "zoom", None)


def test_only_charts_in_view_are_drawn(page: Any, place: Place) -> None:
    page.goto(place.run(place.many_tags, "charts"))
    page.wait_for_selector(".chart-card[data-ready]")
    assert page.locator(".chart-card").count() == recorded.MANY_TAGS
    assert page.locator(".chart-card[data-ready]").count() < recorded.MANY_TAGS / 2
    last = page.locator('[data-tag="layer099/norm"]')
    last.scroll_into_view_if_needed()
    page.wait_for_selector('[data-tag="layer099/norm"][data-ready] .chart[data-lines="1"]')
    assert "101" in chart(page, "layer099/norm").get_attribute("aria-label")
