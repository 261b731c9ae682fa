"""The list of runs and one run, in a real browser on runs that the real recorder wrote."""

from __future__ import annotations

import io
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.machine import patience
from tests.web import recorded
from tests.web.asking import MadeSearch
from tests.web.browser import PageFaults, StartUi, run_ui
from tests.web.looking import (
    Place,
    chart,
    expect_no_overflow,
    fact,
    names,
    state,
    wait_for_focus,
    wait_for_lines,
    wait_for_state,
)

from operant.tracking import Run

SCRIPT = recorded.SCRIPT


# The list


def test_the_list_shows_what_was_recorded(page: Any, place: Place) -> None:
    page.goto(f"{place.address}/runs")
    shown = names(page)
    assert {*(f"agent-{n}" for n in range(6)), SCRIPT, "many-tags", "changed"} < set(shown) and len(shown) == 11
    row = page.locator(f'tr[data-key="{place.agents[3]}"]')
    assert row.locator('[data-column="status"]').inner_text() == "finished"
    assert row.locator('[data-column="param.seed"]').inner_text() == "3"
    latest = Run.open(place.agents[3], place.root).latest("eval/return")
    assert latest is not None
    assert float(row.locator('[data-column="last.eval/return"]').inner_text()) == pytest.approx(latest.value, rel=1e-3)


def test_a_condition_chooses_runs_and_a_reload_keeps_it(page: Any, place: Place) -> None:
    page.goto(f"{place.address}/runs")
    names(page)
    page.get_by_label("Filter runs").fill("rate < 0.002 and seed > 0 and status == 'FINISHED'")
    page.wait_for_selector("text=/^3 of/")
    assert sorted(names(page)) == ["agent-1", "agent-3", "agent-4"]
    page.locator("th[data-column='param.seed'] button").click()
    wait_for_state(page, "runs.sort", "-param.seed")
    page.wait_for_function("() => document.querySelector('tr.data td a').textContent === 'agent-4'")
    before = page.url
    page.reload()
    assert names(page) == ["agent-4", "agent-3", "agent-1"] and page.url == before
    page.get_by_label("Filter runs").fill("agent-2 finished")
    page.wait_for_function("() => document.querySelectorAll('tr.data').length === 1")
    assert names(page) == ["agent-2"]


def test_a_bad_condition_is_pointed_at(page: Any, place: Place, page_faults: PageFaults) -> None:
    page_faults.allow("400")
    page.goto(f"{place.address}/runs")
    names(page)
    page.get_by_label("Filter runs").fill("rate < and seed > 1")
    page.wait_for_function("() => document.getElementById('filter-problem').textContent.includes('^')")
    sentence, text, mark = page.locator("#filter-problem").inner_text().split("\n")
    assert "and" in sentence and text.strip() == "rate < and seed > 1"
    assert text[mark.index("^") :].startswith("and"), "the mark stands under what was not expected"
    page.get_by_label("Filter runs").fill("rate < 1")
    page.wait_for_selector("#filter-problem:empty", state="attached")


def test_columns_are_chosen_and_kept_in_the_address(page: Any, place: Place) -> None:
    page.goto(f"{place.address}/runs")
    names(page)
    page.get_by_role("button", name="Choose columns").click()
    page.get_by_label("Find a column").fill("speed")
    expect_no_overflow(page)
    page.locator(".chooser").get_by_label("speed", exact=True).set_checked(True)
    page.keyboard.press("Escape")
    assert "last.speed" in state(page)["runs.cols"].split(",")
    page.reload()
    names(page)
    cell = page.locator(f'tr[data-key="{place.agents[4]}"] [data-column="last.speed"]')
    assert cell.inner_text() == "1004"


