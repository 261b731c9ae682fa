"""The benchmark scripts run, tell a bar that holds from one that is missed, and survive a peer that does not work."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

from tests.machine import patience

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PEERS = ("tensorboardX", "TensorBoard", "Aim", "MLflow", "W&B", "Trackio")


def run_benchmark(script: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / script), "--quick", *arguments],
        capture_output=True,
        text=True,
        timeout=patience(110),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def fake_peers(folder: Path, script: str) -> Path:
    """An environment that the benchmark takes for a finished one; its `python` is a shell script."""
    python = folder / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    python.chmod(0o755)
    pins = hashlib.sha256((BENCHMARKS / "peers-tracking.txt").read_bytes()).hexdigest()
    (folder / ".ready.json").write_text(json.dumps({"pins": pins, "missing": {}}), encoding="utf-8")
    return folder


def result(seconds: float) -> str:
    cost = {"wall": seconds, "cpu": seconds}
    return json.dumps({"points": 2000, **cost, "bytes": 4000, "shown": 10, "cold": cost})


def test_without_peers_operant_is_measured_and_each_peer_says_why_it_is_not(tmp_path: Path) -> None:
    out = run_benchmark("tracking.py", "--peers", str(tmp_path / "none"))

    for case, call in (
        ("one tag", "add_scalar"),
        ("20 tags", "add_scalar"),
        ("20 in a dict", "add_scalars"),
        ("1,000 at once", "add_array"),
    ):
        assert re.search(rf"\| {case} \| operant \| `{call}` \| [\d,]+ \| [\d,]+ \| \d+ \|", out), out
    for peer in PEERS:
        assert re.search(rf"\| one tag \| {peer} \|[^|]*\| not available: there is no up-to-date none \|", out), out
    assert "2,000 buckets of all points" in out
    assert out.count("not measured") == 4
    assert not (tmp_path / "none").exists(), "a quick run must not make an environment"


def test_bars_follow_the_peers_rates_and_a_peer_that_fails_is_shown_with_its_reason(tmp_path: Path) -> None:
    peers = fake_peers(
        tmp_path / "peers",
        f"""case "$2" in
            Aim) echo '{result(1e-9)}';;
            W*) echo 'ImportError: no luck' >&2; exit 1;;
            Trackio | *server) ;;
            *) echo '{result(1e6)}';;
        esac""",
    )

    out = run_benchmark("tracking.py", "--peers", str(peers), *chosen("tensorboardX", "Aim", "W&B", "Trackio"))

    for case in ("one tag", "20 tags"):
        assert re.search(rf"- tensorboardX, {case}, .*: \*\*holds\*\*", out), out
        assert re.search(rf"- Aim, {case}, .*: \*\*MISSED\*\*", out), out
        assert f"| {case} | W&B | `log`, offline | not available: ImportError: no luck |" in out
        assert f"| {case} | Trackio | `log`, local | not available: it ended without a result |" in out
    assert re.search(r"- TensorBoard's EventAccumulator, .*: \*\*holds\*\*", out), out
    assert "| TensorBoard data server | not available: it ended without a result |" in out
    assert "| MLflow |" not in out, "--only leaves the others out"


def chosen(*recorders: str) -> list[str]:
    return [word for name in recorders for word in ("--only", name)]


def test_startup_measures_every_command(tmp_path: Path) -> None:
    out = run_benchmark("startup.py", "--peers", str(tmp_path / "none"))

    for name in ("python -c pass", "operant --help", "operant init", "from operant import SummaryWriter"):
        assert re.search(rf"\| `{name}` \|( \d+ \|){{4}}", out), out
    assert re.search(r"\| `operant runs`, none \|( \d+ \|){4}", out), out
    assert re.search(r"\| `operant runs`, 20 in the index \|( \d+ \|){4}", out), out
