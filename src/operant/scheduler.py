"""`run_scheduler_local` under the path that DI-toolkit has for it."""

from operant.hpo import run_scheduler_local

__all__ = ["run_scheduler_local"]
