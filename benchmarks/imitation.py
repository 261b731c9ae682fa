"""How near cloning and GAIL come to the expert whose episodes they learn from, an agent of our own.

    python benchmarks/imitation.py [pendulum-bc hopper-gail ...] [--seeds 5] [--first-seed 0] [--episodes 50]

The expert is trained once and its episodes are kept in --folder; what every seed came to is one line of
`imitation.jsonl` beside this file, so that a run that was stopped goes on. Returns are of 100 greedy episodes with the
last weights, the expert's with its best ones, which were recorded, from the same starts.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from _scored_trainings import EPISODES, FINAL_EPISODES, FINAL_SEED, train_ours
from scores import RESULTS, Results, random_return

PRESETS = ("pendulum-bc", "pendulum-gail", "hopper-bc", "hopper-gail")
KEPT = Path(__file__).with_name("imitation.jsonl")
# Task -> the expert's preset and steps. Its seed is none of those that learn from it.
EXPERTS = {"pendulum": ("pendulum-sac", None), "hopper": ("hopper-trpo", 400_000)}
EXPERT_SEED = 100


def record_expert(task: str, episodes: int, folder: Path) -> Path:
    from operant.cli import main
    from operant.training import load_config

    preset, steps = EXPERTS[task]
    root, file = folder / task / ".operant", folder / f"{task}-{episodes}.npz"
    if file.exists():
        return file
    shutil.rmtree(root, ignore_errors=True)  # of a training that was stopped
    root.mkdir(parents=True)
    total = steps or load_config(preset).total_steps
    assert main(["train", preset, f"total_steps={total}", f"seed={EXPERT_SEED}", "--root", str(root)]) == 0
    recorded = ["record", "last", "--episodes", str(episodes), "--output", str(file), "--seed", str(FINAL_SEED)]
    assert main([*recorded, "--root", str(root)]) == 0
    return file


def expert_return(task: str, folder: Path, seed: int) -> float:
    from operant.envs import make_env
    from operant.training import load_policy
    from operant.training.evaluating import evaluate

    expert = load_policy("last", folder / task / ".operant")
    expert.env.close()
    env = make_env(expert.config.env.id, EPISODES)
    found = evaluate(expert.policy, env, FINAL_EPISODES, FINAL_SEED + seed, normalizer=expert.normalizer)
    env.close()
    return found.mean


def kept() -> dict[tuple[str, int, int], dict[str, Any]]:
    lines = KEPT.read_text(encoding="utf-8").splitlines() if KEPT.exists() else []
    found = [json.loads(line) for line in lines]
    return {(one["preset"], one["episodes"], one["seed"]): one for one in found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("presets", nargs="*", default=list(PRESETS), metavar="PRESET", help=", ".join(PRESETS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--episodes", type=int, default=50, help="of the expert's, to learn from")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "operant-imitation")
    args = parser.parse_args()
    from operant.training import load_config

    print("| preset | seeds | IQM and interval | expert | random |\n|---|---:|---:|---:|---:|")
    for preset in args.presets:
        task = preset.partition("-")[0]
        file = record_expert(task, args.episodes, args.folder)
        config = load_config(preset, [f"algorithm.expert={file}"]).to_mapping()
        for seed in range(args.first_seed, args.first_seed + args.seeds):
            if (preset, args.episodes, seed) in kept():
                continue
            began = time.process_time()
            found = train_ours(config, seed)
            one = {"preset": preset, "episodes": args.episodes, "seed": seed, "last": round(found["last"], 2)}
            one["cpu"] = round(time.process_time() - began, 1)
            one["expert"] = round(expert_return(task, args.folder, seed), 2)
            with KEPT.open("a", encoding="utf-8") as log:
                log.write(json.dumps(one) + "\n")
        lasts = [one for key, one in kept().items() if key[:2] == (preset, args.episodes)]
        print(_line(preset, lasts, random_return(config["env"], Results(RESULTS))), flush=True)


def _line(preset: str, found: list[dict[str, Any]], chance: float) -> str:
    from operant.training.statistics import interval

    middle, low, high = interval([one["last"] for one in found])
    expert = statistics.fmean(one["expert"] for one in found)
    return f"| {preset} | {len(found)} | {middle:.1f} [{low:.1f}, {high:.1f}] | {expert:.1f} | {chance:.1f} |"


if __name__ == "__main__":
    main()
