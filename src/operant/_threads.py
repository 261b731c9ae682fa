"""How many threads numpy's linear algebra uses: one, where results must not depend on how many there are."""

from __future__ import annotations

import functools
import sys
from contextlib import AbstractContextManager
from typing import Any

__all__ = ["one_thread"]


def one_thread() -> AbstractContextManager[Any]:
    """One thread in every BLAS and OpenMP library that is loaded, from here until the context is left."""
    limits: AbstractContextManager[Any] = _libraries(len(sys.modules)).limit(limits=1)
    return limits


@functools.lru_cache(maxsize=1)
def _libraries(modules: int) -> Any:
    """Finding them takes milliseconds; new ones only come with a module that was not there before."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
