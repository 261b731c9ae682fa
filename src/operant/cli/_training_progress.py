"""How a training shows itself: one live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from operant._util.units import duration
from operant.cli._terminal import sparkline

if TYPE_CHECKING:
    from operant.training.config import TrainConfig
    from operant.training.evaluating import Evaluation


@contextmanager
def progress_for(config: TrainConfig | None, quiet: bool) -> Iterator[Any]:
    """An observer for this terminal; None when nothing is to be shown."""
    if quiet:
        yield None
        return
    total = config.total_steps if config is not None else None
    if not sys.stdout.isatty():
        yield Lines(total)
        return
    from rich.live import Live

    live = Live(refresh_per_second=8)
    with live:
        yield LiveLine(total, live)


class Lines:
    """A line for each evaluation, for files and pipes."""

    def __init__(self, total: int | None) -> None:
        self._total = total
        self._rate = 0.0
        self._training = float("nan")
        self._curve: list[float] = []

    def said(self, sentence: str) -> None:
        self._print(sentence)

    def point(self, step: int, steps_per_second: float, mean_return: float) -> None:
        self._rate, self._training = steps_per_second, mean_return

    def evaluated(self, step: int, evaluation: Evaluation, best: bool) -> None:
        self._curve.append(evaluation.mean)
        self._print(
            # With figures as they usually are it fits into 80 columns.
            f"step {step:>9,}  {self._rate:>7,.0f}/s  training {self._training:>8.2f}  "
            f"evaluation {evaluation.mean:>8.2f} ± {evaluation.deviation:<7.2f}{' best' if best else ''}".rstrip()
        )

    def _print(self, text: str) -> None:
        print(text, flush=True)


class LiveLine(Lines):
    """Steps, speed, return, time left and the curve so far, in place; what is said stays above it."""

    def __init__(self, total: int | None, live: Any) -> None:
        super().__init__(total)
        self._live = live
        self._returns: list[float] = []
        self._shown = 0.0

    def _print(self, text: str) -> None:
        self._live.console.print(text, highlight=False, markup=False)

    def point(self, step: int, steps_per_second: float, mean_return: float) -> None:
        super().point(step, steps_per_second, mean_return)
        self._returns.append(mean_return)
        now = time.monotonic()
        if now - self._shown < 0.1 and (self._total is None or step < self._total):
            return
        self._shown = now
        from rich.text import Text

        of, left = "", ""
        if self._total is not None:
            of = f" of {self._total:,} ({min(1.0, step / self._total):.0%})"
            if steps_per_second > 0:
                left = f"  {duration(max(0.0, (self._total - step) / steps_per_second))} left"
        stride = max(1, len(self._returns) // 40)
        self._live.update(
            Text(
                f"{step:,}{of}  {steps_per_second:,.0f} steps/s  return {mean_return:.1f}{left}  "
                f"{sparkline(self._returns[::stride])}"
            )
        )
