"""How many files a reader passes on the three ways through Operant, and how much of the source is said twice.

    python benchmarks/journeys.py [--tree FOLDER]          `make journeys`; another work tree with --tree

Three things are done and every call is traced, in all threads of the process:

  search   the second of three jobs of `operant search`, from the return of `searcher.propose` to that of
           `searcher.observe`; what runs in the job's own process (the wrapper, the program) is not traced
  train    `operant train cartpole-ppo`, from the first step of the environments to the first checkpoint
  chart    a point, from `add_scalar` and `flush` to the answer of the page's server to `POST /api/charts`

files      files of Operant in which a function ran
switches   pairs (function that calls, function that is called) that lie in different files, each counted once however
           often it happens: places where a reader turns to another file. Calls through libraries count for the nearest
           function of Operant's below; what imports run does not count.
repeated   lines that belong to a run of at least six which stands elsewhere too (blank lines, comments, imports and
           lone brackets apart); all but the first of the places count
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import io
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

LEAST = 6


class Tracer:
    """Collects, while it is on, which functions of ``package`` call which."""

    def __init__(self, package: Path) -> None:
        self._package = str(package) + os.sep
        self._known: dict[CodeType, str | None] = {}
        self.on = False
        self.starts: Callable[[CodeType], bool] = lambda code: False
        """Asked of every function while it is off: does the journey begin here?"""
        self.calls: set[tuple[CodeType | None, CodeType]] = set()

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        if event != "call" or self.file(frame.f_code) is None:
            return
        if not self.on:
            if not self.starts(frame.f_code):
                return
            self.on, self.starts = True, lambda code: False
        caller = frame.f_back
        while caller is not None and self.file(caller.f_code) is None:
            caller = caller.f_back
        above = None if caller is None else caller.f_code
        if _is_function(frame.f_code) and (above is None or _is_function(above)):
            self.calls.add((above, frame.f_code))

    def file(self, code: CodeType) -> str | None:
        """The file of the package that the code is from."""
        if code not in self._known:
            inside = code.co_filename.startswith(self._package)
            self._known[code] = code.co_filename.removeprefix(self._package) if inside else None
        return self._known[code]

    def found(self) -> dict[str, Any]:
        if not self.calls:
            raise SystemExit("the journey never began")
        hops = [(self.file(above), self.file(code)) for above, code in self.calls if above is not None]
        files = {self.file(code) for pair in self.calls for code in pair if code is not None}
        return {"files": sorted(filter(None, files)), "switches": sum(one != other for one, other in hops)}


def _is_function(code: CodeType) -> bool:
    return bool(code.co_flags & inspect.CO_OPTIMIZED)  # not the body of a module or of a class


@contextmanager
def tracing(tracer: Tracer) -> Iterator[None]:
    threading.setprofile(tracer)
    sys.setprofile(tracer)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


def operant(*words: str) -> None:
    from operant.cli import main

    with contextlib.redirect_stdout(io.StringIO()):
        assert main(list(words)) == 0


SEARCH = """
task:
    template: "{python} program.py {{x}}"
    search_args: [{{type: Int, name: x, data: [1, 3]}}]
searcher: {{type: TracedSearcher, reward_attribute: acc}}
scheduler: {{parallel_size: 1}}
"""
PROGRAM = """
import sys
from operant import SummaryWriter
with SummaryWriter("job") as writer:
    writer.add_scalar("acc", float(sys.argv[1]), 1)
