"""Has a change made anything slower? Two work trees, the same work, in turns.

    python benchmarks/regress.py OLD NEW [--rows ppo,a2c] [--rounds 7] [--quick]

OLD and NEW are work trees (`git worktree add ../before main`), each with a `.venv` of its own; one without runs under
this Python. Every turn is a fresh process in an empty folder; the two trees take turns, and who goes first alternates,
so that both meet the same machine. What counts is the CPU time of the process, its threads and its children, without
the imports and the making of what a row works on. The ratio is OLD / NEW, the median over rounds: 1.10 means that NEW
needs a tenth less. Under 0.95 a row is below the bar, and the script ends with 1.

Rows use names and commands that are documented, so that any two versions can be compared. A row that fails in one tree
is told and counts as below the bar.
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
from dataclasses import dataclass
from pathlib import Path

BAR = 0.95

# Printed as the last line; CPU time as `meter.py` counts it, written out because a row imports from its tree alone.
FRAME = """
import json, os, resource, subprocess, sys
SIZE = {size}

def cpu():
    both = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(used.ru_utime + used.ru_stime for used in both)

def called(*words):
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout

{before}
began = cpu()
{code}
print(json.dumps(dict(cpu=cpu() - began)))
"""

HPO = """
from operant.hpo import R, choice, hpo, uniform

def empty(config):
    return 0.0

def search(trials, workers):
    made = hpo(empty).random(silent=True).max_steps(trials).max_workers(workers).maximize(R)
    made.spaces({"x": uniform(0, 1), "y": uniform(0, 1), "k": choice(["a", "b", "c"])}).run()

search(20, WORKERS)  # what is loaded at the first use
"""

FUNCTION = """
from operant.schedulers import NaiveScheduler
from operant.sites import report

def objective(config):
    value = sum(value * value for value in config.values())
    report(0, value)
    return value

def search(name, trials, **options):
    config = {
        "task": {"search_args": [{"type": "Real", "name": f"x{i}", "data": [-1.0, 1.0]} for i in range(16)]},
        "searcher": {"type": "RandomSearcher", "reward_attribute": "acc"},
        "scheduler": {"stop_criterion": {"max_tries": trials}},
    }
    outcome = NaiveScheduler(f".operant/searches/{name}", config, function=objective, **options).run()
    assert outcome.tries == trials, outcome.tries
"""

PROCESSES = """
from pathlib import Path
Path("work").mkdir()
os.chdir("work")
Path("program.py").write_text("import json, sys\\njson.dump({'acc': float(sys.argv[1])}, open('result.json', 'w'))\\n")
Path("search.yaml").write_text(f'''
task:
    template: "{sys.executable} program.py {{x}}"
    search_args: [{{type: Int, name: x, data: [1, {SIZE}]}}]
searcher: {{type: GridSearcher, reward_attribute: acc}}
scheduler: {{parallel_size: 2}}
''')
called("-m", "operant", "init")
"""

TRAIN = """
from operant.training import train
whole = {whole}
points = [f"log.every={{whole // 200}}", f"checkpoint.every={{whole // 10}}"]
quiet = ["evaluation.every=1000000000", "evaluation.episodes=1", "seed=0"]
train("{preset}", [*points, *quiet, "total_steps={warm}"])
"""

SCALARS = """
from operant import SummaryWriter
writer = SummaryWriter("points", system_metrics=False)
for step in range(1000):
    writer.add_scalar("loss", 0.5, step)
