"""A case of `distributed.py` by Sample Factory's APPO; runs in an environment of its own, which it needs.

It asks for a Gymnasium below 1, so that its LunarLander is v2.
"""

from __future__ import annotations

import tempfile
from typing import Any

import gymnasium
import psutil
from sample_factory.algo.runners.runner import AlgoObserver
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.train import make_runner


def make_env(name: str, cfg: Any = None, env_config: Any = None, render_mode: str | None = None) -> Any:
    return gymnasium.make(name, render_mode=render_mode)


class _Looker(AlgoObserver):
    def __init__(self, clock: Any) -> None:
        self._clock = clock

    def on_training_step(self, runner: Any, training_iteration_since_resume: int) -> None:
        if self._clock.see(sum(runner.env_steps.values())):
            raise KeyboardInterrupt


def run(case: dict[str, Any], clock: Any, step_size: float) -> dict[str, float]:
    name = case["env"].replace("LunarLander-v3", "LunarLander-v2")
    register_env(name, make_env)
    with tempfile.TemporaryDirectory() as folder:
        given = {
            "env": name, "experiment": "speed", "train_dir": folder, "device": "cpu", "seed": 0,
            "num_workers": case["workers"], "num_envs_per_worker": case["rows"],
            "worker_num_splits": 2 - case["rows"] % 2,
            "rollout": 64, "batch_size": 1024, "num_epochs": 2, "use_rnn": False, "recurrence": 1,
            "normalize_input": False, "normalize_returns": False, "actor_critic_share_weights": False,
            "nonlinearity": "tanh", "learning_rate": step_size,
        }  # fmt: skip
        words = [f"--{key}={value}" for key, value in given.items()] + ["--encoder_mlp_layers", "64", "64"]
        parser, _ = parse_sf_args(argv=words)
        _, runner = make_runner(parse_full_cfg(parser, words))
        runner.register_observer(_Looker(clock))
        runner.init()
        try:
            runner.run()
        except KeyboardInterrupt:
            pass
        finally:
            for process in psutil.Process().children(recursive=True):  # it would end them one after the other
                process.kill()
    return clock.figures()
