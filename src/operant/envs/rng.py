"""Random generators as plain data, so that a checkpoint holds them without pickle."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from operant.errors import UsageError

_LOW = (1 << 64) - 1


def seeded(seed: int | None) -> np.random.Generator:
    """The generator that Gymnasium makes of a seed, so that ours and its environments draw the same numbers."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))


def generator_state(generator: np.random.Generator) -> dict[str, Any]:
    """The state of any numpy generator as nested dicts of integers, strings and arrays."""
    return dict(generator.bit_generator.state)


def restore_generator(state: dict[str, Any]) -> np.random.Generator:
    """A generator that goes on where ``generator_state`` was taken."""
    name = str(state.get("bit_generator"))
    kind = getattr(np.random, name, None)
    if not (isinstance(kind, type) and issubclass(kind, np.random.BitGenerator)):
        raise UsageError(f"the saved random state names the bit generator {name!r}, which numpy.random does not have")
    bits = kind()
    bits.state = state
    return np.random.Generator(bits)


def pack_pcg64(generators: list[np.random.Generator]) -> NDArray[np.uint64]:
    """Many PCG64 generators as one array [N, 6]: state, increment (high and low words), kept half word."""
    rows = []
    for generator in generators:
        whole = generator.bit_generator.state
        state, increment = whole["state"]["state"], whole["state"]["inc"]
        rows.append(
            (state >> 64, state & _LOW, increment >> 64, increment & _LOW, whole["has_uint32"], whole["uinteger"])
        )
    return np.array(rows, np.uint64).reshape(len(rows), 6)


def unpack_pcg64(packed: NDArray[np.uint64]) -> list[np.random.Generator]:
    generators = []
    for row in packed.tolist():
        bits = np.random.PCG64()
        bits.state = {
            "bit_generator": "PCG64",
            "state": {"state": row[0] << 64 | row[1], "inc": row[2] << 64 | row[3]},
            "has_uint32": row[4],
            "uinteger": row[5],
        }
        generators.append(np.random.Generator(bits))
    return generators
