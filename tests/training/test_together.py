"""Several processes that learn together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.machine import spawned
from tests.training.test_remote import PPO, Killer, config, root, same

from operant.errors import UsageError
from operant.tracking import Run
from operant.training import load_config, resume, train

__all__ = ["root"]  # a fixture


def together(steps: int, **other: Any) -> dict[str, Any]:
    return config(PPO, steps, **other) | {"workers": 0, "learners": 2}


def test_learners_repeat_and_resume_exactly(root: Path) -> None:
    whole = train(together(512, normalize=True), root=root)
    half = train(together(256, normalize=True), root=root)
    assert whole.exact and half.exact and whole.steps == 512 and not same(whole, half)
    assert same(whole, resume(half.run_id, ["total_steps=512", "evaluation.every=512"], root=root))
    assert not spawned()


@pytest.mark.long
def test_learning_together_goes_on_when_a_learner_is_killed(root: Path) -> None:
    looking_on = Killer()
    result = train(together(12_000), observer=looking_on, root=root)
    assert result.final_return >= 18.0 and not result.exact
    replaced = [one for one in looking_on.said_sentences if "learner 1 is replaced" in one]
    assert len(replaced) == 1 and "SIGKILL" in replaced[0]
    run = Run.open(result.run_id, root)
    assert run.latest("workers/restarts").value == 1.0
    # Episodes of both: eight environments, ten steps each.
    assert run.latest("episodes/count").value >= 0.9 * result.steps / 20
    assert not spawned()


def test_learners_that_make_no_sense_are_refused() -> None:
    with pytest.raises(UsageError, match=r"learners is 0; it is 1 or more, and at most env\.num_envs=8"):
        load_config("cartpole-ppo", ["learners=0"])
    with pytest.raises(UsageError, match=r"learners is 2, but appo learns alone"):
        load_config("cartpole-appo", ["learners=2"])
    with pytest.raises(UsageError, match=r"workers and env\.workers are 0 beside them"):
        load_config("cartpole-ppo", ["learners=2", "workers=2"])
