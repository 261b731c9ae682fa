"""Where runs are sent to, by the environment: the server's address and the token for it."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

from operant.errors import UsageError


def tracking_uri() -> str | None:
    """``$OPERANT_TRACKING_URI``, checked; None when runs are recorded on this machine."""
    uri = os.environ.get("OPERANT_TRACKING_URI")
    if not uri:
        return None
    parts = urlsplit(uri)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
        raise UsageError(f"OPERANT_TRACKING_URI is {uri!r}: it must look like http://host:port")
    return uri.rstrip("/")


def tracking_token() -> str:
    """The token, from ``$OPERANT_TRACKING_TOKEN`` or the file named by ``$OPERANT_TRACKING_TOKEN_FILE``."""
    token = os.environ.get("OPERANT_TRACKING_TOKEN")
    file = os.environ.get("OPERANT_TRACKING_TOKEN_FILE")
    if not token and file:
        try:
            token = Path(file).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise UsageError(f"OPERANT_TRACKING_TOKEN_FILE {file!r} cannot be read: {error.strerror}") from None
    if not token:
        raise UsageError(
            "OPERANT_TRACKING_URI is set but there is no token: set OPERANT_TRACKING_TOKEN, or "
            "OPERANT_TRACKING_TOKEN_FILE to a file that holds it (`operant serve` prints which)"
        )
    return token
