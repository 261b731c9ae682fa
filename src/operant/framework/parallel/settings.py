"""What `Parallel.runner` can be told, checked in one place."""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from operant.framework.labels import as_label_set
from operant.framework.parallel.addresses import DEFAULT_PORT, split_address
from operant.framework.parallel.topology import TOPOLOGIES, Topology

SECRET_VARIABLE = "OPERANT_SECRET"

Labels = str | Iterable[str] | None


@dataclass(frozen=True)
class RunnerSettings:
    """A parallel run: how many workers, linked how, started by whom."""

    n_parallel_workers: int
    topology: Topology = "mesh"
    engine: Literal["local", "ray", "nodes"] = "local"
    attach_to: Sequence[str] = ()
    protocol: Literal["ipc", "tcp"] = "ipc"
    address: str | None = None
    ports: int | Sequence[int] | None = None
    labels: Labels | Mapping[int, Labels] = None
    node_ids: int | Sequence[int] | None = None
    auto_recover: bool = False
    max_retries: float = math.inf
    recover_every: int = 1
    stall_timeout: float | None = None
    schedule: Literal["free", "lockstep"] = "free"
    secret: str | bytes | None = None
    ray_options: Mapping[str, Any] | None = None
    n_machines: int = 1
    """With engine 'nodes': this one, and those that join at `address`."""

    def __post_init__(self) -> None:
        if self.n_parallel_workers < 1:
            raise ValueError(f"a run has at least one worker; n_parallel_workers={self.n_parallel_workers}")
        _one_of("topology", self.topology, TOPOLOGIES)
        _one_of("engine", self.engine, ("local", "ray", "nodes"))
        _one_of("protocol", self.protocol, ("ipc", "tcp"))
        _one_of("schedule", self.schedule, ("free", "lockstep"))
        if isinstance(self.attach_to, str):
            raise TypeError(f"attach_to is a list of addresses; got the text {self.attach_to!r}")
        for address in self.attach_to:
            split_address(address)
        if self.schedule == "lockstep" and (self.attach_to or self.auto_recover):
            raise ValueError("lockstep is for runs that one supervisor controls: no attach_to, no auto_recover")
        if self.stall_timeout is not None and self.stall_timeout <= 0:
            raise ValueError(f"stall_timeout is a number of seconds above 0; got {self.stall_timeout}")
        if self.recover_every < 1:
            raise ValueError(f"recover_every is a number of passes from 1 up; got {self.recover_every}")
        if len(set(self.nodes())) != self.n_parallel_workers:
            raise ValueError(f"every worker needs a node id of its own; got {self.nodes()}")
        if self.reaches_out and not self.given_secret():
            raise ValueError(
                "a run that listens on or dials to the network needs a shared secret, the same on every "
                f"machine: give secret=... or set the environment variable {SECRET_VARIABLE}"
            )

    @property
    def reaches_out(self) -> bool:
        """Whether processes take part that this runner does not start."""
        return self.protocol == "tcp" or bool(self.attach_to) or self.engine == "nodes"

    def nodes(self) -> list[int]:
        return _spread(self.node_ids, self.n_parallel_workers, 0, "node_ids")

    def given_secret(self) -> bytes:
        secret = self.secret if self.secret is not None else os.environ.get(SECRET_VARIABLE, "")
        return secret.encode() if isinstance(secret, str) else secret

    def session_secret(self) -> bytes:
        return self.given_secret() if self.reaches_out else secrets.token_bytes(32)

    def tcp_addresses(self) -> list[str]:
        """Where each worker listens for other machines."""
        if self.protocol != "tcp" or self.engine == "ray":
            return []
        host = self.address or "127.0.0.1"
        ports = _spread(self.ports, self.n_parallel_workers, DEFAULT_PORT, "ports")
        return [f"tcp://{f'[{host}]' if ':' in host else host}:{port}" for port in ports]

    def labels_of(self, node_id: int) -> list[str]:
        if isinstance(self.labels, Mapping):
            unknown = set(self.labels) - set(self.nodes())
            if unknown:
                raise ValueError(f"labels are given for node ids {sorted(unknown)}; the run has {self.nodes()}")
            return sorted(as_label_set(self.labels.get(node_id)))
        return sorted(as_label_set(self.labels))


def _one_of(name: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} is one of {', '.join(map(repr, allowed))}; got {value!r}")


def _spread(value: int | Sequence[int] | None, n: int, default: int, name: str) -> list[int]:
    """One number for each worker: a list as it is, one number counted up."""
    if value is None:
        value = default
    if isinstance(value, int):
        return list(range(value, value + n))
    values = [int(one) for one in value]
    if len(values) == 1:
        return list(range(values[0], values[0] + n))
    if len(values) != n:
        raise ValueError(f"{name} gives {len(values)} numbers for {n} workers")
    return values
