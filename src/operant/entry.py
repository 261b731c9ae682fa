"""`serial_pipeline` under the path that DI-engine has for it."""

from operant.training import serial_pipeline

__all__ = ["serial_pipeline"]
