"""Signatures by a key that only this user's account on this machine can read: what was recorded here, and by whom."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from pathlib import Path
from typing import Any

_KEY_BYTES = 32


def sign(value: Any) -> str:
    """The signature of a plain value by this user's key; empty where no key can be kept."""
    key = _key()
    if key is None:
        return ""
    plain = json.loads(json.dumps(value, default=str))  # as whoever reads it from a file has it
    text = json.dumps(plain, sort_keys=True)
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def is_signed(value: Any, signature: Any) -> bool:
    """Whether this user signed the value on this machine; nobody did where there is no key to tell by."""
    own = sign(value)
    given = signature.encode(errors="replace") if isinstance(signature, str) else b""
    return bool(own) and hmac.compare_digest(own.encode(), given)


def _key() -> bytes | None:
    base = os.environ.get("XDG_CONFIG_HOME")
    folder = (Path(base) if base else Path.home() / ".config") / "operant"
    path = folder / "key"
    try:
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            draft = folder / f".key-{secrets.token_hex(8)}"
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(secrets.token_bytes(_KEY_BYTES))
            try:
                os.link(draft, path)  # whoever is first; a second process takes what is there then
            except FileExistsError:
                pass
            finally:
                draft.unlink()
        status = path.stat()
        if status.st_uid != os.getuid() or status.st_mode & 0o077:
            return None  # others may know it: it says nothing
        key = path.read_bytes()
    except (OSError, RuntimeError):  # a full disk; nobody's home
        return None
    return key if len(key) == _KEY_BYTES else None
