"""The pages of searches in a real browser, on a real search of 200 jobs that is under way."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.machine import patience
from tests.web.browser import PageFaults, StartUi
from tests.web.searching import FIRST_GATE, SECOND_GATE, RunningSearch, start_search, wait_for

PATIENCE = 60.0
"""Seconds after which something is held to be broken rather than slow."""
COUNTS = ("defined", "waiting", "running", "finished", "success", "abnormal")
SETTINGS = ("lr", "layers", "dropout", "activation", "optimizer", "momentum")


@pytest.fixture(scope="module")
def search(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSearch]:
    with start_search(tmp_path_factory.mktemp("search")) as running:
        wait_for((running.folder / "journal.log").exists, "the search to begin")
        running.wait_until_it_stands(FIRST_GATE)
        yield running


@pytest.fixture(scope="module")
def address(search: RunningSearch, ui: StartUi, browser: Any) -> Iterator[str]:
    with ui(search.root) as found:
        yield found


def counts_of(journal: dict[str, Any]) -> dict[str, int]:
    """The strip of counts as the journal gives it."""
    found = Counter(job["status"] for job in journal["jobs"])
    success, abnormal = found["FINISHED"] + found["STOPPED"], found["ERROR"] + found["KILLED"]
    ended = {"finished": success + abnormal, "success": success, "abnormal": abnormal}
    return {"defined": found.total(), "waiting": found["PENDING"], "running": found["RUNNING"], **ended}


def open_search(page: Any, address: str, search: RunningSearch, query: str = "") -> None:
    page.set_default_timeout(patience(PATIENCE) * 1000)
    page.goto(f"{address}/searches/{search.name}{query}")
    page.wait_for_selector('[data-card="parallel"] .plot[data-lines]')


def until(page: Any, script: str, seconds: float = PATIENCE) -> None:
    """Wait until a script says yes. (The browser's own waiting would need `eval`, which the page forbids.)"""
    deadline = time.monotonic() + patience(seconds)
    while not page.evaluate(script):
        assert time.monotonic() < deadline, f"{script} was not so within {seconds:.0f} s"
        page.wait_for_timeout(40)


def shown_counts(page: Any) -> dict[str, int]:
    return {name: int(page.locator(f'[data-count="{name}"]').text_content()) for name in COUNTS}


def card(page: Any, name: str) -> Any:
    """A card, in view: what is far from it is neither drawn nor fetched."""
    found = page.locator(f'[data-card="{name}"]')
    found.scroll_into_view_if_needed()
    return found


def plot_has(page: Any, name: str, **data: int) -> None:
    """Wait until a plot says that it shows this."""
    card(page, name)
    for key, value in data.items():
        page.wait_for_selector(f'[data-card="{name}"] [data-{key}="{value}"]')


def column(page: Any, name: str) -> list[str]:
    """The texts of one column of the jobs in view."""
    texts = page.locator(f'[data-card="jobs"] td[data-column="{name}"]').all_text_contents()
    return [str(text) for text in texts]


def rewards_of(jobs: list[dict[str, Any]]) -> list[float]:
    return [job["reward"] for job in jobs if job["status"] in ("FINISHED", "STOPPED") and job["reward"] is not None]


def test_numbers_on_the_page_are_those_of_the_journal(page: Any, address: str, search: RunningSearch) -> None:
    journal = search.journal()
    jobs = journal["jobs"]
    assert journal["status"] == "RUNNING" and journal["counts"]["RUNNING"] == 4 and journal["counts"]["STOPPED"] > 0
    open_search(page, address, search)
    assert shown_counts(page) == counts_of(journal)
    done = round(counts_of(journal)["finished"] / 2)
    assert page.locator('[data-count="tries"]').text_content() == f"{len(jobs)} of 200 tries begun · {done} % done"
    assert page.locator(".search-status").text_content() == "running"

    best = journal["best"]
    assert float(page.locator("[data-best]").first.get_attribute("data-best")) == best["reward"]
    assert page.locator(".best-reward").text_content() == f"{best['reward']:.6g}"
    assert page.locator("[data-best-run]").get_attribute("href") == f"/run?id={search.name}/{best['jobs'][0]}"
    facts = page.locator('[data-card="best"] table.facts tr')
    assert [row.split()[0] for row in facts.evaluate_all("rows => rows.map(row => row.innerText)")] == [
        *best["arg_dict"]
    ]

    plot_has(page, "history", points=len(jobs))
    assert float(page.locator('[data-card="history"] .plot').get_attribute("data-best")) == best["reward"]
    plot_has(page, "parallel", lines=len(jobs), selected=len(rewards_of(jobs)))
    plot_has(page, "timeline", points=sum(job["started"] is not None for job in jobs))
    reported = [job for job in jobs if (search.folder / "jobs" / job["id"] / "run").is_dir()]
    plot_has(page, "intermediate", curves=len(reported), stopped=sum(job["status"] == "STOPPED" for job in reported))
    plot_has(page, "contour", points=len(rewards_of(jobs)))
    bars = card(page, "importance").locator(".bars-name")
    bars.first.wait_for()
    assert set(bars.all_text_contents()) == set(SETTINGS)
    slices = card(page, "slices").locator('.plot[aria-label="Reward over momentum"]')
    having = [job for job in jobs if "momentum" in job["arg_dict"]]
    slices.and_(page.locator(f'[data-points="{len(rewards_of(having))}"]')).wait_for()

    card(page, "jobs").locator('th[data-column="reward"] button').click()
    ordered = sorted(rewards_of(jobs), reverse=True)
    shown = column(page, "reward")
    assert len(shown) > 5 and [float(text) for text in shown] == pytest.approx(ordered[: len(shown)], rel=1e-3)
    assert column(page, "number")[0] == f"{best['jobs'][0]} ★"

    page.goto(f"{address}/searches")
    row = page.locator('tr[data-key="digits"]')
    assert float(row.locator("[data-best]").text_content()) == pytest.approx(best["reward"], rel=1e-4)
    assert row.locator('[role="progressbar"]').get_attribute("aria-valuenow") == str(done)
    row.locator(".spark").wait_for()
    row.locator("a").click()
    page.wait_for_url(f"**/searches/{search.name}")


def pull(page: Any, axis: str, start: float, end: float) -> None:
    """Pull the pointer along an axis of the parallel coordinates, from one part of its height to another."""
    card(page, "parallel")
    box = page.locator(f'[data-axis="{axis}"] .axis-strip').bounding_box()
    x = box["x"] + box["width"] / 2
    page.mouse.move(x, box["y"] + box["height"] * start)
    page.mouse.down()
    page.mouse.move(x, box["y"] + box["height"] * (start + end) / 2)
    page.mouse.move(x, box["y"] + box["height"] * end)
    page.mouse.up()


def picture(page: Any) -> dict[str, Any]:
    """What the page shows of what has ended: drawn pixels, chosen rows, order of columns, folded cards."""
    pixels = "names => names.map(name => document.querySelector(name).toDataURL())"
    found = {"address": page.url, "columns": page.locator('[data-card="jobs"] th').all_text_contents()}
    found["rows"] = page.locator('[data-card="jobs"] tr.data').all_text_contents()
    found["notes"] = page.locator(".card-note").all_text_contents()[:3]
    found["folded"] = page.locator('.fold[aria-expanded="false"]').all_text_contents()
    found["axes"] = page.locator(".axis-name").all_text_contents()
    found["pixels"] = page.evaluate(pixels, ['[data-card="history"] canvas', ".parallel-chosen"])
    return found


def test_brushes_and_filters_choose_jobs_and_a_reload_shows_the_same(
    page: Any, address: str, search: RunningSearch
) -> None:
    jobs = search.journal()["jobs"]
    open_search(page, address, search, "?x=start&focus=1")
    pull(page, "lr", 0.25, 0.6)
    page.wait_for_url(re.compile("brush=lr"))
    low, high = map(float, re.findall(r"lr:([\d.e-]+)~([\d.e-]+)", page.url.replace("%7E", "~"))[0])
    assert 1e-5 < low < high < 0.1
    within = [job for job in jobs if low <= job["arg_dict"]["lr"] <= high]
    assert 0 < len(within) < len(jobs)
    page.wait_for_selector(f'[data-card="jobs"][data-rows="{len(within)}"]')
    plot_has(page, "parallel", selected=len(rewards_of(within)))

    page.locator('[data-axis="activation"] .axis-strip').click(position={"x": 13, "y": 20})
    page.wait_for_url(re.compile("activation"))
    named = [job for job in within if job["arg_dict"]["activation"] == "gelu"]
    page.wait_for_selector(f'[data-card="jobs"][data-rows="{len(named)}"]')

    page.locator(".job-filter").fill('status == "FINISHED" and layers >= 3')
    final = [job for job in named if job["status"] == "FINISHED" and job["arg_dict"]["layers"] >= 3]
    assert 0 < len(final) < len(named)
    page.wait_for_selector(f'[data-card="jobs"][data-rows="{len(final)}"]')
    page.locator('th[data-column="p:lr"] button').click()
    page.get_by_role("button", name="Choose columns").click()
    page.get_by_label("loss").check()
    page.keyboard.press("Escape")
    page.locator('[data-card="slices"] .fold').click()
    page.locator('[data-axis="activation"] .axis-name').focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("f")
    page.wait_for_url(re.compile("axes=lr,layers,%21activation"))
    rates = [float(text.replace("−", "-")) for text in column(page, "p:lr")]
    assert rates == pytest.approx(sorted((job["arg_dict"]["lr"] for job in final), reverse=True), rel=5e-4)
    page.wait_for_selector('td[data-column="s:loss"]')
    settled(page)
    before = picture(page)
    assert before["folded"] == ["Slices"] and before["axes"][2] == "activation ↓" and "loss" in before["columns"]

    page.reload()
    page.wait_for_selector(f'[data-card="jobs"][data-rows="{len(final)}"]')
    settled(page)
    assert picture(page) == before

    page.get_by_role("button", name="Clear brushes").click()
    chosen = [job for job in jobs if job["status"] == "FINISHED" and job["arg_dict"]["layers"] >= 3]
    page.wait_for_selector(f'[data-card="jobs"][data-rows="{len(chosen)}"]')
    page.go_back()
    page.wait_for_selector(f'[data-card="jobs"][data-rows="{len(final)}"]')

    page.locator(".job-filter").fill("nothing < 3")
    until(page, "document.querySelector('.problem').textContent.startsWith('There is no setting or column')")


def test_an_axis_is_pulled_to_another_place(page: Any, address: str, search: RunningSearch) -> None:
    open_search(page, address, search)
    card(page, "parallel")
    names = page.locator(".axis-name")
    first, last = names.first.bounding_box(), names.nth(3).bounding_box()
    page.mouse.move(first["x"] + 10, first["y"] + 10)
    page.mouse.down()
    for part in (0.3, 0.6, 1.1):
        page.mouse.move(first["x"] + 10 + (last["x"] - first["x"]) * part, first["y"] + 10)
        page.wait_for_timeout(30)
    page.mouse.up()
    page.wait_for_url(re.compile("axes=layers,dropout,activation,lr,optimizer,momentum,%40reward"))
    until(page, "[...document.querySelectorAll('.axis-name')].map(one => one.textContent)[3] === 'lr (log)'")
    placed = [names.nth(index).evaluate("head => head.getBoundingClientRect().left") for index in range(7)]
    assert placed == sorted(placed)


def settled(page: Any) -> None:
    """Wait until the small curves are there and the picture has been the same for a while."""
    until(
        page,
        """() => {
            const now = [...document.querySelectorAll('[data-card="history"] canvas, [data-card="parallel"] canvas')]
                .map(canvas => canvas.toDataURL()).join() + document.querySelector('[data-card="jobs"]').innerText;
            if (window.lastPicture !== now) window.pictureSince = performance.now();
            window.lastPicture = now;
            return performance.now() - window.pictureSince > 500 && document.querySelector('.spark') !== null;
        }""",
    )


def test_everything_is_reached_by_keyboard(page: Any, address: str, search: RunningSearch) -> None:
    open_search(page, address, search)
    page.locator('[data-axis="layers"] .axis-name').focus()
    page.keyboard.press("b")
    page.wait_for_url(re.compile("brush=layers"))
    first = int(page.locator('[data-card="parallel"] .plot').get_attribute("data-selected"))
    page.keyboard.press("Shift+ArrowUp")
    until(page, f"Number(document.querySelector('.parallel').dataset.selected) >= {first}")
    page.keyboard.press("Delete")
    until(page, "!location.search.includes('brush')")
    page.keyboard.press("l")
    until(page, "document.activeElement.textContent === 'layers (log)'")

    page.locator('[data-stop="121"]').focus()
    page.evaluate("window.before = document.activeElement")
    until(page, "!window.before.isConnected")  # the live page draws its rows anew, and the focus stays
    assert page.evaluate("document.activeElement.dataset.stop") == "121"
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Stop job 121?")
    assert dialog.is_visible() and page.evaluate("document.activeElement.textContent") == "Cancel"
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    assert search.jobs()["121"]["status"] == "RUNNING"

    card(page, "history").locator(".plot").focus()
    page.keyboard.press("ArrowRight")
    note = page.locator('[data-card="history"] .plot-note')
    note.wait_for()
    assert note.inner_text().splitlines()[0] == "0 · finished"
    page.keyboard.press("Enter")
    page.wait_for_url(f"{address}/run?id={search.name}/0")


@pytest.mark.parametrize("path", ["/searches", "/searches/digits"])
def test_a_narrow_screen_scrolls_only_downwards(page: Any, address: str, search: RunningSearch, path: str) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(address + path)
    page.wait_for_selector(".vtable tr.data")
    for section in page.locator("main section:visible").all():
        section.scroll_into_view_if_needed()
    wide = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert wide[0] <= wide[1]


def test_the_filter_is_parsed_and_says_what_is_wrong(page: Any, address: str) -> None:
    page.goto(f"{address}/searches")
    ask = """async texts => {
        const { parseFilter } = await import("/static/views/search/filter.js");
        const job = { lr: 0.01, "config(epochs)": 3, act: "relu", momentum: null, status: "FINISHED" };
        const row = { get: name => job[name], words: () => "7 relu finished" };
        return texts.map(text => { try { return parseFilter(text)(row); } catch (error) { return error.message; } });
    }"""
    expected = {
        "lr < 0.1": True,
        "lr<1e-3": False,
        "config(epochs) == 3 and not act == 'tanh'": True,
        "act != relu or (lr >= 0.01 and momentum == none)": True,
        "relu finished": True,
        "tanh": False,
        "momentum > 0": False,
        "lr <": "After “lr <” a value should follow.",
        "(lr < 1": "The bracket at character 1 is not closed.",
        "act == 'relu": "The quote at character 8 is not closed.",
        "< 3": "“<” at character 1 has no name before it.",
        "lr < 1 and": "The filter ends where a comparison or a word should be.",
        "lr < 1)": "“)” at character 7 does not belong there.",
    }
    assert page.evaluate(ask, [*expected]) == [*expected.values()]


def test_brushes_are_kept_as_text_whatever_the_names(page: Any, address: str) -> None:
    page.goto(f"{address}/searches")
    ask = """async given => {
        const { brushesFromText, brushesToText } = await import("/static/charts/brushes.js");
        const text = brushesToText(new Map(given));
        return [text, [...brushesFromText(text)], [...brushesFromText("lr:2~1;x;:;lr:a~b")]];
    }"""
    given = [["lr", {"ranges": [[1e-5, 0.001], [0.1, 0.2]]}], ['a,b;c:d|e~f%"', {"names": ["x;y|z", "%2C~:", "ü"]}]]
    text, back, nothing = page.evaluate(ask, given)
    assert text.startswith("lr:0.00001~0.001|0.1~0.2;") and back == given and nothing == []


def test_the_model_follows_seeds_order_and_places(page: Any, address: str) -> None:
    page.goto(f"{address}/searches")
    ask = """async () => {
        const { SearchModel } = await import("/static/views/search/model.js");
        const summary = { maximize: false, status: "RUNNING" };
        const model = new SearchModel({ summary, axes: [], jobs: {}, settings: {} });
        const job = (id, number, reward, started, ended, check = false) =>
            ({ id, number, reward, started, ended, is_check: check, settings: { x: number },
               status: ended ? "FINISHED" : "RUNNING" });
        model.merge({ summary, jobs: [job("0a", 0, 5, 0, 4), job("2", 2, 3, 3, 6), job("check", 0, 1, 8, 9, true)] });
        model.merge({ summary, jobs: [job("0b", 0, 7, 1, 2), job("1", 1, 9, 2, 7), job("3", 3, null, 6, null)] });
        const { id, number } = model.jobs;
        return { id, x: model.settings.x, stairs: model.stairs(number), lanes: model.lanes(), ended: model.ended };
    }"""
    found = page.evaluate(ask)
    assert found["id"] == ["0a", "0b", "1", "2", "3", "check"] and found["x"] == [0, 0, 1, 2, 3, 0]
    assert found["stairs"] == {"x": [0, 2], "y": [6, 3]}  # the mean of both seeds; a final check is no part of it
    assert found["lanes"] == [0, 1, 1, 2, 0, 1] and found["ended"] == 5


def test_what_users_write_stays_text(page: Any, address: str, search: RunningSearch) -> None:
    open_search(page, address, search)
    hostile = "<img src=x onerror=alert(1)>"
    card(page, "note").get_by_label("New tag").fill(hostile)
    page.get_by_role("button", name="Add tag").click()
    page.locator(".search-tags .chip").wait_for()
    assert page.locator(".search-tags .chip").text_content() == hostile and page.locator("main img").count() == 0
    page.get_by_label("Note", exact=True).fill("a note")
    page.get_by_role("button", name="Save note").click()
    page.get_by_role("button", name=f"Remove the tag {hostile}").click()
    page.locator(".search-tags .chip").wait_for(state="detached")
    wait_for(
        lambda: "a note" in (search.folder / "journal.log").read_text(errors="replace"), "the note to be journaled"
    )
    open_search(page, address, search)
    assert page.get_by_label("Note", exact=True).input_value() == "a note"


def test_an_empty_folder_shows_the_command_to_begin_with(page: Any, ui: StartUi, tmp_path: Path) -> None:
    root = tmp_path / ".operant"
    root.mkdir()
    with ui(root) as address:
        page.goto(address)
        page.get_by_role("heading", name="No search yet").wait_for()
        assert "search-run --task" in page.locator(".command code").inner_text()
        page.goto("about:blank")


def test_a_part_that_fails_says_so_and_the_others_stand(
    page: Any, page_faults: PageFaults, address: str, search: RunningSearch
) -> None:
    page_faults.allow("500")
    page.route("**/importance", lambda route: route.fulfill(status=500, json={"error": "It broke."}))
    open_search(page, address, search)
    card(page, "importance").locator(".card-note").get_by_text("It broke.").wait_for()
    plot_has(page, "intermediate", curves=sum(1 for _ in search.folder.glob("jobs/*/run")))


def test_a_search_that_is_not_there(page: Any, page_faults: PageFaults, address: str) -> None:
    page_faults.allow("404")
    page.goto(f"{address}/searches/nowhere")
    assert "nowhere" in page.locator(".failure").inner_text()


def test_the_page_follows_while_the_search_goes_on(page: Any, address: str, search: RunningSearch) -> None:
    """Last in this file: it leads the search to its end."""
    open_search(page, address, search)
    plot_has(page, "history", points=FIRST_GATE + 4)
    tops = "[...document.querySelectorAll('[data-card]')].map(one => one.getBoundingClientRect().top + scrollY)"
    card(page, "importance").locator(".bars").wait_for()
    card(page, "log").locator("li").first.wait_for()
    card(page, "history")
    before = page.evaluate(tops)
    search.open_gate("first")
    page.wait_for_selector(f'[data-card="history"] [data-points="{SECOND_GATE + 4}"]')
    search.wait_until_it_stands(SECOND_GATE)
    journal = search.journal()
    wait_for(lambda: shown_counts(page) == counts_of(journal), "the page to show what the journal says")
    assert float(page.locator(".best-reward").get_attribute("data-best")) == journal["best"]["reward"]
    plot_has(page, "parallel", lines=200, selected=len(rewards_of(journal["jobs"])))
    assert page.evaluate(tops) == before, "cards moved while the page was live"

    card(page, "jobs").locator('[data-stop="197"]').click()
    page.get_by_role("dialog", name="Stop job 197?").get_by_role("button", name="Stop the job").click()
    wait_for(lambda: search.jobs()["197"]["status"] == "KILLED", "job 197 to be killed")
    page.wait_for_selector('tr[data-key="197"] .status:has-text("killed")')
    assert search.jobs()["198"]["status"] == "RUNNING"

    page.get_by_role("button", name="Pause", exact=True).click()
    page.locator(".search-status").get_by_text("paused").wait_for()
    page.get_by_role("button", name="Resume").click()
    page.locator(".search-status").get_by_text("running").wait_for()
    page.get_by_role("button", name="Stop search").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop the search").click()
    search.wait_until_it_ends()
    page.locator(".search-status").get_by_text("killed").wait_for()
    journal = search.journal()
    assert journal["status"] == "KILLED" and journal["counts"]["KILLED"] == 4
    until(page, "document.querySelector('[data-count=\"running\"]').textContent === '0'")
    assert shown_counts(page) == counts_of(journal)
    assert not page.get_by_role("button", name="Stop search").is_visible()
