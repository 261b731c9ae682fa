"""How soon the page shows something, beside TensorBoard and Aim: one browser, the same runs, the same stopwatch.

    python benchmarks/page.py                          # 100 runs x 20 tags x 1,000 points for all, 1,000 x 100 x 1,000
                                                       # for Operant alone, and a writer with ten readers of its stream
    python benchmarks/page.py --only writer            # a part of it
    python benchmarks/page.py --large 200x20x1000      # another large size

Every round starts each server anew and uses it in turn; the table shows the median and the range. Times run from the
action to the picture (see `_page_browser.py`), on Debian's Chromium without a GPU, by Playwright. TensorBoard
is given the time to read its files before the clock starts.

open: first chart    address of a compare of 100 runs -> first chart drawn; TensorBoard: its front page, all 100 runs
open: list of runs   address -> rows
compare 50 runs      address of a compare of 50 -> first chart drawn; TensorBoard: its address with a run filter
zoom                 dragged over the first chart -> settled
filter               a condition (TensorBoard: the last letter of a pattern) typed -> the list shows what fits
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from _page_aim import Aim
from _page_browser import browser
from _page_tools import Operant, TensorBoard, Times
from peers import HERE, VENV, Peers, Unavailable, find_peers

ACTIONS = ("open: first chart", "open: list of runs", "compare 50 runs", "zoom", "filter")
PARTS = ("small", "large", "writer")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--small", type=_size, default=(100, 20, 1000), metavar="RUNSxTAGSxPOINTS")
    parser.add_argument("--large", type=_size, default=(1000, 100, 1000), metavar="RUNSxTAGSxPOINTS")
    parser.add_argument("--only", choices=PARTS, action="append", help="only this part; may be given again")
    parser.add_argument("--tools", default="operant,TensorBoard,Aim", help="which of them (default: all three)")
    parser.add_argument("--peers", type=Path, default=VENV, metavar="FOLDER", help="the peers' virtual environment")
    parser.add_argument("--folder", type=Path, help="where the data go (default: a scratch folder, removed at the end)")
    parser.add_argument("--writer-seconds", type=float, default=10.0)
    parser.add_argument("--readers", type=int, default=10)
    args = parser.parse_args()
    parts = args.only or PARTS
    folder = Path(tempfile.mkdtemp(prefix="operant-page-")) if args.folder is None else args.folder.absolute()
    found: dict[str, Any] = {}
    try:
        if "small" in parts or "large" in parts:
            tools = args.tools.split(",")
            peers = find_peers(args.peers.absolute(), make=any(name != "operant" for name in tools))
            found["pages"] = measure_pages(folder, peers, args, [name for name in tools if name], parts)
        if "writer" in parts:
            found["writer"] = measure_writer(folder, args.rounds, args.writer_seconds, args.readers)
    finally:
        if args.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(found))


def measure_pages(folder: Path, peers: Peers, args: argparse.Namespace, names: list[str], parts: Any) -> dict[str, Any]:
    sizes = {"small": args.small, "large": args.large}
    wanted = [(name, "small") for name in names if "small" in parts] + [("operant", "large")] * ("large" in parts)
    tools: dict[str, tuple[Any, int]] = {}
    for name, size in wanted:
        label = f"{name} {'x'.join(map(str, sizes[size]))}"
        target = folder / f"{name}-{size}"
        try:
            python = peers.python_for(name)
            write_data(python, name, target, sizes[size])
            tools[label] = (_tool(name, python, target, folder), sizes[size][0])
        except Unavailable as error:
            print(f"{label}: not measured, {error}")
    rounds: dict[str, list[Times]] = {label: [] for label in tools}
    for number in range(args.rounds):
        for label, (tool, runs) in tools.items():
            try:
                with tool.serve() as address, browser() as opened:
                    times = tool.use(address, opened, runs)
            except (TimeoutError, RuntimeError) as error:
                print(f"round {number + 1}, {label}: {error}")
                continue
            rounds[label].append(times)
            print(f"round {number + 1}, {label}: {_line(times)}; load {_load()}", flush=True)
    print_pages(rounds)
    return rounds


def write_data(python: Path, name: str, target: Path, size: tuple[int, int, int]) -> None:
    """Make a tool's data unless they are there from an earlier run with ``--folder``."""
    done = target / "written.json"
    if done.exists() and json.loads(done.read_text())["size"] == list(size):
        return
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    command = [str(python), str(HERE / "_page_data.py"), name, str(target), *map(str, size)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    made = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=target)
    if made.returncode:
        raise Unavailable((made.stderr.strip().splitlines() or ["it could not write its data"])[-1])
    facts = json.loads(made.stdout.splitlines()[-1])
    print(f"{name} {'x'.join(map(str, size))}: {facts['bytes'] / 1e6:,.0f} MB written in {facts['seconds']:.0f} s")
    done.write_text(json.dumps({"size": size}))


