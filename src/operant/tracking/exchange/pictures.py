"""How large an encoded picture is, from its first bytes."""

from __future__ import annotations

import struct

__all__ = ["picture_size"]


def picture_size(data: bytes) -> tuple[int, int]:
    """Height and width of a PNG, GIF or JPEG; (0, 0) where the bytes do not tell."""
    try:
        if data.startswith(b"\x89PNG\r\n\x1a\n"):
            width, height = struct.unpack_from(">II", data, 16)
            return height, width
        if data.startswith(b"GIF8"):
            width, height = struct.unpack_from("<HH", data, 6)
            return height, width
        if data.startswith(b"\xff\xd8"):
            return _jpeg_size(data)
    except (struct.error, IndexError):
        pass
    return 0, 0


def _jpeg_size(data: bytes) -> tuple[int, int]:
    """From the first frame header: a marker C0 to CF that is no table (C4, C8 and CC are)."""
    place = 2
    while True:
        marker = data[place + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", data, place + 5)
            return height, width
        place += 2 + struct.unpack_from(">H", data, place + 2)[0]
