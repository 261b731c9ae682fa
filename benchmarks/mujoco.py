"""LA-MCTS on MuJoCo policies and on formulas, with and without its tree, beside other searchers and Optuna's.

    OMP_NUM_THREADS=1 python benchmarks/mujoco.py [STUDY ...] [--out FOLDER] [--workers N] [--only NAME,...] [--report]
    OMP_NUM_THREADS=1 python benchmarks/mujoco.py --speed

See `_lamcts.py`. This file has the name of a library: to whoever imports it, it is that library.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Of this folder's scripts the one that runs has it first on its path, and processes that it starts do too.
sys.path[:] = [*(path for path in sys.path if Path(path).resolve() != HERE), str(HERE)]

if __name__ == "mujoco":
    del sys.modules["mujoco"]
    importlib.import_module("mujoco")
else:
    # Here also in a process that was started, for the searchers which that file registers.
    lamcts = importlib.import_module("_lamcts")
    if __name__ == "__main__":
        lamcts.main()