"""


def search(tracer: Tracer) -> None:
    from operant.searchers import SEARCHERS, GridSearcher

    @SEARCHERS.register_module()
    class TracedSearcher(GridSearcher):
        proposed: Any = None

        def propose(self) -> Any:
            proposal = super().propose()
            if self.proposed is None and proposal is not None and proposal.number == 1:
                self.proposed, tracer.on = proposal, True
            return proposal

        def observe(self, observation: Any) -> None:
            super().observe(observation)
            if self.proposed is not None and observation.number == self.proposed.number:
                tracer.on = False

    Path("program.py").write_text(PROGRAM, encoding="utf-8")
    Path("search.yaml").write_text(SEARCH.format(python=sys.executable), encoding="utf-8")
    with tracing(tracer):
        operant("search", "--task", "traced", "search.yaml")


def train(tracer: Tracer) -> None:
    from operant.training import CheckpointStore

    save = CheckpointStore.save

    def saved(*args: Any, **options: Any) -> Any:
        try:
            return save(*args, **options)
        finally:
            tracer.on = False

    CheckpointStore.save = saved  # type: ignore[method-assign]
    tracer.starts = lambda code: code.co_name == "step" and (tracer.file(code) or "").startswith("envs" + os.sep)
    with tracing(tracer):
        operant("train", "cartpole-ppo", "total_steps=1024", "checkpoint.every=512", "evaluation.every=512")


def chart(tracer: Tracer) -> None:
    from operant import SummaryWriter

    with tracing(tracer):
        writer = SummaryWriter("traced")
        tracer.on = True
        writer.add_scalar("return", 0.5, 1)
        writer.flush()
        tracer.on = False
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            from operant.cli import main

            threading.Thread(target=main, args=(["ui", "--port", "0"],), daemon=True).start()
            while not said.getvalue().endswith("\n"):
                time.sleep(0.02)
        asked = json.dumps({"runs": [writer.run_id], "tags": ["return"]}).encode()
        request = urllib.request.Request(f"{said.getvalue().split()[-1]}/api/charts", asked)
        request.add_header("Content-Type", "application/json")
        tracer.on = True
        with urllib.request.urlopen(request) as answer:
            assert b"return" in answer.read()
        tracer.on = False
        writer.close()


JOURNEYS = {"search": search, "train": train, "chart": chart}


def repeated(files: dict[str, list[str]]) -> int:
    """Lines in runs of at least six that stand elsewhere too, all places but the first."""
    places: dict[tuple[str, ...], list[tuple[str, int]]] = defaultdict(list)
    for name, lines in files.items():
        for start in range(len(lines) - LEAST + 1):
            places[tuple(lines[start : start + LEAST])].append((name, start))
    again: set[tuple[str, int]] = set()
    for found in places.values():
        for name, start in found[1:]:
            again |= {(name, start + offset) for offset in range(LEAST)}
    return len(again)


def told_lines(text: str) -> list[str]:
    """The lines that say something of their own."""
    lines = [line.strip() for line in text.splitlines()]
    empty = ("#", "import ", "from ")
    return [line for line in lines if line.strip("()[]{},:") and not line.startswith(empty)]


def trace(name: str, tree: Path) -> dict[str, Any]:
    """What one journey passes, in a process and a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="operant-journeys-") as folder:
        Path(folder, ".operant").mkdir()
        environment = {key: value for key, value in os.environ.items() if not key.startswith("OPERANT_")}
        environment |= {"PYTHONPATH": str(tree / "src"), "OPERANT_CACHE_DIR": str(Path(folder, "cache"))}
        command = [sys.executable, str(Path(__file__).resolve()), "--tree", str(tree), "--only", name]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"the journey {name} failed: {(done.stderr.strip().splitlines() or ['without a word'])[-1]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = Path(__file__).resolve().parents[1]
    parser.add_argument("--tree", type=Path, default=here, metavar="FOLDER", help="the work tree (default: this one)")
    parser.add_argument("--files", action="store_true", help="name the files, too")
    parser.add_argument("--only", choices=JOURNEYS, help="trace one, in this process and this folder; prints JSON")
    args = parser.parse_args()
    package = args.tree.resolve() / "src" / "operant"
    if args.only:
        tracer = Tracer(package)
        JOURNEYS[args.only](tracer)
        print(json.dumps(tracer.found()))
        return
    print("| journey | files | switches |\n|---|---:|---:|")
    for name in JOURNEYS:
        found = trace(name, args.tree.resolve())
        print(f"| {name} | {len(found['files'])} | {found['switches']} |", flush=True)
        if args.files:
            print("\n".join(f"    {file}" for file in found["files"]))
    texts = {str(file): file.read_text(encoding="utf-8") for file in sorted(package.rglob("*.py"))}
    counts = [len(text.splitlines()) for text in texts.values()]
    print(f"\n{sum(counts):,} lines of Python in {len(counts)} files, the longest {max(counts)}; ", end="")
    print(f"{repeated({name: told_lines(text) for name, text in texts.items()}):,} repeated")


if __name__ == "__main__":
    main()