def test_tags_and_notes_are_edited_where_they_stand(page: Any, place: Place) -> None:
    page.goto(f"{place.address}/runs")
    names(page)
    page.get_by_role("button", name="Edit tags and note of agent-5").click()
    page.get_by_label("Add a tag").fill("kept & <i>seen</i>")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Remove tag kept & <i>seen</i>").wait_for()
    page.get_by_role("button", name="Add a note").click()
    page.get_by_label("Note", exact=True).fill("it works")
    page.get_by_role("button", name="Save note").click()
    page.get_by_role("button", name="Edit the note: it works").wait_for()
    page.get_by_role("button", name="Done").click()
    page.get_by_label("Filter runs").fill('tag == "kept & <i>seen</i>"')
    page.wait_for_function("() => document.querySelectorAll('tr.data').length === 1")
    assert "it works" in page.locator("tr.data [data-column=labels]").inner_text()
    assert Run.open(place.agents[5], place.root).note == "it works"


def test_the_table_is_used_with_the_keyboard_alone(page: Any, place: Place) -> None:
    page.goto(f"{place.address}/runs?runs.sort=name&filter=agent")
    first = page.locator("tr.data[tabindex='0']")
    first.wait_for()
    first.focus()
    page.keyboard.press("Space")
    wait_for_state(page, "sel", place.agents[0])
    wait_for_focus(page, "agent-0")
    page.keyboard.press("ArrowDown")
    wait_for_focus(page, "agent-1")
    page.keyboard.press("Space")
    wait_for_state(page, "sel", ",".join(place.agents[:2]))
    page.keyboard.press("End")
    wait_for_focus(page, "agent-5")
    page.keyboard.press("Enter")
    page.wait_for_selector("h1:has-text('agent-5')")


def test_chosen_runs_are_compared(page: Any, place: Place) -> None:
    page.goto(f"{place.address}/runs?runs.sort=name&filter=agent")
    names(page)
    for run_id in place.agents[:3]:
        page.get_by_label(f"Select {run_id}").check()
    page.get_by_role("button", name="Compare 3 runs").click()
    wait_for_lines(page, "eval/return", 3)
    assert state(page)["runs"].split(",") == place.agents[:3]


# One run


def test_a_run_tells_everything_that_was_recorded(page: Any, place: Place) -> None:
    page.goto(place.run(place.everything, "settings"))
    page.wait_for_selector("text=net.hidden")
    assert page.locator(f"tr:has-text('{SCRIPT}') td").inner_text() == SCRIPT
    page.get_by_role("tab", name="Text").click()
    page.wait_for_selector("text=second line")
    assert "step 3" in page.locator(".text-item").inner_text()
    page.get_by_role("tab", name="Files").click()
    with page.expect_download() as got:
        page.get_by_role("link", name="weights.txt").click()
    assert Path(got.value.path()).read_text() == "1 2 3\n" and got.value.suggested_filename == "weights.txt"
    page.get_by_role("tab", name="Time").click()
    bars = page.locator(".timers tbody tr")
    assert [row.split("\t")[0] for row in bars.all_inner_texts()] == ["learn", "collect"]
    assert "60 %" in bars.first.inner_text() and "6 ms" in bars.first.inner_text()
    page.get_by_role("tab", name="System").click()
    wait_for_lines(page, "system/cpu_percent", 1)
    page.get_by_role("tab", name="Distributions").click()
    assert page.locator(".histogram rect").count() == 64


def test_pictures_follow_the_slider_and_the_address(page: Any, place: Place) -> None:
    page.goto(place.run(place.everything, "media"))
    picture = page.locator(".media-card[aria-label=view] img")
    picture.wait_for()
    last = picture.get_attribute("src")
    page.get_by_label("Step of view").focus()
    page.keyboard.press("Home")
    wait_for_state(page, "at.view", "0")
    assert picture.get_attribute("src") != last
    page.reload()
    picture.wait_for()
    page.wait_for_function("() => document.querySelector('.media-card[aria-label=view] img').naturalWidth === 16")
    assert picture.get_attribute("alt") == "view at step 0"
    film = page.locator(".media-card[aria-label=episode] img")
    page.wait_for_function("() => document.querySelector('.media-card[aria-label=episode] img').naturalHeight === 12")
    assert film.get_attribute("alt") == "episode at step 5"


