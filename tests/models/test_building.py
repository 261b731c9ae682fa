"""Networks from spaces and from modules of one's own, observations as they take them, and the devices they live on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from operant.errors import UsageError
from operant.models import (
    DuelingQNetwork,
    FlatParameters,
    ModelSettings,
    ObservationAdapter,
    QNetwork,
    action_spec,
    build_actor_critic,
    build_q_network,
    choose_device,
    import_name,
    load_module,
)
from operant.models.flat import make_optimizer
from operant.models.observations import to_tensors

ROW = spaces.Box(-1, 1, (3,), np.float32)
PICTURE = spaces.Box(0, 255, (8, 8, 3), np.uint8)
MIXED = spaces.Dict({"row": ROW, "eye": PICTURE, "choice": spaces.Discrete(4), "action_mask": spaces.MultiBinary(2)})


class Own(nn.Module):
    def __init__(self, width: int = 2) -> None:
        super().__init__()
        self.linear = nn.Linear(3, width)

    def forward(self, row: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.linear(row)
        return out

    class Inner(nn.Module):
        pass


def sample(space: spaces.Space[Any], rows: int) -> Any:
    space.seed(0)
    if isinstance(space, spaces.Dict):
        return {key: sample(part, rows) for key, part in space.items()}
    return np.stack([space.sample() for _ in range(rows)])


@pytest.mark.parametrize(
    "space",
    [ROW, PICTURE, spaces.Box(0, 255, (3, 40, 40), np.uint8), spaces.Discrete(5), spaces.MultiDiscrete([3, 2]), MIXED],
)
@pytest.mark.parametrize("actions", [spaces.Discrete(2), spaces.MultiDiscrete([2, 3]), spaces.Box(-1, 1, (2, 2))])
def test_networks_fit_their_spaces(space: spaces.Space[Any], actions: spaces.Space[Any]) -> None:
    adapter, spec = ObservationAdapter(space), action_spec(actions)
    network = build_actor_critic(adapter, spec, ModelSettings(hidden=(8,)))
    policy, value = network(to_tensors(adapter.adapt(sample(space, 5))))
    assert policy.shape == (5, spec.outputs) and value.shape == (5,)
    assert (network.log_std is None) == spec.discrete


@pytest.mark.parametrize("dueling", [False, True])
def test_q_networks_fit_their_spaces(dueling: bool) -> None:
    adapter, spec = ObservationAdapter(MIXED), action_spec(spaces.Discrete(4))
    network = build_q_network(adapter, spec, ModelSettings(hidden=(8,)), dueling)
    assert isinstance(network, DuelingQNetwork if dueling else QNetwork)
    assert network(to_tensors(adapter.adapt(sample(MIXED, 5)))).shape == (5, 4)


def test_dueling_splits_q_into_value_and_advantage() -> None:
    adapter, spec = ObservationAdapter(ROW), action_spec(spaces.Discrete(4))
    network = build_q_network(adapter, spec, ModelSettings(hidden=(8,)), True)
    rows = torch.randn(6, 3)
    value = network.value(network.trunk(rows))
    torch.testing.assert_close(network(rows).mean(dim=1, keepdim=True), value)
    with pytest.raises(UsageError, match=r"model\.hidden must not be empty"):
        build_q_network(adapter, spec, ModelSettings(hidden=()), True)


def test_observations_as_networks_take_them() -> None:
    adapter = ObservationAdapter(MIXED)
    adapted = adapter.adapt(sample(MIXED, 3))
    assert set(adapted) == {"row", "eye", "choice"}
    assert adapted["eye"].dtype == np.uint8 and adapted["choice"].sum() == 3.0
    choices = ObservationAdapter(spaces.MultiDiscrete([3, 2])).adapt(np.array([[2, 0]]))
    np.testing.assert_array_equal(choices, [[0, 0, 1, 1, 0]])
    flat = ObservationAdapter(spaces.Dict({"a": ROW, "b": spaces.Discrete(2)}), as_row=True)
    assert flat.is_flat and flat.adapt({"a": np.zeros((2, 3)), "b": np.array([0, 1])}).shape == (2, 5)
    masked = {"row": np.zeros((1, 3)), "action_mask": np.array([[1, 0]])}
    np.testing.assert_array_equal(adapter.mask(masked, None), [[True, False]])
    np.testing.assert_array_equal(ObservationAdapter(ROW).mask(None, {"action_mask": [[0, 1]]}), [[False, True]])
    assert ObservationAdapter(ROW).mask(None, None) is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ObservationAdapter(spaces.Text(3)), "no network can be built"),
        (lambda: ObservationAdapter(spaces.Dict({"action_mask": spaces.MultiBinary(2)})), "no key besides"),
        (lambda: action_spec(spaces.Discrete(3, start=1)), "does not start at 0"),
        (lambda: action_spec(spaces.MultiDiscrete([[2, 2], [2, 2]])), "2 dimensions"),
        (lambda: action_spec(spaces.MultiBinary(3)), "no policy head fits"),
        (lambda: load_module(3, {}), "a model is an nn.Module"),
        (lambda: load_module(Own, {"depth": 2}), "could not be made with model.arguments"),
        (lambda: load_module({"name": Own}, {}), "a model as a mapping has `class`"),
        (lambda: load_module({"class": int}, {}), "a class of nn.Module"),
        (lambda: load_module({"class": Own, "args": [1, 2]}, {}), r"could not be made with args \[1, 2\]"),
        (lambda: import_name("QNet"), "names no module"),
        (lambda: import_name("no_such.QNet"), "cannot be imported"),
        (lambda: import_name("operant.models.QNet"), "has no 'QNet'"),
    ],
)
def test_what_does_not_fit_is_told(make: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()


def test_modules_by_instance_class_name_and_mapping() -> None:
    own = Own()
    assert load_module(own, {}) is own
    assert load_module(Own, {"width": 5}).linear.out_features == 5
    assert load_module({"class": f"{__name__}.Own", "args": [4], "kwargs": {}}, {}).linear.out_features == 4
    assert import_name(f"{__name__}:Own.Inner") is Own.Inner
    assert import_name(f"{__name__}.Own") is import_name(f"{__name__}:Own") is Own


def test_entries_of_a_dict_are_matched_to_arguments() -> None:
    adapter = ObservationAdapter(MIXED)
    network = build_q_network(adapter, action_spec(spaces.Discrete(2)), ModelSettings(network=Own), False)
    assert network(to_tensors(adapter.adapt(sample(MIXED, 2)))).shape == (2, 2)
    other = ObservationAdapter(spaces.Dict({"a": ROW, "b": ROW}))

    class Both(nn.Module):
        def forward(self, a: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
            return a + c

    network = QNetwork(Both())
    with pytest.raises(UsageError, match=r"Both.forward asks for \['c'\]"):
        network(to_tensors(other.adapt({"a": np.zeros((1, 3)), "b": np.zeros((1, 3))})))


@pytest.mark.parametrize("name", ["cpu", "auto"])
def test_devices_that_are_there(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert choose_device(name) == torch.device("cpu")


def test_devices_as_other_machines_have_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device("auto").type == "cuda" and choose_device("auto", fused=True).type == "cpu"
    assert choose_device("cuda:1") == torch.device("cuda", 1)
    with pytest.raises(UsageError, match="here there is 2, numbered from 0"):
        choose_device("cuda:2")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert choose_device("auto").type == choose_device("mps").type == "mps"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cuda", "device=cuda needs a CUDA GPU, and here there is none"),
        ("cuda:3", "device=cuda:3 needs"),
        ("mps", "needs an Apple GPU"),
        ("gpu", "device is auto, cpu, cuda"),
        ("cuda:x", "device is auto, cpu, cuda"),
    ],
)
def test_devices_that_are_not_there(name: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(UsageError, match=message):
        choose_device(name)


@pytest.mark.parametrize("name", ["adam", "rmsprop"])
def test_an_optimizer_off_the_cpu_takes_the_same_steps(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The way without numpy's view of the memory, on this CPU."""
    here, there = (FlatParameters(nn.Linear(4, 3)) for _ in range(2))
    there.on_cpu = False
    there.move_towards(here, 1.0)
    optimizers = [make_optimizer(name, flat, 1e-5) for flat in (here, there)]
    for step in range(5):
        for flat, optimizer in zip((here, there), optimizers, strict=True):
            flat.grad_tensor.copy_(torch.linspace(-3, 2, len(flat.grad_tensor)) * (step + 1))
            assert flat.clip_gradient(1.0) > 1.0
            optimizer.step(0.01)
        torch.testing.assert_close(here.tensor, there.tensor)
    for key, value in optimizers[0].state_dict().items():
        np.testing.assert_allclose(value, optimizers[1].state_dict()[key], rtol=1e-6)


def test_a_share_of_other_parameters() -> None:
    one, other = FlatParameters(nn.Linear(2, 2)), FlatParameters(nn.Linear(2, 2))
    wanted = one.array + np.float32(0.25) * (other.array - one.array)
    one.move_towards(other, 0.25)
    np.testing.assert_array_equal(one.array, wanted)
