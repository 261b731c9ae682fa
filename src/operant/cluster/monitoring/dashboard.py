"""Dashboards for Grafana: ours, from one table, and Ray's own, by Ray's generator."""

from __future__ import annotations

import importlib.util
import json
import warnings
from typing import Any, NamedTuple

SOURCE = {"type": "prometheus", "uid": "operant-prometheus"}
_WIDTH, _HEIGHT = 8, 7


class Panel(NamedTuple):
    title: str
    query: str
    legend: str
    unit: str = "short"
    """As Grafana calls it: https://grafana.com/docs/grafana/latest/panels-visualizations/configure-standard-options/"""
    row: str = ""
    """Begins a row of this name."""


# A run is told by itself and by the page of its folder: `max` takes it once.
PANELS = (
    Panel("Runs by state", "max by (state) (operant_runs)", "{{state}}", row="Runs"),
    Panel("Steps per second", "max by (run) (operant_run_steps_per_second)", "{{run}}"),
    Panel("Mean return", "max by (run, of) (operant_run_return)", "{{run}} {{of}}"),
    Panel("Points recorded per second", "max by (run) (rate(operant_run_points_total[1m]))", "{{run}}"),
    Panel("Age of the last point", "max by (run) (operant_run_writer_lag_seconds)", "{{run}}", "s"),
    Panel("Step reached", "max by (run) (operant_run_step)", "{{run}}"),
    Panel("Searches by state", "max by (state) (operant_searches)", "{{state}}", row="Searches"),
    Panel("Jobs by state", "max by (search, state) (operant_jobs) > 0", "{{search}} {{state}}"),
    Panel("Best reward", "max by (search) (operant_best_reward)", "{{search}}"),
    Panel("Configurations tried", "max by (search) (operant_tries)", "{{search}}"),
    Panel("Jobs that wait", 'max by (search) (operant_jobs{state="PENDING"})', "{{search}}"),
    Panel("Failed jobs", 'max by (search) (operant_jobs{state="ERROR"})', "{{search}}"),
    Panel("Queue of trajectories", 'max by (run) (operant_run_workers{what="queue"})', "{{run}}", row="Workers"),
    Panel("Policy lag (updates)", 'max by (run) (operant_run_workers{what="lag"})', "{{run}}"),
    Panel("Workers started again", 'max by (run) (operant_run_workers{what="restarts"})', "{{run}}"),
    Panel(
        "CPU",
        'max by (run, what) (operant_run_system{what=~".*cpu_percent"})',
        "{{run}} {{what}}",
        "percent",
        "Machine",
    ),
    Panel("GPU", 'max by (run, what) (operant_run_system{what=~"gpu.*_percent"})', "{{run}} {{what}}", "percent"),
    Panel("Memory", 'max by (run) (operant_run_system{what="process_memory_gib"}) * 2^30', "{{run}}", "bytes"),
    Panel(
        "Room on the disk",
        "min by (instance) (operant_disk_free_bytes / operant_disk_size_bytes)",
        "{{instance}}",
        "percentunit",
    ),
    Panel("Runs that failed", 'max by (state) (operant_runs{state=~"ERROR|KILLED"}) or vector(0)', "{{state}}"),
    Panel("Programs that answer Prometheus", 'sum by (job) (up{job=~"operant|ray"})', "{{job}}"),
    Panel("Ray: nodes", "max(ray_cluster_active_nodes)", "nodes", row="Ray"),
    Panel("Ray: CPUs in use", 'sum(ray_resources{Name="CPU", State="USED"})', "in use"),
    Panel("Ray: object store in use", "sum by (instance) (ray_object_store_used_memory)", "{{instance}}", "bytes"),
)


def operant_dashboard() -> dict[str, Any]:
    """Our dashboard as Grafana's JSON model."""
    panels: list[dict[str, Any]] = []
    across = down = 0
    for one in PANELS:
        if one.row:
            down += _HEIGHT if across else 0
            across = 0
            place = {"h": 1, "w": 24, "x": 0, "y": down}
            heading = {"type": "row", "title": one.row, "collapsed": False, "gridPos": place, "panels": []}
            panels.append({"id": len(panels) + 1, **heading})
            down += 1
        panels.append(
            {
                "id": len(panels) + 1,
                "type": "timeseries",
                "title": one.title,
                "datasource": SOURCE,
                "gridPos": {"h": _HEIGHT, "w": _WIDTH, "x": across, "y": down},
                "targets": [{"refId": "A", "datasource": SOURCE, "expr": one.query, "legendFormat": one.legend}],
                "fieldConfig": {"defaults": {"unit": one.unit, "custom": {"drawStyle": "line"}}, "overrides": []},
                "options": {
                    "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
                    "tooltip": {"mode": "multi"},
                },
            }
        )
        across += _WIDTH
        if across >= 24:
            across, down = 0, down + _HEIGHT
    return {
        "uid": "operant",
        "title": "Operant",
        "tags": ["operant"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "timezone": "browser",
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "annotations": {"list": []},
        "templating": {"list": []},
        "panels": panels,
    }


def ray_dashboards() -> dict[str, str]:
    """Ray's own, by file name, from its generator; none where there is no Ray, or one that has no generator."""
    try:
        found = importlib.util.find_spec("ray.dashboard.modules.metrics.grafana_dashboard_factory")
    except ImportError:
        return {}
    if found is None:
        return {}
    from ray.dashboard.modules.metrics import grafana_dashboard_factory as factory

    made = {}
    for name in dir(factory):
        if name.startswith("generate_") and name.endswith("_grafana_dashboard"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)  # it leaves files open
                text, _ = getattr(factory, name)()
            content = _on_our_source(json.loads(text))
            made[f"ray_{name.removeprefix('generate_').removesuffix('_grafana_dashboard')}.json"] = json.dumps(content)
    return made


def _on_our_source(value: Any) -> Any:
    """The same dashboard, its queries sent to the data source that we provision."""
    if isinstance(value, dict):
        return {key: SOURCE if key == "datasource" and one else _on_our_source(one) for key, one in value.items()}
    return [_on_our_source(one) for one in value] if isinstance(value, list) else value
