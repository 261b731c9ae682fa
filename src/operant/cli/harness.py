"""Train with a Hydra tree: our own algorithms or RLlib, from one config."""

from operant.harness.command import __doc__
from operant.harness.command import main as run_words

__all__ = ["__doc__", "run_words"]
