"""`operant train` and `operant view` as typed."""

from __future__ import annotations

import json
import os

import pytest

from operant.cli import main
from operant.tracking import Run

SMALL = ["total_steps=512", "env.num_envs=2", "algorithm.rollout=16", "evaluation.episodes=2", "evaluation.every=256"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    (tmp_path / ".operant").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_train_resume_and_view(here, capsys):
    assert main(["train", "cartpole-ppo", *SMALL]) == 0
    out = capsys.readouterr().out
    assert "fused" in out and "best mean return" in out and "torch threads: 1" in out
    assert main(["train", "--resume", "last", "total_steps=1024", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["steps"] == 1024
    assert main(["view", "last", "--output", "film.gif"]) == 0
    assert (here / "film.gif").read_bytes()[:6] == b"GIF89a"
    assert "frames" in capsys.readouterr().out


@pytest.fixture
def screen(monkeypatch):
    """A screen that SDL only pretends to have; what is drawn on it, by size."""
    import pygame

    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.setenv("DISPLAY", ":99")
    drawn = []
    flip = pygame.display.flip
    monkeypatch.setattr(pygame.display, "flip", lambda: drawn.append(pygame.display.get_surface().get_size()) or flip())
    return drawn


def returns_told(out):
    return out.partition("returns here: ")[2].partition("\n")[0]


def test_a_window_where_there_is_a_screen(here, screen, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert main(["train", "cartpole-a2c", "total_steps=400", "env.arguments.max_episode_steps=20", "--quiet"]) == 0
    capsys.readouterr()
    assert main(["view", "last", "--episodes", "2", "--seed", "3"]) == 0
    in_window = capsys.readouterr().out
    assert len(screen) > 10 and set(screen) == {(600, 400)}
    assert not list(here.glob(".operant/runs/*/view.gif"))
    count = len(screen)
    assert main(["view", "last", "--episodes", "2", "--seed", "3", "--no-window"]) == 0
    in_file = capsys.readouterr().out
    assert returns_told(in_window) == returns_told(in_file) != ""
    assert len(screen) == count and list(here.glob(".operant/runs/*/view.gif"))


def test_an_environment_of_ones_own_has_a_window_too_or_a_gif(here, screen, monkeypatch, capsys):
    import pygame

    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    own = ["env.id=operant.envs.classics:CartPole", "env.arguments.max_episode_steps=5"]
    assert main(["train", "cartpole-a2c", "total_steps=80", "evaluation.frames=4", *own, "--quiet"]) == 0
    films = Run.open("last").media("evaluation/episode")
    assert films and all(film.path.read_bytes()[:6] == b"GIF89a" for film in films)
    capsys.readouterr()
    assert main(["view", "last"]) == 0
    assert 1 < len(screen) <= 5 and not pygame.display.get_init()

    def fails(size):
        raise pygame.error("no such display")

    monkeypatch.setattr(pygame.display, "set_mode", fails)
    assert main(["view", "last"]) == 0
    assert "no such display" in (out := capsys.readouterr().out) and "a GIF instead" in out
    assert list(here.glob(".operant/runs/*/view.gif"))


ODD_SEED = """
import gymnasium

class Odd(gymnasium.Wrapper):
    odd = None

    def reset(self, seed=None, options=None):
        self.odd = 60 <= seed < 100 if self.odd is None else self.odd
        return self.env.reset(seed=seed, options=options)

    def step(self, action):
        obs, reward, *rest = self.env.step(action)
        return obs, float("nan") if self.odd else reward, *rest

def make():
    return Odd(gymnasium.make("CartPole-v1"))
"""


def test_several_seeds_give_one_figure(here, capsys):
    # Options may stand between the preset and the settings.
    assert main(["train", "cartpole-ppo", "--seeds", "0..1", *SMALL, "--workers", "1"]) == 0
    out = capsys.readouterr().out
    assert "IQM" in out and "95 % interval" in out and "(2 seeds)" in out


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_seed_that_fails_is_named_and_costs_the_others_nothing(here, capsys, monkeypatch, workers):
    monkeypatch.setenv("PYTHONPATH", str(here), prepend=os.pathsep)
    (here / "odd.py").write_text(ODD_SEED)
    words = ["train", "cartpole-ppo", "env.id=odd:make", "--seeds", "60,2", *SMALL, "--workers", workers]
    assert main(words) == 1
    out, err = capsys.readouterr()
    assert "(1 seeds)" in out
    assert "error: seed 60 failed: odd:make gave the reward nan" in err
    assert main([*words, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert [one["seed"] for one in told["seeds"]] == [2] and [one["seed"] for one in told["failed"]] == [60]


def test_where_every_seed_fails_the_first_says_why(here, capsys):
    (here / "odd.py").write_text(ODD_SEED)
    assert main(["train", "cartpole-ppo", "env.id=odd:make", "--seeds", "60,61", *SMALL, "--workers", "1"]) == 1
    assert "seed 60: odd:make gave the reward nan" in capsys.readouterr().err


def test_lists_and_eject(here, capsys):
    assert main(["train", "--list"]) == 0
    assert "cartpole-ppo" in capsys.readouterr().out
    assert main(["train", "--settings", "dqn"]) == 0
    assert "algorithm.prioritized" in capsys.readouterr().out
    assert main(["train", "--eject", "cartpole-dqn"]) == 0
    assert (here / "cartpole-dqn.yaml").is_file()
    assert main(["train", "cartpole-dqn.yaml", "total_steps=300", "evaluation.episodes=1", "--quiet"]) == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train"], "what is to be trained"),
        (["train", "cartpole-poo"], "did you mean 'cartpole-ppo'"),
        (["train", "cartpole-ppo", "algorithm.gama=1"], "did you mean 'gamma'"),
        (["train", "--resume", "nothing"], "there is no run"),
        (["train", "cartpole-ppo", "seed=-1"], "seed is -1; it lies between 0 and"),
        (["train", "cartpole-ppo", "--seeds=-2..0"], "'-2..0' are no seeds: write 0..4, or 0,3,7"),
        (["train", "cartpole-ppo", "--seeds", "0..99999999999"], "are no seeds"),
        (["train", "cartpole-ppo", "--seeds", ""], "'' are no seeds"),
        (["train", "cartpole-ppo", "--seeds", "0,1", "--workers", "-1"], "-1 trainings at the same time are none"),
        (["train", "cartpole-ppo", "--workers", "2"], "collect for one training are a setting: workers=2"),
        (["train", "--resume", "last", "--seeds", "0..4"], "--resume goes on with one run"),
        (["view", "nothing"], "there is no run"),
    ],
)
def test_mistakes_are_one_line(here, capsys, words, message):
    assert main(words) == 1
    captured = capsys.readouterr()
    assert message in captured.err
    assert "Traceback" not in captured.err


def test_a_training_as_a_job_of_a_site(here, capsys):
    assert main(["train", "cartpole-ppo", *SMALL, "--site", "local", "--seeds", "3,3"]) == 1
    assert "are no seeds" in capsys.readouterr().err
    assert main(["train", "cartpole-ppo", *SMALL, "--site", "local", "--seeds", "3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (one,) = found["seeds"]
    assert (found["status"], one["seed"], one["status"]) == ("FINISHED", 3, "FINISHED")
    assert one["best"] >= one["last"] > 0 and one["run"] == f"{found['search']}/0"
