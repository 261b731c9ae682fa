"""What Prometheus and Grafana are given: whom to scrape, when to warn, which charts to show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from operant._util.files import write_file
from operant._util.plain_yaml import yaml_text
from operant.cluster.monitoring.dashboard import SOURCE, operant_dashboard, ray_dashboards

_RULES = (
    (
        "OperantTrainingSilent",
        "max by (run) (operant_run_writer_lag_seconds) > 600",
        "2m",
        "warning",
        "{{ $labels.run }} has recorded nothing for ten minutes",
    ),
    (
        "OperantJobsFailing",
        'max by (search) (delta(operant_jobs{state="ERROR"}[15m])) >= 3',
        "0m",
        "warning",
        "three or more jobs of the search {{ $labels.search }} have failed within a quarter of an hour",
    ),
    (
        "OperantDiskFull",
        "min by (instance) (operant_disk_free_bytes / operant_disk_size_bytes) < 0.05",
        "5m",
        "critical",
        "less than 5 % is left of the disk that runs are written to ({{ $labels.instance }})",
    ),
    (
        "OperantJournalDamaged",
        "max by (search) (operant_journal_unreadable_records) > 0",
        "0m",
        "warning",
        "the journal of the search {{ $labels.search }} has records that cannot be read",
    ),
    (
        "OperantRestartsOfWorkers",
        'max by (run) (delta(operant_run_workers{what="restarts"}[15m])) >= 3',
        "0m",
        "warning",
        "workers of {{ $labels.run }} die again and again",
    ),
)


def prometheus_config(targets: Path, ray: Path | None, interval: str = "10s") -> dict[str, Any]:
    """Scrapes whoever leaves an address in ``targets``, and Ray by the file that its head writes."""

    def by_files(name: str, pattern: str) -> dict[str, Any]:
        return {"job_name": name, "file_sd_configs": [{"files": [pattern], "refresh_interval": "5s"}]}

    jobs = [by_files("operant", f"{targets}/*.json")]
    if ray is not None:
        jobs.append(by_files("ray", str(ray / "prom_metrics_service_discovery.json")))
    timing = {"scrape_interval": interval, "evaluation_interval": interval}
    return {"global": timing, "rule_files": ["rules.yml"], "scrape_configs": jobs}


def alert_rules() -> dict[str, Any]:
    """When somebody is to be told."""
    rules = [
        {"alert": name, "expr": query, "for": wait, "labels": {"severity": how}, "annotations": {"summary": words}}
        for name, query, wait, how, words in _RULES
    ]
    return {"groups": [{"name": "operant", "rules": rules}]}


def write_files(
    folder: Path, targets: Path, ray: Path | None, prometheus: str, grafana_port: int, interval: str = "10s"
) -> None:
    """All that both need, below ``folder``. Whoever has files of their own there finds them replaced."""
    write_file(folder / "prometheus.yml", yaml_text(prometheus_config(targets, ray, interval)))
    write_file(folder / "rules.yml", yaml_text(alert_rules()))
    grafana = folder / "grafana"
    source = {"name": "Operant", "access": "proxy", "url": prometheus, "isDefault": True, **SOURCE}
    sources = {"apiVersion": 1, "datasources": [source]}
    write_file(grafana / "provisioning" / "datasources" / "operant.yaml", yaml_text(sources))
    shown = {"name": "operant", "type": "file", "options": {"path": str(grafana / "dashboards")}}
    providers = {"apiVersion": 1, "providers": [shown]}
    write_file(grafana / "provisioning" / "dashboards" / "operant.yaml", yaml_text(providers))
    write_file(grafana / "dashboards" / "operant.json", json.dumps(operant_dashboard(), indent=1))
    for name, text in ray_dashboards().items():
        write_file(grafana / "dashboards" / name, text)
    write_file(grafana / "grafana.ini", _grafana_ini(grafana, grafana_port))


def _grafana_ini(folder: Path, port: int) -> str:
    """On loopback; whoever reaches it may look, and Ray's dashboard may show its panels."""
    return f"""[server]
http_addr = 127.0.0.1
http_port = {port}

[paths]
data = {folder}/data
logs = {folder}/logs
plugins = {folder}/plugins
provisioning = {folder}/provisioning

[security]
allow_embedding = true
disable_gravatar = true

[auth.anonymous]
enabled = true
org_role = Viewer

[analytics]
reporting_enabled = false
check_for_updates = false
check_for_plugin_updates = false
"""
