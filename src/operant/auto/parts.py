"""What of a `frame_config` is no number: models, optimizer, criterion, schedule, buffer. Checked, and put in place."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from operant.algorithms import DataSpec, find_algorithm
from operant.auto.config import Config, Plan, asked_gpus
from operant.auto.naming import resolve, resolve_class
from operant.auto.optimizing import Schedule, ScheduledOptimizer, TorchOptimizer
from operant.data import PrioritizedReplayBuffer, ReplayBuffer
from operant.errors import UsageError
from operant.models.devices import check_device_name
from operant.models.observations import to_array, to_tensors
from operant.models.settings import ModelSettings
from operant.settings import fill, to_mapping
from operant.training.config import TrainConfig


@dataclass(frozen=True)
class Parts:
    """The parts of one algorithm, as objects."""

    settings: Any
    model: ModelSettings
    optimizer: type[torch.optim.Optimizer] | None = None
    criterion: nn.Module | None = None
    scheduler: type | None = None
    scheduler_args: tuple[Any, ...] = ()
    scheduler_kwargs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    buffer: Any = None
    visualize: bool = False
    visualize_dir: str = ""
    about_device: str = ""
    """What is to be said of where networks live, in words."""


def resolve_names(config: Mapping[str, Any], names: Mapping[str, Any] | None) -> Config:
    """The config with the classes that its names stand for, so that whoever gets it need not know where they are."""
    result = dict(config)
    frame_config = dict(result.get("frame_config") or {})
    for key in ("optimizer", "lr_scheduler", "criterion", "replay_buffer"):
        given = frame_config.get(key)
        # Names that Operant has an algorithm's own form of stay names.
        if isinstance(given, str) and (key in ("lr_scheduler", "replay_buffer") or not _is_torch_name(key, given)):
            frame_config[key] = resolve(key, given, names)
    models = frame_config.get("models")
    if isinstance(models, (list, tuple)):
        frame_config["models"] = [resolve("models", one, names) for one in models]
    if "frame_config" in result:
        result["frame_config"] = frame_config
    return result


def _is_torch_name(key: str, given: str) -> bool:
    return hasattr(torch.optim if key == "optimizer" else nn, given)


def prepare_parts(plan: Plan) -> Parts:
    """Check the parts of a plan and make objects of them."""
    given = plan.parts
    device, about_device = _device(plan)
    algorithm, _ = find_algorithm(plan.algorithm)
    spec: DataSpec = algorithm.data_spec(plan.settings)
    _check_limits(plan, spec)
    settings, buffer = _buffer(plan, spec)
    optimizer, scheduler = (
        None if given.get(key) is None else resolve_class(key, given[key]) for key in ("optimizer", "lr_scheduler")
    )
    if scheduler is None and (given.get("lr_scheduler_args") or given.get("lr_scheduler_kwargs")):
        raise UsageError("frame_config has lr_scheduler_args or lr_scheduler_kwargs, but no lr_scheduler")
    if given.get("visualize_dir") and not given.get("visualize"):
        raise UsageError("frame_config.visualize_dir is set, but visualize is false: set it to true, or leave both")
    return Parts(
        settings=settings,
        model=dataclasses.replace(_models(plan, algorithm), device=device),
        optimizer=optimizer,
        criterion=_criterion(given, algorithm.takes_criterion),
        scheduler=scheduler,
        scheduler_args=_first(given.get("lr_scheduler_args"), list, ()),
        scheduler_kwargs=_first(given.get("lr_scheduler_kwargs"), Mapping, {}),
        buffer=buffer,
        visualize=bool(given.get("visualize")),
        visualize_dir=str(given.get("visualize_dir") or ""),
        about_device=about_device,
    )


def _device(plan: Plan) -> tuple[str, str]:
    """Where networks live by `device`, `gpus` or `replay_device`, and what is to be said of it."""
    launch = plan.launch
    if "device" in plan.model:
        raise UsageError("frame_config.model.device stands at the top of a config: device")
    replay_device = str(plan.parts.get("replay_device") or "cpu")
    check_device_name(replay_device)
    if launch.device is not None:
        check_device_name(launch.device)
        return launch.device, ""
    numbers = asked_gpus(launch.gpus)
    if not numbers:
        return replay_device, ""
    if not torch.cuda.is_available():
        return "cpu", f"gpus is {launch.gpus!r}, but this machine has no GPU: training on the CPU"
    if numbers == [-1]:
        numbers = list(range(torch.cuda.device_count()))
    several = f"gpus is {launch.gpus!r}, but {launch.frame} is not distributed: training on GPU {numbers[0]} alone"
    if plan.is_distributed:
        several = f"gpus is {launch.gpus!r}: GPU {numbers[0]} learns, the other processes act on the CPU"
    return f"cuda:{numbers[0]}", several if len(numbers) > 1 else ""


def _check_limits(plan: Plan, spec: DataSpec) -> None:
    """Words of Machin's that are no settings of this algorithm have one right value."""
    given, rollout = plan.parts, spec.count if spec.on_policy and spec.unit == "step" else 0
    size = given.get("replay_size")
    if size is not None and size < rollout:
        raise UsageError(
            f"frame_config.replay_size is {size}, but a rollout has {rollout} steps: raise it, or set null"
        )
    for key in ("actor_update_times", "critic_update_times"):
        if given.get(key, 1) != 1:
            raise UsageError(
                f"frame_config.{key} is {given[key]}: {plan.launch.frame} makes one update of each rollout"
            )


