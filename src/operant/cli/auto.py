"""Train from a JSON config with PyTorch Lightning: list, generate, launch."""

from operant.auto.command import __doc__, configure, run

__all__ = ["__doc__", "configure", "run"]