"""


@dataclass(frozen=True)
class Row:
    what: str
    size: int
    quick: int
    code: str
    before: str = ""
    made: str = ""
    """Run once, with OLD; every turn gets a copy of the folder it leaves."""

    def script(self, quick: bool, code: str | None = None) -> str:
        size = self.quick if quick else self.size
        return FRAME.format(size=size, before=self.before, code=self.code if code is None else code)


def _training(preset: str, whole: int, warm: int, size: int, quick: int) -> Row:
    return Row(
        f"{preset}: {{size:,}} steps",
        size,
        quick,
        f'train("{preset}", [*points, *quiet, f"total_steps={{SIZE}}"])',
        TRAIN.format(preset=preset, whole=whole, warm=warm),
    )


# Sizes: one to three seconds of CPU on a machine of today, so that a fortieth of it is more than the clock's grain.
ROWS = {
    "inline": Row("hpo: {size:,} trials, one worker", 20_000, 100, "search(SIZE, 1)", HPO.replace("WORKERS", "1")),
    "threads": Row("hpo: {size:,} trials, four threads", 10_000, 100, "search(SIZE, 4)", HPO.replace("WORKERS", "4")),
    "function": Row(
        "NaiveScheduler: {size:,} function trials, 16 parameters, one report",
        20_000,
        100,
        'search("timed", SIZE)',
        FUNCTION + 'search("first", 20)',
    ),
    "processes": Row(
        "operant search: {size:,} jobs, two at a time",
        60,
        4,
        'called("-m", "operant", "search", "--task", "timed", "search.yaml")',
        PROCESSES,
    ),
    "show": Row(
        "operant show: {size:,} jobs, twice",
        10_000,
        100,
        'for _ in range(2): assert len(called("-m", "operant", "show", "--task", "timed").splitlines()) > SIZE',
        FUNCTION,
        'search("timed", SIZE)',
    ),
    "resume": Row(
        "NaiveScheduler: resume of {size:,} jobs and one more",
        100_000,
        100,
        'search("timed", SIZE + 1, resume=True, force=True)',
        FUNCTION,
        'search("timed", SIZE)',
    ),
    "ppo": _training("cartpole-ppo", 100_000, 512, 40_960, 512),
    "a2c": _training("cartpole-a2c", 500_000, 512, 160_000, 512),
    "dqn": _training("cartpole-dqn", 50_000, 1_536, 6_144, 1_536),
    "sac": _training("pendulum-sac", 20_000, 200, 500, 200),
    "add_scalar": Row(
        "SummaryWriter: {size:,} points, close",
        2_000_000,
        1_000,
        'for step in range(SIZE): writer.add_scalar("loss", 0.5, step)\nwriter.close()',
        SCALARS,
    ),
    "import": Row("import operant: {size} times", 20, 2, 'for _ in range(SIZE): called("-c", "import operant")'),
    "writer": Row(
        "from operant import SummaryWriter: {size} times",
        10,
        2,
        'for _ in range(SIZE): called("-c", "from operant import SummaryWriter")',
    ),
    "help": Row("operant --help: {size} times", 20, 2, 'for _ in range(SIZE): called("-m", "operant", "--help")'),
}


class RowError(Exception):
    """A row did not run; says in which tree and why."""


def run_script(tree: Path, script: str, folder: Path) -> float:
    """CPU seconds that the script says it used."""
    python = tree / ".venv" / "bin" / "python"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OPERANT_")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # or the time to compile them is measured, of all that is imported
    environment |= {"PYTHONPATH": str(tree / "src"), "OPERANT_CACHE_DIR": str(folder / "cache"), "HOME": str(folder)}
    environment |= {name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    (folder / ".operant").mkdir(exist_ok=True)
    command = [str(python) if python.exists() else sys.executable, "-c", script]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RowError(f"{tree.name}: {(done.stderr.strip().splitlines() or ['it ended without a word'])[-1]}")
    return float(json.loads(done.stdout.splitlines()[-1])["cpu"])


def measure(row: Row, trees: tuple[Path, Path], rounds: int, quick: bool, scratch: Path) -> list[tuple[float, float]]:
    """CPU seconds of OLD and NEW, for each round."""
    made = scratch / "made"
    made.mkdir()
    if row.made:
        run_script(trees[0], row.script(quick, row.made), made)
    found: list[tuple[float, float]] = []
    for number in range(rounds if quick else rounds + 1):
        taken: dict[Path, float] = {}
        for tree in trees if number % 2 else trees[::-1]:
            folder = scratch / "turn"
            shutil.copytree(made, folder)
            taken[tree] = run_script(tree, row.script(quick), folder)
            shutil.rmtree(folder)
        if number or quick:  # the first round writes byte code and fills the system's caches
            found.append((taken[trees[0]], taken[trees[1]]))
    return found


def told(name: str, what: str, found: list[tuple[float, float]]) -> tuple[str, bool]:
    """A line of the table, and whether its ratio is at least the bar."""
    ratios = [old / new for old, new in found]
    ratio = statistics.median(ratios)
    old, new = (statistics.median(pair[side] for pair in found) for side in (0, 1))
    verdict = "" if ratio >= BAR else f"below {BAR}"
    cells = [name, what, f"{old:.3f}", f"{new:.3f}", f"**{ratio:.2f}**", f"{min(ratios):.2f} to {max(ratios):.2f}"]
    return f"| {' | '.join([*cells, verdict])} |", ratio >= BAR


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, metavar="OLD", help="the work tree of before")
    parser.add_argument("new", type=Path, metavar="NEW", help="the work tree of now")
    parser.add_argument("--rows", default=",".join(ROWS), help="some of: %(default)s")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--quick", action="store_true", help="one small round: shows that rows run in both, measures nothing"
    )
    args = parser.parse_args()
    names = args.rows.split(",")
    if unknown := [name for name in names if name not in ROWS]:
        parser.error(f"no row is called {unknown[0]!r}; rows are {', '.join(ROWS)}")
    trees = (args.old.resolve(), args.new.resolve())
    for tree in trees:
        if not (tree / "src" / "operant").is_dir():
            parser.error(f"{tree} is no work tree of Operant: it has no src/operant")
    rounds = 1 if args.quick else args.rounds
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, rounds: {rounds}. CPU-seconds, medians.\n")
    print("| row | what | OLD | NEW | OLD / NEW | rounds | |\n|---|---|---:|---:|---:|---|---|", flush=True)
    good = True
    for name in names:
        row = ROWS[name]
        what = row.what.format(size=row.quick if args.quick else row.size)
        with tempfile.TemporaryDirectory(prefix="operant-regress-") as scratch:
            try:
                line, holds = told(name, what, measure(row, trees, rounds, args.quick, Path(scratch)))
                good &= holds or args.quick
            except RowError as error:
                line, good = f"| {name} | {what} | | | | | failed in {error} |", False
        print(line, flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
