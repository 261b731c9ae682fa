"""One training of a row of scores.json, by us or by a peer, judged as `scores.py` says."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from _sb3 import make_model, make_vector_env

EPISODES, JUDGEMENTS, FINAL_EPISODES = 20, 20, 100
EVALUATION_SEED, FINAL_SEED = 1_000_000, 2_000_000


@contextmanager
def flushed_denormals() -> Iterator[None]:
    """Box2D takes several times as long for a lander that lies still, with speeds that are almost nothing."""
    import torch

    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def train_and_judge(library: str, seed: int, settings: dict[str, Any]) -> dict[str, Any]:
    began = time.process_time()
    if library == "operant":
        found = train_ours(settings, seed)
    elif library == "tianshou":
        found = train_tianshou(settings, seed)
    elif library == "benchmarl":
        from _benchmarl import train

        seeds = EVALUATION_SEED + seed, FINAL_SEED + seed
        found = train(settings, seed, (EPISODES, FINAL_EPISODES), seeds)
    else:
        found = train_peer(library, settings, seed)
    found["curve"] = [round(mean, 1) for mean in found["curve"]]
    return {**found, "cpu": round(time.process_time() - began, 1)}


def train_ours(config: dict[str, Any], seed: int) -> dict[str, Any]:
    from operant.envs import make_env
    from operant.tracking import SummaryWriter
    from operant.training import TrainConfig, Training
    from operant.training.checkpoints import read_weights
    from operant.training.evaluating import evaluate

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / ".operant"
        root.mkdir()
        with SummaryWriter(config["name"], root=root) as writer:
            training = Training(TrainConfig.from_mapping({**config, "seed": seed}), writer)
            training.begin()
            result = training.run()
        env = make_env(config["env"]["id"], EPISODES, seed=seed, **config["env"]["arguments"])

        def judged() -> float:
            found = evaluate(training.algorithm, env, FINAL_EPISODES, FINAL_SEED + seed, normalizer=training.normalizer)
            return found.mean

        last = judged()
        weights, about = read_weights(result.folder / "best" / "weights.safetensors")
        training.algorithm.load_weights(weights)
        if training.normalizer is not None:
            training.normalizer.load_state_dict(about["normalizer"])
        return {
            "best": judged(),
            "last": last,
            "steps": result.steps,
            "curve": [mean for _, mean in result.evaluations],
        }


def train_peer(library: str, settings: dict[str, Any], seed: int) -> dict[str, Any]:
    import copy

    import numpy as np
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import sync_envs_normalization

    total = settings["total_steps"]
    model = make_model(settings, seed, library)
    judge = make_vector_env(settings, EPISODES, EVALUATION_SEED + seed, training=False)
    final = make_vector_env(settings, EPISODES, FINAL_SEED + seed, training=False)
    seeds = {id(judge): EVALUATION_SEED + seed, id(final): FINAL_SEED + seed}
    scaled = hasattr(judge, "obs_rms")
    means: list[float] = []
    best: dict[str, Any] = {}

    def judged(env: Any, episodes: int) -> float:
        env.seed(seeds[id(env)])
        with flushed_denormals():
            returns, _ = evaluate_policy(model, env, episodes, return_episode_rewards=True, warn=False)
        return float(np.mean(returns))

    def weights() -> Any:
        return model.policy.state_dict() if library == "sb3" else model.policy.actor_state.params

    class Judge(BaseCallback):
        def _on_step(self) -> bool:
            if self.num_timesteps // (total // JUDGEMENTS) > len(means):
                if scaled:
                    sync_envs_normalization(self.training_env, judge)
                means.append(judged(judge, EPISODES))
                if means[-1] > max(means[:-1], default=-np.inf):  # the first of equals, as ours
                    best["weights"] = copy.deepcopy(weights())
                    best["scale"] = copy.deepcopy(judge.obs_rms) if scaled else None
            return True

    model.learn(total, callback=Judge())
    if scaled:
        sync_envs_normalization(model.get_env(), final)
    last = judged(final, FINAL_EPISODES)
    if library == "sb3":
        model.policy.load_state_dict(best["weights"])
    else:
        model.policy.actor_state = model.policy.actor_state.replace(params=best["weights"])
    if scaled:
        final.obs_rms = best["scale"]
    return {"best": judged(final, FINAL_EPISODES), "last": last, "steps": model.num_timesteps, "curve": means}


def train_tianshou(settings: dict[str, Any], seed: int) -> dict[str, Any]:
    from _tianshou import Trainer

    total = settings["total_steps"]
    trainer = Trainer(settings, seed)

    def judged(episodes: int, first: int) -> float:
        with flushed_denormals():
            return trainer.judge(episodes, first)

    means: list[float] = []
    best: dict[str, Any] = {}
    for number in range(1, JUDGEMENTS + 1):
        trainer.learn(number * total // JUDGEMENTS)
        means.append(judged(EPISODES, EVALUATION_SEED + seed))
        if means[-1] > max(means[:-1], default=-float("inf")):  # the first of equals, as ours
            best = trainer.weights()
    last = judged(FINAL_EPISODES, FINAL_SEED + seed)
    trainer.load_weights(best)
    return {
        "best": judged(FINAL_EPISODES, FINAL_SEED + seed),
        "last": last,
        "steps": trainer.steps,
        "curve": means,
    }
