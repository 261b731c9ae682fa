"""The links of a worker to its neighbours: made when it joins, and anew after a restart of theirs or a broken link."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from operant.framework.errors import FrameworkError
from operant.framework.parallel.hub import Hub
from operant.framework.parallel.link import Link
from operant.framework.parallel.spec import WorkerSpec
from operant.framework.parallel.topology import neighbours
from operant.framework.parallel.wire import WireError

LINK_TIMEOUT = 60.0
# How often, and after how many seconds each time, a link that broke is dialled again.
_TRIES, _TRY_SECONDS = 30, 1.0
# Where each worker is reached, and which start of it that is.
Directory = Mapping[int, tuple[str, int]]


class Dialler:
    """Of two workers the one with the higher number dials."""

    def __init__(
        self,
        hub: Hub,
        spec: WorkerSpec,
        peers: Mapping[int, Link],
        is_closing: Callable[[], bool],
        fail: Callable[[str], None],
    ) -> None:
        self._hub, self._spec, self._peers = hub, spec, peers
        self._is_closing, self._fail = is_closing, fail

    def dial(self, directory: Directory) -> None:
        """Dial the neighbours to whom there is no link, or only one to whom they were before a restart."""
        for node in neighbours(self._spec.topology, self._spec.node_ids, self._spec.node_id):
            link = self._peers.get(node)
            if node < self._spec.node_id and node in directory:
                address, incarnation = directory[node]
                if link is None or link.info.incarnation != incarnation:
                    self._hub.dial(address, LINK_TIMEOUT)

    def dial_restarted(self, directory: Directory) -> None:
        """The same in a thread of its own, after a worker was restarted."""
        _in_thread(self._try_restarted, directory)

    def dial_lost(self, link: Link, directory: Callable[[], Directory | None]) -> None:
        """Dial a peer whose link broke though both may live. One that has died is dialled by its next address."""
        if link.node_id < self._spec.node_id:
            _in_thread(self._try_lost, link, directory)

    def _try_restarted(self, directory: Directory) -> None:
        try:
            self.dial(directory)
        except (OSError, FrameworkError) as error:
            if not self._is_closing():
                self._fail(f"node.{self._spec.node_id} could not link to a restarted worker: {error}")

    def _try_lost(self, link: Link, directory: Callable[[], Directory | None]) -> None:
        for _ in range(_TRIES):
            address, incarnation = (directory() or {}).get(link.node_id, ("", -1))
            if self._is_closing() or link.node_id in self._peers or incarnation != link.info.incarnation:
                return
            try:
                self._hub.dial(address, _TRY_SECONDS)
            except (OSError, FrameworkError, WireError):  # it may not have noticed the loss yet
                time.sleep(_TRY_SECONDS)


def _in_thread(target: Callable[..., None], *args: object) -> None:
    threading.Thread(target=target, args=args, daemon=True, name="operant-dial").start()
