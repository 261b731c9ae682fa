"""What presets reach, beside a peer with the same settings: IQM over seeds with its bootstrap interval.

    python benchmarks/scores.py                              every row below; what scores.json has is not run again
    python benchmarks/scores.py --presets pendulum-sac --seeds 10
    python benchmarks/scores.py --anew                       ours again, after a change to them
    python benchmarks/scores.py --table                      runs nothing, shows what scores.json has, all seeds
    python benchmarks/scores.py --write                      what was measured, into docs and presets' first lines

The peer is Stable-Baselines3, SBX (its interface on JAX) where that is much quicker to run, Tianshou for C51 and
Rainbow, or BenchMARL, with its own settings, for several agents; presets that are made for workers run with two of
them and have no peer, but APPO our own PPO in one process.
Both sides are judged alike, by greedy episodes on seeds of their own: 20 evaluations of 20 episodes over the training,
then 100 fresh ones with the weights of the best evaluation (`best`: how DQN is to be judged, whose last weights are
often not its best) and 100 with the last weights (`last`). All evaluations of a training begin from the same starts, so
that the best of them is not the one with the easiest. Each training is one line of scores.json, found again by library
and version, preset, settings and seed, so that a run that was stopped goes on; several may run at once. What *level*,
*undecided* and *below* mean is in `operant.training.statistics.verdict`.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from _peers_rl import ONE_THREAD, ensure_peers, peers_python, pinned
from _sb3 import DISTRIBUTIONAL, NOT_THERE, POSITIONS, fingerprint, sb3_settings
from _scored_trainings import FINAL_EPISODES, FINAL_SEED, train_and_judge

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "scores.json"
PRESETS = HERE.parent / "src" / "operant" / "training" / "presets"
DOCS = HERE.parent / "docs" / "algorithms.md"
TABLE_HEAD = (
    "| preset | steps | judged | seeds | Operant | seeds | peer | |",
    "|---|---:|---|---:|---:|---:|---:|---|",
)
SEEDS = 5
WRITTEN = {"tianshou": "Tianshou", "benchmarl": "BenchMARL"}

# Preset and changes -> steps, where the preset's own would take the peer too long: then both sides make fewer.
ROWS: dict[str, int | None] = {
    "cartpole-ppo": None,
    "cartpole-positions-ppo": None,
    "pendulum-positions-ppo": None,
    "mountaincarcontinuous-positions-ppo": None,
    "cartpole-dqn": 20_000,
    "cartpole-c51": None,
    "cartpole-qrdqn": 20_000,
    "cartpole-rainbow": None,
    "cartpole-trpo": None,
    "pendulum-trpo": None,
    "acrobot-c51": None,
    "acrobot-qrdqn": 30_000,
    "acrobot-rainbow": None,
    "acrobot-trpo": None,
    "lunarlander-c51": 50_000,
    "lunarlander-qrdqn": 30_000,
    "lunarlander-rainbow": 50_000,
    "lunarlander-trpo": None,
    "hopper-trpo": 200_000,
    "cartpole-a2c": 100_000,
    "acrobot-ppo": 100_000,
    "acrobot-dqn": 10_000,
    "mountaincar-dqn": None,
    "pendulum-ppo": None,
    "pendulum-a2c": None,
    "lunarlander-ppo": 500_000,
    "lunarlander-dqn": 50_000,
    "pendulum-ddpg": None,
    "pendulum-td3": None,
    "pendulum-sac": None,
    "hopper-ppo": None,
    "halfcheetah-ppo": None,
    "mountaincarcontinuous-sac": None,
    "lunarlandercontinuous-sac": 100_000,
    "lunarlandercontinuous-td3": 100_000,
    "hopper-sac": 100_000,
    "hopper-td3": 100_000,
    "halfcheetah-sac": 100_000,
    "halfcheetah-td3": 100_000,
    "simple-spread-ppo": 60_000,
    "simple-spread-maddpg env.arguments.continuous_actions=true": 60_000,  # BenchMARL's takes no others
}
_LONG = ("lunarlandercontinuous", "hopper", "halfcheetah")
QUICKER_IN_SBX = {preset for preset in ROWS if preset.startswith(_LONG) and preset.endswith(("-sac", "-td3"))}
# With workers; the peer of APPO is our own PPO in one process, after as many steps.
WITH_WORKERS: dict[str, int | None] = {
    "cartpole-impala": None,
    "cartpole-appo": None,
    "cartpole-a3c": None,
    "cartpole-apex": None,
    "cartpole-ars": None,
    "cartpole-es": None,
    "lunarlander-impala": None,
    "lunarlander-appo": None,
    "lunarlander-a3c": None,
    "lunarlander-apex": None,
    "swimmer-ars": None,
    "hopper-ars": None,
    "halfcheetah-ars": None,
}
ROWS |= WITH_WORKERS
OWN_PEERS = {"cartpole-appo": "cartpole-ppo", "lunarlander-appo": "lunarlander-ppo"}
PACKAGES = {"sb3": "stable-baselines3", "sbx": "sbx-rl", "tianshou": "tianshou", "benchmarl": "benchmarl"}
OWN_VENV = ("benchmarl",)


def venv_of(library: str) -> str:
    return library if library in OWN_VENV else "rl"


def run_apart(library: str, settings: dict[str, Any], seed: int) -> dict[str, Any] | None:
    python = sys.executable if library == "operant" else str(peers_python(venv_of(library)))
    done = subprocess.run(
        [python, __file__, "--work", library, str(seed), json.dumps(settings)],
        capture_output=True,
        text=True,
        env={**os.environ, **ONE_THREAD},
    )
    if done.returncode:
        print(f"  {library} seed {seed} failed: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr, flush=True)
        return None
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


class Results:
    """scores.json: library and version -> preset and fingerprint of its settings -> seed -> what came of it.

    `random` has what random actions reach in each environment.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, dict[str, dict[str, Any]]]:
        return json.loads(self.path.read_text(encoding="utf-8")) if self.path.exists() else {}

    def get(self, library: str, row: str, seed: int) -> dict[str, Any] | None:
        return self.read().get(library, {}).get(row, {}).get(str(seed))

    def seeds(self, library: str, row: str) -> list[int]:
        return sorted(map(int, self.read().get(library, {}).get(row, {})))

    def put(self, library: str, row: str, seed: int, found: dict[str, Any]) -> None:
        with (Path(tempfile.gettempdir()) / "operant-scores.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # others may write their rows at the same time
            every = self.read()
            every.setdefault(library, {}).setdefault(row, {})[str(seed)] = found
            beside = self.path.with_suffix(f".{os.getpid()}")
            beside.write_text("".join(_written(every)), encoding="utf-8")
            beside.replace(self.path)


def _written(every: dict[str, dict[str, dict[str, Any]]]) -> list[str]:
    """JSON with one line for each training, so that a new one is one line of a diff."""
    libraries = []
    for library, rows in sorted(every.items()):
        named = []
        for row, seeds in sorted(rows.items()):
            each = [f"   {json.dumps(seed)}: {json.dumps(seeds[seed])}" for seed in sorted(seeds, key=int)]
            named.append(f"  {json.dumps(row)}: {{\n" + ",\n".join(each) + "\n  }")
        libraries.append(f" {json.dumps(library)}: {{\n" + ",\n".join(named) + "\n }")
    return ["{\n", ",\n".join(libraries), "\n}\n"]


def figures(found: list[dict[str, Any]], name: str) -> tuple[float, float, float]:
    from operant.training.statistics import interval

    return interval([one[name] for one in found])


def written(found: list[dict[str, Any]], name: str, digits: int) -> str:
    middle, low, high = figures(found, name)
    return f"{middle:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]".replace("-", "\u2212")


def table_line(
    preset: str, steps: int, name: str, ours: list[dict[str, Any]], theirs: list[dict[str, Any]], chance: float
) -> str:
    from operant.training.statistics import verdict

    columns = [preset, f"{steps:,}", name]
    for found in (ours, theirs):
        columns += [str(len(found)), written(found, name, 1) if found else "not run"]
    judged = verdict(*([one[name] for one in each] for each in (ours, theirs)), chance) if ours and theirs else ""
    return "| " + " | ".join([*columns, judged]) + " |"


def random_return(env: dict[str, Any], results: Results) -> float:
    """The mean return of episodes of random actions."""
    import gymnasium

    env = {**env, "id": POSITIONS.get(env["id"], (env["id"],))[0]}
    row = " ".join([env["id"], *(f"{key}={value}" for key, value in env["arguments"].items())])
    found = results.get("random", row, FINAL_SEED)
    if found is None and env["id"] not in gymnasium.registry:
        found = {"last": round(_random_agents(env), 2), "episodes": FINAL_EPISODES}
        results.put("random", row, FINAL_SEED, found)
    elif found is None:
        made = gymnasium.make(env["id"], **env["arguments"])
        made.reset(seed=FINAL_SEED)
        made.action_space.seed(FINAL_SEED)
        total, episodes = 0.0, 0
        while episodes < FINAL_EPISODES:
            _, reward, terminated, truncated, _ = made.step(made.action_space.sample())
            total += float(reward)
            if terminated or truncated:
                episodes += 1
                made.reset()
        made.close()
        found = {"last": round(total / episodes, 2), "episodes": episodes}
        results.put("random", row, FINAL_SEED, found)
    return float(found["last"])


def _random_agents(env: dict[str, Any]) -> float:
    """The same in an environment that is not Gymnasium's, such as one of several agents."""
    import numpy as np

    from operant.data import tree_map
    from operant.envs import make_env

    made = make_env(env["id"], 1, **env["arguments"])
    made.reset(FINAL_SEED)
    made.single_action_space.seed(FINAL_SEED)
    returns: list[float] = []
    while len(returns) < FINAL_EPISODES:
        step = made.step(tree_map(lambda one: np.asarray(one)[None], made.single_action_space.sample()))
        returns += [] if step.episodes is None else step.episodes.returns.tolist()
    made.close()
    return float(np.mean(returns))


def header(
    config: dict[str, Any], measured: dict[int, tuple[list[dict[str, Any]], list[dict[str, Any]]]], line: str
) -> str:
    """The first line of a preset with what was measured (ours, the peer's); as it was if nothing."""
    peer = "ppo" if config["name"] in OWN_PEERS else peer_of(config["name"])
    name = "best" if config["algorithm"]["name"] in ("dqn", "c51", "qrdqn", "rainbow", "apex_dqn") else "last"
    parts = []
    for steps, (ours, theirs) in sorted(measured.items(), reverse=True):
        if len(ours) >= SEEDS:
            after = "return" if steps == config["total_steps"] else f"after {steps:,}"
            beside = f" ({WRITTEN.get(peer, peer.upper())} {written(theirs, name, 0)})" if len(theirs) >= SEEDS else ""
            parts.append(f"{after} {written(ours, name, 0)} of {len(ours)} seeds{beside}")
    if not parts:
        return line
    start = re.sub(r": (return|after) .*", "", line)
    return f"{start}: {'; '.join(parts)}; IQM, {name} weights"


def write_header(config: dict[str, Any], results: Results) -> None:
    path, whole = PRESETS / f"{config['name']}.yaml", config["total_steps"]
    measured = {steps: gather(config, steps, results) for steps in {ROWS[config["name"]] or whole, whole}}
    line, _, rest = path.read_text(encoding="utf-8").partition("\n")
    path.write_text(f"{header(config, measured, line)}\n{rest}", encoding="utf-8")


def write_table(results: Results) -> None:
    """Every row that was measured in one process, in place of the table of the docs."""
    from operant.training import load_config

    lines = list(TABLE_HEAD)
    for preset in (one for one in ROWS if one not in WITH_WORKERS):
        name, *changes = preset.split()
        config = load_config(name, changes).to_mapping()
        for steps in sorted({ROWS[preset] or config["total_steps"], config["total_steps"]}):
            ours, theirs = gather(config, steps, results)
            chance = random_return(config["env"], results)
            if ours:
                lines += [table_line(preset, steps, judged, ours, theirs, chance) for judged in ("best", "last")]
    text = DOCS.read_text(encoding="utf-8")
    before, _, rest = text.partition(TABLE_HEAD[0])
    _, end, after = rest.partition("\n\n")
    DOCS.write_text(before + "\n".join(lines) + end + after, encoding="utf-8")


def peer_of(preset: str) -> str:
    if preset.startswith("simple-spread"):
        return "benchmarl"
    if preset.rpartition("-")[2] in DISTRIBUTIONAL:
        return "tianshou"
    return "sbx" if preset in QUICKER_IN_SBX else "sb3"


def gather(
    config: dict[str, Any],
    steps: int,
    results: Results,
    runs: tuple[str, ...] = (),
    seeds: range | None = None,
    anew: bool = False,
    changed: str = "",
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Ours and the peer's results of one preset, from scores.json or (of the sides in `runs`) made and put there.

    With `anew` ours are made even if they are there. Without `seeds` every one counts that is there. `changed` names
    the preset with what was changed in it.
    """
    config = {**config, "total_steps": steps}
    if config["name"] in WITH_WORKERS:
        config["workers"] = 2
    settings, peer = sb3_settings(config), peer_of(config["name"])
    row = f"{config['name']} {fingerprint(settings)}"
    command = (
        f"python benchmarks/scores.py --presets {changed or config['name']} --steps {steps} --seeds 1 --first-seed"
    )
    both: list[list[dict[str, Any]]] = []
    for side, library, name, given in (
        ("operant", "operant", "operant", config),
        ("peer", peer, f"{peer} {pinned(PACKAGES[peer])}", settings),
    ):
        found = []
        for seed in results.seeds(name, row) if seeds is None else seeds:
            one = None if anew and side == "operant" else results.get(name, row, seed)
            there = side == "operant" or peer == "benchmarl" or config["algorithm"]["name"] not in NOT_THERE
            if one is None and side in runs and there:
                one = run_apart(library, given, seed)
                if one is not None:
                    one["command"] = f"{command} {seed} --only {side}"
                    results.put(name, row, seed, one)
            if one is not None:
                found.append(one)
        both.append(found)
    if config["name"] in OWN_PEERS:
        from operant.training import load_config

        beside = load_config(OWN_PEERS[config["name"]]).to_mapping()
        return both[0], gather(beside, steps, results, ("operant",) if runs else (), seeds)[0]
    return both[0], both[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", nargs="*", default=list(ROWS))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--first-seed", type=int)
    parser.add_argument("--steps", type=int, help="instead of the preset's own")
    parser.add_argument("--anew", action="store_true", help="run ours also where scores.json has it")
    parser.add_argument("--only", choices=["operant", "peer"], help="run this side; take the other from scores.json")
    parser.add_argument("--table", action="store_true", help="run nothing, show what scores.json has")
    parser.add_argument("--write", action="store_true", help="run nothing, write the figures into docs and presets")
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        print(json.dumps(train_and_judge(args.work[0], int(args.work[1]), json.loads(args.work[2]))))
        return
    from operant.training import load_config

    runs: tuple[str, ...] = () if args.table or args.write else (args.only,) if args.only else ("operant", "peer")
    if "peer" in runs:
        for name in sorted({venv_of(peer_of(preset)) for preset in args.presets}):
            ensure_peers(name)
    results = Results(RESULTS)
    if args.write:
        for preset in ROWS:
            if " " not in preset:
                write_header(load_config(preset).to_mapping(), results)
        write_table(results)
        return
    print("\n".join(TABLE_HEAD))
    for preset in args.presets:
        name, *changes = preset.split()
        config = load_config(name, changes).to_mapping()
        steps = args.steps or ROWS.get(preset) or config["total_steps"]
        seeds = None
        if runs or args.first_seed is not None:
            first = args.first_seed or 0
            seeds = range(first, first + args.seeds)
        ours, theirs = gather(config, steps, results, runs, seeds, args.anew, repr(preset) if changes else "")
        chance = random_return(config["env"], results)
        for judged in ("best", "last"):
            print(table_line(preset, steps, judged, ours, theirs, chance), flush=True)


if __name__ == "__main__":
    main()