def test_uncommitted_changes_are_coloured_text(page: Any, place: Place) -> None:
    page.goto(place.run(place.changed, "code"))
    page.wait_for_selector(".diff")
    assert page.locator(".diff .removed").all_inner_texts() == ["-rate = 1\n"]
    assert f"+rate = 2  # {SCRIPT}\n" in page.locator(".diff .added").all_text_contents()
    assert "train.py" in page.locator("table.facts").inner_text()


def test_console_output_of_a_job(page: Any, place: Place) -> None:
    page.goto(place.run(place.jobs[1], "console"))
    page.wait_for_selector(".console:has-text('rate is 2.0')")
    assert "\x1b" not in page.locator(".console").inner_text()
    page.get_by_role("radio", name="stderr").click()
    page.wait_for_selector(".console:has-text('<b>bold?</b>')")
    page.reload()
    page.wait_for_selector(".console:has-text('<b>bold?</b>')")
    page.get_by_role("link", name="grid").wait_for()


def test_tabs_are_walked_with_the_arrow_keys(page: Any, place: Place) -> None:
    page.goto(place.run(place.everything, "charts"))
    page.get_by_role("tab", name="Charts").focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.id") == "tab-settings" and state(page)["tab"] == "settings"
    page.keyboard.press("ArrowLeft")
    assert state(page)["tab"] == "charts"


def test_a_run_that_is_not_there_is_said_in_words(page: Any, place: Place, page_faults: PageFaults) -> None:
    page_faults.allow("404")
    page.goto(f"{place.address}/run?id=nobody")
    assert "nobody" in page.locator(".failure").inner_text()
    page.get_by_role("link", name="Runs", exact=True).last.click()
    names(page)


# Live


def test_points_arrive_without_a_reload_and_the_end_is_seen(page: Any, place: Place) -> None:
    with recorded.live_run(place.root) as live:
        live.record(10)
        page.goto(place.run(live.id, "charts"))
        wait_for_points(page, "progress", 10)
        page.wait_for_selector("#live[data-live=on]")
        height = page.evaluate("document.querySelector('.chart-card').getBoundingClientRect().height")
        live.record(15)
        wait_for_points(page, "progress", 25)
        assert page.evaluate("document.querySelector('.chart-card').getBoundingClientRect().height") == height
        page.goto(f"{place.address}/compare?runs={live.id},{place.agents[0]}")
        wait_for_points(page, "progress", 25)
        page.wait_for_selector("#live[data-live=on]")
        live.record(5)
        wait_for_points(page, "progress", 30)
        page.goto(f"{place.address}/runs?filter=live")
        page.wait_for_selector("tr.data:has-text('running')")
        live.end()
        page.wait_for_selector("tr.data:has-text('finished')")


def test_the_console_is_followed_and_the_job_stopped(page: Any, place: Place, tmp_path: Path) -> None:
    with recorded.waiting_job(place.root, tmp_path, "waits") as (job, proceed):
        printed = place.root / "searches" / "waits" / "jobs" / "0" / "stdout"
        wait_for_file(printed, "begun")
        page.goto(place.run(job, "console"))
        page.wait_for_selector(".console:has-text('begun')")
        proceed.touch()
        page.wait_for_selector(".console:has-text('went on')")
        page.get_by_role("button", name="Stop job").click()
        page.wait_for_selector(".run-head .status:has-text('killed')")


def wait_for_file(path: Path, text: str) -> None:
    deadline = time.monotonic() + patience(60)
    while not (path.exists() and text in path.read_text(encoding="utf-8")):
        assert time.monotonic() < deadline, f"{path.name} never said {text!r}"
        time.sleep(0.02)


def wait_for_points(page: Any, tag: str, count: int) -> None:
    page.wait_for_selector(f'[data-tag="{tag}"] .chart[data-points="{count}"]')


# Everywhere


def test_a_reload_gives_the_same_picture(page: Any, place: Place) -> None:
    hidden = place.agents[1]
    addresses = [
        place.compare(zoom="900,1500", smooth="0.7", hide=hidden, fold="train"),
        place.compare(group="rate", log="1", x="relative"),
        place.run(place.agents[2], "charts") + "&smooth=0.5&find=train",
    ]
    for address in addresses:
        page.goto(address)
        before = settled(page)
        page.reload()
        differing = np.abs(settled(page) - before).max(axis=2) > 48
        # A rounded corner may be rasterised a shade differently; a line elsewhere is hundreds of pixels.
        assert differing.sum() < 20, f"{differing.sum()} pixels of {address} are different after a reload"