def _tool(name: str, python: Path, target: Path, folder: Path) -> Any:
    if name == "operant":
        return Operant(target, folder / f"cache-{target.name}")
    return TensorBoard(python, target) if name == "TensorBoard" else Aim(python, target)


def print_pages(rounds: dict[str, list[Times]]) -> None:
    print(f"\n{'seconds: median (least to greatest)':<36}" + "".join(f"{label:>30}" for label in rounds))
    middle: dict[tuple[str, str], float] = {}
    for action in ACTIONS:
        cells = []
        for label, times in rounds.items():
            values = [one[action] for one in times if action in one]
            if not values:
                cells.append("-")
                continue
            middle[label, action] = statistics.median(values)
            cells.append(f"{middle[label, action]:.2f} ({min(values):.2f} to {max(values):.2f})")
        print(f"{action:<36}" + "".join(f"{cell:>30}" for cell in cells))
    ours = [label for label in rounds if label.startswith("operant")]
    theirs = next((label for label in rounds if label.startswith("TensorBoard")), None)
    if theirs is None:
        return
    for label in ours:
        ratios = [
            f"{action} {middle[theirs, action] / middle[label, action]:.1f}x"
            for action in ACTIONS
            if (theirs, action) in middle and (label, action) in middle
        ]
        print(f"{label}, TensorBoard's time over ours: {', '.join(ratios)}")


def measure_writer(folder: Path, rounds: int, seconds: float, readers: int) -> list[dict[str, float]]:
    """Points a second of a writer alone, and with readers of its stream on the other core; in turn."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        print("writer: not measured, it needs two cores")
        return []
    found = []
    for number in range(rounds):
        one: dict[str, float] = {}
        for kind in ("alone", "watched") if number % 2 == 0 else ("watched", "alone"):
            told = _write_once(folder, seconds, cores[0], cores[1], readers if kind == "watched" else 0)
            one[f"{kind}: points a second"] = told["points"] / told["seconds"]
            one[f"{kind}: points a CPU second"] = told["points"] / told["cpu"]
            if kind == "watched":
                one["events to each reader"] = told["events"]
        found.append(one)
        share = one["watched: points a second"] / one["alone: points a second"]
        of_cpu = one["watched: points a CPU second"] / one["alone: points a CPU second"]
        print(
            f"writer, round {number + 1}: alone {one['alone: points a second']:,.0f} a second, with {readers} readers "
            f"{one['watched: points a second']:,.0f} ({share:.1%}; by CPU time {of_cpu:.1%}), "
            f"{one['events to each reader']:.0f} events to each; load {_load()}",
            flush=True,
        )
    return found


def _write_once(folder: Path, seconds: float, core: int, other: int, readers: int) -> dict[str, float]:
    root = Path(tempfile.mkdtemp(prefix="writer-", dir=folder if folder.is_dir() else None))
    (root / ".operant").mkdir()
    script = str(HERE / "_page_writer.py")
    writer = subprocess.Popen(
        [sys.executable, script, "write", str(root), str(seconds), str(core)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert writer.stdout is not None and writer.stdin is not None
    run_id = writer.stdout.readline().strip()
    told: dict[str, float] = {}
    try:
        if readers:
            os.sched_setaffinity(0, {other})  # the server and the readers inherit it
            try:
                with Operant(root, root / "cache").serve() as address:
                    reader = subprocess.Popen(
                        [sys.executable, script, "read", address, run_id, str(readers)],
                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                    )  # fmt: skip
                    assert reader.stdout is not None
                    reader.stdout.readline()
                    told = _let_write(writer)
                    output, _ = reader.communicate("")
                    told["events"] = statistics.mean(json.loads(output.splitlines()[-1])["events"])
            finally:
                os.sched_setaffinity(0, {core, other})
        else:
            told = _let_write(writer)
        writer.wait(60)
    finally:
        writer.kill()
        writer.communicate()
        shutil.rmtree(root, ignore_errors=True)
    return told


def _let_write(writer: subprocess.Popen[str]) -> dict[str, float]:
    assert writer.stdin is not None and writer.stdout is not None
    writer.stdin.write("go\n")
    writer.stdin.flush()
    found: dict[str, float] = json.loads(writer.stdout.readline())
    return found


def _line(times: Times) -> str:
    return ", ".join(f"{action} {seconds:.2f} s" for action, seconds in times.items())


def _load() -> str:
    return Path("/proc/loadavg").read_text().split()[0]


def _size(text: str) -> tuple[int, int, int]:
    runs, tags, points = (int(part) for part in text.split("x"))
    return runs, tags, points


if __name__ == "__main__":
    main()
