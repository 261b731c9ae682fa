"""Replay and environments, Operant and its peers side by side in one process.

    python benchmarks/replay.py            (make bench-replay)

Prioritised replay: one sample and one update of priorities, against Tianshou's. Environments: steps for each CPU-second
of one core, against Gymnasium and EnvPool. Workers: when they pay. Checkpoints of a large buffer: what each writes.

The script makes `.venv-peers-rl` from `peers-rl.txt` and runs itself there, with Operant from this source tree. Sides
take turns, so that whatever else the machine does hits all alike, and the best of the rounds counts.
"""

from __future__ import annotations

import argparse
import functools
import os
import platform
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from _peers_rl import ONE_THREAD, PEERS_PYTHON, ensure_peers

HERE = Path(__file__).resolve().parent

REPLAY_BAR = 3.0
CLASSICS = ("CartPole-v1", "Acrobot-v1", "MountainCar-v0", "Pendulum-v1")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", choices=["replay", "envs", "workers", "checkpoint"])
    options = parser.parse_args()
    if os.environ.get("OPERANT_BENCHMARK_PEERS") != "1":
        return run_among_peers()
    warnings.simplefilter("ignore")
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    parts = {"replay": replay, "envs": envs, "workers": workers, "checkpoint": checkpoint}
    good = True
    for name, part in parts.items():
        if options.only in (None, name):
            good &= part(options.rounds)
    return 0 if good else 1


def run_among_peers() -> int:
    """Make the peers' environment if it is not there as pinned, then run this script in it."""
    ensure_peers()
    environment = {
        **os.environ,
        **ONE_THREAD,
        "OPERANT_BENCHMARK_PEERS": "1",
        "PYTHONPATH": str(HERE.parent / "src"),
    }
    return subprocess.run([str(PEERS_PYTHON), *sys.argv], env=environment).returncode


def best_of(rounds: int, sides: dict[str, Callable[[], None]], clock: Callable[[], float]) -> dict[str, float]:
    """Seconds of each side, the best of the rounds; they take turns."""
    best = dict.fromkeys(sides, float("inf"))
    for _ in range(rounds):
        for name, run in sides.items():
            start = clock()
            run()
            best[name] = min(best[name], clock() - start)
    return best


# Prioritised replay.

NUM_ENVS = 8
SIZES = ((100_000, 4, 64), (100_000, 4, 256), (1_000_000, 17, 64), (1_000_000, 17, 256))


def replay(rounds: int) -> bool:
    """Rows for each size: the two calls alone, and all that a DQN learner does around its networks.

    Both sides hold 8 environments. Tianshou's `sample` gives single steps; its learner then walks to the n-th step,
    fetches what followed and works out the return. Ours gives that with the sample.
    """
    filling = {}
    for name, fill in (("operant", our_buffer), ("Tianshou", tianshou_buffer)):
        fill(80, 4)  # imports, and what numba compiles
        start = time.process_time()
        fill(*SIZES[0][:2])
        filling[name] = (time.process_time() - start) / SIZES[0][0] * NUM_ENVS * 1e6
    mine, other = filling.values()
    print(f"\nprioritised replay, adding a step of {NUM_ENVS} environments: {mine:.0f} us, Tianshou {other:.0f} us")
    print("microseconds of CPU for each batch")
    print(f"{'what':<24} {'buffer':>10} {'obs':>4} {'batch':>6} {'operant':>9} {'Tianshou':>9} {'ratio':>6}")
    worst = {}
    for size, width, batch in SIZES:
        for n_step, what in ((0, "sample, update"), (1, "with targets, 1 step"), (3, "with targets, 3 steps")):
            sides = {"operant": ours(size, width, batch, n_step), "tianshou": tianshou(size, width, batch, n_step)}
            for run in sides.values():  # numba compiles in the first call
                run()
            repeats = 200
            best = best_of(rounds, {name: repeated(run, repeats) for name, run in sides.items()}, time.process_time)
            mine, other = (best[name] / repeats * 1e6 for name in ("operant", "tianshou"))
            worst[what] = min(worst.get(what, 1e9), other / mine)
            print(f"{what:<24} {size:>10,} {width:>4} {batch:>6} {mine:>9.0f} {other:>9.0f} {other / mine:>5.1f}x")
    for what, ratio in worst.items():
        print(f"{what}: at least {ratio:.1f}x Tianshou; the bar is {REPLAY_BAR:.0f}x")
    return min(worst.values()) >= REPLAY_BAR