def settled(page: Any) -> Any:
    """The picture once the header is filled and every chart in view has been drawn."""
    page.wait_for_selector("#count-runs:not(:empty)")
    page.wait_for_selector(".chart-card[data-ready]")
    page.wait_for_load_state("networkidle")
    page.wait_for_function(
        """() => [...document.querySelectorAll(".chart-card")].every((one) => {
            const { top, bottom } = one.getBoundingClientRect();
            return !one.checkVisibility() || bottom < 0 || top > innerHeight || one.dataset.ready;
        })"""
    )
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return np.asarray(Image.open(io.BytesIO(page.screenshot())).convert("RGB"), np.int16)


def test_back_and_forward_go_through_what_was_seen(page: Any, place: Place) -> None:
    page.goto(place.compare())
    wait_for_lines(page, "eval/return", 6)
    chart(page, "eval/return").focus()
    page.keyboard.press("+")
    page.wait_for_url("**zoom=*")
    page.get_by_role("link", name="agent-3").click()
    page.wait_for_selector("h1:has-text('agent-3')")
    page.go_back()
    wait_for_lines(page, "eval/return", 6)
    assert fact(page, "eval/return", "from") > 900
    page.go_back()
    page.wait_for_selector('[data-tag="eval/return"] .chart[data-from="7"]')


def test_every_control_has_a_name(page: Any, place: Place) -> None:
    addresses = [f"{place.address}/runs", place.compare(), place.compare(show="table")]
    addresses += [place.run(place.everything, tab) for tab in ("charts", "settings", "media", "text", "distributions")]
    for address in addresses:
        page.goto(address)
        page.wait_for_selector("main:not([aria-busy]) h1")
        nameless = page.evaluate(
            """() => [...document.querySelectorAll("button, a[href], input, select, textarea, [role=img], [tabindex]")]
                .filter((one) => !(one.getAttribute("aria-label") || one.labels?.length || one.textContent.trim()))
                .map((one) => one.outerHTML.slice(0, 120))"""
        )
        assert nameless == [], address


def test_recorded_text_is_never_markup(page: Any, place: Place) -> None:
    page.on("dialog", lambda dialog: pytest.fail(f"a script ran: {dialog.message}"))
    page.goto(place.run(place.everything, "settings"))
    page.get_by_role("button", name="Add a note").click()
    page.get_by_label("Note", exact=True).fill(f"note {SCRIPT}")
    page.keyboard.press("Control+Enter")
    page.get_by_role("button", name=f"Edit the note: note {SCRIPT}").wait_for()
    addresses = [f"{place.address}/runs", f"{place.address}/compare?runs={place.everything},{place.agents[0]}"]
    tabs = ["charts", "settings", "media", "text", "files", "system", "timers", "code", "distributions"]
    addresses += [place.run(place.everything, tab) for tab in tabs]
    for address in addresses:
        page.goto(address)
        page.wait_for_selector(f"text={SCRIPT}")
        assert page.locator("img[src=x]").count() == 0
        assert page.locator("main [onerror]").count() == 0


def test_it_fits_a_telephone(page: Any, place: Place) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(f"{place.address}/runs")
    names(page)
    expect_no_overflow(page)
    page.goto(place.compare())
    wait_for_lines(page, "eval/return", 6)
    expect_no_overflow(page)
    page.get_by_role("button", name="Save this compare").click()
    expect_no_overflow(page)
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Add runs").click()
    expect_no_overflow(page)
    for tab in ("charts", "settings", "media", "code", "timers"):
        page.goto(place.run(place.everything, tab))
        page.wait_for_selector("h1")
        expect_no_overflow(page)


def test_the_theme_is_switched_and_kept(page: Any, place: Place) -> None:
    page.goto(f"{place.address}/runs")
    names(page)
    colour = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(colour)
    page.get_by_role("button", name="Switch between light and dark").click()
    dark = page.evaluate(colour)
    page.reload()
    names(page)
    assert page.evaluate(colour) == dark != light


