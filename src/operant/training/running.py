"""`train`: from a target to a result; and the same from where a run stopped."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from operant._util.dotted import plain_flat
from operant.errors import OperantError, UsageError
from operant.tracking import Run, SummaryWriter
from operant.training.checkpoints import CheckpointError, CheckpointStore
from operant.training.config import TrainConfig
from operant.training.targets import apply_changes, load_config
from operant.training.training import Observer, Training, TrainResult
from operant.training.trust import check_trust

Make = Callable[[TrainConfig, SummaryWriter, Observer | None], Training]


def train(
    target: str | Path | Mapping[str, Any] | TrainConfig,
    changes: Iterable[str] = (),
    *,
    observer: Observer | None = None,
    root: str | Path | None = None,
    tags: Iterable[str] = (),
    settings: Mapping[str, Any] | None = None,
    make: Make = Training,
) -> TrainResult:
    """Train as a preset, a file or a mapping says, with changes such as ``total_steps=50000``.

    >>> result = train("cartpole-ppo", ["seed=1"])
    >>> result.best_return
    500.0

    :param settings: what the run records as its settings, if that is not the config.
    :param make: makes the training, by default a `Training`.
    """
    config = target if isinstance(target, TrainConfig) and not changes else load_config(target, changes)
    plain = config.to_mapping()
    store = _job_checkpoints()
    if store is not None:

        def go_on(found: int, state: dict[str, Any]) -> TrainResult:
            _refuse_other_shapes(_saved_config(found, state), plain)
            with SummaryWriter(config.name, resumed_from=found, root=root, tags=["train", *tags]) as writer:
                return _run_from(make(config, writer, observer), found, state, store.notes)

        return _from_newest(store, None, go_on)
    recorded = plain_flat(plain if settings is None else settings)
    with SummaryWriter(config.name, config=recorded, root=root, tags=["train", *tags]) as writer:
        training = make(config, writer, observer)
        training.begin()
        return training.run()


def resume(
    run: str,
    changes: Iterable[str] = (),
    *,
    step: int | None = None,
    observer: Observer | None = None,
    root: str | Path | None = None,
    trust: bool | Collection[str] = False,
    config: TrainConfig | None = None,
    make: Make = Training,
) -> TrainResult:
    """Go on from the newest checkpoint of a run (or the one of a step), in the same run.

    Without changes the result equals that of a training that was never interrupted, bit by bit, where the
    environments can be saved. A change such as ``total_steps=200000`` takes effect from here on.

    A run that you did not record on this machine runs code that it names only with ``trust``: True, or the names.

    :param config: go on with this one instead of the saved one and its changes.
    :param make: makes the training, by default a `Training`.
    """
    opened = Run.open(run, root)
    store = CheckpointStore(opened.folder / "checkpoints")
    changes = list(changes)

    def go_on(found: int, state: dict[str, Any]) -> TrainResult:
        saved = _saved_config(found, state)
        if config is None:  # of one's own instead of it, it is the user who names code
            check_trust(state, f"the checkpoint of run {opened.id}", trust)
        changed = apply_changes(saved, changes) if config is None else config.to_mapping()
        _refuse_other_shapes(saved, changed)
        new = TrainConfig.from_mapping(changed) if config is None else config
        with SummaryWriter(run=opened.id, resumed_from=found, root=root) as writer:
            return _run_from(make(new, writer, observer), found, state, store.notes)

    return _from_newest(store, step, go_on)


class _Unfit(CheckpointError):
    """Whole, and yet a training cannot go on from it."""


def _from_newest(
    store: CheckpointStore, step: int | None, go_on: Callable[[int, dict[str, Any]], TrainResult]
) -> TrainResult:
    """Go on from a step, or from the newest checkpoint that a training can go on from."""
    before = None
    while True:
        found, state = store.load(step, before)
        try:
            return go_on(found, state)
        except _Unfit as error:
            if step is not None or not any(one < found for one in store.steps()):
                raise
            store.notes.append(f"{error}; the one before it serves")
            before = found


def _saved_config(found: int, state: Mapping[str, Any]) -> Mapping[str, Any]:
    config = state.get("config")
    if not isinstance(config, Mapping):
        raise _Unfit(f"the checkpoint of step {found:,} has no config")
    return config


def _run_from(training: Training, found: int, state: dict[str, Any], notes: Iterable[str]) -> TrainResult:
    try:
        training.load_state_dict(state)
    except KeyError as error:
        raise _Unfit(f"the checkpoint of step {found:,} lacks {error}") from error
    except (TypeError, ValueError, IndexError, AttributeError, RuntimeError, OverflowError, MemoryError) as error:
        if isinstance(error, OperantError):
            raise
        why = " ".join(str(error).split())[:300]  # torch's have many lines
        raise _Unfit(f"the checkpoint of step {found:,} does not fit: {type(error).__name__}: {why}") from error
    for sentence in notes:
        training.say(sentence)
    return training.run()


def _job_checkpoints() -> CheckpointStore | None:
    """The checkpoints of this job, if it was begun before: by an earlier attempt, or before it was preempted."""
    folder = os.environ.get("OPERANT_RUN_DIR")
    if folder is None or not os.environ.get("OPERANT_RESUME_FROM"):
        return None
    store = CheckpointStore(Path(folder) / "checkpoints")
    return store if store.steps() else None


# What the saved state was made for. (`model.fused` only says how it is computed.)
_FIXED = (
    "algorithm.name",
    *(f"algorithm.{key}" for key in ("atoms", "quantiles", "dueling", "noisy", "critics")),
    *(f"algorithm.{key}" for key in ("sub_policies", "critic_visible_actors")),
    "model",
    "policy_mapping",
    "env.num_envs",
    "env.workers",
    "learners",
    "replay_shards",
    "env.normalize_obs",
    "env.normalize_reward",
)


def _refuse_other_shapes(before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """A checkpoint cannot go on in other networks, with other scales or in other numbers of environments."""
    old, new = plain_flat(before), plain_flat(after)
    for key in sorted(old.keys() | new.keys()):
        fixed = any(key == one or key.startswith(f"{one}.") for one in _FIXED) and key != "model.fused"
        if fixed and key in old and old[key] != new.get(key):
            raise UsageError(
                f"the checkpoint was saved with {key}={old[key]} and cannot go on with {key}={new.get(key)}; "
                "leave it as it was, or train anew"
            )
