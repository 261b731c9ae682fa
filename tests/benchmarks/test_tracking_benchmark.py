"""The benchmark scripts run, tell a bar that holds from one that is missed, and survive a peer that does not work."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PEERS = ("tensorboardX", "TensorBoard", "Aim", "MLflow", "W&B", "Trackio")


def run_benchmark(script: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / script), "--quick", *arguments],
        capture_output=True,
        text=True,
        timeout=110,
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


def peer_that_takes(folder: Path, seconds: float) -> Path:
    found = {
        "points": 2000,
        "wall": seconds,
        "cpu": seconds,
        "bytes": 4000,
        "shown": 10,
        "cold": {"wall": seconds, "cpu": seconds},
    }
    return fake_peers(folder, f"echo '{json.dumps(found)}'")


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


@pytest.mark.parametrize(("seconds", "verdict"), [(1e6, "holds"), (1e-9, "MISSED")])
def test_bars_follow_the_peers_rates(tmp_path: Path, seconds: float, verdict: str) -> None:
    out = run_benchmark("tracking.py", "--peers", str(peer_that_takes(tmp_path / "peers", seconds)))

    assert out.count(f"**{verdict}**") == 5, out


def test_a_peer_that_fails_is_shown_with_its_reason(tmp_path: Path) -> None:
    peers = fake_peers(tmp_path / "peers", "echo 'ImportError: no luck' >&2; exit 1")

    out = run_benchmark("tracking.py", "--peers", str(peers), "--only", "Aim")

    assert "| one tag | Aim | `track` | not available: ImportError: no luck |" in out
    assert "tensorboardX |" not in out, "--only leaves the others out"


def test_startup_measures_every_command() -> None:
    out = run_benchmark("startup.py")

    for name in ("python -c pass", "operant --help", "operant init", "from operant import SummaryWriter"):
        assert re.search(rf"\| `{name}` \|( \d+ \|){{4}}", out), out
    assert re.search(r"\| `operant runs`, none \|( \d+ \|){4}", out), out
    assert re.search(r"\| `operant runs`, 20 in the index \|( \d+ \|){4}", out), out
