"""A command in a pod, through the API server."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from operant.errors import OperantError
from operant.sites._kube import Cluster
from operant.sites.cluster_jobs import SiteRefusedError


def run_in_pod(
    cluster: Cluster, pod: str, words: Sequence[str], out: Callable[[str], object], err: Callable[[str], object]
) -> int:
    """Run it and pass on what it prints; its exit code."""
    from kubernetes.client import ApiClient, ApiException, CoreV1Api
    from kubernetes.stream import stream

    # The client changes itself while it opens a stream: one of its own for it.
    core = CoreV1Api(ApiClient(cluster.api.configuration))
    try:
        found = stream(
            core.connect_get_namespaced_pod_exec,
            pod,
            cluster.namespace,
            command=list(words),
            stdin=False,
            stdout=True,
            stderr=True,
            tty=False,
            _preload_content=False,
        )
    except ApiException as error:
        raise SiteRefusedError(
            f"nothing can be run in the pod {pod}: {str(error.reason).splitlines()[0][:300]}"
        ) from None
    while found.is_open():
        found.update(timeout=1)
        for there, write, read in (
            (found.peek_stdout, out, found.read_stdout),
            (found.peek_stderr, err, found.read_stderr),
        ):
            if there():
                write(read())
    try:
        return int(found.returncode)
    except (TypeError, KeyError, ValueError, IndexError):
        raise OperantError(f"the pod {pod} went away before the command had ended") from None