def repeated(run: Callable[[], None], count: int) -> Callable[[], None]:
    def many() -> None:
        for _ in range(count):
            run()

    return many


def stream(size: int, width: int) -> Iterator[tuple[Any, ...]]:
    """Steps of 8 environments whose episodes end after 200."""
    import numpy as np

    obs = np.random.default_rng(0).random((NUM_ENVS, width), np.float32)
    action, reward = np.zeros(NUM_ENVS, np.int64), np.ones(NUM_ENVS, np.float32)
    for i in range(size // NUM_ENVS):
        following = obs + 1
        yield obs, action, reward, np.full(NUM_ENVS, i % 200 == 199), np.zeros(NUM_ENVS, np.bool_), following
        obs = following


@functools.cache
def our_buffer(size: int, width: int) -> Any:
    from operant.data import PrioritizedReplayBuffer

    buffer = PrioritizedReplayBuffer(size, NUM_ENVS, alpha=0.6, beta=0.4)
    for step in stream(size, width):
        buffer.add(*step)
    return buffer


def ours(size: int, width: int, batch: int, n_step: int) -> Callable[[], None]:
    import numpy as np
    import torch

    buffer, rng = our_buffer(size, width), np.random.default_rng(0)
    priority, value = rng.random(batch), torch.zeros(batch)

    def run() -> None:
        buffer.n_step = 1
        drawn = buffer.sample(batch, rng)
        buffer.update_priorities(drawn["index"], priority, drawn["generation"])

    def run_with_targets() -> None:
        buffer.n_step = n_step
        drawn = buffer.sample(batch, rng)
        torch.from_numpy(drawn["reward"]) + torch.from_numpy(drawn["discount"]) * value
        buffer.update_priorities(drawn["index"], priority, drawn["generation"])

    return run_with_targets if n_step else run


@functools.cache
def tianshou_buffer(size: int, width: int) -> Any:
    from tianshou.data import Batch, PrioritizedVectorReplayBuffer

    buffer = PrioritizedVectorReplayBuffer(size, NUM_ENVS, alpha=0.6, beta=0.4)
    for obs, action, reward, ended, cut, following in stream(size, width):
        step = Batch(obs=obs, act=action, rew=reward, terminated=ended, truncated=cut, obs_next=following, info=Batch())
        buffer.add(step)
    return buffer


def tianshou(size: int, width: int, batch: int, n_step: int) -> Callable[[], None]:
    import numpy as np
    import torch
    from tianshou.algorithm.algorithm_base import Algorithm

    buffer = tianshou_buffer(size, width)
    priority, value = np.random.default_rng(0).random(batch), torch.zeros(batch)

    def run() -> None:
        _, index = buffer.sample(batch)
        buffer.update_weight(index, priority)

    def target(buffer: Any, index: Any) -> Any:
        buffer[index].obs_next  # noqa: B018 - as its DQN does, to give it to the network
        return value

    def run_with_targets() -> None:
        drawn, index = buffer.sample(batch)
        Algorithm.compute_nstep_return(drawn, buffer, index, target, gamma=0.99, n_step=n_step)
        buffer.update_weight(index, priority)

    return run_with_targets if n_step else run


# Environments.


def envs(rounds: int) -> bool:
    print("\nenvironments, thousand steps for each CPU-second of one core")
    print(f"{'task':<16} {'N':>5} {'operant':>9} {'Gymnasium':>10} {'its vector':>11} {'EnvPool':>9}")
    for name in CLASSICS:
        for count in (8, 64, 1024):
            steps = max(20, 4000 // count)
            makers = {"operant": our_env, "sync": sync_env, "vector": vector_env, "envpool": envpool_env}
            if count == 1024:
                del makers["sync"]  # no faster than 64, and slow to make
            sides = {}
            for side, make in makers.items():
                run = make(name, count)
                if run is not None:
                    run()
                    sides[side] = repeated(run, steps)
            best = best_of(rounds, sides, time.process_time)
            rates = {side: f"{steps * count / seconds / 1e3:,.0f}" for side, seconds in best.items()}
            row = [rates.get(side, "-") for side in ("operant", "sync", "vector", "envpool")]
            print(f"{name:<16} {count:>5} {row[0]:>9} {row[1]:>10} {row[2]:>11} {row[3]:>9}")
    return True


def actions_for(space: Any, count: int) -> Any:
    import numpy as np

    rng = np.random.default_rng(0)
    if hasattr(space, "n"):
        return rng.integers(space.n, size=count)
    return rng.uniform(-1, 1, (count, *space.shape)).astype(np.float32)


def our_env(name: str, count: int) -> Callable[[], None]:
    from operant.envs import make_env

    env = make_env(name, count, seed=0)
    env.reset()
    actions = actions_for(env.single_action_space, count)
    return lambda: env.step(actions) and None


def sync_env(name: str, count: int) -> Callable[[], None]:
    import gymnasium

    env = gymnasium.make_vec(name, count, vectorization_mode="sync")
    env.reset(seed=0)
    actions = actions_for(env.single_action_space, count)
    return lambda: env.step(actions) and None


def vector_env(name: str, count: int) -> Callable[[], None] | None:
    import gymnasium

    if gymnasium.spec(name).vector_entry_point is None:
        return None
    env = gymnasium.make_vec(name, count, vectorization_mode="vector_entry_point")
    env.reset(seed=0)
    actions = actions_for(env.single_action_space, count)
    return lambda: env.step(actions) and None


def envpool_env(name: str, count: int) -> Callable[[], None] | None:
    try:
        import envpool
    except ImportError:
        return None
    env = envpool.make_gymnasium(name, num_envs=count, num_threads=1)
    env.reset()
    actions = actions_for(env.action_space, count)
    if actions.dtype.kind == "i":
        actions = actions.astype("int32")
    return lambda: env.step(actions) and None


# Workers.


def workers(rounds: int) -> bool:
    """What a step of all environments costs by the clock, in this process and with two workers."""
    from operant.envs import make_env

    print("\nworker processes, microseconds by the clock for a step of 8 environments (quickest of many)")
    print(f"{'one step of one takes':>22} {'in process':>11} {'2 workers':>10}")
    for micros in (0, 20, 50, 100, 200, 500, 1000):
        quickest = {}
        for count in (0, 2):
            env = make_env("replay_busy:Busy", 8, workers=count, seed=0, micros=micros)
            env.reset()
            actions = actions_for(env.single_action_space, 8)
            times = []
            for _ in range(40 * rounds):
                start = time.perf_counter()
                env.step(actions)
                times.append(time.perf_counter() - start)
            env.close()
            quickest[count] = min(times) * 1e6
        print(f"{micros:>19} us {quickest[0]:>11.0f} {quickest[2]:>10.0f}")
    return True


# Checkpoints.


def checkpoint(rounds: int) -> bool:
    """A buffer of a million steps, saved every 50,000 steps: what each checkpoint writes, and how long it takes."""
    from operant.data import PrioritizedReplayBuffer, ReplayBuffer

    print("\ncheckpoints of 1,000,000 transitions with 17 numbers each, one every 50,000 steps")
    for kind in (ReplayBuffer, PrioritizedReplayBuffer):
        buffer = kind(1_000_000, 8)
        with tempfile.TemporaryDirectory(prefix="operant-benchmark-") as name:
            folder = Path(name)
            sizes, seconds = [], []
            collect(buffer, 1_000_000)
            for _ in range(4):
                before = {path.name for path in folder.iterdir()}
                start = time.perf_counter()
                manifest = buffer.save_chunks(folder)
                seconds.append(time.perf_counter() - start)
                new = [path for path in folder.iterdir() if path.name not in before]
                sizes.append(sum(path.stat().st_size for path in new) / 1e6)
                collect(buffer, 50_000)
            start = time.perf_counter()
            kind(1_000_000, 8).load(folder, manifest)
            loading = time.perf_counter() - start
        told = ", ".join(f"{size:.0f} MB in {second:.2f} s" for size, second in zip(sizes, seconds, strict=True))
        print(f"{kind.__name__}: {told}; loaded in {loading:.2f} s")
    return True


def collect(buffer: Any, steps: int) -> None:
    import numpy as np

    count = buffer.num_envs
    obs, action = np.zeros((count, 17), np.float32), np.zeros((count, 6), np.float32)
    reward, nothing = np.ones(count), np.zeros(count, np.bool_)
    for _ in range(steps // count):
        following = obs + 1
        buffer.add(obs, action, reward, nothing, nothing, following)
        obs = following


if __name__ == "__main__":
    sys.exit(main())
