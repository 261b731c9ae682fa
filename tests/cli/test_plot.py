"""`operant plot`: the numbers in the pictures are those of the journal, and nothing in them can harm."""

from __future__ import annotations

import itertools
import math
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from operant import SummaryWriter
from operant.cli import main
from operant.cli._plot_runs import curves, smoothed
from operant.cli._plot_search import charts_of_search
from operant.plotting.charts import Band, Bars, Heat, Line, Points, Spans, shade
from operant.schedulers.engine.state import read_state
from operant.schedulers.exchange.foreign import ForeignTrial, write_search
from operant.tracking import Run

HOSTILE = "<img src=x onerror=alert(1)>"
SEARCH_ARGS = [
    {"type": "Real", "name": "lr", "data": [1e-4, 1.0], "log": True},
    {"type": "Int", "name": HOSTILE, "data": [1, 5]},
    {"type": "Categorical", "name": "kind", "data": ["a", "$b_$", None]},
]
STATUSES = ["FINISHED", "STOPPED", "FINISHED", "ERROR", "FINISHED", "KILLED"]


def make_search(folder: Path, count: int = 18, **options: Any) -> Path:
    trials = []
    for number in range(count):
        status = STATUSES[number % len(STATUSES)]
        config = {"lr": 10.0 ** -(number % 5), HOSTILE: 1 + number % 5, "kind": ["a", "$b_$", None][number % 3]}
        curve = [(step, 1000.0 + number + step / 10, number % 7 + step / 10) for step in range(4)]
        reward = curve[-1][2] if status in ("FINISHED", "STOPPED") else None
        trials.append(ForeignTrial(number, config, status, 1000.0 + number, 1001.5 + number, reward, {}, curve))
    options = {"reward": "acc", "maximize": True, "source": "a test", **options}
    write_search(folder, {"task": {"search_args": SEARCH_ARGS}}, trials, **options)
    return folder


@pytest.fixture
def search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPERANT_DIR", str(tmp_path / ".operant"))
    monkeypatch.chdir(tmp_path)
    return make_search(tmp_path / ".operant" / "searches" / "s")


class Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_one_page_with_everything_and_nothing_from_elsewhere(search: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plot", "s", "--out", "out/x.html"]) == 0
    assert "Wrote out/x.html" in capsys.readouterr().out
    text = Path("out/x.html").read_text()
    page = Reader()
    page.feed(text)
    tags = {tag for tag, _ in page.tags}
    assert not tags & {"script", "img", "link", "iframe", "image", "use", "a", "foreignobject"}
    assert not any(name.startswith("on") or name in ("src", "href") for _, given in page.tags for name in given)
    assert not re.search(r"https?:|url\(", text)
    for heading in ("Best so far", "Importance", "Parallel coordinates", "lr", "Intermediate values", "Timeline"):
        assert heading in page.texts
    assert any(HOSTILE in one for one in page.texts)  # shown, and only shown
    assert any(one.startswith("job 2: finished\nacc 2.3\nlr = 0.01") for one in page.texts)
    assert {path.name for path in Path("out").iterdir()} == {"x.html"}


def test_the_same_numbers_as_in_the_journal(search: Path) -> None:
    state, _ = read_state(search)
    rewards = {job.id: job.reward for job in state.jobs.values() if job.reward is not None}
    (history,) = charts_of_search(search, ["history"])
    dots = [mark for mark in history.marks if isinstance(mark, Points)]
    found = {str(int(x)): y for mark in dots for x, y in zip(mark.x, mark.y, strict=True)}
    assert found == rewards
    (best,) = [mark for mark in history.marks if isinstance(mark, Line)]
    assert state.best is not None and best.y[-1] == state.best.reward and list(best.y) == sorted(best.y)

    (timeline,) = charts_of_search(search, ["timeline"])
    (spans,) = timeline.marks
    assert isinstance(spans, Spans) and len(spans.rows) == 18 and timeline.x.label == "seconds"
    assert [end - start for start, end in zip(spans.starts, spans.ends, strict=True)] == pytest.approx([1.5] * 18)

    (intermediate,) = charts_of_search(search, ["intermediate"])
    lines = [mark for mark in intermediate.marks if isinstance(mark, Line)]
    assert len(lines) == 18 and sum(isinstance(mark, Points) for mark in intermediate.marks) == 3  # stopped early
    first = next(mark for mark in lines if mark.title.startswith("job 0:"))
    assert list(first.x) == [0, 1, 2, 3] and list(first.y) == pytest.approx([0.0, 0.1, 0.2, 0.3])

    slices = {chart.title: chart for chart in charts_of_search(search, ["slice"])}
    assert set(slices) == {"lr", HOSTILE, "kind"} and slices["lr"].x.log
    assert slices["kind"].x.choices == ("a", "$b_$", "null")
    (points,) = slices["lr"].marks
    assert isinstance(points, Points) and len(points.x) == len(rewards)

    (importance,) = charts_of_search(search, ["importance"])
    (bars,) = importance.marks
    assert isinstance(bars, Bars) and sum(bars.values) == pytest.approx(1.0) and len(importance.y.choices) == 3

    contours = charts_of_search(search, ["contour"])
    assert len(contours) == 3 and all(isinstance(chart.marks[0], Heat) for chart in contours)
    for chart in contours:  # every job stands at its own settings, choices too
        (dots,) = [mark for mark in chart.marks if isinstance(mark, Points)]
        if chart.x.choices:
            assert sorted(set(dots.x)) == [0.0, 1.0, 2.0]
            assert all(f"kind = {chart.x.choices[int(x)]}" in told for x, told in zip(dots.x, dots.titles, strict=True))
    (parallel,) = charts_of_search(search, ["parallel"])
    assert set(parallel.x.choices) == {"lr (log)", HOSTILE, "kind", "acc"}


def test_minimising_makes_the_least_the_best(tmp_path: Path) -> None:
    folder = make_search(tmp_path / "s", maximize=False)
    (parallel,) = charts_of_search(folder, ["parallel"])
    lines = [mark for mark in parallel.marks if isinstance(mark, Line) and mark.title]
    assert "acc 0.3" in lines[-1].title and lines[-1].colour == shade(1.0)  # the best lies on top
    assert parallel.scale is not None and parallel.scale[0] > parallel.scale[1]


@pytest.mark.parametrize(("name", "magic"), [("x.png", b"\x89PNG"), ("x.pdf", b"%PDF"), ("x.svg", b"<?xml")])
def test_files_for_papers(search: Path, name: str, magic: bytes) -> None:
    if name != "x.svg":
        pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    kinds = "importance,parallel,slice,intermediate,timeline,curves" if name == "x.png" else "history,contour"
    assert main(["plot", "--task", "s", "--out", name, "--kind", kinds]) == 0
    first = Path(name).read_bytes()
    assert first.startswith(magic) and len(first) > 10_000
    if name != "x.png":  # the same data, the same file
        assert main(["plot", "--task", "s", "--out", name, "--kind", kinds]) == 0
        assert Path(name).read_bytes() == first


def test_a_search_without_results_is_drawn_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPERANT_DIR", str(tmp_path / ".operant"))
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / ".operant" / "searches" / "s"
    write_search(folder, {}, [], reward="acc", maximize=True, source="a test")
    for name in ("x.html", "x.png"):
        assert main(["plot", "s", "--out", name]) == 0
    text = Path("x.html").read_text()
    assert "no result yet" in text and "no job has started" in text


def test_the_regions_of_a_tree_lie_below_one_another(tmp_path: Path, search: Path) -> None:
    assert charts_of_search(search, ["tree"]) == []  # its searcher has none
    assert main(["plot", "s", "--out", "tree.svg", "--kind", "tree"]) == 1 and not Path("tree.svg").exists()
    args = [{"type": "Real", "name": name, "data": [0.0, 1.0]} for name in "ab"]
    points = [(n % 7 / 7, n % 11 / 11) for n in range(60)]
    trials = [
        ForeignTrial(n, {"a": a, "b": b}, "FINISHED", 1000.0 + n, 1001.0 + n, a - b, {"acc": a - b}, [])
        for n, (a, b) in enumerate(points)
    ]
    config = {"task": {"search_args": args}, "searcher": {"type": "LamctsSearcher", "leaf_size": 10}}
    folder = tmp_path / "lamcts"
    write_search(folder, config, trials, reward="acc", maximize=True, source="a test")
    (chart,) = charts_of_search(folder, ["tree"])
    spans = chart.marks[0]
    assert isinstance(spans, Spans) and len(chart.y.choices) > 2 and len(set(spans.colours)) > 2
    regions = sorted(zip(spans.rows, spans.starts, spans.ends, strict=True))
    assert regions[-1] == (len(chart.y.choices) - 1, 0.0, 60.0)
    assert all(one[0] != other[0] or one[2] <= other[1] for one, other in itertools.pairwise(regions))


def test_without_the_extra_only_importance_is_missing(search: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [one for one in sys.modules if one.startswith("sklearn")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    importance, *slices = charts_of_search(search, ["importance", "slice"])
    assert "pip install 'operant[search]'" in importance.remark and not importance.marks
    assert [chart.title for chart in slices] == ["lr", HOSTILE, "kind"]


def record(values: list[float], **config: Any) -> Run:
    with SummaryWriter("train", config=config, system_metrics=False) as writer:
        for step, value in enumerate(values):
            writer.add_scalar("return", value, step)
    return Run.open(writer.run_id)


def test_smoothing_never_hides_the_raw_line() -> None:
    values = [0.0, 10.0, 0.0, math.nan, 10.0]
    (chart,) = curves([record(values)], ["return"], 0.9, None)
    raw, soft = chart.marks
    assert isinstance(raw, Line) and isinstance(soft, Line)
    assert list(raw.y)[:3] == values[:3] and math.isnan(raw.y[3]) and raw.y[4] == 10.0
    assert soft.y[1] == pytest.approx(10 * 0.1 / (1 - 0.81)) and max(soft.y) < 10
    assert "thin: as recorded" in chart.remark


def test_groups_have_a_mean_and_a_band() -> None:
    runs = [record([1.0, 2.0, 3.0], lr=0.1), record([3.0, 4.0], lr=0.1), record([9.0], lr=0.2)]
    (chart,) = curves(runs, ["return"], 0.0, "lr")
    lines = [mark for mark in chart.marks if isinstance(mark, Line)]
    (band,) = [mark for mark in chart.marks if isinstance(mark, Band)]
    means = [mark for mark in lines if mark.name]
    assert [mark.name for mark in means] == ["lr = 0.1 (2 runs)", "lr = 0.2 (1 runs)"]
    assert list(means[0].y) == [2.0, 3.0, 3.0]  # behind the shorter run's end only the longer one counts
    assert list(band.low) == pytest.approx([2 - math.sqrt(2), 3 - math.sqrt(2), 3.0])
    assert len(lines) == 5 and list(lines[0].y) == [1.0, 2.0, 3.0]  # every raw line is there


def test_runs_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = record([1.0, 2.0], lr=0.1), record([3.0, 4.0], lr=0.2)
    assert main(["plot", one.id, two.id, "--out", str(tmp_path / "x.html"), "--group", "lr"]) == 0
    text = (tmp_path / "x.html").read_text()
    assert "lr = 0.1 (1 runs)" in text and one.id in text and two.id in text


def test_mistakes_are_one_line(search: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    own = record([1.0])
    for words, message in [
        (["s", "--out", "x.gif"], "ends in .png, .svg, .pdf, .html"),
        (["--out", "x.png"], "say what to draw"),
        (["s", "--out", "x.html", "--kind", "histori"], "did you mean 'history'"),
        (["s", "s/0", "--out", "x.html"], "one search at a time"),
        (["nothing", "--out", "x.html"], "there is no run 'nothing'"),
        (["s/0", "--out", "x.html", "--kind", "history"], "of runs there are curves only"),
        (["s/0", "--out", "x.html", "--tag", "ac"], "did you mean 'acc'"),
        (["s", "--out", "x.html", "--smooth", "1"], "--smooth is a weight"),
        (["--task", "t", "--out", "x.html"], "unknown search 't'"),
    ]:
        assert main(["plot", *words]) == 1, words
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["plot", own.folder.name, "--out", "x.png", "--root", str(own.folder.parent.parent)]) == 1
    assert "pip install 'operant[plot]'" in capsys.readouterr().err
    assert not [path for path in Path.cwd().iterdir() if path.name.endswith((".png", ".html"))]


def test_smoothing_starts_at_the_first_value() -> None:
    assert smoothed([5.0, 5.0, 5.0], 0.99) == pytest.approx([5.0, 5.0, 5.0])
    assert math.isnan(smoothed([math.nan, 1.0], 0.5)[0])
