"""Each address of the API says what the logs say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.web import recorded
from tests.web.asking import Client, MadeSearch, decode_charts, record_run

from operant.tracking import Run
from operant.tracking.journal import collect_messages


def test_overview_and_list_of_searches(client: Client) -> None:
    found = client.get("/api/overview").json
    assert (found["project"], found["searches"], found["runs"], found["running"]) == ("project", 1, 15, 0)
    (one,) = client.get("/api/searches").json["searches"]
    assert (one["name"], one["status"], one["tries"], one["max_tries"]) == ("made", "FINISHED", 14, 12)
    assert one["counts"] == {
        "defined": 14, "waiting": 0, "running": 0, "finished": 14, "success": 13, "abnormal": 1,
    }  # fmt: skip
    assert one["best"]["reward"] == 1.1 and one["best"]["jobs"] == ["11"] and one["best"]["settings"]["units"] == 12
    assert one["seconds_left"] is None and one["ended"] > one["started"]


def test_one_search_in_columns(client: Client) -> None:
    found = client.get("/api/searches/made").json
    jobs = found["jobs"]
    assert {len(column) for column in jobs.values()} == {14} == {len(one) for one in found["settings"].values()}
    assert jobs["id"] == [str(number) for number in range(14)] and jobs["status"][12:] == ["STOPPED", "ERROR"]
    assert jobs["best_so_far"][:3] == [0.0, 0.1, 0.2] and jobs["best_so_far"][-1] == 1.1
    assert jobs["reward"][13] is None and jobs["error"][13] == "exit code 3" and jobs["reason"][12] == "assessor"
    assert set(jobs["lane"]) == {0, 1}  # two at a time
    lr, units, act = found["axes"]
    assert (lr["kind"], lr["log"], lr["low"], lr["high"]) == ("real", True, 1e-5, 0.1)
    assert (units["kind"], units["high"]) == ("int", 64) and act["choices"] == ["relu", "tanh"]
    assert found["yaml"] == "task: {}\n"


def test_pictures_of_a_search(client: Client) -> None:
    found = client.get("/api/searches/made/intermediate").json
    assert found["tag"] == "acc" and found["tags"] == ["acc", "loss"] and len(found["jobs"]) == 14
    assert found["jobs"][10]["steps"] == [0, 1, 2] and found["jobs"][10]["values"] == [0.0, 0.5, 1.0]
    assert [one["id"] for one in found["jobs"] if one["stopped"]] == ["12"]
    scalars = client.get("/api/searches/made/scalars?tags=acc,loss,none").json
    assert scalars["last"]["acc"][:3] == [0.0, 0.1, 0.2] and scalars["last"]["none"] == [None] * 14
    assert scalars["spark"]["loss"][0] == [2.0, 1.0]
    contour = client.get("/api/searches/made/contour?x=lr&y=act").json
    assert contour["y"]["labels"] == ["relu", "tanh"] and contour["x"]["log"]
    assert len(contour["z"]) == 2 and {len(row) for row in contour["z"]} == {len(contour["x"]["values"])}
    assert len(contour["points"]["id"]) == 13 and contour["y"]["values"] == [0, 1]
    assert contour["points"]["y"][:2] == [1, 0]
    assert client.get("/api/searches/made/contour?x=lr&y=axt").json["error"].endswith("did you mean 'act'?")
    lines = client.get("/api/searches/made/log?lines=2").json["lines"]
    assert [one["text"] for one in lines] == ["job 13 error - exit code 3", "the search ended: FINISHED (all done)"]
    assert len(client.get("/api/searches/made/slices").json["slices"]) == 3


def test_importance_finds_what_matters(client: Client) -> None:
    pytest.importorskip("sklearn", reason="operant[search] is not installed")
    found = client.get("/api/searches/made/importance").json
    assert found["names"][0] == "units" and sum(found["importance"]) == pytest.approx(1) and found["trials"] == 13


def test_a_search_without_regions_says_so(client: Client) -> None:
    assert client.get("/api/searches/made").json["has_tree"] is False
    answer = client.get("/api/searches/made/tree")
    assert answer.status == 400 and "its searcher is not LamctsSearcher" in answer.json["error"]


def test_list_of_runs_filters_sorts_and_pages(client: Client) -> None:
    while client.get("/api/runs?limit=0").json["unread"]:  # a request waits for new runs a moment only
        pass
    found = client.get("/api/runs?limit=2&sort=-acc").json
    assert (found["total"], found["matched"], len(found["rows"]), found["unread"]) == (15, 15, 2, 0)
    assert [row["id"] for row in found["rows"]] == ["made/13", "made/12"]
    assert found["rows"][0]["params"]["units"] == 14 and found["rows"][0]["last"] == {"acc": 1.3, "loss": 1.0}
    assert found["tags"] == ["acc", "loss", "x/y"] and found["params"] == ["act", "lr", "units"]
    for text, ids in {
        'tag == "baseline"': ["plain-1"],
        'acc >= 1.2 and status == "FINISHED"': ["made/12", "made/13"],
        'lr < 1e-4 and act == "relu"': ["made/9"],
        "`x/y` > 1": ["plain-1"],
        'search == "made" and loss > 5': [],
        'units in [1, 2] or tag in ["baseline"]': ["made/0", "made/1", "plain-1"],
        "name + 1 > 2": [],
    }.items():
        answer = client.ask("GET", "/api/runs", query=f"sort=id&filter={_quoted(text)}")
        assert [row["id"] for row in answer.json["rows"]] == ids, text
    assert [row["id"] for row in client.get("/api/runs?search=BASE").json["rows"]] == ["plain-1"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lr <", "at character 5"),
        ("accc > 1", "did you mean 'acc'"),
        ("__import__('os')", "unknown argument"),
        ("(" * 300, "nested"),
        ("1" + "+1" * 1900, "too many parts"),
        ("1" * 5000, "at most 4000"),
    ],
)
def test_a_bad_filter_is_a_sentence(client: Client, text: str, said: str) -> None:
    answer = client.ask("GET", "/api/runs", query=f"filter={_quoted(text)}")
    assert answer.status == 400 and said in answer.json["error"] and isinstance(answer.json["position"], int)


def test_rows_of_certain_runs(client: Client) -> None:
    found = client.post("/api/runs/rows", {"ids": ["made/3", "plain", "made/1", "nobody", "made/"]}).json
    assert [row["id"] for row in found["rows"]] == ["made/3", "plain-1", "made/1"]
    assert found["missing"] == ["nobody", "made/"]  # the second fits fourteen


def test_runs_sorted_by_setting_and_scalar(client: Client) -> None:
    def ids(sort: str) -> list[str]:
        return [row["id"] for row in client.get(f"/api/runs?sort={sort}").json["rows"]]

    assert ids("-param.units")[0] == "made/13" and ids("param.units")[-1] == "plain-1"
    assert ids("last.acc")[0] == "made/0" and ids("-last.x/y")[0] == "plain-1" and ids("duration")


def test_one_run(client: Client, root: Path) -> None:
    found = client.get("/api/run?id=made/3").json
    assert (found["search"], found["job"], found["status"], found["streams"]) == ("made", "3", "FINISHED", ["stdout"])
    assert found["params"] == {"lr": 1e-4, "units": 4, "act": "relu"} and found["scalar_tags"] == ["acc", "loss"]
    console = client.get("/api/run/console?id=made/3").json
    assert console["text"] == "job 3\n100%\n" and console["end"] == console["size"]
    assert client.get("/api/run?id=nothing").status == 404
    assert client.get("/api/run/console?id=plain-1").status == 404


def test_charts_are_the_recorded_numbers(client: Client, root: Path) -> None:
    asked = {"runs": ["plain-1", "made/3", "gone"], "tags": ["acc", "x/y"], "buckets": 100}
    answer = client.post("/api/charts", asked)
    _, series = decode_charts(answer.body)
    assert [(one["run"], one["tag"], one["n"]) for one in series] == [
        ("plain-1", "acc", 2), ("plain-1", "x/y", 100), ("made/3", "acc", 3),
    ]  # fmt: skip
    assert series[0]["mean"].tolist() == [0.5, 0.6] and series[0]["x"].tolist() == [0, 1]
    assert series[1]["least"][0] == 0 and series[1]["greatest"][-1] == 9999
    fine = decode_charts(client.post("/api/charts", {**asked, "start": 4000, "end": 4050}).body)[1][1]
    assert fine["x"].tolist() == list(range(4000, 4051)) == fine["mean"].tolist()
    chart = Run(root / "runs" / "plain-1").chart("x/y", 100)
    assert np.array_equal(series[1]["mean"], chart.mean)
    wall = decode_charts(client.post("/api/charts", {**asked, "x": "wall", "start": 1e9 + 10, "end": 1e9 + 12}).body)[1]
    assert wall[1]["x"].tolist() == [1e9 + 10, 1e9 + 11, 1e9 + 12]


def test_groups_have_a_mean_and_a_band(client: Client) -> None:
    runs = [f"made/{number}" for number in range(4)]
    _, series = decode_charts(client.post("/api/charts", {"runs": runs, "tags": ["acc"], "group": "act"}).body)
    assert [one["group"] for one in series] == ["act=relu", "act=tanh"] and series[0]["runs"] == ["made/1", "made/3"]
    assert series[0]["mean"].tolist() == pytest.approx([0, 0.1, 0.2])
    assert (series[0]["high"] - series[0]["mean"])[2] == pytest.approx(np.std([0.1, 0.3], ddof=1))


@pytest.mark.parametrize(
    "body",
    [
        {"runs": "plain-1"},
        {"runs": [1]},
        {"runs": ["plain-1"], "tags": ["acc"], "buckets": 0},
        {"runs": ["plain-1"], "tags": ["acc"], "x": "sideways"},
        {"runs": ["plain-1"], "tags": ["acc"], "start": "now"},
        {"runs": ["plain-1"], "tags": ["acc"], "group": 3},
        {"runs": ["plain-1"], "tags": ["acc"], "buckets": True},
    ],
)
def test_a_bad_charts_request_is_a_sentence(client: Client, body: object) -> None:
    answer = client.post("/api/charts", body)
    assert answer.status == 400 and len(answer.json["error"]) > 10


def test_numbers_that_json_has_not_become_null(root: Path) -> None:
    record_run(root / "runs" / "odd", "odd", {"acc": [float("nan"), float("inf")]})
    (row,) = Client(root).get("/api/runs?search=odd").json["rows"]
    assert row["last"] == {"acc": None}


def test_notes_and_tags_of_a_run_are_there_at_once(client: Client, root: Path) -> None:
    assert client.post("/api/run/note", {"id": "plain-1", "text": "the <b>one</b>"}).json == {"asked": True}
    assert client.post("/api/run/tags", {"id": "plain-1", "add": ["good"], "remove": ["baseline"]}).status == 200
    found = client.get("/api/run?id=plain-1").json
    assert (found["note"], found["tags"]) == ("the <b>one</b>", ["good"])
    (row,) = client.get("/api/runs?search=good").json["rows"]
    assert row["note"] == "the <b>one</b>"
    run = Run.open("plain-1", root)
    assert run.tags == ["good"] and run.note == "the <b>one</b>"
    assert client.post("/api/run/tags", {"id": "plain-1"}).status == 400
    assert client.post("/api/run/note", {"id": "plain-1", "text": "x" * 70_000}).status == 400
    assert client.post("/api/run/stop", {"id": "plain-1"}).status == 400


def test_a_search_without_controller_takes_notes_but_no_commands(client: Client, root: Path) -> None:
    for what in ("stop", "pause", "resume", "jobs/3/stop"):
        assert client.post(f"/api/searches/made/{what}").status == 409
    assert client.post("/api/searches/made/jobs/99/stop").status == 404
    assert client.post("/api/searches/none/stop").status == 404
    assert collect_messages(root / "searches" / "made") == []
    client.post("/api/searches/made/note", {"text": "done well"})
    client.post("/api/searches/made/tags", {"add": ["a", "b"]})
    client.post("/api/searches/made/tags", {"remove": ["a"]})
    (one,) = client.get("/api/searches").json["searches"]
    assert (one["note"], one["tags"]) == ("done well", ["b"])


def test_commands_reach_the_inbox_of_a_running_search(root: Path) -> None:
    search = MadeSearch(root, "live", 2)
    job = search.add_job("RUNNING")
    client = Client(root)
    for path in ("pause", "resume", f"jobs/{job}/stop", "stop"):
        assert client.post(f"/api/searches/live/{path}").json == {"asked": True}
    assert client.post("/api/run/stop", {"id": f"live/{job}"}).json == {"asked": True}
    assert client.post("/api/searches/live/jobs/0/stop").status == 409  # it has ended
    said = [one.content for one in collect_messages(search.folder)]
    stop = {"type": "stop", "jobs": [job]}
    assert said == [{"type": "pause"}, {"type": "resume"}, stop, {"type": "stop"}, stop]
    search.close("KILLED")


def test_a_running_search_says_how_long_it_will_take(root: Path) -> None:
    search = MadeSearch(root, "live", 4)
    search.add_job("RUNNING")
    one = next(one for one in Client(root).get("/api/searches").json["searches"] if one["name"] == "live")
    assert one["status"] == "RUNNING" and one["counts"]["running"] == 1 and one["ended"] is None
    assert 0 < one["seconds_left"] <= 3600 and one["elapsed"] >= 99
    search.close()
    assert next(iter(Client(root).get("/api/searches").json["searches"]))["status"] == "FINISHED"


def test_scores_over_seeds(client: Client, root: Path) -> None:
    runs = recorded.record_seeds(root, "old", [10, 20, 30]) + recorded.record_seeds(root, "new", [25, 35])
    asked = f"runs={','.join(runs)}"
    found = client.get(f"/api/scores?{asked}").json
    new, old = found["groups"]
    assert (new["group"], new["runs"], old["group"], old["runs"]) == ("new", 2, "old", 3)
    assert new["iqm"][0] == 30.0 and old["iqm"][0] == 20.0 and new["better"] is None and new["mixed"] == []
    assert old["better"][0] == pytest.approx(1 / 6) and found["ranges"] == {"Pole": [0.0, 1.0]}
    picture = client.get(f"/api/scores/picture?{asked}&judged=best")
    assert picture.headers["content-type"] == "image/svg+xml" and b"Sample efficiency" in picture.body
    none = client.get("/api/scores?runs=made/1")
    assert none.status == 400 and none.json["error"] == "none of these runs is a finished training with evaluations"


def test_compares(client: Client, root: Path) -> None:
    own = client.get("/api/compares/search:made").json
    assert own["runs"] == [f"made/{number}" for number in range(14)]
    made = client.post("/api/compares", {"name": "A & B", "runs": ["plain-1"]}).json["id"]
    assert client.post(f"/api/compares/{made}/add", {"runs": ["made/1"], "searches": ["made"]}).status == 200
    found = client.get(f"/api/compares/{made}").json
    assert found["name"] == "A & B" and found["runs"][:2] == ["made/0", "made/1"] and len(found["runs"]) == 15
    assert [one["id"] for one in client.get("/api/compares").json["compares"]] == [made]
    assert client.post("/api/compares", {"name": "x", "runs": ["nobody"]}).status == 404
    assert client.get("/api/compares/none").status == 404


def test_a_search_that_took_another_ones_place(root: Path) -> None:
    client = Client(root)
    assert client.get("/api/searches/made").json["summary"]["tries"] == 14
    import shutil

    shutil.rmtree(root / "searches" / "made")
    assert client.get("/api/searches/made").status == 404
    MadeSearch(root, "made", 2).close()
    assert client.get("/api/searches/made").json["summary"]["tries"] == 2


def _quoted(text: str) -> str:
    from urllib.parse import quote

    return quote(text, safe="")