def _first(given: Any, kind: Any, none: Any) -> Any:
    """Machin gives one list or dict for each optimizer; here there is one optimizer, so one is enough."""
    if not given:
        return none
    if isinstance(given, (list, tuple)) and all(isinstance(one, (list, tuple, Mapping)) for one in given):
        inner = [one for one in given if isinstance(one, kind) or (kind is list and isinstance(one, tuple))]
        if any(one != inner[0] for one in inner):
            raise UsageError("lr_scheduler_args and lr_scheduler_kwargs must be the same for actor and critic here")
        return inner[0] if inner else none
    return given


def _buffer(plan: Plan, spec: DataSpec) -> tuple[Any, Any]:
    buffer = resolve("replay_buffer", plan.parts.get("replay_buffer"))
    if buffer is None:
        return plan.settings, None
    if spec.source != "replay":
        raise UsageError("frame_config.replay_buffer: this algorithm does not learn from replay; set null")
    if buffer is PrioritizedReplayBuffer and hasattr(plan.settings, "prioritized"):
        return dataclasses.replace(plan.settings, prioritized=True), None
    is_class = isinstance(buffer, type) and issubclass(buffer, ReplayBuffer)
    if not is_class and not isinstance(buffer, ReplayBuffer):
        raise UsageError(f"frame_config.replay_buffer is an operant.data.ReplayBuffer or a class of it, got {buffer!r}")
    return plan.settings, buffer


def _criterion(given: Mapping[str, Any], may_be_set: bool) -> nn.Module | None:
    criterion = given.get("criterion")
    args, kwargs = given.get("criterion_args") or (), dict(given.get("criterion_kwargs") or {})
    if not may_be_set:
        if criterion in (None, "MSELoss", nn.MSELoss) and not args and not kwargs:
            return None
        raise UsageError(
            f"frame_config.criterion is {criterion!r}: this algorithm has a loss of its own (values are trained by the "
            "squared error, MSELoss); leave it out"
        )
    if criterion is None:
        if args or kwargs:
            raise UsageError("frame_config has criterion_args or criterion_kwargs, but no criterion")
        return None
    found = resolve("criterion", criterion)
    if isinstance(found, nn.Module):
        return found
    if not isinstance(found, type) or not issubclass(found, nn.Module):
        raise UsageError(f"frame_config.criterion is a loss module, its class or its name, got {criterion!r}")
    try:
        made = found(*args, **kwargs)
    except TypeError as error:
        raise UsageError(f"frame_config.criterion: {found.__name__} could not be made: {error}") from None
    if getattr(made, "reduction", None) == "mean":
        made.reduction = "none"  # type: ignore[assignment] # the mean is taken after the rows are weighed
    return made


def _models(plan: Plan, algorithm: Any) -> ModelSettings:
    given = plan.parts
    models = given.get("models")
    if models is None or all(one is None for one in models):
        for key in ("model_args", "model_kwargs"):
            if any(given.get(key) or ()):
                raise UsageError(f"frame_config.{key} is given, but models are null: they are built from the spaces")
        return fill(ModelSettings, {**to_mapping(algorithm.default_model), **plan.model}, "frame_config.model")
    if plan.model:
        raise UsageError("frame_config has both models and model; the latter describes networks built from the spaces")
    roles = algorithm.model_roles
    count, words = len(roles), " and ".join(word for _, word in roles)
    if not isinstance(models, (list, tuple)) or len(models) != count or any(one is None for one in models):
        raise UsageError(f"frame_config.models is a list of {count} ({words or 'no network'}); got {models!r}")
    args = given.get("model_args") or [()] * count
    kwargs: Any = given.get("model_kwargs") or [{}] * count
    if len(args) != count or len(kwargs) != count:
        raise UsageError(f"frame_config.model_args and model_kwargs have one entry for each of the {count} models")
    found: dict[str, Any] = {}
    for (setting, word), *described in zip(roles, models, args, kwargs, strict=True):
        made = _described(*described)
        if found.setdefault(setting, made) != made:
            raise UsageError(
                f"frame_config.models: {word} is a copy of the first, so both entries must be the same class "
                f"with the same arguments; got {found[setting]!r} and {made!r}"
            )
    return ModelSettings(**found)


