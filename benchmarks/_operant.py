"""Our side of the training benchmarks: a training that is timed, and one that ends when its task is solved."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["recorded_training", "solve", "time_training"]


@contextmanager
def recorded_training(config: Any) -> Iterator[Any]:
    """A training that is recorded as always, in a folder that is thrown away."""
    from operant.tracking import SummaryWriter
    from operant.training import Training

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / ".operant"
        root.mkdir()
        with SummaryWriter(config.name, root=root) as writer:
            training = Training(config, writer)
            training.begin()
            yield training


def time_training(preset: str, steps: int, seed: int, given: Sequence[str] = ()) -> dict[str, float]:
    """CPU and wall time of so many steps, recording included; making everything is not."""
    from operant.training import load_config

    # Points and checkpoints come as often as in the whole training; one evaluation, of one episode, comes at the end.
    whole = load_config(preset).total_steps
    changes = [*given, f"seed={seed}", f"total_steps={steps}", f"log.every={whole // 200}"]
    changes += [f"checkpoint.every={whole // 10}", "evaluation.every=1000000000", "evaluation.episodes=1"]
    with recorded_training(load_config(preset, changes)) as training:
        startup = time.process_time()
        wall, cpu = time.perf_counter(), time.process_time()
        result = training.run()
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        return {"steps": result.steps, "cpu": cpu, "wall": wall, "startup": startup}


def solve(preset: str, seed: int, limit: int, every: int, good: float) -> dict[str, float]:
    """CPU and wall time until 20 greedy episodes, then 100 others, reach `good`; judging is not counted."""
    from operant.envs import make_env
    from operant.training import TrainConfig, load_config
    from operant.training.evaluating import evaluate

    config = load_config(preset, [f"seed={seed}", f"total_steps={limit}", "evaluation.every=1000000000"]).to_mapping()
    judge_env = make_env(config["env"]["id"], 20)
    judging = {"cpu": 0.0, "wall": 0.0}

    def watch(training: Any) -> Any:
        state = {"step": 0, "judgements": 0}

        def judged(episodes: int) -> float:
            state["judgements"] += 1
            fresh = 1_000_000 + 1_000 * seed + 100 * state["judgements"]
            return evaluate(training.algorithm, judge_env, episodes, fresh, normalizer=training.normalizer).mean

        def _watch(ctx: Any) -> None:
            if training.env_step - state["step"] < every or training.done:
                return
            state["step"] = training.env_step
            cpu, wall = time.process_time(), time.perf_counter()
            reached = judged(20) >= good and judged(100) >= good
            judging["cpu"] += time.process_time() - cpu
            judging["wall"] += time.perf_counter() - wall
            if reached:
                training.done = True
                ctx.finish = True

        return _watch

    config["callbacks"] = [watch]
    with recorded_training(TrainConfig.from_mapping(config)) as training:
        cpu, wall = time.process_time(), time.perf_counter()
        training.run()
        return {
            "steps": training.env_step,
            "cpu": time.process_time() - cpu - judging["cpu"],
            "wall": time.perf_counter() - wall - judging["wall"],
            "solved": float(training.done),
        }
