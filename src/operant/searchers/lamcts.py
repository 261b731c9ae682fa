"""LamctsSearcher: learns a tree of regions, chooses one as a tree search does, and searches inside it."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from operant._util.checks import flag, is_number, one_of, positive, whole_number
from operant.errors import ConfigError
from operant.searchers._branches import BranchSteps
from operant.searchers._cma import default_population
from operant.searchers._extras import one_thread
from operant.searchers._region_solvers import STANDS_OUT, CmaSolver, GpSolver, RegionSolver, TurboSolver
from operant.searchers._regions import Partition, Region, tree_nodes, tree_text
from operant.searchers._trial_arrays import TrialArrays, filled_scores
from operant.searchers.base_searcher import MOST_AT_ONCE, BaseSearcher, Proposal, Trial
from operant.searchers.builder import SEARCHERS
from operant.searchers.random import Design
from operant.space import Container

_SOLVERS = ("cmaes", "turbo", "gp")
_KERNELS = ("linear", "poly", "rbf", "sigmoid")
_STARTS = ("centre", "random")
# The first steps of a run around a good sample are so much smaller than those of another. With a sixth and a third,
# 3 and 2 of 6 good samples of a Hopper led to 3,120 within 560 others.
_SMALLER = 6
# Around the best sample of such a run there is another if that is better by this part of the range of all results.
_BETTER = 0.03
# Means of rewards beyond this could not be computed.
_HUGE = 1e150
# Of the start of a run: the runs that have collapsed, the highest level of one, how many have begun in a region before.
_BEGINNING: dict[str, Any] = {"spent": [], "level": None, "turn": 0}
_log = logging.getLogger(__name__)


class _Unspent:
    """The samples of all runs, as a run of CMA-ES learns from them: where one has collapsed nothing is expected."""

    def __init__(self, searcher: LamctsSearcher) -> None:
        self._searcher = searcher

    def __len__(self) -> int:
        return len(self._searcher._history)

    def first(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        points, scores = self._searcher._history.first(count)
        return points, np.where(np.isnan(scores), np.nan, self._searcher._values(count))


@SEARCHERS.register_module()
class LamctsSearcher(BaseSearcher):
    """LA-MCTS (Wang, Fonseca, Tian, NeurIPS 2020) around a local solver.

    After `ninits` evenly spread samples the space is parted: good samples from bad ones, again and again, until a
    region has `leaf_size` samples. Upper confidence bounds choose a region, and a run of the solver begins in it and
    prefers points of that region; of several draws of CMA-ES there, a model of the samples around chooses one. The
    partition follows the samples while the run goes on. When the run has collapsed (its results are equal, or no
    better than those long before, or most are the same and the others worse), its samples count as visits but not as
    successes, and the bounds choose again; a run that was the best so far is first gone over with smaller steps. Where
    a trust region or a run of CMA-ES met a sample far better than what is around it, the next one is a run of CMA-ES
    around that sample, with small steps, and so on while they find better ones.

    Args:
        dims: the number of search args, as a check.
        Cp: how much a region that was visited seldom is preferred, in units of the reward. Higher explores more;
            a tenth of the highest reward is much, 0 always takes the better half.
        leaf_size: samples from which on a region is parted. Small ones follow few samples closely.
        kernel_type: of the support vector machines: `rbf`, `poly`, `linear` or `sigmoid`.
        gamma_type: their kernel's width: `auto`, `scale`, or a number.
        ninits: evenly spread samples before the first partition.
        solver: what searches inside a region: `cmaes`, `turbo` (trust regions and CMA-ES by turns, for hundreds of
            samples) or `gp` (a Gaussian process of all samples, and the bounds choose a region anew all the time).
        enable_cuda: accepted; the solvers use the CPU.
        sigma: the first step size of a run, as a part of the range (default: so that a step is as long as the range
            of one argument, however many there are; at most 0.3).
        population_size: results in one generation (default: 4 + 3 log of the number of arguments).
        start: whether the first sample is the `centre` of all ranges or a `random` one.
        partition: False leaves out the tree: the same solver with restarts at random, for comparison.
    """

    def __init__(
        self,
        search_space: Container | Sequence[Mapping[str, Any]],
        reward_attribute: str = "acc",
        optimize_mode: str = "maximize",
        seed: int = 0,
        lag: int | None = None,
        *,
        dims: int | None = None,
        Cp: float = 1.0,
        leaf_size: int = 20,
        kernel_type: str = "rbf",
        gamma_type: str | float = "auto",
        ninits: int = 30,
        solver: str = "cmaes",
        enable_cuda: bool = False,
        sigma: float | None = None,
        population_size: int | None = None,
        start: str = "random",
        partition: bool = True,
    ) -> None:
        super().__init__(search_space, reward_attribute, optimize_mode, seed, lag)
        if dims is not None and whole_number(dims, "dims", least=1) != self.space.dimensions:
            raise ConfigError(f"`dims` is {dims}, but there are {self.space.dimensions} search args", ("dims",))
        if not is_number(Cp) or not 0 <= Cp <= sys.float_info.max:
            raise ConfigError(f"`Cp` must be a number from 0 on, not {Cp!r}", ("Cp",))
        self.Cp = float(Cp)
        self.leaf_size = whole_number(leaf_size, "leaf_size", least=2)
        self.kernel_type = one_of(kernel_type, "kernel_type", _KERNELS)
        gamma = gamma_type if is_number(gamma_type) else one_of(gamma_type, "gamma_type", ("auto", "scale"))
        self.gamma_type = positive(gamma, "gamma_type") if is_number(gamma) else gamma
        self.ninits = whole_number(ninits, "ninits", least=2, most=MOST_AT_ONCE)
        self.solver = one_of(solver, "solver", _SOLVERS)
        default = min(1 / math.sqrt(max(self.space.dimensions, 1)), 0.3)
        self.sigma = positive(default if sigma is None else sigma, "sigma")
        if population_size is not None:
            whole_number(population_size, "population_size", least=4, most=MOST_AT_ONCE)
        self.population_size = population_size
        self.start = one_of(start, "start", _STARTS)
        self.partition = flag(partition, "partition")
        if flag(enable_cuda, "enable_cuda"):
            _log.warning("enable_cuda: LamctsSearcher computes on the CPU; its models are too small for a GPU to help")
        self._history = TrialArrays(self.space)
        self._design = Design("lhs", self.space.dimensions, self.seed, self.ninits)
        self._steps = BranchSteps(self.space)
        # The run (None before the first) of each ended trial, in the order of the history.
        self._run_of: list[int | None] = []
        self._worst = math.inf
        self._number = -1
        self._start: dict[str, Any] = dict(_BEGINNING)
        self._run: RegionSolver | None = None
        # The region in which the run proposes, and how many ended trials its partition was made from.
        self._region: Region | None = None
        self._path = ""
        self._seen_rows = 0

    # -- proposals -------------------------------------------------------------------------------------------

    def _propose(self, number: int) -> Proposal | None:
        if self.exhausted:
            return None
        if number < self.ninits or np.isfinite(self._history.scores).sum() < 2:
            first = number == 0 and self.start == "centre"
            point = np.full(self.space.dimensions, 0.5) if first else self._design.point(number)
            config = self.space.decode(point)
            if self.is_new(config):
                return Proposal(number, config)
        elif (step := self._steps.propose(self.rng(number))) is not None and self.is_new(step):
            return Proposal(number, step)
        else:
            with one_thread():
                return self._propose_inside(number)
        fresh = self.fresh(self.rng(number))
        return None if fresh is None else Proposal(number, fresh)

    def _propose_inside(self, number: int) -> Proposal | None:
        notes: dict[str, Any] = {}
        if self._run is None or self._run.over(self._width()):
            notes["start"] = self._next_start(self._run, self.rng(number))
            self._begin(self._number + 1, notes["start"])
        assert self._run is not None
        region = self._follow(self._run)
        notes |= {"run": self._number, "seen": self._seen_rows, "path": region.path if region else ""}
        own = [trial for trial in self.pending if _own_run(trial) == self._number]
        asked: dict[str, Any] = {}
        for asked, point in self._run.ask((self.seed, number), region, own):
            config = self.space.decode(point)
            if self.is_new(config):
                return Proposal(number, config, notes=notes | asked)
        fresh = self.fresh(self.rng(number))
        # Not a step of the run; but that it began here, or was fitted, must be known to a restored search.
        return None if fresh is None else Proposal(number, fresh, notes={**notes, **asked, "aside": True})

    def _follow(self, run: RegionSolver) -> Region | None:
        """The region of the run: the partition is made anew when there are a generation or 5 % more samples."""
        if not self.partition:
            return None
        rows = len(self._history)
        if not self._seen_rows or rows >= self._seen_rows + max(run.patience, rows // 20):
            self._seen_rows = rows
            partition, middle = self._partition(rows), run.middle()
            self._region = partition.walk(self.Cp) if middle is None else partition.follow(middle)
        elif self._region is None:  # the search was restored, or a score has changed
            self._region = self._partition(self._seen_rows).leaf(self._path)
        self._path = self._region.path
        return self._region

    def _partition(self, rows: int) -> Partition:
        values = self._values(rows)
        return Partition(self._history.points[:rows], values, self.leaf_size, self.kernel_type, self.gamma_type)

    def _values(self, rows: int) -> np.ndarray:
        """The scores of the first samples, those of runs that have collapsed no better than most."""
        values = filled_scores(self._history.scores[:rows]).clip(-_HUGE, _HUGE)
        spent = self._spent_rows(rows)
        if spent.any():
            values = np.where(spent, np.median(values[~spent]) if not spent.all() else 0.0, values)
        return values

    def _spent_rows(self, rows: int) -> np.ndarray:
        """Samples of the runs that have collapsed: there is nothing left to find where they went."""
        spent: np.ndarray = np.isin([-1 if run is None else run for run in self._run_of[:rows]], self._start["spent"])
        return spent

    # -- runs ------------------------------------------------------------------------------------------------

    def _width(self) -> float:
        """The range of all results."""
        scores = self._history.scores
        return float(np.nanmax(scores) / 2 - np.nanmin(scores) / 2) * 2

    def _next_start(self, ended: RegionSolver | None, rng: np.random.Generator) -> dict[str, Any]:
        """Where the next run begins, as a record from which it can be begun again."""
        if ended is None:
            return self._start_in_region(rng, dict(_BEGINNING))
        before, spent, level = self._start["level"], self._start["spent"], ended.level()
        before, turn = -math.inf if before is None else before, self._start.get("turn", 0)
        again = ended.again(self._width()) if level > before else None
        best = max(level, before)
        known = best if math.isfinite(best) else None
        peak = self._peak(ended, level, before)
        if peak is not None:
            point, score = peak
            near = {"mean": point.tolist(), "sigma": self.sigma / _SMALLER, "population": self._population()}
            return {**near, "peak": score, "spent": [*spent, self._number], "level": known, "turn": turn}
        if again is not None:
            return {**again, "spent": spent, "level": known, "turn": turn}
        return self._start_in_region(rng, {"spent": [*spent, self._number], "level": known, "turn": turn + 1})

    def _peak(self, ended: RegionSolver, level: float, before: float) -> tuple[np.ndarray, float] | None:
        """The sample to begin a run of CMA-ES around: the best of a trust region, if no run before came to that; the
        best of CMA-ES, if it stands out from the last ones or, around such a sample, is better than that.
        """
        if isinstance(ended, TurboSolver):
            return ended.peak(self._width()) if level > before else None
        scores = np.where([run == self._number for run in self._run_of], self._history.scores, np.nan)
        if np.isnan(scores).all():
            return None
        row = int(np.nanargmax(scores))
        around, least = self._start.get("peak"), STANDS_OUT
        if around is not None:
            level, least = around, _BETTER
        if scores[row] - level <= least * self._width():
            return None
        return self._history.points[row], float(scores[row])

    def _population(self) -> int:
        return self.population_size or default_population(self.space.layout)

    def _start_in_region(self, rng: np.random.Generator, start: dict[str, Any]) -> dict[str, Any]:
        self._start = start
        rows = np.arange(len(self._history))
        if self.partition:
            rows = self._partition(len(rows)).walk(self.Cp).rows
        match self.solver:
            case "gp":
                return start
            # By turns: the one finds places that the other passes by.
            case "turbo" if start["turn"] % 2 == 0:
                return start | self._turbo_start(rows)
            case _:
                return start | self._cma_start(rng, rows)

    def _cma_start(self, rng: np.random.Generator, rows: np.ndarray) -> dict[str, Any]:
        """The middle of the better half of a region's samples."""
        scores, again = filled_scores(self._history.scores), bool(self._start["spent"])
        usable = rows[~self._spent_rows(len(self._history))[rows]]
        usable = usable if len(usable) else rows
        best = usable[np.argsort(-scores[usable], kind="stable")[: max(len(usable) // 2, 1)]]
        if again:
            weights = rng.dirichlet(np.ones(len(best)))
        else:
            # The weights of CMA-ES: the first samples are its first generation.
            weights = math.log(len(best) + 0.5) - np.log(np.arange(1, len(best) + 1))
            weights /= weights.sum()
        mean = weights @ self._history.points[best]
        return {"mean": mean.tolist(), "sigma": self.sigma, "population": self._population()}

    def _turbo_start(self, rows: np.ndarray) -> dict[str, Any]:
        """The region's samples by number, and how many new ones it begins with; after the first run only new ones,
        or the best of the first samples would lead it to the same place again.
        """
        members = [] if self._start["spent"] else [self._history.trials[row].number for row in rows]
        return {"members": members, "first": min(2 * self.space.dimensions, self.ninits) - len(members)}

    def _begin(self, number: int, start: dict[str, Any]) -> None:
        self._number, self._start = number, start
        match "cmaes" if "mean" in start else self.solver:
            case "cmaes":
                known = self._history if "peak" in start else _Unspent(self)
                self._run = CmaSolver(self.space, start, known)
            case "turbo":
                self._run = TurboSolver(self.space, start, self._history)
            case _:
                self._run = GpSolver(self.space, self._history)
        self._region, self._seen_rows = None, 0

    # -- results ---------------------------------------------------------------------------------------------

    def _remember(self, proposal: Proposal) -> None:
        super()._remember(proposal)
        notes = proposal.notes
        if notes is None:
            return
        if notes["run"] > self._number:
            if "start" in notes:
                self._begin(notes["run"], notes["start"])
            else:  # a record in which the run's beginning was not noted
                self._number, self._run = notes["run"], None
        if notes["run"] == self._number and self._run is not None:
            self._seen_rows, self._path = notes["seen"], notes["path"]
            self._run.remember(notes)

    def _learn(self, trial: Trial) -> None:
        self._history.add(trial)
        self._steps.learn(trial)
        if trial.told > 1:
            self._region = None  # its partition follows the scores, as that of a restored search does
            if self._run is not None:
                self._run.correct(trial)
            return
        if trial.state == "finished":
            self._worst = min(self._worst, trial.score)
        self._run_of.append(_own_run(trial))
        if self._run is not None:
            own = _own_run(trial) == self._number
            self._run.learn(trial, own, self._worst if math.isfinite(self._worst) else 0.0)

    # -- views -----------------------------------------------------------------------------------------------

    def tree(self) -> str:
        """The partition of all samples so far as text; stars mark the region of the newest proposal."""
        nodes = self.tree_nodes()
        if not nodes:
            return "there is no tree yet: fewer than two trials have ended"
        return tree_text(nodes, 1 if self.optimize_mode == "maximize" else -1)

    def tree_nodes(self) -> list[dict[str, Any]]:
        """The regions of that tree as JSON, higher is better; none while fewer than two trials have ended."""
        if len(self._history) < 2:
            return []
        with one_thread():
            partition = self._partition(len(self._history))
            middle = None if self._run is None else self._run.middle()
            chosen = None if middle is None else partition.follow(middle)
            if chosen is None and self._run is not None:
                chosen = partition.walk(self.Cp)
            return tree_nodes(partition, self.Cp, None if chosen is None else chosen.path)


def _own_run(trial: Trial) -> int | None:
    """The run that a trial was a step of."""
    return None if trial.notes is None or "aside" in trial.notes else trial.notes["run"]
