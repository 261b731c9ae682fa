"""`run_scheduler_local` and `run_scheduler_k8s` under the path that DI-toolkit has for them."""

from operant.hpo import run_scheduler_k8s, run_scheduler_local

__all__ = ["run_scheduler_k8s", "run_scheduler_local"]
