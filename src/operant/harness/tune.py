"""Operant's searchers and assessors behind Ray Tune's interfaces, for any `Tuner`.

search = OperantSearch("TpeSearcher", metric="loss", mode="min", seed=3)
scheduler = OperantScheduler("MedianStopAssessor")
Tuner(trainable, param_space={"lr": tune.loguniform(1e-5, 1e-1)},
      tune_config=TuneConfig(search_alg=search, scheduler=scheduler, num_samples=50)).fit()
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ray._private.dict import flatten_dict, unflatten_dict
from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher
from ray.tune.search.sample import Categorical, Domain, Float, Integer, LogUniform, Quantized, Uniform
from ray.tune.search.variant_generator import parse_spec_vars

from operant._util.files import write_file
from operant.assessors import AssessResult, BaseAssessor
from operant.assessors.builder import build_assessor
from operant.errors import UsageError
from operant.searchers import BaseSearcher, Observation, Proposal, build_searcher
from operant.searchers.base_searcher import Trial as SearcherTrial
from operant.status import Status

_MODES = {"max": "maximize", "min": "minimize"}


class OperantSearch(Searcher):
    """A `search_alg` of Tune's that asks one of Operant's searchers.

    Its state is saved as JSON, and a restored one goes on as it would have: proposals depend on the seed, their
    number and the results alone.

    Args:
        searcher: the name of a searcher, or a mapping with `type` and its options.
        space: `search_args`; by default what varies in the `param_space` of the `Tuner` (`tune.uniform`, `choice` …).
        metric, mode: as in `TuneConfig`, which may give them as well.
        record: a file to which proposals and results are appended as they come; what is there already is gone on
            with: its unfinished proposals come first. For searches that must survive the death of their controller.
        options: of the searcher.
    """

    def __init__(
        self,
        searcher: str | Mapping[str, Any] = "TpeSearcher",
        space: Sequence[Mapping[str, Any]] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        *,
        record: str | Path | None = None,
        **options: Any,
    ) -> None:
        super().__init__(metric=metric, mode=mode)
        self._options = {**({"type": searcher} if isinstance(searcher, str) else searcher), **options}
        self._args = None if space is None else [dict(one) for one in space]
        self._record = None if record is None else Path(record)
        self._searcher: BaseSearcher | None = None
        self._numbers: dict[str, int] = {}
        """Of proposals under way, by trial."""
        self._again: list[Proposal] = []
        """Proposals whose trials died with an earlier controller."""
        self._proposals: list[dict[str, Any]] = []
        self._results: list[dict[str, Any]] = []
        self._build()

    def set_search_properties(self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any) -> bool:
        if self._searcher is not None:
            return False
        self._metric, self._mode = metric or self._metric, mode or self._mode
        if self._args is None:
            self._args = search_args_of(config)
        self._build()
        return self._searcher is not None

    def suggest(self, trial_id: str) -> Any:
        if self._searcher is None:
            raise UsageError("OperantSearch needs a space, a metric and a mode: give them to it, or to the Tuner")
        if self._again:
            proposal: Proposal | None = self._again.pop(0)
        elif not self._searcher.ready():
            return None
        else:
            proposal = self._searcher.propose()
            if proposal is None:
                return self.FINISHED if not self._numbers else None
            self._note({"proposed": proposal.number, "config": proposal.config, **proposal.extras})
        assert proposal is not None
        self._numbers[trial_id] = proposal.number
        nested: dict[str, Any] = unflatten_dict(dict(proposal.config))
        return nested

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        number = self._numbers.pop(trial_id, None)
        if number is None or self._searcher is None:  # of a trial that somebody else has proposed
            return
        value = _number((result or {}).get(str(self._metric)))
        status = Status.ERROR if error or value is None else Status.FINISHED
        values = {} if value is None or error else {str(self._metric): value}
        self._searcher.observe(Observation(number, status=status, values=values))
        self._note({"observed": number, "status": str(status), "values": values})

    def get_state(self) -> dict[str, Any]:
        return {
            "args": self._args,
            "metric": self._metric,
            "mode": self._mode,
            "numbers": self._numbers,
            "lines": [*self._proposals, *self._results],
        }

    def set_state(self, state: dict[str, Any]) -> None:
        self._args, self._metric, self._mode = state["args"], state["metric"], state["mode"]
        self._record = None
        self._searcher = None
        self._build(state["lines"])
        # Tune itself goes on with the trials that were under way.
        self._again, self._numbers = [], {str(key): int(value) for key, value in state["numbers"].items()}

    def save(self, checkpoint_path: str) -> None:
        write_file(Path(checkpoint_path), json.dumps(self.get_state()))

    def restore(self, checkpoint_path: str) -> None:
        self.set_state(json.loads(Path(checkpoint_path).read_text(encoding="utf-8")))

    @property
    def finished(self) -> int:
        """Proposals that have a result."""
        return len(self._results)

    @property
    def best(self) -> tuple[SearcherTrial, float] | None:
        """The best proposal and its reward; of equals the earliest."""
        found = None if self._searcher is None else self._searcher.best
        return None if found is None or self._searcher is None else (found, self._searcher.reward(found))

    def _build(self, lines: Sequence[dict[str, Any]] | None = None) -> None:
        """Make the searcher once all is known that it needs."""
        if self._args is None or not self._metric or not self._mode:
            return
        options = {**self._options, "reward_attribute": self._metric, "optimize_mode": _MODES[str(self._mode)]}
        self._searcher = build_searcher(options, self._args)
        lines = self._recorded() if lines is None else lines
        self._proposals = [line for line in lines if "proposed" in line]
        self._results = [line for line in lines if "observed" in line]
        proposals = [
            Proposal(one["proposed"], one["config"], one.get("budget"), one.get("parent"), one.get("notes"))
            for one in self._proposals
        ]
        observations = [Observation(one["observed"], None, 1, one["status"], one["values"]) for one in self._results]
        self._searcher.restore(observations, proposals)
        known = {one["observed"] for one in self._results}
        self._again = [one for one in proposals if one.number not in known]

    def _recorded(self) -> list[dict[str, Any]]:
        if self._record is None or not self._record.exists():
            return []
        whole, _, torn = self._record.read_bytes().rpartition(b"\n")
        if torn:  # cut off in the midst of a line, which nobody has acted on
            self._record.write_bytes(whole + b"\n" * bool(whole))
        try:
            return [dict(json.loads(line)) for line in whole.splitlines()]
        except ValueError:
            raise UsageError(f"{self._record} is damaged; move it away to begin anew") from None

    def _note(self, line: dict[str, Any]) -> None:
        (self._proposals if "proposed" in line else self._results).append(line)
        if self._record is not None:
            with self._record.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")


class OperantScheduler(FIFOScheduler):
    """A `scheduler` of Tune's that asks one of Operant's assessors which trials to end, to pause or to go on with.

    Args:
        assessor: its name, a mapping with `type` and its options, or an assessor.
        metric, mode: as in `TuneConfig`, which may give them as well.
        time_attr: the result that counts a trial's progress.
    """

    def __init__(
        self,
        assessor: str | Mapping[str, Any] | BaseAssessor = "MedianStopAssessor",
        metric: str | None = None,
        mode: str | None = None,
        time_attr: str = "training_iteration",
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._given = assessor
        self._metric, self._mode = metric, mode
        self._time_attr = time_attr
        self._assessor: BaseAssessor | None = None
        self._histories: dict[str, list[dict[str, Any]]] = {}
        self._promoted: set[str] = set()

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        if (self._metric and metric) or (self._mode and mode):
            return False
        self._metric, self._mode = metric or self._metric, mode or self._mode
        return True

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        value = _number(result.get(str(self._metric)))
        if value is None:
            return TrialScheduler.CONTINUE
        self._promoted.discard(trial.trial_id)  # it runs
        history = self._histories.setdefault(trial.trial_id, [])
        step = int(result.get(self._time_attr, len(history)))
        history.append({"iteration": step, "value": value, "created": round(time.time() * 1000)})
        verdict = self._judge().assess_job(trial.trial_id, history)
        self._promote()
        if verdict is AssessResult.Bad:
            del self._histories[trial.trial_id]  # none to compare others with
            return TrialScheduler.STOP
        return TrialScheduler.PAUSE if verdict is AssessResult.Pause else TrialScheduler.CONTINUE

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        if trial.trial_id in self._histories:
            self._judge().job_end(trial.trial_id)
            self._promote()

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        trials = tune_controller.get_trials()
        for trial in trials:
            if trial.status == Trial.PENDING:
                return trial  # type: ignore[no-any-return]
        paused = [trial for trial in trials if trial.status == Trial.PAUSED]
        for trial in paused:
            if trial.trial_id in self._promoted:
                return trial  # type: ignore[no-any-return]
        standing = all(trial.status in (Trial.PAUSED, Trial.TERMINATED, Trial.ERROR) for trial in trials)
        if paused and standing and tune_controller.search_alg.is_finished():
            for trial in paused:  # nothing will come that they could be preferred to
                tune_controller.stop_trial(trial)
        return None

    def debug_string(self) -> str:
        return f"{type(self._judge()).__name__} of Operant, {len(self._histories)} trials seen"

    def _judge(self) -> BaseAssessor:
        if self._assessor is None:
            self._assessor = build_assessor(self._given, _MODES[self._mode or "max"])
        return self._assessor

    def _promote(self) -> None:
        self._promoted.update(str(one) for one in self._judge().promotions())


def search_args_of(space: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What varies in a `param_space` of Tune's, as `search_args`."""
    _, _, grids = parse_spec_vars(dict(space))
    if grids:
        raise UsageError(f"{_path(grids[0][0])} is a grid_search; with a searcher use tune.choice")
    _, domains, _ = parse_spec_vars(flatten_dict(dict(space), prevent_delimiter=True))
    return [{"name": _path(path), **_space_of(_path(path), domain)} for path, domain in domains]


def _path(parts: Sequence[Any]) -> str:
    return "/".join(str(part) for part in parts)


def _space_of(name: str, domain: Domain) -> dict[str, Any]:
    sampler: Any = domain.get_sampler()  # type: ignore[no-untyped-call]
    step = sampler.q if isinstance(sampler, Quantized) else None
    sampler = sampler.sampler if isinstance(sampler, Quantized) else sampler
    if isinstance(domain, Categorical):
        return {"type": "Categorical", "data": list(domain.categories)}
    if not isinstance(sampler, (Uniform, LogUniform)) or not isinstance(domain, (Float, Integer)):
        raise UsageError(f"{name} is drawn by {type(sampler).__name__}, which no searcher of Operant knows")
    log = {"log": True} if isinstance(sampler, LogUniform) else {}
    if isinstance(domain, Integer):
        upper = domain.upper if step else domain.upper - 1
        return {"type": "Int", "data": [domain.lower, upper], **log, **({"step": int(step)} if step else {})}
    return {"type": "Real", "data": [domain.lower, domain.upper], **log, **({"step": step} if step and not log else {})}


def _number(value: Any) -> float | None:
    try:
        found = float(value)
    except (TypeError, ValueError):
        return None
    return found if math.isfinite(found) else None
