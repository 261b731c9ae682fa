"""What Prometheus and Grafana are given, and programs that tell their metrics."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cluster.prometheus import Searching, ask, free_port
from tests.machine import wait_until
from tests.web.asking import Client

from operant.cli import main
from operant.cluster.monitoring.dashboard import PANELS, operant_dashboard, ray_dashboards
from operant.cluster.monitoring.files import alert_rules, prometheus_config, write_files
from operant.errors import UsageError
from operant.http.server import application
from operant.tracking import SummaryWriter
from operant.tracking.recording.scraping import forget_dead, leave_target, targets_folder

ROOT = Path(".operant")


def targets() -> list[dict[str, Any]]:
    return [json.loads(path.read_text())[0] for path in targets_folder(ROOT.absolute()).glob("*.json")]


def port_of(found: dict[str, Any]) -> int:
    return int(found["targets"][0].rpartition(":")[2])


@pytest.fixture
def wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPERANT_METRICS", "0")


@pytest.mark.usefixtures("wanted")
def test_a_program_tells_of_its_runs_while_they_go_on() -> None:
    with SummaryWriter("one") as one:
        (found,) = targets()
        assert found["labels"]["operant"] == "program" and found["targets"][0].startswith("127.0.0.1:")
        one.add_scalars({"evaluation/return": 7.0, "workers/lag": 2.0}, 40)
        one.flush()
        with SummaryWriter("two"):
            text = ask(port_of(found), "/metrics").decode()
            assert f'operant_run_step{{run="{one.run_id}"}} 40.0' in text
            assert f'operant_run_return{{run="{one.run_id}",of="evaluation"}} 7.0' in text
            assert text.count("# HELP operant_run_points_total") == 1, "two runs, one metric"
            assert "operant_disk_free_bytes " in text
        assert targets(), "one run still goes on"
    assert not targets(), "nobody is left to be scraped"
    with pytest.raises(OSError):
        ask(port_of(found), "/metrics")


@pytest.mark.usefixtures("wanted")
def test_a_search_tells_of_itself() -> None:
    with Searching():
        wait_until(lambda: targets(), "its address")
        (found,) = targets()
        wait_until(lambda: b'operant_jobs{search="hills",state="RUNNING"} 1.0' in ask(port_of(found), "/metrics"))
        assert b'operant_searches{state="RUNNING"} 1.0' in ask(port_of(found), "/metrics")
    assert not targets()


def test_nobody_listens_unless_that_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    before = threading.active_count()
    with SummaryWriter("quiet"):
        assert not targets() and threading.active_count() <= before + 3
    monkeypatch.setenv("OPERANT_METRICS", "many")
    with pytest.raises(UsageError, match="it must be a port"):
        SummaryWriter("wrong")


def test_a_port_that_is_taken_is_not_the_end_of_a_training(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setenv("OPERANT_METRICS", str(taken.getsockname()[1]))
        with SummaryWriter("second"):
            (found,) = targets()
            assert b"operant_run" in ask(port_of(found), "/metrics")


@pytest.mark.usefixtures("wanted")
def test_what_a_killed_program_left_is_forgotten() -> None:
    program = (
        "import os, signal\nfrom operant.tracking import SummaryWriter\nwriter = SummaryWriter('dies')\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=False)
    assert len(targets()) == 1
    leave_target(ROOT.absolute(), "127.0.0.1:1", "page")
    assert [one["labels"]["operant"] for one in targets()] == ["page"]
    (targets_folder(ROOT.absolute()) / "torn.json").write_text('[{"targets"')
    forget_dead(ROOT.absolute())  # what cannot be read is nobody's


def test_serve_tells_of_the_runs_that_it_takes_in() -> None:
    client = Client(ROOT)
    client.app = application(ROOT, "t" * 32, {"operant"})
    with SummaryWriter("sent"):
        answer = client.get("/metrics", authorization=f"Bearer {'t' * 32}", host="operant:8642")
    assert answer.status == 200 and b'operant_runs{state="RUNNING"} 1.0' in answer.body
    assert client.get("/metrics").status == 401


# -- Prometheus and Grafana ------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs Debian's package prometheus")
def test_promtool_takes_the_config_and_the_rules(tmp_path: Path) -> None:
    write_files(tmp_path, tmp_path / "targets", tmp_path / "ray", "http://127.0.0.1:9090", 3000)
    for verb, file in (("config", "prometheus.yml"), ("rules", "rules.yml")):
        done = subprocess.run(
            ["promtool", "check", verb, str(tmp_path / file)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    (tmp_path / "rules.yml").write_text("groups: [{name: a, rules: [{alert: B, expr: 'sum('}]}]")
    assert subprocess.run(["promtool", "check", "rules", str(tmp_path / "rules.yml")], capture_output=True).returncode


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs Debian's package prometheus")
def test_alerts_go_off_when_they_should(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(alert_rules()))
    series = {
        'operant_run_writer_lag_seconds{run="a"}': "0+60x30",
        'operant_run_writer_lag_seconds{run="b"}': "1x30",
        'operant_jobs{search="s",state="ERROR"}': "0 0 0 0 0 4x25",
        'operant_jobs{search="t",state="ERROR"}': "9x30",
        'operant_disk_free_bytes{instance="i"}': "4x30",
        'operant_disk_size_bytes{instance="i"}': "100x30",
    }
    expected = {"OperantTrainingSilent": [{"run": "a"}], "OperantJobsFailing": [{"search": "s"}]}
    expected |= {"OperantDiskFull": [{"instance": "i"}], "OperantJournalDamaged": []}
    words = {rule["alert"]: rule for rule in alert_rules()["groups"][0]["rules"]}

    def told(name: str, labels: dict[str, str]) -> dict[str, Any]:
        text = re.sub(
            r"\{\{ \$labels\.(\w+) \}\}", lambda found: labels[found[1]], words[name]["annotations"]["summary"]
        )
        return {"exp_labels": {**words[name]["labels"], **labels}, "exp_annotations": {"summary": text}}

    tests = [
        {"alertname": name, "eval_time": "15m", "exp_alerts": [told(name, one) for one in found]}
        for name, found in expected.items()
    ]
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    case = {"interval": "1m", "input_series": inputs, "alert_rule_test": tests}
    (tmp_path / "test.yml").write_text(yaml.safe_dump({"rule_files": ["rules.yml"], "tests": [case]}))
    done = subprocess.run(["promtool", "test", "rules", "test.yml"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_scraping_is_by_files() -> None:
    config = prometheus_config(Path("/cache/x"), Path("/tmp/ray"))
    by_name = {one["job_name"]: one["file_sd_configs"][0]["files"] for one in config["scrape_configs"]}
    assert by_name == {"operant": ["/cache/x/*.json"], "ray": ["/tmp/ray/prom_metrics_service_discovery.json"]}


def test_the_dashboard_is_what_grafana_takes() -> None:
    """Its published model: https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model/"""
    board = json.loads(json.dumps(operant_dashboard()))
    types = {"uid": str, "title": str, "tags": list, "schemaVersion": int, "editable": bool, "timezone": str,
             "refresh": str, "time": dict, "annotations": dict, "templating": dict,
             "panels": list, "version": int}  # fmt: skip
    assert set(board) == set(types) and all(isinstance(board[key], kind) for key, kind in types.items())
    panels = board["panels"]
    assert [one["id"] for one in panels] == list(range(1, len(panels) + 1))
    taken: set[tuple[int, int]] = set()
    for one in panels:
        place = one["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken and place["x"] + place["w"] <= 24, one["title"]
        taken |= cells
        assert one["type"] in ("row", "timeseries")
    charts = [one for one in panels if one["type"] == "timeseries"]
    assert [one["targets"][0]["expr"] for one in charts] == [one.query for one in PANELS]
    assert len({one.title for one in PANELS}) == len(PANELS)


def test_every_metric_of_the_dashboard_is_told_in_the_docs() -> None:
    text = (Path(__file__).parents[2] / "docs" / "watching.md").read_text()
    names = {name for one in PANELS for name in re.findall(r"\boperant_\w+", one.query)}
    names |= {
        name for rule in alert_rules()["groups"][0]["rules"] for name in re.findall(r"\boperant_\w+", rule["expr"])
    }
    assert {name for name in names if name not in text} == set()


def test_rays_own_dashboards_ask_our_prometheus() -> None:
    pytest.importorskip("ray")
    found = ray_dashboards()
    assert "ray_default.json" in found
    default = json.loads(found["ray_default.json"])
    assert default["panels"] and '"uid": "operant-prometheus"' in found["ray_default.json"]


def test_prometheus_that_is_not_installed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert main(["monitor", "start"]) == 1
    assert "Prometheus is not installed" in capsys.readouterr().err and (ROOT / "monitor" / "rules.yml").exists()
    assert main(["monitor", "stop"]) == 0 and "nothing runs" in capsys.readouterr().out


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs Debian's package prometheus")
def test_a_port_of_somebody_else_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = str(taken.getsockname()[1])
        assert main(["monitor", "start", "--port", number]) == 1
        assert f"something else listens on 127.0.0.1:{number}" in capsys.readouterr().err
    port = free_port()
    (ROOT / "monitor" / "prometheus-data").write_text("no folder")
    assert main(["monitor", "start", "--port", str(port)]) == 1
    assert "Prometheus does not come up" in capsys.readouterr().err
    assert not (ROOT / "monitor" / "monitor.json").exists()
