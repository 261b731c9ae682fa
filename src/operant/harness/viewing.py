"""`cli.mode: view`: a trained policy plays the evaluation's episodes; a GIF of them, and a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from operant.errors import UsageError
from operant.harness.tree import Plan, given, trusts
from operant.training.playback import load_policy, record_episodes, write_gif

Frames = list[np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Viewed:
    """What was played, and where it can be seen."""

    gif: Path
    returns: tuple[float, ...]
    frames: int


def view(plan: Plan, root: str | Path | None = None) -> Viewed:
    """Play ``evaluation.evaluation_duration`` episodes from starts that depend on ``debugging.seed`` alone."""
    target = given(plan, "algo").get("checkpoint_path")
    if target is None:
        raise UsageError(
            "cli.mode is view: whose policy? algo.checkpoint_path is a run of ours, or a checkpoint of RLlib's"
        )
    episodes = int(given(plan, "evaluation").get("evaluation_duration", 1))
    seed, trust = int(given(plan, "debugging").get("seed", 0)), trusts(plan)
    folder = Path(given(plan, "runtime").get("local_dir", "."))
    folder.mkdir(parents=True, exist_ok=True)
    if plan.library == "rllib":
        frames, returns = _play_rllib(plan, str(target), episodes, seed, trust)
    else:
        policy = load_policy(str(target), root, trust=trust)
        frames = record_episodes(policy, episodes, seed)
        returns = policy.returns
    write_gif(frames, folder / "view.gif")
    return Viewed(folder / "view.gif", tuple(returns), len(frames))


def _play_rllib(plan: Plan, target: str, episodes: int, seed: int, trust: bool) -> tuple[Frames, list[float]]:
    from operant.envs.making import environment_maker
    from operant.harness.rllib_checkpoints import find_checkpoint

    act = _greedy(find_checkpoint(target, trust=trust))
    environment = given(plan, "environment")
    arguments = dict(environment.get("env_config") or {}) | dict(
        (given(plan, "evaluation").get("evaluation_config") or {}).get("env_config") or {}
    )
    env = environment_maker(environment["env"])(render_mode="rgb_array", **arguments)
    frames: Frames = []
    returns: list[float] = []
    for number in range(episodes):
        obs, _ = env.reset(seed=seed + number)
        frames.append(env.render())
        total, over = 0.0, False
        while not over:
            obs, reward, terminated, truncated, _ = env.step(act(obs, env.action_space))
            frames.append(env.render())
            total, over = total + float(reward), terminated or truncated
        returns.append(total)
    env.close()
    return frames, returns


def _greedy(checkpoint: Path) -> Callable[[Any, Any], Any]:
    """What the saved module does without exploring, one observation at a time."""
    import torch
    from ray.rllib.core.columns import Columns
    from ray.rllib.core.rl_module.rl_module import RLModule
    from ray.rllib.utils.spaces.space_utils import unsquash_action

    module = RLModule.from_checkpoint(str(checkpoint / "learner_group" / "learner" / "rl_module" / "default_policy"))

    def act(obs: Any, space: Any) -> Any:
        with torch.no_grad():
            out = module.forward_inference({Columns.OBS: torch.as_tensor(np.asarray(obs, np.float32)[None])})
        if Columns.ACTIONS in out:
            action = out[Columns.ACTIONS]
        else:
            kind = module.get_inference_action_dist_cls()
            action = kind.from_logits(out[Columns.ACTION_DIST_INPUTS]).to_deterministic().sample()
        chosen = action[0].numpy()
        return int(chosen) if chosen.ndim == 0 else unsquash_action(chosen, space)  # type: ignore[no-untyped-call]

    return act
