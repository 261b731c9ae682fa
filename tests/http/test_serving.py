"""What every server of ours needs: a place to listen, and a token that only its owner reads."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from operant.errors import UsageError
from operant.http.security import is_loopback, load_token
from operant.http.server import listen


def test_loopback_is_told_from_the_rest() -> None:
    assert all(is_loopback(host) for host in ("127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "::", "10.1.2.3", "localhost.evil.com", "2130706433"))


def test_a_token_file_is_its_owners(tmp_path: Path) -> None:
    token = load_token(tmp_path / "t")
    assert (tmp_path / "t").stat().st_mode & 0o077 == 0 and load_token(tmp_path / "t") == token
    (tmp_path / "short").write_text("abc")
    with pytest.raises(UsageError, match="too short"):
        load_token(tmp_path / "short")


def test_a_server_tells_where_it_is_reached() -> None:
    listener, address = listen("127.0.0.1", 0)
    with listener:
        port = listener.getsockname()[1]
        assert address == f"http://127.0.0.1:{port}"
        with pytest.raises(UsageError, match="--port picks another"):
            listen("127.0.0.1", port)
    everywhere, address = listen("0.0.0.0", 0)
    everywhere.close()
    assert address.startswith(f"http://{socket.gethostname()}:")  # 0.0.0.0 is nowhere to go to
