"""`get_epsilon_greedy_fn` under the path that DI-engine has for it."""

from operant.training import get_epsilon_greedy_fn

__all__ = ["get_epsilon_greedy_fn"]
