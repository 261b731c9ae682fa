"""Evaluations in a process of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.machine import spawned
from tests.training.test_remote import PPO, Killer, config, root

from operant.errors import UsageError
from operant.training import load_config, train

__all__ = ["root"]  # a fixture


@pytest.mark.long
def test_what_is_found_elsewhere_is_what_would_be_found_here(root: Path) -> None:
    settings = config(PPO, 1024, normalize=True) | {"workers": 0, "evaluation": {"every": 256, "episodes": 8}}
    here = train(settings, root=root)
    settings["evaluation"] |= {"process": True}
    looking_on = Killer(after=2)  # the evaluation under way is played again by the one that replaces it
    there = train({**settings, "log": {"every": 256}}, observer=looking_on, root=root)
    assert len(here.evaluations) >= 4 and there.evaluations == here.evaluations
    assert (there.best_step, there.best_return) == (here.best_step, here.best_return) and there.exact
    best = "best/weights.safetensors"
    assert (there.folder / best).exists() and (here.folder / best).exists()
    assert any("the process that evaluates is replaced" in one for one in looking_on.said_sentences)
    assert not spawned()


def test_films_are_made_here() -> None:
    with pytest.raises(UsageError, match=r"evaluation\.frames films where the training is"):
        load_config("cartpole-ppo", ["evaluation.process=true", "evaluation.frames=10"])
