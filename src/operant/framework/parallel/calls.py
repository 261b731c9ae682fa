"""Functions that one worker runs for another."""

from __future__ import annotations

import fnmatch
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from operant.framework.errors import FrameworkError
from operant.framework.parallel.link import Link

Answer = Callable[[Link, int, bool, Any], None]

# How long a call waits for a worker that has not begun its loop, and has not exposed the function either.
_EXPOSE_TIMEOUT = 30.0


class CallServer:
    """Runs what this worker exposes, in threads of its own, so that a slow call holds nothing else up."""

    def __init__(
        self,
        node_id: int,
        exposed: dict[str, Callable[..., Any]],
        answer: Answer,
        wait_until: Callable[[Callable[[], object], float], bool],
        has_begun: Callable[[], bool],
    ) -> None:
        self._node_id = node_id
        self._wait_until = wait_until
        self._has_begun = has_begun
        self._exposed = exposed
        self._answer = answer
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="operant-call")

    def serve(self, link: Link, number: int, content: Any) -> None:
        self._threads.submit(self._run, link, number, *content)

    def _run(self, link: Link, number: int, name: str, args: Any, kwargs: Any) -> None:
        # Others may call before this worker has come so far as to expose.
        self._wait_until(lambda: name in self._exposed or self._has_begun(), _EXPOSE_TIMEOUT)
        fn = self._exposed.get(name)
        if fn is None:
            known = ", ".join(sorted(self._exposed)) or "nothing"
            self._answer(link, number, False, f"node.{self._node_id} does not expose {name!r}; it exposes {known}")
            return
        try:
            self._answer(link, number, True, fn(*args, **kwargs))
        except Exception:
            self._answer(link, number, False, traceback.format_exc())

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def find_peer(peer: int | str, peers: dict[int, frozenset[str]]) -> int:
    """The one linked worker that a number or a glob over labels means."""
    if isinstance(peer, int):
        matches = [peer] if peer in peers else []
    else:
        matches = [node for node, labels in peers.items() if fnmatch.filter(labels, peer)]
    if len(matches) != 1:
        known = ", ".join(sorted(f"node.{node}" for node in peers)) or "none"
        raise FrameworkError(f"a call goes to one linked worker; {peer!r} matches {len(matches)} (linked: {known})")
    return matches[0]
