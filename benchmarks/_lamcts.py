"""LA-MCTS, with and without its tree, beside other searchers on MuJoCo policies and on formulas of 20 to 60 arguments.

    OMP_NUM_THREADS=1 python benchmarks/mujoco.py [STUDY ...] [--out FOLDER] [--workers N] [--only NAME,...] [--report]

Each study is a function, a number of samples and fresh seeds from 1,000 on. Outcomes are kept in FOLDER (by default
`mujoco_results` beside this file), one line for each search, so a run that was broken off goes on with the search that
was not finished. `--report` runs nothing and prints the tables of what is there. Optuna's TPE is multivariate, its
default. `--speed` measures, in CPU-seconds, episodes beside a loop over Gymnasium's environment with a policy in torch,
and the proposals of LA-MCTS.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import optuna

from operant.benchmark import THRESHOLDS, Function, Outcome, make_function, search_args
from operant.benchmark.reporting import compare, read_outcomes, searcher_options, table
from operant.envs.mujoco_linear import MujocoFunction
from operant.searchers import BaseSearcher, Observation, Proposal, Trial, build_searcher
from operant.searchers.builder import SEARCHERS
from operant.space import Container

OURS = ("lamcts", "lamcts-no-tree", "lamcts-turbo", "lamcts-turbo-no-tree", "cmaes", "turbo", "random")
OPTUNAS = {"Optuna TPE": "TPE", "Optuna CMA-ES": "CMA-ES", "Optuna GP": "GP"}
KEPT = Path(__file__).with_name("mujoco_results")
# Its Gaussian process takes seconds for a proposal: it is run when it is asked for, and for so many samples at most.
USUAL = (*OURS, "Optuna TPE", "Optuna CMA-ES")
SLOW = {"Optuna GP": 500}


@dataclass(frozen=True)
class Study:
    func: str
    samples: int
    seeds: int
    centre: bool = False
    dims: int | None = None

    def samples_of(self, searcher: str) -> int:
        return min(self.samples, SLOW.get(searcher, self.samples))


STUDIES = {
    "swimmer": Study("swimmer", 400, 20),
    "swimmer-centre": Study("swimmer", 400, 20, centre=True),
    "hopper": Study("hopper", 3000, 8),
    "hopper-centre": Study("hopper", 3000, 8, centre=True),
    "ackley-20": Study("ackley", 500, 10, dims=20),
    "levy-20": Study("levy", 500, 10, dims=20),
    "rover-60": Study("rover", 500, 10, dims=60),
}


@SEARCHERS.register_module()
class OptunaSearcher(BaseSearcher):
    """A sampler of Optuna, asked and told like a searcher; all start in the centre, or none."""

    def __init__(
        self, search_space: Container | Sequence[Mapping[str, Any]], *, sampler: str, start: str, **common: Any
    ) -> None:
        super().__init__(search_space, **common)
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        warnings.filterwarnings("ignore", module="optuna")
        bounds = {name: (leaf.low, leaf.high) for name, leaf in self.space.kwspaces.items()}
        centre = {name: (low + high) / 2 for name, (low, high) in bounds.items()}
        rng = np.random.default_rng([self.seed, 0x0C])
        anywhere = {name: float(rng.uniform(low, high)) for name, (low, high) in bounds.items()}
        match sampler:
            case "TPE":
                made: Any = optuna.samplers.TPESampler(seed=self.seed)
            case "CMA-ES":
                first = centre if start == "centre" else anywhere
                made = optuna.samplers.CmaEsSampler(x0=first, seed=self.seed, warn_independent_sampling=False)
            case "GP":
                made = optuna.samplers.GPSampler(seed=self.seed)
            case _:
                raise ValueError(f"there is no sampler {sampler!r} here; there are {', '.join(OPTUNAS.values())}")
        self._study = optuna.create_study(direction="maximize", sampler=made)
        if start == "centre":
            self._study.enqueue_trial(centre)
        self._distributions = {name: optuna.distributions.FloatDistribution(*ends) for name, ends in bounds.items()}
        self._asked: dict[int, optuna.Trial] = {}

    def _propose(self, number: int) -> Proposal:
        self._asked[number] = self._study.ask(self._distributions)
        return Proposal(number, dict(self._asked[number].params))

    def _learn(self, trial: Trial) -> None:
        self._study.tell(self._asked.pop(trial.number), trial.score)


def options(name: str, study: Study) -> dict[str, Any]:
    if name in OPTUNAS:
        start = "centre" if study.centre else "random"
        return {"type": "OptunaSearcher", "sampler": OPTUNAS[name], "start": start}
    return searcher_options(name, study.func, study.centre)


def report(name: str, study: Study, outcomes: Sequence[Outcome]) -> None:
    where = "the centre is the first sample" if study.centre else "no start given"
    print(f"\n### {name}: {study.samples} samples, {where}\n\n{table(outcomes, study.func)}\n")
    if study.func in THRESHOLDS:
        for searcher in dict.fromkeys(one.searcher for one in outcomes):
            own = sorted((one for one in outcomes if one.searcher == searcher), key=lambda one: one.seed)
            hits = ", ".join(f"{one.seed}: {f'>{one.samples}' if one.hit is None else one.hit}" for one in own)
            print(f"- {searcher}: {hits}")
    split = [one.regions > 1 for one in outcomes if one.searcher == "lamcts" and one.hit and one.regions]
    if split:
        print(f"- the tree had split before the hit in {sum(split)} of {len(split)}")
    pairs = _pairs(outcomes)
    if pairs:
        better = sum(one > other for one, other in pairs)
        print(f"- with the tree better than without in {better} of {len(pairs)} seeds (median of differences "
              f"{statistics.median(one - other for one, other in pairs):.4g})")  # fmt: skip


def _pairs(outcomes: Sequence[Outcome]) -> list[tuple[float, float]]:
    """With and without the tree by seed: the fewer samples the better, or the higher best value of a formula."""

    def worth(one: Outcome) -> float:
        if one.function not in THRESHOLDS:
            return one.best
        return -float(one.samples_asked + 1 if one.hit is None else one.hit)

    by_seed = [{one.seed: worth(one) for one in outcomes if one.searcher == name} for name in OURS[:2]]
    return [(by_seed[0][seed], by_seed[1][seed]) for seed in by_seed[0] if seed in by_seed[1]]


def speed(rounds: int = 8) -> None:
    """Both ways of an episode by turns, so that other work on the machine meets both; then proposals."""
    import mujoco

    from operant.envs._mujoco_library import stop_timers

    print("| task | episodes per CPU-second | Gymnasium and torch | ratio |\n|---|---|---|---|")
    for name, environment in (("swimmer", "Swimmer-v5"), ("hopper", "Hopper-v5")):
        function = make_function(name, rollouts=1)
        assert isinstance(function, MujocoFunction) and function.compile()
        episode = _gymnasium_loop(environment)
        rng = np.random.default_rng(0)
        points = [rng.uniform(-0.05, 0.05, function.dims) for _ in range(rounds)]
        function(points[0], 0), episode(points[0], 0)  # what is compiled is compiled now
        ours = theirs = 0.0
        for seed, point in enumerate(points):
            stop_timers()
            started = time.process_time()
            function(point, seed)
            ours += time.process_time() - started
            mujoco.set_mjcb_time(None)  # MuJoCo times itself again, as it does for whoever has not said otherwise
            started = time.process_time()
            episode(point, seed)
            theirs += time.process_time() - started
        print(f"| {name} | {rounds / ours:.3g} | {rounds / theirs:.3g} | {theirs / ours:.2f} |", flush=True)
    print("\n| samples | a proposal of LamctsSearcher and its result, CPU ms: median of 100 | the longest |")
    print("|---|---|---|")
    function = make_function("hopper")
    for count in (1000, 10_000):
        median, longest = _proposal_times(function, count)
        print(f"| {count} | {1000 * median:.2f} | {1000 * longest:.1f} |", flush=True)


def _proposal_times(function: Function, count: int, measured: int = 100) -> tuple[float, float]:
    """Of proposals after `count` samples, which were drawn at random and are restored in bulk."""
    searcher = build_searcher({"type": "LamctsSearcher", "Cp": 10, "leaf_size": 100}, search_args(function))
    weights = np.linspace(1, 2, function.dims)

    def value(config: Mapping[str, Any]) -> float:
        return -float(weights @ (np.array(list(config.values())) - 0.3) ** 2)

    rng = np.random.default_rng(0)
    known = [Proposal(number, searcher.space.sample(rng)) for number in range(count)]
    searcher.restore([Observation(one.number, values={"acc": value(one.config)}) for one in known], known)
    import sklearn.svm  # noqa: F401  not the first proposal's to pay for

    times = []
    for _ in range(measured):
        started = time.process_time()
        proposal = searcher.propose()
        assert proposal is not None
        searcher.observe(Observation(proposal.number, values={"acc": value(proposal.config)}))
        times.append(time.process_time() - started)
    return statistics.median(times), max(times)


def _gymnasium_loop(environment: str) -> Callable[[np.ndarray, int], float]:
    """An episode as it is usually run: a linear layer, `step`, add up."""
    import gymnasium
    import torch

    env: Any = gymnasium.make(environment)
    actions, states = env.action_space.shape[0], env.observation_space.shape[0]
    policy = torch.nn.Linear(states, actions, bias=False)

    @torch.no_grad()
    def episode(weights: np.ndarray, seed: int) -> float:
        policy.weight.copy_(torch.as_tensor(weights.reshape(actions, states)))
        state, _ = env.reset(seed=seed)
        total, over = 0.0, False
        while not over:
            action = policy(torch.as_tensor(state, dtype=torch.float32)).numpy()
            state, reward, terminated, truncated, _ = env.step(action)
            total, over = total + float(reward), terminated or truncated
        return total

    return episode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="*", metavar="STUDY", help=", ".join(STUDIES))
    parser.add_argument("--out", type=Path, default=KEPT)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--only", default=",".join(USUAL), help="searchers; also Optuna GP")
    parser.add_argument("--seeds", type=int, default=math.inf, help="at most so many of a study's seeds")
    parser.add_argument("--first-seed", type=int, default=1000)
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--speed", action="store_true")
    arguments = parser.parse_args()
    if arguments.speed:
        speed()
        return
    for name in arguments.studies or STUDIES:
        study, file = STUDIES[name], arguments.out / f"{name}.jsonl"
        if not arguments.report:
            last = arguments.first_seed + min(study.seeds, arguments.seeds)
            searchers = arguments.only.split(",")
            for samples in sorted({study.samples_of(one) for one in searchers}):
                compare(
                    study.func,
                    {one: options(one, study) for one in searchers if study.samples_of(one) == samples},
                    range(arguments.first_seed, last),
                    samples,
                    file,
                    dims=study.dims,
                    workers=arguments.workers,
                    told=lambda one: print(
                        f"{one.function} {one.searcher} {one.seed}: {one.hit} {one.best:.6g}", flush=True
                    ),
                )
        fresh = [one for one in read_outcomes(file) if one.seed >= 1000]
        outcomes = [one for one in fresh if one.samples_asked == study.samples_of(one.searcher)]
        if outcomes:
            report(name, study, outcomes)


if __name__ == "__main__":
    main()
