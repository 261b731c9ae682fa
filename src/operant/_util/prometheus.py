"""Metrics in the text format that Prometheus scrapes (version 0.0.4)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metric:
    """One metric with its samples; a counter's name ends in ``_total``, a unit is a part of the name."""

    def __init__(self, name: str, text: str, kind: str = "gauge") -> None:
        self.name, self.text, self.kind = name, text, kind
        self.samples: list[tuple[dict[str, str], float]] = []

    def add(self, value: float | None, **labels: str) -> None:
        if value is not None:
            self.samples.append((labels, float(value)))


def render(metrics: Iterable[Metric]) -> str:
    lines = []
    for metric in metrics:
        if not metric.samples:
            continue
        lines += [f"# HELP {metric.name} {metric.text}", f"# TYPE {metric.name} {metric.kind}"]
        for labels, value in metric.samples:
            inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
            lines.append(f"{metric.name}{{{inside}}} {_number(value)}" if inside else f"{metric.name} {_number(value)}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    clean = text.encode("utf-8", "replace").decode()
    return clean.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: Any) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(float(value))
