"""One HTTP connection to an Operant server, with the standard library only."""

from __future__ import annotations

import http.client
import json
from typing import IO, Any
from urllib.parse import urlencode, urlsplit

from operant.errors import OperantError

TIMEOUT_SECONDS = 20.0


class ServerAway(OperantError):
    """The server cannot be reached, or is not able to answer now; the same call may work later."""


class RefusedError(OperantError):
    """The server will not take this, now or later."""


class Client:
    def __init__(self, uri: str, token: str) -> None:
        self._parts = urlsplit(uri)
        self._token = token
        self._connection: http.client.HTTPConnection | None = None

    @property
    def address(self) -> str:
        return self._parts.netloc

    def state(self, run_id: str) -> dict[str, Any]:
        return self._call("GET", "state", {"run": run_id})

    def send_blocks(self, run_id: str, segment: str, offset: int, data: bytes) -> int:
        """Send bytes of a segment; return how much of it the server has (less than ``offset`` when it lost some)."""
        answer = self._call("PUT", "segment", {"run": run_id, "name": segment, "offset": str(offset)}, data)
        return int(answer["length"])

    def send_blob(self, run_id: str, name: str, content: IO[bytes], size: int) -> None:
        self._call("PUT", "blob", {"run": run_id, "name": name}, content, size)

    def send_message(self, run_id: str, name: str, data: bytes) -> None:
        """Send a note or a change of tags, under the name by which it sorts."""
        self._call("PUT", "message", {"run": run_id, "name": name}, data)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _call(
        self,
        method: str,
        what: str,
        query: dict[str, str],
        body: bytes | IO[bytes] | None = None,
        size: int | None = None,
    ) -> dict[str, Any]:
        target = f"{self._parts.path}/api/ingest/{what}?{urlencode(query)}"
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/octet-stream"}
        if size is not None:
            headers["Content-Length"] = str(size)
        try:
            if self._connection is None:
                kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
                self._connection = kind(self._parts.hostname or "", self._parts.port, timeout=TIMEOUT_SECONDS)
            self._connection.request(method, target, body, headers)
            response = self._connection.getresponse()
            text = response.read(1 << 20)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise ServerAway(f"{self.address} does not answer: {error}") from None
        try:
            answer = json.loads(text)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):  # cut off, by a server that was killed as it answered; or no server of ours
            self.close()
            if response.status < 400:
                raise ServerAway(f"{self.address} answered {response.status} without saying what")
            answer = {}
        if response.status == 200 or (response.status == 409 and "length" in answer):
            return answer
        why = f"{self.address} answered {response.status}: {answer.get('error', response.reason)}"
        if response.status in (408, 429) or response.status >= 500:
            raise ServerAway(why)
        raise RefusedError(why)
