"""A GPU that is not there: tensors made for it lie in the CPU's memory, and what a GPU refuses is refused.

Inside ``with FakeGPU() as gpu:`` whatever is made with ``device=gpu.device`` says that it lies there; mixing it with
tensors of the CPU, or reading it with numpy, is the error that CUDA gives.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_COPIES = {"_has_compatible_shallow_copy_type", "copy_", "__setitem__", "to", "cpu", "cuda", "set_", "load_state_dict"}


class FakeGPU(TorchFunctionMode):
    device = torch.device("cuda", 0)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        owner = getattr(func, "__self__", None)
        if owner is torch.Tensor.device and name == "__get__":
            return self.device if is_there(args[0]) else func(*args)
        if name in ("numpy", "__array__") and is_there(args[0]):
            raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first")
        if name in ("to", "cpu") and isinstance(args[0], torch.Tensor):
            return self._moved(name, *args, **kwargs)
        inputs = [one for one in _tensors((args, kwargs)) if one.ndim or is_there(one)]
        there = [is_there(one) for one in inputs]
        if any(there) and not all(there) and name not in _COPIES and not (owner is not None and name == "__set__"):
            shapes = [tuple(one.shape) for one in inputs if not is_there(one)]
            raise RuntimeError(f"Expected all tensors to be on the same device: {name} got {shapes} from the CPU")
        target: bool | None = None
        if kwargs.get("device") is not None:
            target = torch.device(kwargs["device"]).type == "cuda"
            kwargs["device"] = "cpu"
        out = func(*args, **kwargs)
        if owner is torch.Tensor.data and name == "__set__":
            mark(args[0], is_there(args[1]))
            return out
        for one in _tensors(out):
            if target is not None or not any(one is given for given in inputs):
                mark(one, any(there) if target is None else target)
        if name == "as_tensor" and target:
            out = mark(out.clone(), True)  # what lies on a GPU shares no memory with numpy
        return out

    def _moved(self, name: str, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        target: bool | None = False if name == "cpu" else None
        rest = []
        for one in [*args, *(kwargs.pop(key) for key in ("device", "other") if key in kwargs)]:
            if isinstance(one, (str, torch.device)):
                target = torch.device(one).type == "cuda"
            elif isinstance(one, torch.Tensor):
                target = is_there(one)
                rest.append(one.dtype)
            elif isinstance(one, torch.dtype):
                rest.append(one)
        moved = tensor.to(*rest, **kwargs) if rest or kwargs else tensor
        if target is None or target == is_there(tensor):
            return mark(moved, is_there(tensor))
        return mark(moved.clone(), target)


def is_there(tensor: Any) -> bool:
    return getattr(tensor, "_on_fake_gpu", False)


def mark(tensor: torch.Tensor, there: bool) -> torch.Tensor:
    tensor._on_fake_gpu = there  # type: ignore[attr-defined]
    return tensor


def _tensors(tree: Any) -> Iterator[torch.Tensor]:
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, (list, tuple)):
        for one in tree:
            yield from _tensors(one)
    elif isinstance(tree, dict):
        yield from _tensors(list(tree.values()))


def held_tensors(thing: Any, path: str = "", seen: set[int] | None = None) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor that an object holds, by the way to it."""
    seen = set() if seen is None else seen
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, torch.Tensor):
        yield path, thing
        if thing.grad is not None:
            yield f"{path}.grad", thing.grad
    elif isinstance(thing, dict):
        for key, one in thing.items():
            yield from held_tensors(one, f"{path}[{key!r}]", seen)
    elif isinstance(thing, (list, tuple, set)):
        for number, one in enumerate(thing):
            yield from held_tensors(one, f"{path}[{number}]", seen)
    elif isinstance(thing, torch.nn.Module) or type(thing).__module__.startswith("operant."):
        yield from held_tensors(vars(thing) if hasattr(thing, "__dict__") else {}, path, seen)
