"""`StepTimer` under the path that DI-engine has for it."""

from operant.framework.step_timer import StepTimer

__all__ = ["StepTimer"]
