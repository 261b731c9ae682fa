"""Live: what is appended reaches every stream once, and a stream that comes back misses nothing."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.web.asking import MadeSearch, decode_charts, record_run

from operant.tracking.reading.run import POINT
from operant.tracking.recording.recorder import Recorder
from operant.web.app_state import AppState, Cursor
from operant.web.cache import MOST_RECENT_POINTS
from operant.web.streams import POINTS_A_LOOK, Hub, Stream, thin

Events = list[tuple[str, Any]]


class Listener:
    """A stream that is looked after by hand."""

    def __init__(self, hub: Hub, last_id: str = "", **query: str) -> None:
        self.hub = hub
        self.stream = Stream(hub.app, query, last_id)
        self.stream.open()
        hub._streams.add(self.stream)

    def events(self, *, look: bool = True) -> Events:
        if look:
            self.hub.look()
        return [_parsed(event) for event in self.stream.collect()]

    def of(self, kind: str) -> list[Any]:
        return [content for name, content in self.events() if name == kind]


def _parsed(event: bytes) -> tuple[str, Any]:
    fields = dict(line.split(": ", 1) for line in event.decode().strip().split("\n"))
    assert fields["id"]
    return fields["event"], json.loads(fields["data"])


@pytest.fixture
def hub(root: Path) -> Hub:
    return Hub(AppState(root))


def add(recorder: Recorder, tag: str, first: int, values: list[float]) -> None:
    steps = np.arange(first, first + len(values), dtype="<i8")
    recorder.add_array(tag, steps, 1e9 + steps.astype("<f8"), np.array(values, "<f8"))


def test_points_arrive_once_at_every_stream(hub: Hub, root: Path) -> None:
    recorder = record_run(root / "runs" / "live", "live", {"acc": [0.0]}, end="")
    one, other = Listener(hub, runs="live", tags="acc"), Listener(hub, runs="live", tags="acc,loss", x="wall")
    assert [kind for kind, _ in one.events()] == ["run"]  # what was there is the chart's to show
    assert other.events()[0][1]["status"] == "RUNNING"
    add(recorder, "acc", 1, [0.5, 0.6])
    add(recorder, "loss", 0, [9.0])
    assert one.of("points") == [{"run": "live", "tag": "acc", "x": [1, 2], "value": [0.5, 0.6]}]
    assert [point["x"] for point in other.of("points")] == [[1e9 + 1, 1e9 + 2], [1e9]]
    assert one.events() == [] == other.events()
    recorder.end("FINISHED")
    assert one.of("run")[0]["status"] == "FINISHED"


def test_without_tags_every_tag_is_sent(hub: Hub, root: Path) -> None:
    recorder = record_run(root / "runs" / "live", "live", {"acc": [0.0]}, end="")
    stream = Listener(hub, runs="live")
    stream.events()
    add(recorder, "acc", 1, [1.0])
    add(recorder, "new", 0, [2.0])
    assert {one["tag"] for one in stream.of("points")} == {"acc", "new"}


def test_a_stream_that_comes_back_goes_on_where_it_was(hub: Hub, root: Path) -> None:
    recorder = record_run(root / "runs" / "live", "live", {"acc": [0.0]}, end="")
    first = Listener(hub, runs="live", tags="acc")
    first.events()
    add(recorder, "acc", 1, [1.0])
    first.events()
    mark = str(first.stream.cursor)
    add(recorder, "acc", 2, [2.0])
    first.events()  # the others saw it while this one was away
    again = Listener(hub, mark, runs="live", tags="acc")
    assert [one["value"] for one in again.of("points")] == [[2.0]]
    elsewhere = Listener(hub, mark.replace(hub.app.instance, "00000000"), runs="live", tags="acc")
    assert elsewhere.of("points") == []  # another server's cursor says nothing here


def test_nothing_is_lost_between_chart_and_stream(hub: Hub, root: Path) -> None:
    from operant.web.answers import ApiRequest
    from operant.web.charts import charts

    recorder = record_run(root / "runs" / "live", "live", {"acc": [0.0, 1.0]}, end="")
    header, (line,) = decode_charts(charts(hub.app, ApiRequest(body={"runs": ["live"], "tags": ["acc"]})).body)
    assert line["n"] == 2
    add(recorder, "acc", 2, [2.0])
    stream = Listener(hub, runs="live", tags="acc", after=header["cursor"])
    assert [one["value"] for one in stream.of("points")] == [[2.0]]


def test_a_reader_that_is_too_slow_is_told_to_fetch_anew(hub: Hub, root: Path) -> None:
    recorder = record_run(root / "runs" / "live", "live", {"acc": [0.0]}, end="")
    slow = Listener(hub, runs="live", tags="acc")
    slow.events()
    for part in range(3):
        add(recorder, "acc", 1 + part * MOST_RECENT_POINTS, [0.0] * MOST_RECENT_POINTS)
        hub.look()
    kinds = [kind for kind, _ in slow.events()]
    assert "reset" in kinds and "reset" not in [kind for kind, _ in slow.events()]


def test_a_resumed_run_is_told_to_fetch_anew(hub: Hub, root: Path) -> None:
    recorder = record_run(root / "runs" / "live", "live", {"acc": [0.0, 1.0, 2.0]}, end="")
    stream = Listener(hub, runs="live", tags="acc")
    stream.events()
    recorder.begin_attempt(2, 0)
    add(recorder, "acc", 1, [7.0])
    assert {kind for kind, _ in stream.events()} == {"run", "reset", "points"}
    recorder.end("FINISHED")


def test_a_job_that_records_later_is_picked_up(hub: Hub, root: Path) -> None:
    stream = Listener(hub, runs="later", tags="acc")
    assert stream.events() == []
    record_run(root / "runs" / "later", "later", {"acc": [1.0]})
    assert {kind for kind, _ in stream.events()} >= {"run"}


def test_a_search_comes_whole_and_then_by_what_changed(hub: Hub, root: Path) -> None:
    search = MadeSearch(root, "live", 3)
    stream = Listener(hub, search="live")
    ((kind, content),) = stream.events()
    assert kind == "search" and len(content["jobs"]) == 3 and content["jobs"][0]["settings"]["units"] == 1
    assert stream.events() == []
    job = search.add_job("RUNNING")
    (changed,) = stream.of("search")
    assert [one["id"] for one in changed["jobs"]] == [job] and changed["summary"]["counts"]["running"] == 1
    mark = str(stream.stream.cursor)
    search.close()
    (ended,) = stream.of("search")
    assert ended["summary"]["status"] == "FINISHED"
    assert [(one["id"], one["status"]) for one in ended["jobs"]] == [(job, "ERROR")]  # it died with its controller
    again = Listener(hub, mark, search="live")
    assert [len(one["jobs"]) for one in again.of("search")] == [1]


def test_the_list_is_sent_when_it_changes(hub: Hub, root: Path) -> None:
    stream = Listener(hub, list="1")
    assert stream.of("list")[0]["runs"] == {"total": 15, "running": 0}
    hub._list_due = 0.0
    assert stream.of("list") == []
    record_run(root / "runs" / "new", "new", {"acc": [1.0]}, end="")
    hub._list_due = 0.0
    assert stream.of("list")[0]["runs"] == {"total": 16, "running": 1}


def test_only_streams_with_news_are_woken(hub: Hub, root: Path) -> None:
    recorder = record_run(root / "runs" / "live", "live", {"acc": [0.0]}, end="")
    streams = [Listener(hub, runs="live", tags="acc"), Listener(hub, search="made"), Listener(hub, runs="plain-1")]
    for one in streams:
        one.events()
    add(recorder, "acc", 1, [1.0])
    assert hub.look() == [streams[0].stream]
    assert hub.look() == []


def test_no_spike_is_thinned_away() -> None:
    points = np.zeros(50_000, POINT)
    points["step"] = np.arange(50_000)
    points["value"][[777, 40_001]] = [5.0, -5.0]
    points["value"][10] = np.nan
    x, values = thin(points, "step", 0.0)
    assert len(x) <= POINTS_A_LOOK and 777 in x and 40_001 in x and x == sorted(x) and x[-1] == 49_999
    assert max(values) == 5.0 and min(values) == -5.0


@pytest.mark.parametrize("text", ["", "x", "abc.s1", "deadbeef.s", "deadbeef.q1", "deadbeef.s1.r2.s3", "deadbeef.s-1"])
def test_odd_cursors_say_nothing(text: str) -> None:
    assert Cursor.parse(text, "deadbeef") == Cursor("deadbeef")


def test_cursors_are_read_as_they_were_written() -> None:
    cursor = Cursor("deadbeef", 3, 9)
    assert Cursor.parse(str(cursor), "deadbeef") == cursor
    assert Cursor.parse("deadbeef.s3,deadbeef.r9", "deadbeef") == cursor


def test_a_stream_ends_with_the_server(hub: Hub) -> None:
    async def follow() -> list[bytes]:
        stream = Stream(hub.app, {"list": "1"}, "")
        stream.open()
        got = []
        async for event in hub._follow(stream):
            got.append(event)
            if b"event: list" in event:
                hub.close()
        return got

    got = asyncio.run(asyncio.wait_for(follow(), 20))
    assert got[0] == b"retry: 2000\n\n" and not hub._streams
