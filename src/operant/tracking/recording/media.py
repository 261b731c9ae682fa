"""Pictures, films and sound as bytes: arrays in the layouts of TensorBoard in, PNG, GIF and WAV out."""

from __future__ import annotations

import io
import math
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from operant.errors import MissingExtraError, UsageError
from operant.tracking.recording.values import as_array

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Pixels = NDArray[np.uint8]

__all__ = [
    "encode_gif",
    "encode_png",
    "encode_wav",
    "figure_png",
    "frames_from",
    "picture_format",
    "pixels_from",
]


def pixels_from(image: Any, layout: str) -> Pixels:
    """Height x width x channels bytes from any layout of the letters N, C, H, W; several pictures become a grid."""
    array = as_array(image)
    layout = layout.upper()
    if len(layout) != array.ndim or set(layout) - set("NCHW") or len(set(layout)) != len(layout):
        raise UsageError(
            f"image of shape {array.shape} does not fit dataformats={layout!r}: one letter of NCHW for each axis"
        )
    if "H" not in layout or "W" not in layout:
        raise UsageError(f"dataformats={layout!r} needs both H and W")
    for letter in "NC":
        if letter not in layout:
            array, layout = array[None], letter + layout
    array = array.transpose([layout.index(letter) for letter in "NHWC"])
    return _with_channels(_grid(to_bytes(array)))


def frames_from(video: Any) -> list[Pixels]:
    """Frames from TensorBoard's N,T,C,H,W tensor, or from T,H,W,C (or T,H,W) frames as environments render them."""
    array = as_array(video)
    if array.ndim == 5:
        array = array.transpose(1, 0, 3, 4, 2)  # T, N, H, W, C
    elif array.ndim in (3, 4):
        array = array[:, None] if array.ndim == 4 else array[:, None, :, :, None]
    else:
        raise UsageError(f"a video has shape (N, T, C, H, W) or (T, H, W, C), got {array.shape}")
    if not len(array):
        raise UsageError("a video needs at least one frame")
    return [_with_channels(_grid(frame)) for frame in to_bytes(array)]


def to_bytes(array: Any) -> Pixels:
    """Floats are taken as 0…1, as TensorBoard does; bytes stay as they are."""
    import numpy as np

    if array.dtype == np.uint8:
        return array  # type: ignore[no-any-return]
    if array.dtype == bool:
        return array.astype(np.uint8) * 255  # type: ignore[no-any-return]
    if np.issubdtype(array.dtype, np.integer):
        return np.clip(array, 0, 255).astype(np.uint8)  # type: ignore[no-any-return]
    if not np.issubdtype(array.dtype, np.floating):
        raise UsageError(f"a picture is made of numbers, got {array.dtype}")
    return (np.clip(np.nan_to_num(array), 0.0, 1.0) * 255.0 + 0.5).astype(np.uint8)  # type: ignore[no-any-return]


def picture_format(data: bytes) -> tuple[str, tuple[int, int] | None]:
    """Suffix, and height and width where the first bytes tell them, of an encoded picture."""
    for start, suffix, size in _PICTURES:
        if data.startswith(start):
            try:
                return suffix, size(data)
            except (struct.error, IndexError):
                return suffix, None
    raise UsageError("a picture given as bytes must be a PNG, JPEG, GIF or WebP file")


def _png_size(data: bytes) -> tuple[int, int]:
    width, height = struct.unpack_from(">II", data, 16)
    return height, width


def _gif_size(data: bytes) -> tuple[int, int]:
    width, height = struct.unpack_from("<HH", data, 6)
    return height, width


def _jpeg_size(data: bytes) -> tuple[int, int]:
    """From the first frame header: a marker C0 to CF that is no table (C4, C8 and CC are)."""
    place = 2
    while True:
        marker = data[place + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", data, place + 5)
            return height, width
        place += 2 + struct.unpack_from(">H", data, place + 2)[0]


_PICTURES: tuple[tuple[bytes, str, Callable[[bytes], tuple[int, int] | None]], ...] = (
    (b"\x89PNG\r\n\x1a\n", ".png", _png_size),
    (b"\xff\xd8\xff", ".jpg", _jpeg_size),
    (b"GIF8", ".gif", _gif_size),
    (b"RIFF", ".webp", lambda data: None),
)


def encode_png(pixels: Pixels) -> bytes:
    return _save([pixels], "PNG")


def encode_gif(frames: list[Pixels], fps: float) -> bytes:
    if not fps > 0:
        raise UsageError(f"fps must be positive, got {fps}")
    return _save(frames, "GIF", save_all=True, duration=max(20, round(1000 / fps)), loop=0, disposal=1, optimize=False)


def encode_wav(sound: Any, sample_rate: int) -> bytes:
    import wave

    import numpy as np

    samples = as_array(sound).astype(np.float64)
    samples = samples.reshape(-1) if samples.ndim != 2 else samples.T  # channels x frames, as TensorBoard has it
    channels = 1 if samples.ndim == 1 else samples.shape[1]
    data = (np.clip(samples, -1.0, 1.0) * 32767).astype("<i2").tobytes()
    stream = io.BytesIO()
    with wave.open(stream, "wb") as out:
        out.setnchannels(channels)
        out.setsampwidth(2)
        out.setframerate(int(sample_rate))
        out.writeframes(data)
    return stream.getvalue()


def figure_png(figure: Any) -> bytes:
    """A Matplotlib figure as it would be saved."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png")
    return stream.getvalue()


def _save(frames: list[Pixels], kind: str, **options: Any) -> bytes:
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtraError("recording pictures", "media") from None
    pictures = [Image.fromarray(frame) for frame in frames]
    if len(pictures) > 1:
        options["append_images"] = pictures[1:]
    stream = io.BytesIO()
    pictures[0].save(stream, kind, **options)
    return stream.getvalue()


def _grid(pictures: Pixels) -> Pixels:
    """Several pictures of one size, row by row, in one."""
    import numpy as np

    count, height, width, channels = pictures.shape
    columns = math.ceil(math.sqrt(count))
    rows = math.ceil(count / columns)
    sheet = np.zeros((rows * columns, height, width, channels), np.uint8)
    sheet[:count] = pictures
    sheet = sheet.reshape(rows, columns, height, width, channels).swapaxes(1, 2)
    return sheet.reshape(rows * height, columns * width, channels)


def _with_channels(pixels: Pixels) -> Pixels:
    channels = pixels.shape[2]
    if channels == 1:
        return pixels[:, :, 0]
    if channels in (3, 4):
        return pixels
    raise UsageError(f"a picture has 1, 3 or 4 channels, got {channels}")