def _described(model: Any, args: Any, kwargs: Any) -> Any:
    found = resolve("models", model)
    if isinstance(found, nn.Module):
        if args or kwargs:
            raise UsageError("frame_config.model_args and model_kwargs are for classes; a made model takes none")
        return found
    if not isinstance(found, type) or not issubclass(found, nn.Module):
        raise UsageError(f"frame_config.models: a model is a class of nn.Module, its name, or made; got {model!r}")
    return {"class": found, "args": list(args or ()), "kwargs": dict(kwargs or {})}


def equip(algorithm: Any, parts: Parts) -> Schedule | None:
    """Put optimizer, criterion and schedule into an algorithm; returns the schedule, which someone must step."""
    places = _optimizers(algorithm)
    if not places and (parts.optimizer is not None or parts.scheduler is not None):
        raise UsageError("frame_config.optimizer and lr_scheduler: this algorithm has no optimizer; leave them out")
    if parts.optimizer is not None:
        for name, network in places.items():
            setattr(algorithm, name, TorchOptimizer(parts.optimizer, network, parts.settings.learning_rate))
    if parts.criterion is not None:
        algorithm.criterion = parts.criterion
    if parts.scheduler is None:
        return None
    schedule = Schedule(parts.scheduler, parts.scheduler_args, parts.scheduler_kwargs, parts.settings.learning_rate)
    for name in places:
        setattr(algorithm, name, ScheduledOptimizer(getattr(algorithm, name), schedule))
    return schedule


def _optimizers(algorithm: Any) -> dict[str, Any]:
    """Where an algorithm has optimizers, by name, and the network that each of them steps."""
    if hasattr(algorithm, "optimized"):  # policy and critics have one each
        return dict(algorithm.optimized())
    return {} if algorithm.optimizer is None else {"optimizer": algorithm.network}


def probe(algorithm: Any, observation_space: Any) -> None:
    """Show an observation to the networks before anything begins; an output of the wrong form is said in words."""
    from gymnasium.vector.utils import batch_space

    if not algorithm.model.has_own_modules or algorithm.network is None or getattr(algorithm, "joint", False):
        return  # built from the spaces; those of several agents are shown what each sees by its first step
    example = algorithm.adapter.adapt(batch_space(observation_space, 2).sample())
    network = algorithm.network
    with torch.no_grad():
        try:
            output = network(to_tensors(example, torch.device(algorithm.device)))
        except UsageError:
            raise
        except Exception as error:
            raise UsageError(
                f"frame_config.models: the network cannot take observations of {observation_space}: "
                f"{type(error).__name__}: {error}"
            ) from error
    first = output[0] if isinstance(output, tuple) else output
    want = (2, algorithm.outputs)
    if not isinstance(first, torch.Tensor) or tuple(first.shape) != want:
        got = tuple(first.shape) if isinstance(first, torch.Tensor) else type(first).__name__
        what = "action values" if algorithm.actions.discrete and not algorithm.data.on_policy else "logits or means"
        raise UsageError(
            f"frame_config.models: for 2 observations the network must give {what} of shape {want}, but gave {got}"
        )
    if not bool(np.isfinite(to_array(first)).all()):
        raise UsageError("frame_config.models: the network gives values that are not finite")


def training_config(plan: Plan, parts: Parts, env: Mapping[str, Any], test_episodes: int = 20) -> TrainConfig:
    """The same training in the words of `operant train`."""
    return TrainConfig.from_mapping(
        {
            "total_steps": 10**12,  # the limit is in episodes
            "seed": plan.seed,
            "device": parts.model.device,
            "workers": plan.workers,
            "engine": plan.launch.engine,
            "num_nodes": plan.launch.num_nodes,
            "env": env,
            "algorithm": {"name": plan.algorithm, **to_mapping(parts.settings)},
            "model": parts.model,
            "evaluation": {"episodes": test_episodes, "every": 1},
            "checkpoint": {"every": 1},
            "log": {"every": 1000},
        }
    )
