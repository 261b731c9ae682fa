"""`operant.log` under the name that DI-toolkit has for it."""

from operant.log import __getattr__, try_init_root

__all__ = ["__getattr__", "try_init_root"]
