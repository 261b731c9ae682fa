"""`StepTimer` under the name that DI-engine has for it."""

from __future__ import annotations

from operant.framework.step_timer import StepTimer

__all__ = ["StepTimer"]
