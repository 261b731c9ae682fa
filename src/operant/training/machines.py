"""A training on several machines: where the others join, and which of them this one is."""

from __future__ import annotations

import itertools
import os
import pickle
import pickletools
import secrets
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from operant.errors import OperantError, UsageError
from operant.framework.errors import AuthenticationError, FrameworkError
from operant.framework.parallel.addresses import DEFAULT_PORT, split_address
from operant.framework.parallel.beside import Beside
from operant.framework.parallel.cluster import find_place
from operant.framework.parallel.nodes_engine import WAIT_FOR_MACHINES, join, own_address
from operant.framework.parallel.router import Router
from operant.framework.parallel.settings import SECRET_VARIABLE
from operant.training.config import TrainConfig

ADDRESS_VARIABLE = "OPERANT_ADDRESS"
"""``host:port`` where other machines reach the one that learns, where it cannot know that by itself."""


def placement(config: TrainConfig, say: Callable[..., None], news: Callable[[str], None]) -> dict[str, Any]:
    """How `Parallel.beside` is told where the processes of a training go.

    `say` tells at once what somebody has to do; `news` is told from other threads who came, went, or waits.
    """
    if config.engine == "local" and config.num_nodes == 1:
        return {"engine": "local"}
    _check_importable(config.for_workers())
    if config.engine == "ray":
        return {"engine": "ray", "say": news}
    if not os.environ.get(SECRET_VARIABLE):
        raise UsageError(
            f"num_nodes is {config.num_nodes}: the machines need a secret that all of them know, in the variable "
            f"{SECRET_VARIABLE} (such as `openssl rand -hex 16` makes)"
        )
    address, others = meeting_place(os.environ), config.num_nodes - 1
    how = "they run this command too" if find_place(os.environ) else f"run there: operant join {address}"
    say(f"waiting for {others} other machine{'s' * (others > 1)} with the same {SECRET_VARIABLE}; {how}", waits=True)
    return {"engine": "nodes", "n_machines": config.num_nodes, "address": address, "say": news}


def _check_importable(config: TrainConfig) -> None:
    """Other machines import what a config names; what stands in the program that was started they cannot."""
    try:
        pickled = pickle.dumps(config)
    except (pickle.PicklingError, AttributeError, TypeError):
        return  # whoever sends it says why that cannot be
    texts = [given for operation, given, _ in pickletools.genops(pickled) if "UNICODE" in operation.name]
    for module, name in itertools.pairwise(texts):
        if module == "__main__":
            raise UsageError(
                f"{name} stands in the program that was started, where other machines do not find it: put it into a "
                f"module that they have too, and import it from there (such as `nets.{name}`)"
            )


@contextmanager
def started(beside: Beside, news: Callable[[], list[str]]) -> Iterator[Router]:
    """The processes of a training, while it runs; if they do not come up, the error tells what was said meanwhile."""
    with ExitStack() as stack:
        try:
            router = stack.enter_context(beside)
        except FrameworkError as error:
            raise OperantError("; ".join([str(error), *news()])) from error
        yield router


def meeting_place(environment: Mapping[str, str]) -> str:
    """Where the machine that learns listens for the others."""
    place = find_place(environment)
    if place is not None:
        host, port = place.hosts[0]
        return f"tcp://{host}:{port}"
    given = environment.get(ADDRESS_VARIABLE)
    if not given:
        return own_address(DEFAULT_PORT)
    host, colon, port_text = given.rpartition(":")
    return f"tcp://{host}:{port_text}" if colon and port_text.isdigit() else f"tcp://{given}:{DEFAULT_PORT}"


def over_nodes(config: TrainConfig, site: str | Mapping[str, Any]) -> tuple[str | Mapping[str, Any], list[str]]:
    """The site of a training that is a job of several nodes, and what stands before its command on such a site."""
    kind, settings = (site, {}) if isinstance(site, str) else (str(site.get("type")), site)
    count = config.num_nodes if config.engine == "local" else 1
    if kind == "kubernetes" and settings.get("nodes", count) != count:
        of_site = settings["nodes"]
        raise UsageError(f"the training asks for {count} nodes, and `nodes` of the site is {of_site}: leave that out")
    if count == 1:
        return site, []
    if kind == "kubernetes":  # its further pods join the first, with a secret of their own
        join = shlex.join([sys.executable, "-m", "operant", "join"])
        return {"join": join, **settings, "type": kind, "nodes": count}, []
    if kind != "slurm":
        raise UsageError(
            f"num_nodes is {count}, and a job of the site {kind!r} has one node: on Slurm and Kubernetes it may "
            "have several, and with engine=ray its workers go to all nodes of a Ray cluster"
        )
    # Jobs get the environment of whoever submits them.
    os.environ.setdefault(SECRET_VARIABLE, secrets.token_hex(16))
    return site, ["srun", f"--nodes={count}", f"--ntasks={count}", "--no-kill", "--kill-on-bad-exit=0"]


def is_other_machine(num_nodes: int, engine: str) -> bool:
    """Whether this process was started on a machine that only helps, by Slurm or by ``OPERANT_NODES``."""
    place = find_place(os.environ) if num_nodes > 1 and engine == "local" else None
    return place is not None and place.rank > 0


def join_run(address: str, say: Callable[[str], None]) -> int:
    """Help the run at an address until it is done; the exit code of a command."""
    try:
        split_address(address)
    except ValueError as error:
        raise UsageError(str(error)) from None
    secret = os.environ.get(SECRET_VARIABLE, "")
    if not secret:
        raise UsageError(f"a machine joins with the secret that the run's machine knows: set {SECRET_VARIABLE}")
    try:
        ended = join(address, secret.encode(), WAIT_FOR_MACHINES, say)
    except (AuthenticationError, FrameworkError, OSError) as error:
        raise OperantError(f"could not join {address}: {error}") from None
    say("the run is over" if ended else "the machine that learns is gone: its workers here were ended")
    return 0 if ended else 1
