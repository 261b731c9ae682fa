"""Ray's Jobs API: who is away is told from who refuses."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from operant.errors import MissingExtraError, OperantError
from operant.sites.cluster_jobs import SiteAwayError, SiteRefusedError


def jobs_client(address: str, token: str | None = None) -> Any:
    """Ray's client; without ``token`` Ray finds its own, by ``RAY_AUTH_TOKEN_PATH`` or in the user's folder."""
    try:
        from ray.job_submission import JobSubmissionClient
    except ImportError:
        raise MissingExtraError("Ray's jobs", "ray") from None
    headers = None if token is None else {"Authorization": f"Bearer {token}"}
    return JobSubmissionClient(address, headers=headers)


class JobsApi:
    """Calls of a client that is made when it is first needed. Who is away raises `SiteAwayError`, who refuses
    `SiteRefusedError`."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect
        self._made: Any = None

    @property
    def client(self) -> Any:
        if self._made is None:
            self._made = self._connect()
        return self._made

    def call(self, verb: str, *args: Any, **options: Any) -> Any:
        try:
            call: Callable[..., Any] = getattr(self.client, verb)
            return call(*args, **options)
        except OperantError:
            raise
        except Exception as error:  # Ray's own kinds, such as of authentication, and RuntimeError for the rest
            raise refusal(error) from None


def refusal(error: Exception) -> OperantError:
    """What went wrong between us and a head, as an error of ours."""
    if isinstance(error, OSError):
        return SiteAwayError(f"the head does not answer: {str(error).splitlines()[0][:200]}")
    # A failure of the server's comes as its traceback with a full stop below.
    lines = [line for line in str(error).splitlines() if any(one.isalnum() for one in line)] or [type(error).__name__]
    told = re.sub(r"^\w+Error: ", "", lines[-1].strip())[:300]
    # Until a node's agent is up, submitting is an error of the server's.
    if re.search(r"status code (5\d\d|429)", str(error)) and "already exists" not in str(error):
        return SiteAwayError(told)
    return SiteRefusedError(f"Ray refuses: {told}")
