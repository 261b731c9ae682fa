"""The stand-in for a GPU refuses what a GPU refuses."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from operant.models import FlatParameters
from operant.models.flat import make_optimizer
from operant.models.observations import to_tensors

from .fake_device import FakeGPU, held_tensors, is_there


def test_it_refuses_mixed_devices_and_numpy() -> None:
    with FakeGPU() as gpu:
        here, there = torch.ones(2), torch.ones(2, device=gpu.device)
        assert here.device.type == "cpu" and there.device.type == "cuda" and (there * 2).device.type == "cuda"
        with pytest.raises(RuntimeError, match="same device"):
            here + there
        with pytest.raises(RuntimeError, match="same device"):
            nn.functional.mse_loss(there, torch.from_numpy(np.ones(2, np.float32)))
        with pytest.raises(TypeError, match="numpy"):
            there.numpy()
        assert there.cpu().numpy().sum() == 2.0 and there.copy_(here).device.type == "cuda"
        assert float(there.sum() * torch.tensor(2.0)) == 4.0  # a number of the CPU may be mixed in


def test_a_module_moves_there_and_learns() -> None:
    with FakeGPU() as gpu:
        network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to(gpu.device)
        flat = FlatParameters(network)
        assert flat.device == gpu.device and not flat.on_cpu
        for name in ("adam", "rmsprop"):
            optimizer = make_optimizer(name, flat, 1e-5)
            before = flat.tensor.clone()
            loss = network(to_tensors(np.ones((5, 3), np.float32), gpu.device)).square().mean()
            loss.backward()
            assert flat.clip_gradient(1.0) >= 0.0
            flat.grad_tensor += 1.0
            optimizer.step(0.1)
            assert not torch.equal(before, flat.tensor)
            assert all(isinstance(one, (int, np.ndarray)) for one in optimizer.state_dict().values())
            optimizer.load_state_dict(optimizer.state_dict())
            for path, tensor in held_tensors([network, flat, optimizer]):
                assert is_there(tensor), path
