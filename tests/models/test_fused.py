"""Networks without autograd: gradients equal autograd's in double precision, names stay, structure decides."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from operant.models import FlatAdam, FlatParameters, FlatRMSprop, FusedMLP, is_fusable
from operant.models.builders import build_mlp

sizes = st.integers(1, 70)


@settings(max_examples=25, deadline=None)
@given(
    inputs=sizes,
    hidden=st.lists(sizes, max_size=3),
    outputs=st.integers(1, 5) | st.none(),
    activation=st.sampled_from(["tanh", "relu"]),
    rows=st.integers(1, 50),
    seed=st.integers(0, 2**31),
)
def test_gradients_equal_autograd(inputs, hidden, outputs, activation, rows, seed):
    if outputs is None and not hidden:
        outputs = 1
    torch.manual_seed(seed)
    module = build_mlp(inputs, tuple(hidden), outputs, activation).double()
    flat = FlatParameters(module)
    fused = FusedMLP(module, flat)
    x = torch.randn(rows, inputs, dtype=torch.float64, requires_grad=True)
    out = module(x)
    grad = torch.randn_like(out)
    out.backward(grad)
    expected = flat.grad.copy()
    flat.grad[:] = np.nan

    np.testing.assert_allclose(fused.forward(x.detach().numpy()), out.detach().numpy(), rtol=1e-12, atol=1e-12)
    input_grad = fused.backward(grad.numpy(), need_input=True)

    np.testing.assert_allclose(flat.grad, expected, rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(input_grad, x.grad.numpy(), rtol=1e-10, atol=1e-11)


@settings(max_examples=25, deadline=None)
@given(
    hidden=st.lists(sizes, max_size=3),
    activation=st.sampled_from(["tanh", "relu"]),
    count=st.integers(1, 3),
    before=st.integers(0, 5),
    rows=st.integers(1, 30),
    seed=st.integers(0, 2**31),
)
def test_twins_and_some_rows_of_a_forward_have_autograds_gradients(hidden, activation, count, before, rows, seed):
    torch.manual_seed(seed)
    twins = nn.ModuleList([build_mlp(7, tuple(hidden), 2, activation).double() for _ in range(count)])
    flat = FlatParameters(twins)
    x = torch.randn(before + rows + 1, 7, dtype=torch.float64)
    out = torch.stack([chain(x) for chain in twins])
    grad = torch.randn(count, rows, 2, dtype=torch.float64)
    out[:, before : before + rows].backward(grad)
    expected = flat.grad.copy()
    flat.grad[:] = np.nan

    fused = FusedMLP(list(twins), flat)
    found = fused.forward(x[:, :3].numpy(), beside=x[:, 3:].numpy())
    np.testing.assert_allclose(found, out.detach().numpy(), rtol=1e-12, atol=1e-12)
    fused.backward(grad.numpy(), first=before, of=len(x))
    np.testing.assert_allclose(flat.grad, expected, rtol=1e-10, atol=1e-11)


@settings(max_examples=25, deadline=None)
@given(
    hidden=st.lists(sizes, max_size=3),
    activation=st.sampled_from(["tanh", "relu"]),
    count=st.integers(1, 3),
    rows=st.integers(1, 30),
    seed=st.integers(0, 2**31),
)
def test_the_gradient_by_inputs_goes_through_one_twin_of_each_row(hidden, activation, count, rows, seed):
    torch.manual_seed(seed)
    twins = nn.ModuleList([build_mlp(7, tuple(hidden), 1, activation).double() for _ in range(count)])
    fused = FusedMLP(list(twins), FlatParameters(twins))
    x = torch.randn(rows, 7, dtype=torch.float64, requires_grad=True)
    which = torch.randint(count, (rows,))
    out = torch.stack([chain(x)[:, 0] for chain in twins])
    (expected,) = torch.autograd.grad(out[which, torch.arange(rows)].sum(), x)
    fused.forward(x.detach().numpy())
    found = fused.input_gradient(which.numpy(), slice(4, None))
    np.testing.assert_allclose(found, expected[:, 4:].numpy(), rtol=1e-10, atol=1e-11)


def test_parameters_keep_their_names_and_share_memory():
    module = build_mlp(3, (4,), 2, "tanh")
    before = {name: value.clone() for name, value in module.state_dict().items()}
    flat = FlatParameters(module)
    assert list(module.state_dict()) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    module.load_state_dict({name: torch.full_like(value, 7) for name, value in before.items()})
    assert (flat.array == 7).all()


def _hooked() -> nn.Sequential:
    module = build_mlp(3, (4,), 2, "tanh")
    module[0].register_forward_hook(lambda *_: None)
    return module


def _shared() -> nn.Sequential:
    layer = nn.Linear(3, 3)
    return nn.Sequential(layer, nn.Tanh(), layer)


@pytest.mark.parametrize(
    "module",
    [
        None,
        nn.Linear(2, 2),
        nn.Sequential(nn.Tanh()),
        nn.Sequential(nn.Linear(2, 2), nn.GELU()),
        nn.Sequential(nn.Linear(2, 2, bias=False), nn.Tanh()),
        nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Tanh()),
        nn.Sequential(nn.Linear(2, 2), nn.Dropout(), nn.Linear(2, 2)),
        build_mlp(3, (4,), 2, "tanh").double(),
        nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)), nn.Tanh()),
        _hooked(),
        _shared(),
    ],
)
def test_what_is_not_plain_takes_the_torch_path(module):
    assert not is_fusable(module)


def test_a_plain_sequential_is_fusable():
    assert is_fusable(nn.Sequential(nn.Linear(2, 5), nn.ReLU(), nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 1)))


@pytest.mark.parametrize(("kind", "reference_kind"), [(FlatAdam, torch.optim.Adam), (FlatRMSprop, torch.optim.RMSprop)])
def test_an_optimizer_equals_torchs_over_many_steps(kind, reference_kind):
    torch.manual_seed(0)
    ours, theirs = build_mlp(3, (8,), 2, "tanh"), build_mlp(3, (8,), 2, "tanh")
    theirs.load_state_dict(ours.state_dict())
    flat = FlatParameters(ours)
    optimizer = kind(flat, eps=1e-5)
    reference = reference_kind(theirs.parameters(), lr=1e-2, eps=1e-5)
    for _ in range(200):
        x = torch.randn(16, 3)
        for module in (ours, theirs):
            for parameter in module.parameters():
                if parameter.grad is not None:
                    parameter.grad.zero_()
            module(x).square().mean().backward()
        optimizer.step(1e-2)
        reference.step()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [FlatAdam, FlatRMSprop])
def test_an_optimizer_goes_on_exactly_from_its_state(kind):
    def fresh():
        torch.manual_seed(1)
        flat = FlatParameters(build_mlp(3, (8,), 2, "tanh"))
        return flat, kind(flat)

    rng = np.random.default_rng(0)
    grads = rng.standard_normal((20, 3 * 8 + 8 + 8 * 2 + 2)).astype(np.float32)
    flat, optimizer = fresh()
    for grad in grads[:10]:
        flat.grad[:] = grad
        optimizer.step(1e-2)
    other_flat, other = fresh()
    other_flat.array[:] = flat.array
    other.load_state_dict(optimizer.state_dict())
    for grad in grads[10:]:
        for one, its in ((flat, optimizer), (other_flat, other)):
            one.grad[:] = grad
            its.step(1e-2)
    assert (flat.array == other_flat.array).all()


def test_the_norm_of_the_gradient_is_limited():
    flat = FlatParameters(nn.Linear(2, 1))
    flat.grad[:] = [3.0, 4.0, 0.0]
    assert flat.clip_gradient(0.5) == pytest.approx(5.0)
    np.testing.assert_allclose(flat.grad, [0.3, 0.4, 0.0], rtol=1e-5)
