"""Which part of a run this machine is: read from Slurm or from a list of machines in the environment.

Slurm: ``SLURM_PROCID``, ``SLURM_NTASKS`` and the node list of the step; one runner for each Slurm task.
Elsewhere, such as a Kubernetes headless service: ``OPERANT_NODES`` (comma-separated hosts, in order, with an
optional ``:port``) and ``OPERANT_RANK``; without a rank the number at the end of the host name is taken, as
a StatefulSet gives it.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from operant.framework.parallel.addresses import DEFAULT_PORT
from operant.framework.parallel.topology import Topology

NODES_VARIABLE = "OPERANT_NODES"
RANK_VARIABLE = "OPERANT_RANK"


@dataclass(frozen=True)
class ClusterPlace:
    """The machines of a run, in order, and which of them this one is."""

    hosts: list[tuple[str, int]]
    rank: int

    def runner_settings(self, n_workers: int, topology: Topology) -> dict[str, Any]:
        """How this machine's runner joins the others: numbers, addresses, and whom to dial.

        Every machine runs `n_workers`; the workers of rank r have the numbers from r * n_workers on. In a
        star all dial the first worker of rank 0; in a mesh all dial the workers of all lower ranks.
        """
        own_host, own_port = self.hosts[self.rank]
        centre = [_address(*self.hosts[0], 0)]
        lower = [_address(host, port, worker) for host, port in self.hosts[: self.rank] for worker in range(n_workers)]
        attach_to = {"star": centre if self.rank else [], "mesh": lower, "alone": []}[topology]
        return {
            "topology": "alone" if topology == "star" and self.rank else topology,
            "protocol": "tcp",
            "address": "0.0.0.0" if len(self.hosts) > 1 else own_host,
            "ports": own_port,
            "node_ids": self.rank * n_workers,
            "attach_to": attach_to,
        }


def find_place(environment: Mapping[str, str], host_name: str | None = None) -> ClusterPlace | None:
    """The place of this machine; None when the environment tells of no other."""
    if environment.get(NODES_VARIABLE):
        hosts = [_host_and_port(entry) for entry in environment[NODES_VARIABLE].split(",") if entry.strip()]
        return _place(hosts, _rank(environment, host_name or socket.gethostname(), hosts))
    if "SLURM_PROCID" in environment and int(environment.get("SLURM_NTASKS", "1")) > 1:
        return _slurm_place(environment)
    return None


def expand_host_list(text: str) -> list[str]:
    """Slurm's short form in full: ``n[1-3,07],gpu`` is n1, n2, n3, n07, gpu."""
    hosts = []
    for entry in re.findall(r"[^,\[]+(?:\[[^\]]*\][^,\[]*)*", text):
        hosts += _expand_entry(entry.strip())
    return hosts


def _expand_entry(entry: str) -> list[str]:
    found = re.match(r"(.*?)\[([^\]]*)\](.*)", entry)
    if found is None:
        return [entry]
    before, ranges, after = found.groups()
    expanded = []
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        for number in range(int(first), int(last or first) + 1):
            # Slurm keeps leading zeros: n[08-10] is n08, n09, n10.
            expanded += _expand_entry(f"{before}{number:0{len(first)}d}{after}")
    return expanded


def _slurm_place(environment: Mapping[str, str]) -> ClusterPlace:
    listed = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST", "")
    nodes = expand_host_list(listed)
    per_node = _tasks_per_node(environment, len(nodes))
    # Tasks of one machine need ports of their own; 100 leaves room for their workers. So do jobs that share it.
    first = DEFAULT_PORT + 200 * (int(environment.get("SLURM_JOB_ID", "0")) % 50)
    hosts = [
        (node, first + 100 * index) for node, n_tasks in zip(nodes, per_node, strict=True) for index in range(n_tasks)
    ]
    return _place(hosts, int(environment["SLURM_PROCID"]))


def _tasks_per_node(environment: Mapping[str, str], n_nodes: int) -> list[int]:
    """``SLURM_STEP_TASKS_PER_NODE`` such as ``2(x3),1`` in full."""
    text = environment.get("SLURM_STEP_TASKS_PER_NODE") or environment.get("SLURM_TASKS_PER_NODE")
    if not text:
        n_tasks = int(environment["SLURM_NTASKS"])
        return [n_tasks // n_nodes + (1 if index < n_tasks % n_nodes else 0) for index in range(n_nodes)]
    counts = []
    for part in text.split(","):
        n_tasks_text, _, repeat = part.partition("(x")
        counts += [int(n_tasks_text)] * int(repeat.rstrip(")") or 1)
    return counts


def _host_and_port(entry: str) -> tuple[str, int]:
    host, colon, port = entry.strip().rpartition(":")
    return (host, int(port)) if colon and port.isdigit() else (entry.strip(), DEFAULT_PORT)


def _rank(environment: Mapping[str, str], host_name: str, hosts: list[tuple[str, int]]) -> int:
    if environment.get(RANK_VARIABLE):
        return int(environment[RANK_VARIABLE])
    names = [host for host, _ in hosts]
    if host_name in names:
        return names.index(host_name)
    if environment.get("SLURM_PROCID"):
        return int(environment["SLURM_PROCID"])
    ordinal = re.search(r"-(\d+)$", host_name.partition(".")[0])
    if ordinal is None:
        raise ValueError(
            f"{NODES_VARIABLE} lists {len(hosts)} machines, but which one is {host_name!r}? "
            f"Set {RANK_VARIABLE} to its position, from 0"
        )
    return int(ordinal.group(1))


def _place(hosts: list[tuple[str, int]], rank: int) -> ClusterPlace:
    if not 0 <= rank < len(hosts):
        raise ValueError(f"this is rank {rank}, but there are only {len(hosts)} machines: {hosts}")
    return ClusterPlace(hosts, rank)


def _address(host: str, port: int, worker: int) -> str:
    return f"tcp://{host}:{port + worker}"