def test_empty_pages_show_the_command_to_run(page: Any, tmp_path: Path, ui: StartUi) -> None:
    root = tmp_path / ".operant"
    root.mkdir()
    with ui(root) as address:
        page.goto(f"{address}/runs")
        page.wait_for_selector("text=No runs yet")
        assert 'SummaryWriter("first-run")' in page.locator(".command code").inner_text()
        page.goto(f"{address}/compare")
        page.wait_for_selector("text=Nothing to compare yet")
        assert page.locator(".command code").count() == 1
        page.goto(f"{address}/run")
        page.wait_for_selector("text=operant runs")


def test_a_job_that_recorded_nothing_has_a_page(page: Any, place: Place) -> None:
    made = MadeSearch(place.root, "broken", jobs=0)
    made.add_job("ERROR", code=3)
    made.close()
    folder = made.folder / "jobs" / "0"
    shutil.rmtree(folder / "run")
    (folder / "stdout").write_text(
        "begun\n" + "\x1b[31m<b>line</b>\n" * 20_000 + "the Needle <script>\n" + "x\n" * 50_000
    )
    page.goto(f"{place.address}/run?id=broken/0")
    page.wait_for_selector(".attempts td:has-text('failed with exit code 3')")
    assert (
        "failed" in page.locator(".job-words").inner_text() and "/jobs/0" in page.locator(".facts").first.inner_text()
    )
    page.get_by_role("tab", name="Settings").click()
    page.wait_for_selector("td:has-text('tanh')")
    page.get_by_role("tab", name="Console").click()
    page.get_by_role("searchbox", name="Find in all output").fill("needle")
    page.keyboard.press("Enter")
    page.locator(".console-match").click()
    page.wait_for_selector(".console mark:has-text('Needle')")
    assert "<script>" in page.locator(".console").inner_text()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    assert download.value.suggested_filename == "broken-0-stdout.txt"
    expect_no_overflow(page)


def test_a_log_scale_says_what_it_cannot_show_and_the_last_tick_is_whole(page: Any, tmp_path: Path) -> None:
    root = tmp_path / ".operant"
    steps = [*range(0, 100_000, 2500), 100_000]
    made = {"below": [-1.0] * len(steps), "mixed": [(-1.0) ** n for n in range(len(steps))]}
    with recorded.writer(root, "signs") as writer:
        for at, step in enumerate(steps):
            for tag, values in made.items():
                writer.add_scalar(tag, values[at], step)
    run = writer.run_id
    with run_ui(root) as address:
        page.goto(f"{address}/run?id={run}&log=1")
        page.wait_for_selector("[data-tag=below] .chart-last:has-text('no value is above 0')")
        page.wait_for_selector("[data-tag=mixed] .chart-last:has-text('20 of 41 values are not above 0')")
        assert page.locator("#live-text").inner_text() == "nothing to follow"
        room = page.evaluate(
            """() => {
              const u = document.querySelector("[data-tag=below] .uplot"), over = u.querySelector(".u-over");
              const context = document.createElement("canvas").getContext("2d");
              context.font = "11px system-ui, sans-serif";
              const free = u.getBoundingClientRect().right - over.getBoundingClientRect().right;
              return free - context.measureText("100000").width / 2;
            }"""
        )
        assert room >= 0


def test_an_open_page_recovers_when_the_server_returns(page: Any, tmp_path: Path, page_faults: PageFaults) -> None:
    root = tmp_path / ".operant"
    recorded.record_small_runs(root, 2)
    page_faults.allow("Failed to load resource")
    page_faults.allow("request failed")
    with run_ui(root) as address:
        page.goto(f"{address}/runs")
        page.wait_for_selector("tr.data")
    page.get_by_role("link", name="Searches").first.click()  # a module that was not loaded yet
    page.wait_for_selector(".failure")
    with run_ui(root, int(address.rpartition(":")[2])):
        page.wait_for_selector(".empty:not(.failure)")
        assert "/searches" in page.url
