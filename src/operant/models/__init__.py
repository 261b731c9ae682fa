"""What is trained: networks built from spaces, and small ones without autograd."""

from __future__ import annotations

from typing import TYPE_CHECKING

from operant._lazy import load_when_used
from operant.models.settings import ModelSettings

if TYPE_CHECKING:
    from operant.models.builders import ActorCritic, DuelingQNetwork, QNetwork, build_actor_critic, build_q_network
    from operant.models.devices import choose_device
    from operant.models.flat import FlatAdam, FlatParameters, FlatRMSprop
    from operant.models.fused import FusedMLP, is_fusable
    from operant.models.loading import import_name, load_module
    from operant.models.modes import NetworkModes
    from operant.models.observations import ObservationAdapter
    from operant.models.spaces import ActionSpec, action_spec

# torch is loaded when the first of these is asked for.
_HOMES = {
    "ActionSpec": ".spaces",
    "ActorCritic": ".builders",
    "DuelingQNetwork": ".builders",
    "FlatAdam": ".flat",
    "FlatParameters": ".flat",
    "FlatRMSprop": ".flat",
    "FusedMLP": ".fused",
    "NetworkModes": ".modes",
    "ObservationAdapter": ".observations",
    "QNetwork": ".builders",
    "action_spec": ".spaces",
    "build_actor_critic": ".builders",
    "choose_device": ".devices",
    "build_q_network": ".builders",
    "import_name": ".loading",
    "is_fusable": ".fused",
    "load_module": ".loading",
}

__all__ = [
    "ActionSpec",
    "ActorCritic",
    "DuelingQNetwork",
    "FlatAdam",
    "FlatParameters",
    "FlatRMSprop",
    "FusedMLP",
    "ModelSettings",
    "NetworkModes",
    "ObservationAdapter",
    "QNetwork",
    "action_spec",
    "build_actor_critic",
    "build_q_network",
    "choose_device",
    "import_name",
    "is_fusable",
    "load_module",
]

__getattr__ = load_when_used(__name__, _HOMES)
