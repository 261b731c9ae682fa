"""What it costs to record a point and to draw a chart: Operant and its peers, side by side in one run.

    make bench-tracking

Every measurement is a process of its own in an empty folder. The recorders take turns, so that whatever
else the machine does hits all of them alike, and the best of the rounds counts. Rates are per CPU-second
of the process, its threads and its child processes, from the first point to the last byte in a file
(the recorder's close is inside, its start is not); rates by the clock stand beside them.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peers import VENV, Peers, Unavailable, find_peers, run_script

# Case -> the call of each recorder that has one for it.
CALLS = {
    "one tag": {
        "operant": "`add_scalar`",
        "tensorboardX": "`add_scalar`",
        "TensorBoard": "`EventFileWriter`",
        "Aim": "`track`",
        "MLflow": "`log_metric`, SQLite",
        "W&B": "`log`, offline",
        "Trackio": "`log`, local",
    },
    "20 tags": {
        "operant": "`add_scalar`",
        "tensorboardX": "`add_scalar`",
        "TensorBoard": "`EventFileWriter`",
        "Aim": "`track`",
        "MLflow": "`log_metric`, SQLite",
        "W&B": "`log`, offline",
        "Trackio": "`log`, local",
    },
    "20 in a dict": {
        "operant": "`add_scalars`",
        "Aim": "`track`",
        "MLflow": "`log_batch`, SQLite",
        "W&B": "`log`, offline",
        "Trackio": "`log`, local",
    },
    "1,000 at once": {
        "operant": "`add_array`",
        "MLflow": "`log_batch`, SQLite",
    },
}
# Points per CPU-second that Operant must record at least, as a multiple of the peer's.
RECORDING_BARS = {"tensorboardX": 100, "Aim": 300}
CHART_BAR = 100

FIRST_TRY = {"operant": 100_000, "MLflow": 60}
EVENTS = 200_000


@dataclass
class Row:
    case: str
    recorder: str
    points: int
    per_cpu: float = 0.0
    per_wall: float = 0.0
    bytes_per_point: float = 0.0
    missing: str = ""

    def measure(self, peers: Peers, points: int) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(prefix="operant-benchmark-") as folder:
            python = peers.python_for(self.recorder)
            return run_script(
                python, "recorders.py", self.recorder, self.case, str(points), folder, folder=Path(folder)
            )

    def calibrate(self, peers: Peers, seconds: float) -> None:
        """Find how many points take about ``seconds``."""
        for _ in range(3):
            try:
                found = self.measure(peers, self.points)
            except Unavailable as error:
                self.missing = str(error)
                return
            self.points = max(20, int(found["points"] * seconds / max(found["wall"], 1e-3)))
            # In a short try the close weighs too much: such a rate is not to be trusted.
            if found["wall"] > seconds / 2:
                return

    def take_turn(self, peers: Peers) -> None:
        if self.missing:
            return
        try:
            found = self.measure(peers, self.points)
        except Unavailable as error:
            self.missing = str(error)
            return
        self.per_cpu = max(self.per_cpu, found["points"] / found["cpu"])
        self.per_wall = max(self.per_wall, found["points"] / found["wall"])
        self.bytes_per_point = found["bytes"] / found["points"]


@dataclass
class Charts:
    points: int
    best: dict[str, dict[str, Any]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def take_turn(self, name: str, python: Path, points: int, folder: Path) -> None:
        try:
            found = run_script(python, "charts.py", name, str(points), str(folder), folder=folder)
        except Unavailable as error:
            self.missing[name] = str(error)
            return
        if found["points"] != points:
            raise SystemExit(f"{name} read {found['points']} points of {points}: the comparison would be worthless")
        known = self.best.get(name)
        if known is None or found["cold"]["cpu"] < known["cold"]["cpu"]:
            self.best[name] = found

    def per_point(self, name: str) -> float:
        found = self.best[name]
        return float(found["cold"]["cpu"] / found["points"])


def measure_recording(peers: Peers, rounds: int, seconds: float | None, recorders: list[str] | None) -> list[Row]:
    """Without ``seconds`` every measurement is as short as a first try."""
    rows = [
        Row(case, name, FIRST_TRY.get(name, 3000))
        for case, calls in CALLS.items()
        for name in calls
        if recorders is None or name in recorders
    ]
    if seconds is not None:
        for row in rows:
            row.calibrate(peers, seconds)
            _progress(f"{row.recorder}, {row.case}: {row.missing or f'{row.points:,} points a round'}")
    for number in range(rounds):
        _progress(f"round {number + 1} of {rounds}")
        for row in rows:
            row.take_turn(peers)
    return rows


def measure_charts(peers: Peers, rounds: int, points: int, events: int) -> Charts:
    charts = Charts(points)
    python = Path(sys.executable)
    tensorboard = python if peers.python is None or "TensorBoard" in peers.missing else peers.python
    with tempfile.TemporaryDirectory(prefix="operant-benchmark-") as folder:
        runs, logs, long_logs = (Path(folder, name) for name in ("runs", "logs", "long-logs"))
        # The Rust loader is so fast that in a short file its start would count for more than its work.
        many = events * 10
        for where, action, count in (
            (runs, "write-operant", points),
            (logs, "write-events", events),
            (long_logs, "write-events", many),
        ):
            where.mkdir()
            run_script(python, "charts.py", action, str(count), str(where), folder=where)
        for number in range(rounds):
            _progress(f"charts, round {number + 1} of {rounds}")
            charts.take_turn("operant", python, points, runs)
            charts.take_turn("TensorBoard", tensorboard, events, logs)
            charts.take_turn("TensorBoard data server", tensorboard, many, long_logs)
    return charts


def recording_table(rows: list[Row]) -> list[str]:
    own = {row.case: row.per_cpu for row in rows if row.recorder == "operant"}
    lines = [
        "| case | recorder | call | points / CPU-s | points / s by the clock | bytes / point | Operant, per CPU-s |",
        "|---|---|---|---:|---:|---:|---:|",
    ]
    for row in rows:
        begin = f"| {row.case} | {row.recorder} | {CALLS[row.case][row.recorder]} |"
        if row.missing:
            lines.append(f"{begin} not available: {row.missing} | | | |")
        else:
            ratio = "" if row.recorder == "operant" else f"{own[row.case] / row.per_cpu:,.0f} ×"
            lines.append(
                f"{begin} {_round(row.per_cpu)} | {_round(row.per_wall)} | {row.bytes_per_point:,.0f} | {ratio} |"
            )
    return lines


def chart_table(charts: Charts) -> list[str]:
    scaled = f"{charts.points:,} points"
    lines = [
        "| reader | points in the file | kept for the chart | first chart, CPU-s | by the clock, s "
        f"| scaled to {scaled}, CPU-s | Operant |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name in ("operant", "TensorBoard", "TensorBoard data server"):
        if name in charts.missing:
            lines.append(f"| {name} | not available: {charts.missing[name]} | | | | | |")
            continue
        one = charts.best[name]
        cold = one["cold"]
        kept = f"{one['shown']:,} buckets of all points" if name == "operant" else f"a sample of {one['shown']:,}"
        ratio = "" if name == "operant" else f"{charts.per_point(name) / charts.per_point('operant'):,.1f} ×"
        lines.append(
            f"| {name} | {one['points']:,} | {kept} | {cold['cpu']:.3g} | {cold['wall']:.3g} | "
            f"{charts.per_point(name) * charts.points:,.3g} | {ratio} |"
        )
    return lines


def bars(rows: list[Row], charts: Charts) -> list[str]:
    own = {row.case: row.per_cpu for row in rows if row.recorder == "operant" and not row.missing}
    lines = []
    for case in ("one tag", "20 tags"):
        for peer, bar in RECORDING_BARS.items():
            row = next((row for row in rows if row.case == case and row.recorder == peer), None)
            if row is None or row.missing or case not in own:
                lines.append(f"- {peer}, {case}: not measured (the bar is {bar} ×)")
            else:
                lines.append(_verdict(f"{peer}, {case}, per point by CPU-second", own[case] / row.per_cpu, bar))
    if "operant" in charts.best and "TensorBoard" in charts.best:
        ratio = charts.per_point("TensorBoard") / charts.per_point("operant")
        lines.append(_verdict("TensorBoard's EventAccumulator, first chart, per point by CPU-second", ratio, CHART_BAR))
    else:
        lines.append(f"- TensorBoard's EventAccumulator, first chart: not measured (the bar is {CHART_BAR} ×)")
    return lines


def _verdict(what: str, ratio: float, bar: int) -> str:
    return f"- {what}: {ratio:,.0f} ×, the bar is {bar} ×: **{'holds' if ratio >= bar else 'MISSED'}**"


def _round(number: float) -> str:
    """Three digits tell all that such a measurement knows."""
    return f"{float(f'{number:.3g}'):,.0f}"


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few points, to see that it works; makes no environment")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="about how long one measurement takes")
    parser.add_argument("--only", action="append", metavar="RECORDER", help="Operant and this one; may be repeated")
    parser.add_argument("--peers", type=Path, default=VENV, metavar="FOLDER", help="the peers' virtual environment")
    args = parser.parse_args()
    rounds, seconds, points, events = args.rounds, args.seconds, 10_000_000, EVENTS
    if args.quick:
        rounds, seconds, points, events = 1, None, 100_000, 2000
    chosen = None if args.only is None else ["operant", *args.only]
    peers = find_peers(args.peers.absolute(), make=not args.quick)
    rows = measure_recording(peers, rounds, seconds, chosen)
    charts = measure_charts(peers, rounds, points, events)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    print(f"{os.cpu_count()} cores, {memory:.0f} GiB, Python {platform.python_version()}, best of {rounds}.\n")
    print("\n".join(recording_table(rows)), end="\n\n")
    print("\n".join(chart_table(charts)), end="\n\n")
    if "operant" in charts.best:
        own = charts.best["operant"]
        again, zoomed = own["warm"]["wall"] * 1000, own["zoomed"]["wall"] * 1000
        print(f"Operant draws the same chart again in {again:.1f} ms and a sixth of it in {zoomed:.1f} ms.\n")
    print("\n".join(bars(rows, charts)))


if __name__ == "__main__":
    main()
