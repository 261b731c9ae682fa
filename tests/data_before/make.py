"""Makes the data of this folder; run by the Python of the version whose data is to be kept (see README.md).

    PYTHONPATH=BEFORE/src python make.py FOLDER

A run records its machine, so README.md does this in a namespace with another host name and other paths.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

PROGRAM = """
import os, sys, time
from operant import SummaryWriter

x = float(sys.argv[1])
with SummaryWriter("job", system_metrics=False) as writer:
    for step in range(5):
        writer.add_scalar("score", 10 - (x - 3) ** 2 + step, step)
    writer.flush()
    time.sleep(60 if x > 3 and "HOLD" in os.environ else 0)
if x == 5:
    sys.exit("five is not liked")
"""
SEARCH = """
task:
    template: "python program.py {x}"
    search_args: [{type: Int, name: x, data: [1, 6]}]
searcher: {type: GridSearcher, reward_attribute: score}
scheduler: {parallel_size: 1, filter_criterion: x == 2}
"""
SMALL = ["seed=3", "model.hidden=[8]", "env.num_envs=2", "checkpoint.keep=1", "evaluation.episodes=2"]
TRAININGS = {
    "ppo": ["algorithm.rollout=32", "algorithm.minibatch=32", "algorithm.epochs=2", "env.normalize_obs=true"],
    "dqn": [
        "algorithm.buffer=400",
        "algorithm.prioritized=true",
        "algorithm.n_step=3",
        "algorithm.learning_starts=64",
        "algorithm.learning_rate=0.01",
    ],
}


def operant(*words: str) -> int:
    from operant.cli import main

    return main(list(words))


def searches(root: Path) -> None:
    """One that ended, with a filtered proposal, a failed job and a note; one whose controller was killed."""
    Path("program.py").write_text(PROGRAM.lstrip(), encoding="utf-8")
    Path("search.yaml").write_text(SEARCH.lstrip(), encoding="utf-8")
    operant("search", "--task", "finished", "search.yaml")
    stopped = root / "searches" / "stopped"
    program = "import make, sys; sys.exit(make.operant('search', '--task', 'stopped', 'search.yaml'))"
    held = os.environ | {"HOLD": "1"}
    controller = subprocess.Popen([sys.executable, "-c", program], env=held, start_new_session=True)
    while len(list(stopped.glob("jobs/*/exit-1.json"))) < 2 or len(list(stopped.glob("jobs/*/run"))) < 3:
        time.sleep(0.05)
    time.sleep(1.0)
    controller.kill()
    controller.wait()
    time.sleep(1.0)


def function(config: dict[str, Any]) -> dict[str, float]:
    return {"score": -((config["x"] - 0.3) ** 2), "cost": 2.0}


def fluent() -> None:
    from operant.hpo import R, choice, hpo, uniform

    search = hpo(function).tpe(silent=True).name("fluent").seed(1).max_steps(6).max_workers(1)
    search.spaces({"x": uniform(0, 1), "kind": choice(["a", "b"])}).maximize(R["score"]).run()


def every_record(seen: dict[str, Any]) -> None:
    import numpy as np

    from operant import Run, SummaryWriter

    Path("kept.txt").write_text("a file\n", encoding="utf-8")
    config = {"lr": 0.1, "nested": {"deep": [1, 2]}}
    with SummaryWriter("all", config=config, tags=["old", "kept"], system_metrics=False) as writer:
        for step in range(20):
            writer.add_scalar("return", step**0.5, step)
        writer.add_scalar("return", float("nan"), 20)
        writer.add_scalars({"loss": 0.25, "entropy": 0.5}, 3)
        writer.add_array("many", np.linspace(0, 1, 50), np.arange(50))
        writer.add_text("log", "a *line*", 1)
        writer.add_image("picture", np.full((4, 6, 3), 200, np.uint8), 2, dataformats="HWC")
        writer.add_video("film", np.zeros((3, 8, 8, 3), np.uint8), 2, fps=5)
        writer.add_audio("sound", np.zeros(80, np.float32), 2, sample_rate=8000)
        writer.add_histogram("weights", np.arange(30.0), 4)
        writer.add_hparams({"batch": 8}, {"best": 4.0})
        writer.add_pr_curve("curve", np.array([0, 1, 1, 0]), np.array([0.1, 0.8, 0.6, 0.3]), 1, num_thresholds=5)
        writer.add_mesh("mesh", np.zeros((1, 3, 3)), global_step=1)
        writer.add_file("kept.txt")
        run_id = writer.run_id
    with SummaryWriter(run=run_id, resumed_from=10, system_metrics=False) as writer:
        for step in range(11, 15):
            writer.add_scalar("return", 100.0 + step, step)
    operant("runs", "note", run_id, "kept for later", "--add", "noted")
    run = Run.open(run_id)
    tags = {tag: [list(map(float, (p["step"], p["value"]))) for p in run.scalars(tag)] for tag in run.scalar_tags}
    seen["run"] = {
        "id": run_id,
        "name": run.name,
        "status": run.status,
        "attempt": run.attempt,
        "params": run.params,
        "tags": run.tags,
        "note": run.note,
        "scalars": tags,
        "superseded": len(run.scalars("return", superseded=True)),
        "text": [[one.tag, one.step, one.text] for one in run.text()],
        "media": sorted([one.tag, one.step, one.path.name] for one in run.media()),
        "histograms": [one["tag"] for one in run.histograms()],
        "files": sorted(run.files),
    }


def trainings(seen: dict[str, Any]) -> None:
    import numpy as np

    from operant.training import load_policy, train

    for name, changes in TRAININGS.items():
        every = ["checkpoint.every=256", "evaluation.every=256", "total_steps=512"]
        result = train(f"cartpole-{name}", [*SMALL, *changes, *every])
        policy = load_policy(result.run_id)
        actions = np.asarray(policy.act(np.array(seen["observations"], np.float32)))
        seen[name] = {"run": result.run_id, "best": result.best_return, "actions": actions.tolist()}


def launched() -> None:
    from operant.auto import generate_algorithm_config, generate_env_config, generate_training_config, launch

    config = generate_algorithm_config("DQN", {"frame_config": {"model": {"hidden": [8]}, "batch_size": 16}})
    config["train_env_config"] = {"render_every_episode": None}
    config["test_env_config"] = {"render_every_episode": None, "episodes": 2}
    config = generate_env_config("openai_gym", config)
    config = generate_training_config("trial", 3, 6, config, early_stopping_patience=None)
    launch({**config, "gpus": None})


def main() -> None:
    folder = Path(sys.argv[1]).absolute()
    here = Path(__file__).absolute().parent
    folder.mkdir(parents=True)
    root = folder / ".operant"
    for name in [name for name in os.environ if name.startswith("OPERANT_")]:
        del os.environ[name]
    os.environ |= {"OPERANT_CACHE_DIR": str(folder / "cache"), "HOME": str(folder), "USER": "user"}
    os.environ["PYTHONPATH"] = os.pathsep.join([str(here), os.environ["PYTHONPATH"]])
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    os.chdir(folder)
    operant("init")
    draw = random.Random(0)
    observations = [[round(draw.gauss(0.0, 0.3), 3) for _ in range(4)] for _ in range(40)]
    seen: dict[str, Any] = {"observations": observations}
    searches(root)
    fluent()
    every_record(seen)
    trainings(seen)
    launched()
    Path("seen.json").write_text(json.dumps(seen), encoding="utf-8")
    for cache in ("cache", ".cache"):
        shutil.rmtree(folder / cache, ignore_errors=True)
    with tarfile.open(here / "before.tar.gz", "w:gz", compresslevel=9) as archive:
        archive.add(folder, ".", filter=_nobodys)


def _nobodys(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main()
