"""A comparison of searchers on one function: resumable, in parallel, as a table and as a picture."""

from __future__ import annotations

import itertools
import json
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from pathlib import Path
from typing import Any

from operant._util.checks import is_number, is_whole
from operant._util.pools import spawn_pool
from operant.benchmark.comparing import Outcome, run_search
from operant.benchmark.functions import THRESHOLDS, make_function
from operant.errors import OperantError, UsageError, unknown
from operant.plotting.charts import GREY, SERIES, Axis, Band, Chart, Line, Mark

# What GML's HPO sets for the two tasks that it has; for others the defaults.
_LAMCTS: dict[str, dict[str, Any]] = {
    "swimmer": {"Cp": 1, "leaf_size": 20, "ninits": 30},
    "hopper": {"Cp": 10, "leaf_size": 100, "ninits": 30},
}
_VARIANTS: dict[str, dict[str, Any]] = {
    "lamcts-no-tree": {"partition": False},
    "lamcts-gp": {"solver": "gp"},
    "lamcts-turbo": {"solver": "turbo"},
    "lamcts-turbo-no-tree": {"solver": "turbo", "partition": False},
}
SEARCHER_TYPES = {
    "lamcts": "LamctsSearcher",
    **dict.fromkeys(_VARIANTS, "LamctsSearcher"),
    "cmaes": "CmaEsSearcher",
    "turbo": "TurboSearcher",
    "tpe": "TpeSearcher",
    "gp": "GpSearcher",
    "evolution": "EvolutionSearcher",
    "random": "RandomSearcher",
}


def searcher_options(name: str, func: str, centre: bool) -> dict[str, Any]:
    """The configuration of a searcher in the comparison; all that can start in the `centre` do, or none."""
    if name not in SEARCHER_TYPES:
        raise UsageError(unknown("searcher", name, SEARCHER_TYPES))
    options: dict[str, Any] = {"type": SEARCHER_TYPES[name]}
    if options["type"] in ("LamctsSearcher", "CmaEsSearcher", "TurboSearcher"):
        options["start"] = "centre" if centre else "random"
    if options["type"] == "LamctsSearcher":
        options |= _LAMCTS.get(func, {}) | _VARIANTS.get(name, {})
    return options


def compare(
    func: str,
    searchers: Mapping[str, Mapping[str, Any]],
    seeds: Iterable[int],
    samples: int,
    file: Path,
    *,
    dims: int | None = None,
    workers: int = 1,
    told: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """Run what `file` (JSON lines, one for each search) has not yet; all outcomes of this comparison.

    `searchers` are configurations by the name that the table has for them.
    """
    wanted = {(name, seed): options for seed in seeds for name, options in searchers.items()}
    function = make_function(func, dims)
    known = {key: one for one in read_outcomes(file) if (key := (one.searcher, one.seed)) in wanted}
    known = {key: one for key, one in known.items() if one.function == function.name and one.samples_asked == samples}
    missing = {key: options for key, options in wanted.items() if key not in known}
    file.parent.mkdir(parents=True, exist_ok=True)
    with spawn_pool(workers) as pool, file.open("a", encoding="utf-8") as log:
        if file.stat().st_size and not file.read_bytes().endswith(b"\n"):
            log.write("\n")  # or the next line would be lost with the one that was cut off
        running = [
            pool.submit(_search, name, options, func, function.dims, seed, samples)
            for (name, seed), options in missing.items()
        ]
        for done in as_completed(running):
            try:
                outcome = done.result()
            except BrokenProcessPool:
                raise OperantError(
                    f"a process that searched was killed, perhaps because memory ran out; {file} keeps what had ended, "
                    "and the same command goes on with it"
                ) from None
            log.write(json.dumps(asdict(outcome)) + "\n")
            log.flush()
            known[outcome.searcher, outcome.seed] = outcome
            told(outcome)
    return [known[key] for key in wanted]


def _search(name: str, options: Mapping[str, Any], func: str, dims: int, seed: int, samples: int) -> Outcome:
    function = make_function(func, dims, shift_seed=seed)
    return run_search(name, options, function, seed, samples, THRESHOLDS.get(func))


def read_outcomes(file: Path) -> list[Outcome]:
    """Outcomes of a file; a line that was cut off or damaged counts as not there."""
    lines = file.read_bytes().splitlines() if file.exists() else []
    return [one for line in lines if (one := _outcome(line)) is not None]


def _outcome(line: bytes) -> Outcome | None:
    try:
        one = Outcome(**json.loads(line))
        places = [place for place, _ in one.rises]
        values = [value for _, value in one.rises]
    except (ValueError, TypeError):
        return None
    counts = [one.seed, one.samples, one.samples_asked, one.rollouts, one.confirming_episodes, *places]
    counts += [] if one.hit is None else [one.hit]
    whole = all(is_whole(count, 0) for count in counts) and all(map(is_number, [one.best, *values]))
    # A curve is made from them.
    in_order = whole and sorted({*places}) == places and all(1 <= place <= one.samples for place in places)
    return one if in_order and isinstance(one.searcher, str) and isinstance(one.function, str) else None


def table(outcomes: Sequence[Outcome], func: str) -> str:
    """Markdown: the best value (median); before it, of a function with a threshold, how many reached that, after how
    many samples and episodes (medians).
    """
    aimed = func in THRESHOLDS
    columns = ["reached", "samples (median)", "episodes with confirming (median)"] if aimed else []
    rows = [["searcher", "seeds", *columns, "best (median)"]]
    rows.append(["---"] * len(rows[0]))
    for name in dict.fromkeys(one.searcher for one in outcomes):
        own = [one for one in outcomes if one.searcher == name]
        reached = []
        if aimed:
            samples = _median([math.inf if one.hit is None else one.hit for one in own])
            episodes = _median([math.inf if one.hit is None else one.episodes for one in own])
            reached = [str(sum(one.hit is not None for one in own)), samples, episodes]
        rows.append([name, str(len(own)), *reached, f"{statistics.median(one.best for one in own):.6g}"])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _median(values: Sequence[float]) -> str:
    middle = statistics.median(values)
    return f"{middle:g}" if math.isfinite(middle) else "not reached"


def charts(outcomes: Sequence[Outcome], func: str) -> list[Chart]:
    """Median and quartiles of the best value, over samples and over episodes."""
    import numpy as np

    curves: dict[str, list[list[float]]] = {}
    for one in outcomes:
        curves.setdefault(one.searcher, []).append(one.curve())
    made = []
    for what, step in (("samples", 1), ("episodes (without confirming)", outcomes[0].rollouts)):
        marks: list[Mark] = []
        for colour, (name, own) in zip(itertools.cycle(SERIES), curves.items(), strict=False):
            length = max(map(len, own))
            # A search that has ended keeps what it had.
            filled = [one + [one[-1]] * (length - len(one)) for one in own]
            low, middle, high = np.nanquantile(filled, [0.25, 0.5, 0.75], axis=0).tolist()
            x = [float(step * (number + 1)) for number in range(length)]
            marks += [Band(x, low, high, colour), Line(x, middle, colour, name=name)]
        if func in THRESHOLDS:
            end = float(step * max(len(one) for own in curves.values() for one in own))
            marks.append(Line([1.0, end], [THRESHOLDS[func]] * 2, GREY, 1.0, name="threshold"))
        made.append(Chart(f"{func} over {what}", Axis(what), Axis("best so far, median and quartiles"), marks))
    return made
