"""Networks are in evaluation mode except in updates, and what they draw depends on their seed alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from operant.models.builders import build_mlp
from operant.models.modes import NetworkModes


class Noisy(nn.Module):
    """Draws in both modes."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) + torch.randn(2)


class Frozen(nn.BatchNorm1d):
    """The usual way to keep a layer's statistics: it refuses training mode."""

    def train(self, mode: bool = True) -> Frozen:
        return super().train(False)


ROWS = torch.ones(5, 3)


def test_dropout_acts_in_updates_only() -> None:
    network = nn.Sequential(nn.Linear(3, 50), nn.Dropout(0.5))
    modes = NetworkModes([network], 0)
    with modes.acting():
        assert not (network(ROWS) == 0).any() and not network[1].training
    with modes.updating():
        assert (network(ROWS) == 0).any()
        with modes.acting():
            assert not (network(ROWS) == 0).any()
        assert (network(ROWS) == 0).any()
    assert not (network(ROWS) == 0).any()


def test_batch_norm_takes_one_row_outside_of_updates() -> None:
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    modes = NetworkModes([network], 0)
    network(ROWS[:1])
    before = network[1].running_mean.clone()
    with modes.updating():
        network(ROWS)
    assert not torch.equal(before, network[1].running_mean)
    with pytest.raises(ValueError, match="more than 1 value"), modes.updating():
        network(ROWS[:1])
    network(ROWS[:1])  # the mode was put back though the update failed


def test_a_module_that_has_a_train_of_its_own_is_asked() -> None:
    network = nn.Sequential(nn.Linear(3, 4), Frozen(4), nn.Dropout())
    with NetworkModes([network], 0).updating():
        assert not network[1].training and network[2].training


@pytest.mark.parametrize("training", [False, True])
def test_what_modules_draw_depends_on_their_seed_alone(training: bool) -> None:
    def draw(seed: int, elsewhere: int) -> list[float]:
        torch.manual_seed(elsewhere)
        modes = NetworkModes([Noisy()], seed)
        drawn = []
        for _ in range(3):
            with modes.updating() if training else modes.acting():
                drawn += torch.randn(2).tolist()
            torch.randn(elsewhere)
        return drawn

    assert draw(1, 5) == draw(1, 9) != draw(2, 5)


def test_the_program_around_draws_what_it_would_have_drawn() -> None:
    network = Noisy()
    torch.manual_seed(3)
    wanted = torch.cat([torch.randn(2), torch.randn(2)])
    torch.manual_seed(3)
    modes = NetworkModes([network], 0)
    first = torch.randn(2)
    with modes.updating():
        torch.randn(7)
    assert torch.equal(torch.cat([first, torch.randn(2)]), wanted)


def test_it_goes_on_exactly_from_its_state() -> None:
    modes, other = NetworkModes([Noisy()], 0), NetworkModes([Noisy()], 1)
    with modes.updating():
        torch.randn(5)
    other.load_state_dict({name: np.array(state) for name, state in modes.state_dict().items()})
    with modes.updating():
        wanted = torch.randn(5)
    with other.updating():
        assert torch.equal(torch.randn(5), wanted)


def test_plain_networks_have_nothing_to_keep() -> None:
    modes = NetworkModes([build_mlp(3, (4,), 2, "tanh"), nn.Sequential(nn.Conv2d(1, 1, 3), nn.LayerNorm(3))], 0)
    assert modes.plain and modes.state_dict() == {} and modes.updating() is modes.acting()
    assert not NetworkModes([nn.Sequential(nn.Linear(3, 3), nn.Dropout())], 0).plain
    assert not NetworkModes([Noisy()], 0).plain
