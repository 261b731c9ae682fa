"""An Optuna study as a search: to look at, to replay, to plot, or to go on with."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from operant.errors import OperantError, UsageError
from operant.schedulers.exchange.foreign import ForeignTrial, write_search
from operant.schedulers.exchange.optuna_space import search_args_of
from operant.schedulers.exchange.optuna_storage import load_optuna, open_for_reading, pick_study
from operant.space import build_space
from operant.status import DONE, USABLE, Status
from operant.tracking.places import check_run_id, safe_part

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial

_OURS = DONE


class Imported(NamedTuple):
    folder: Path
    trials: int
    left_out: int
    """Trials that were waiting or running."""


def import_from_optuna(
    file: Path, searches: Path, name: str | None = None, *, study: str | None = None, force: bool = False
) -> Imported:
    """Make a search of a study. Of several objectives the first is the reward; the others are kept beside it.

    COMPLETE becomes FINISHED, PRUNED becomes STOPPED, FAIL becomes ERROR. Optuna keeps no times of intermediate
    values: they are taken to have come evenly over the trial.
    """
    optuna = load_optuna()
    with open_for_reading(file) as storage:
        found = optuna.load_study(study_name=pick_study(storage, study, file), storage=storage)
        trials = found.get_trials(deepcopy=False)
        task = check_run_id(name if name is not None else safe_part(found.study_name) or "study")
        if "/" in task:
            raise UsageError(f"a search's name has no '/': {task!r}")
        folder = searches / task
        finished = [one for one in trials if one.state.is_finished()]
        metrics = _metrics(found)
        write_search(
            folder,
            _config(found, finished, metrics),
            _numbered([_trial(one, metrics, found.user_attrs.get("operant:json_params", ())) for one in finished]),
            reward=metrics[0],
            maximize=found.directions[0].name == "MAXIMIZE",
            source="Optuna",
            force=force,
        )
    return Imported(folder, len(finished), len(trials) - len(finished))


def _metrics(study: Study) -> list[str]:
    given = study.metric_names
    if given is not None:
        return [str(one) for one in given]
    single = len(study.directions) == 1
    return ["value"] if single else [f"value_{place}" for place in range(len(study.directions))]


def _config(study: Study, trials: Sequence[FrozenTrial], metrics: Sequence[str]) -> dict[str, Any]:
    search_args: Any = study.user_attrs.get("operant:search_args")
    try:
        build_space(search_args)  # whoever wrote the file, only what describes a space is taken as one
    except (OperantError, TypeError, AttributeError):
        search_args = search_args_of([one.distributions for one in trials])
    mode = "maximize" if study.directions[0].name == "MAXIMIZE" else "minimize"
    return {
        "task": {"search_args": search_args},
        "searcher": {"type": "RandomSearcher", "reward_attribute": metrics[0], "optimize_mode": mode},
    }


def _numbered(trials: list[ForeignTrial]) -> list[ForeignTrial]:
    """With the numbers they had in our own search, where all of them have one."""
    return trials if len({one.number for one in trials}) == len(trials) else [
        ForeignTrial(**{**vars(one), "number": place}) for place, one in enumerate(trials)
    ]  # fmt: skip


def _trial(trial: FrozenTrial, metrics: Sequence[str], as_json: Sequence[str]) -> ForeignTrial:
    started = trial.datetime_start.timestamp() if trial.datetime_start is not None else time.time()
    ended = trial.datetime_complete.timestamp() if trial.datetime_complete is not None else started
    kept = trial.user_attrs.get("operant:status")
    status = {"COMPLETE": Status.FINISHED, "PRUNED": Status.STOPPED}.get(trial.state.name, Status.ERROR)
    if kept in _OURS and (kept in USABLE) == (status != Status.ERROR):
        status = kept
    number = trial.user_attrs.get("operant:number")
    values = dict(zip(metrics, trial.values or (), strict=False))
    also = trial.user_attrs.get("operant:values")
    if isinstance(also, Mapping):
        values.update({str(key): float(value) for key, value in also.items() if isinstance(value, (int, float))})
    reward = values.get(metrics[0])
    steps = sorted(trial.intermediate_values)
    part = (ended - started) / (len(steps) + 1)
    return ForeignTrial(
        number=number if isinstance(number, int) and number >= 0 else trial.number,
        config={name: _plain(value, name in as_json) for name, value in trial.params.items()},
        status=status,
        started=started,
        ended=ended,
        reward=None if reward is None or math.isnan(reward) else reward,
        values=values,
        reports=[
            (max(0, step), started + part * place, float(trial.intermediate_values[step]))
            for place, step in enumerate(steps, 1)
        ],
    )


def _plain(value: Any, as_json: bool) -> Any:
    if not as_json or not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value
