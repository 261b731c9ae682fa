"""A search as an Optuna study, so that optuna-dashboard and Optuna's own plots open it."""

from __future__ import annotations

import math
import tempfile
import warnings
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from operant.errors import UsageError
from operant.schedulers.engine.records import JobRecord, ProposalRecord
from operant.schedulers.engine.state import SearchState, read_state
from operant.schedulers.exchange.optuna_space import AskedParameters, OptunaSpace
from operant.schedulers.exchange.optuna_storage import load_optuna, open_new
from operant.schedulers.planning.rewards import RewardRule
from operant.schedulers.views.recorded import job_history, recorded_rule
from operant.status import Status
from operant.tracking.journal import JournalReader

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial


class Exported(NamedTuple):
    path: Path
    trials: int
    left_out: int
    """Proposals that are still under way; filtered ones were never tried and are not counted."""


def export_to_optuna(folder: Path, target: Path | None = None) -> Exported:
    """Write the search in ``folder`` as a study of its name to ``target``, a new file.

    A name that ends in ``.db`` or ``.sqlite`` gets a SQLite file, any other a journal file, which Optuna writes
    many times as fast. Each proposal is a trial:
    FINISHED is COMPLETE, STOPPED is PRUNED, ERROR and KILLED are FAIL. Reports are its intermediate values; with
    several seeds their mean, up to the step that all of them have reached.
    """
    optuna = load_optuna()
    target = target or Path(f"{folder.name}-optuna.log")
    if target.exists():
        raise UsageError(f"{target} exists already: name another place with --out, or remove it")
    target.parent.mkdir(parents=True, exist_ok=True)
    state, _ = read_state(folder)
    config = state.opened.get("config") or {}
    search_args = (config.get("task") or {}).get("search_args")
    tried = [one for one in state.proposals.values() if not one.filtered]
    done = [one for one in tried if one.status is not None]
    asked = None if search_args else _asked(folder)
    space = asked or OptunaSpace(search_args, [one.config for one in done])
    jobs: dict[int, list[JobRecord]] = {}
    for job in state.jobs.values():
        if not job.is_check:
            jobs.setdefault(job.number, []).append(job)
    rule = recorded_rule(state.opened)
    with tempfile.TemporaryDirectory(prefix=".", dir=target.parent) as beside:  # a journal has a lock file with it
        staged = Path(beside) / target.name
        with open_new(staged, like=target) as storage:
            study = optuna.create_study(
                storage=storage, study_name=folder.name, direction="maximize" if state.maximize else "minimize"
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # so since 2023
                study.set_metric_names([rule.attribute])
            study.set_user_attr("operant:reward_attribute", rule.attribute)
            if search_args:
                study.set_user_attr("operant:search_args", search_args)
            if space.as_json:
                study.set_user_attr("operant:json_params", space.as_json)
            study.add_trials([_trial(one, jobs.get(one.number, []), state, space, folder, rule) for one in done])
        staged.replace(target)
    return Exported(target, len(done), len(tried) - len(done))


def _asked(folder: Path) -> AskedParameters | None:
    """What the trials of an Optuna objective asked for; None of any other search, or a damaged one."""
    records = [entry.record for entry in JournalReader(folder).poll() if entry.record["type"] == "returned"]
    results = {one["number"]: one["value"] for one in records if "number" in one and isinstance(one.get("value"), dict)}
    found = {number: one for number, one in results.items() if {"params", "distributions"} <= one.keys()}
    try:
        return AskedParameters(found) if found else None
    except (TypeError, ValueError, KeyError, AttributeError):
        return None


def _trial(
    proposal: ProposalRecord,
    jobs: list[JobRecord],
    state: SearchState,
    space: OptunaSpace | AskedParameters,
    folder: Path,
    rule: RewardRule,
) -> FrozenTrial:
    from optuna.trial import TrialState, create_trial

    usable = proposal.reward is not None and not math.isnan(proposal.reward)
    early = proposal.status == Status.STOPPED or proposal.raced_out
    if proposal.status == Status.FINISHED and usable and not early:
        end = TrialState.COMPLETE
    else:
        end = TrialState.PRUNED if early else TrialState.FAIL
    params, distributions, given = space.parameters(proposal.number, proposal.config)
    attributes: dict[str, Any] = {
        **given,
        "operant:number": proposal.number,
        "operant:status": proposal.status,
        "operant:jobs": [job.id for job in jobs],
    }
    if len(jobs) > 1:
        attributes["operant:seed_rewards"] = {str(job.seed): job.reward for job in jobs}
    if proposal.budget is not None:
        attributes["operant:budget"] = proposal.budget
    others = {key: value for key, value in proposal.values.items() if key != rule.attribute}
    if others:
        attributes["operant:values"] = others
    errors = [job.error for job in jobs if job.error]
    if errors:
        attributes["operant:error"] = errors[0]
    trial = create_trial(
        state=end,
        value=proposal.reward if usable and end is not TrialState.FAIL else None,
        params=params,
        distributions=distributions,
        user_attrs=attributes,
        intermediate_values=_reports(folder, jobs, rule, state),
    )
    started = [job.started for job in jobs if job.started is not None]
    ended = [job.ended for job in jobs if job.ended is not None]
    begin = min(started, default=state.opened.get("wall", 0.0))
    trial.datetime_start = datetime.fromtimestamp(begin)
    trial.datetime_complete = datetime.fromtimestamp(max([begin, *ended]))
    return trial


def _reports(folder: Path, jobs: list[JobRecord], rule: RewardRule, state: SearchState) -> dict[int, float]:
    histories = [job_history(folder, job.id, rule, state) for job in jobs]
    curves = [{int(one["iteration"]): float(one["value"]) for one in history} for history in histories if history]
    if not curves:
        return {}
    common = set(curves[0]).intersection(*curves[1:])
    return {step: math.fsum(one[step] for one in curves) / len(curves) for step in sorted(common)}
