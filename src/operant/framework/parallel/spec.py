"""What a worker is told when it is started."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from operant.framework.parallel.topology import Topology


@dataclass
class WorkerSpec:
    """One worker of a parallel run."""

    node_id: int
    node_ids: list[int]
    secret: bytes
    supervisor: str  # the address of the process that started the run
    topology: Topology = "mesh"
    labels: list[str] = field(default_factory=list)
    listen_at: list[str] = field(default_factory=list)
    attach_to: list[str] = field(default_factory=list)
    incarnation: int = 0
    recoverable: bool = False  # a lost worker comes back, so losing its link is no failure
    recover_every: int = 1
    lockstep: bool = False
    here: bool = False  # the supervisor is a thread of this worker's process
    heartbeat: float | None = None  # seconds between signs of life, when somebody looks for them
    main: bytes = b""  # pickled: (function, args, kwargs)
    sys_path: list[str] = field(default_factory=list)
    state: Any = None
