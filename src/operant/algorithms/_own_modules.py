"""Modules of the user's own are tried before anything begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from operant.errors import UsageError
from operant.models.observations import to_tensors

SHOWN = 2  # observations that they are tried with


def show_module(
    policy: Any, role: str, network: Callable[..., torch.Tensor], want: tuple[int, ...], *further: torch.Tensor
) -> None:
    """Show observations, and what else it takes, to the module of a role: one that does not fit is told."""
    from gymnasium.vector.utils import create_empty_array

    space, modes = policy.adapter.space, policy._modes
    empty: Any = create_empty_array(space, SHOWN, fn=np.zeros)
    obs = to_tensors(policy.adapter.adapt(empty), policy._device)
    before = modes.state_dict()
    try:
        with modes.acting(), torch.enable_grad():
            output = network(obs, *further)
            shape = tuple(output.shape)
            unseen = [x for x in further if torch.autograd.grad(output.sum(), x, allow_unused=True)[0] is None]
    except UsageError:
        raise
    except Exception as error:
        takes = "observations and actions, as forward(state, action)," if further else "observations"
        told = " ".join(str(space).split())
        reason = f"{type(error).__name__}: {error}"
        raise UsageError(f"model.{role} cannot take {takes} of {told}: {reason}") from error
    finally:
        modes.load_state_dict(before)
    if shape != want:
        raise UsageError(f"model.{role} must give an output of shape {want} for {SHOWN} observations, not {shape}")
    if unseen:
        raise UsageError(f"model.{role} gives values on which actions have no bearing: its forward takes `action`")
