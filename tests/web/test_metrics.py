"""`/metrics`, read by a strict parser and by a real Prometheus."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest
from tests.machine import patience
from tests.web.asking import Client, MadeSearch, record_run
from tests.web.serving import Page

from operant._util.prometheus import Metric, render

Samples = dict[str, list[tuple[dict[str, str], float]]]


def parse(text: str) -> Samples:
    """The text format, taken strictly: https://prometheus.io/docs/instrumenting/exposition_formats/"""
    import re

    assert text.endswith("\n")
    found: Samples = {}
    declared = ""
    for line in text.splitlines():
        if head := re.fullmatch(r"# (HELP|TYPE) ([a-z_]+) (.+)", line):
            if head[1] == "HELP":
                assert head[2] not in found, "a metric stands in one place"
                declared = head[2]
                found[declared] = []
            else:
                assert head[2] == declared and head[3] in ("gauge", "counter")
                assert (head[3] == "counter") == declared.endswith("_total")
            continue
        sample = re.fullmatch(r"([a-z_]+)(?:\{((?:[a-z]+=\"(?:[^\"\\\n]|\\[\"\\n])*\",?)+)\})? (\S+)", line)
        assert sample is not None and sample[1] == declared, line
        labels = dict(re.findall(r"([a-z]+)=\"((?:[^\"\\]|\\.)*)\"", sample[2] or ""))
        assert labels not in [known for known, _ in found[declared]]
        found[declared].append((labels, float(sample[3])))
    return found


def test_what_is_told(root: Path) -> None:
    search = MadeSearch(root, "live", 3)
    search.add_job("RUNNING")
    said = {"acc": range(1000), "workers/lag": [1.5], "replay/ratio": [8.0], "time/learn": [20.0]}
    recorder = record_run(root / "runs" / "busy", "busy", said, end="")
    answer = Client(root).get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    found = parse(answer.body.decode())
    assert ({"search": "live", "state": "RUNNING"}, 1.0) in found["operant_jobs"]
    assert ({"search": "made", "state": "FINISHED"}, 12.0) in found["operant_jobs"]
    assert ({"search": "made"}, 1.1) in found["operant_best_reward"]
    assert ({"search": "made"}, 0.05) in found["operant_last_reward"]
    assert ({"state": "RUNNING"}, 1.0) in found["operant_searches"] and ({"state": "RUNNING"}, 1.0) in found[
        "operant_runs"
    ]
    assert found["operant_run_points_total"] == [({"run": "busy"}, 1003.0)]
    assert found["operant_run_replay"] == [({"run": "busy", "what": "ratio"}, 8.0)]
    assert found["operant_run_middleware_seconds"] == [({"run": "busy", "what": "learn"}, 0.02)]
    assert found["operant_run_workers"] == [({"run": "busy", "what": "lag"}, 1.5)]
    (steps,), (lag,) = found["operant_run_steps_per_second"], found["operant_run_writer_lag_seconds"]
    assert steps[1] > 0 and lag[1] > 0
    recorder.end("FINISHED")
    search.close()
    assert "operant_run_points_total" not in parse(Client(root).get("/metrics").body.decode())


def test_odd_values_and_labels_are_escaped() -> None:
    gauge = Metric("operant_x", "Odd.")
    gauge.add(float("inf"), run='a"b\\c\nd')
    gauge.add(float("nan"), run="\udcff")
    gauge.add(None, run="absent")
    ((labels, value), (_, odd)) = parse(render([gauge]))["operant_x"]
    assert labels["run"] == 'a\\"b\\\\c\\nd' and value == float("inf") and odd != odd


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="the Debian package prometheus is not installed")
def test_a_real_prometheus_scrapes_it(root: Path, tmp_path: Path) -> None:
    with Page(root) as page, socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
        free.close()
        target = page.address.removeprefix("http://")
        scrape = {"job_name": "operant", "scrape_interval": "1s", "static_configs": [{"targets": [target]}]}
        (tmp_path / "prometheus.yml").write_text(json.dumps({"scrape_configs": [scrape]}))
        command = ["prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data"]
        with (tmp_path / "log").open("wb") as log:
            process = subprocess.Popen(
                [*command, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=subprocess.STDOUT
            )
        try:
            found = _query(port, 'operant_jobs{search="made",state="FINISHED"}')
        finally:
            process.terminate()
            process.wait(20)
    assert found[0]["value"][1] == "12" and found[0]["metric"]["job"] == "operant"


def _query(port: int, text: str) -> list[dict[str, dict[str, str]]]:
    from urllib.parse import quote

    deadline = time.monotonic() + patience(60)
    while True:
        try:
            url = f"http://127.0.0.1:{port}/api/v1/query?query={quote(text)}"
            with urllib.request.urlopen(url, timeout=5) as answer:
                found = json.load(answer)["data"]["result"]
            if found:
                return list(found)
        except OSError:
            pass
        assert time.monotonic() < deadline, "Prometheus has scraped nothing"
        time.sleep(0.1)
