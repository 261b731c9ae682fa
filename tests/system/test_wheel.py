"""The wheel, installed into an empty environment with the dependencies it names and no extra, works."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]


def run(*words: object, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    elsewhere = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run([str(word) for word in words], cwd=folder, env=elsewhere, capture_output=True, text=True)


def needed(found: Distribution, seen: set[str]) -> Iterator[Distribution]:
    """What an installer would bring with it: its dependencies without extras, and theirs."""
    for text in found.requires or []:
        requirement = Requirement(text)
        name = requirement.name.lower()
        if name not in seen and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            seen.add(name)
            dependency = distribution(name)
            yield dependency
            yield from needed(dependency, seen)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    done = run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder, folder=ROOT)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("operant-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment that has the wheel; no package index is asked."""
    venv = tmp_path_factory.mktemp("empty") / "venv"
    assert run(sys.executable, "-m", "venv", "--without-pip", venv).returncode == 0
    python = venv / "bin" / "python"
    done = run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel)
    assert done.returncode == 0, done.stderr
    (packages,) = venv.glob("lib/python*/site-packages")
    dependencies = list(needed(distribution("operant"), set()))
    for found in dependencies:
        for top in {file.parts[0] for file in found.files or [] if file.parts[0] not in ("..", "__pycache__")}:
            (packages / top).symlink_to(Path(str(found.locate_file(top))))
    assert {"numpy", "psutil", "pyyaml", "rich"} <= {found.metadata["Name"].lower() for found in dependencies}
    return python.parent


def test_it_holds_what_is_no_python(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for part in ("operant/py.typed", "operant/web/static/index.html", "operant/training/presets/cartpole-ppo.yaml"):
        assert part in names
    assert not [name for name in names if not re.match(r"operant(-[^/]*\.dist-info)?/", name)]


def test_light_commands_run_without_extras(installed: Path, tmp_path: Path) -> None:
    operant = installed / "operant"
    for words in (["--help"], ["init"], ["runs"], ["train", "--list"]):
        done = run(operant, *words, folder=tmp_path)
        assert done.returncode == 0, done.stderr
    program = (
        "import operant\nfrom operant import Run, SummaryWriter\n"
        "with SummaryWriter('first') as writer: writer.add_scalar('return', 3.0, 1)\n"
        "print(operant.__file__, Run.open('last').latest('return').value)"
    )
    done = run(installed / "python", "-c", program, folder=tmp_path)
    assert done.stdout.startswith(str(installed.parent)) and done.stdout.endswith(" 3.0\n"), done.stderr
    assert "first" in run(operant, "runs", folder=tmp_path).stdout


SEARCH = """
task: {template: "echo acc {lr}", search_args: [{type: Real, name: lr, data: [0.1, 1.0]}]}
searcher: {type: TpeSearcher, reward_attribute: acc, pattern: "acc {value}"}
"""
CALLS = {
    "init": "", "runs": "", "compact": "", "sync": "", "sites": "", "top": "", "show": "", "auto": "list",
    "search": "--task s s.yaml [search]", "train": "cartpole-ppo [rl]", "view": "last [rl]", "ui": "[web]",
    "record": "last [rl]", "serve": "[web]", "fire": "simulate s.yaml [rl]", "harness": "[harness]",
    "task": "-m operant:Run --engine ray [ray]", "plot": "nothing --out a.png", "export": "last --to parquet",
    "import": "no.tar.gz", "import-tensorboard": "nowhere", "stop": "-t no", "restart": "-t no", "rm": "-t no",
    "join": "no", "replay": "no", "compare-scores": "no", "monitor": "stop",
    "cluster": "jobs --address http://127.0.0.1:9 [ray]",
    "bench": "search --func ackley --dims 2 --searchers tpe --seeds 1 --samples 5 --workers 1 --out bench [search]",
}  # fmt: skip
"""Each command with words that reach its work, and the extra that it then asks for."""
CALL_ALL = """
import contextlib, io, json, sys
from operant.cli import COMMANDS, main

if __name__ == "__main__":
    calls, said = json.loads(sys.argv[1]), {}
    assert calls.keys() == COMMANDS.keys()
    for name, words in calls.items():
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as errors:
            code = main([name, *words.partition("[")[0].split()])
        said[name] = (code, errors.getvalue())
    print(json.dumps(said))
"""


def test_every_command_runs_or_names_in_one_sentence_what_it_lacks(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(SEARCH)
    (tmp_path / "all.py").write_text(CALL_ALL)
    done = run(installed / "python", "all.py", json.dumps(CALLS), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    for name, (code, error) in json.loads(done.stdout).items():
        _, _, extra = CALLS[name].partition("[")
        assert error.count("\n") == (1 if code else 0), (name, error)
        assert not extra or f"pip install 'operant[{extra}'" in error, (name, error)


def test_the_readme_names_every_extra() -> None:
    told = (ROOT / "README.md").read_text(encoding="utf-8")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert not [extra for extra in extras if f"`{extra}`" not in told]
