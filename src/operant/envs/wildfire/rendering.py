"""Pictures of fires: shaded terrain in the colours of its fuel, flames by intensity, lines, agents, wind, a scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from operant.envs.vector import Array
from operant.envs.wildfire.land import Land
from operant.envs.wildfire.physics.fuels import fuel_table
from operant.envs.wildfire.verbs import BURNED, BURNING, TOOLS
from operant.errors import MissingExtraError

if TYPE_CHECKING:
    from operant.envs.wildfire.world import World

_FAMILIES = {  # the first two letters of a model's code
    "GR": (214, 205, 130), "GS": (190, 190, 110), "SH": (150, 160, 90), "TU": (104, 140, 84), "TL": (82, 118, 74),
    "SB": (156, 130, 96), "NB": (170, 170, 170), "FM": (178, 178, 104),
}  # fmt: skip
_WATER, _ASSET, _CHARRED = (120, 165, 210), (170, 60, 150), (48, 44, 42)
_LINES = {
    "fireline": (110, 62, 30), "scratchline": (190, 140, 90), "wetline": (60, 120, 220),
    "crew": (130, 80, 40), "bulldozer": (90, 50, 25), "air_drop": (220, 70, 90),
}  # fmt: skip
_AGENTS = ((20, 60, 200), (0, 140, 140), (120, 20, 160), (20, 110, 30))


def draw_frame(world: World, index: int = 0, *, size: int = 512) -> Array:
    """Fire ``index`` of an environment as it stands, [height, width, 3] uint8."""
    scenario, clock = world.scenarios[index], float(world.fires.clock[index])
    weather = int(scenario.weather.at(np.array(clock)))
    shown: dict[str, Any] = {
        "intensity": scenario.rates.intensity[weather],
        "wind": scenario.weather.mean_wind(weather),
        "minutes": clock,
        "size": size,
    }
    agents = [(int(row), int(column)) for row, column in world.position[index]]
    frame = picture(scenario.land, world.status[index], agents=agents, **shown)
    if not world.settings.render_benchmark:
        return frame
    bench = scenario.benchmark
    status = np.where(bench.arrival > clock, 0, np.where(bench.arrival + bench.duration > clock, BURNING, BURNED))
    return _side_by_side(frame, picture(scenario.land, status, **shown))


def picture(
    land: Land, status: Array, *, intensity: Array | None = None, agents: Sequence[tuple[int, int]] = (),
    wind: tuple[float, float] | None = None, minutes: float | None = None, size: int = 512,
) -> Array:  # fmt: skip
    """A map with its fire. ``status`` holds the numbers of ``fire_map``; ``wind`` is m/s and where it comes from."""
    colours = _ground(land)
    colours[land.assets > 0] = 0.35 * colours[land.assets > 0] + 0.65 * np.array(_ASSET)
    for name, tool in TOOLS.items():
        colours[status == tool.code] = _LINES[name]
    burned, burning = status == BURNED, status == BURNING
    colours[burned] = 0.2 * colours[burned] + 0.8 * np.array(_CHARRED)
    colours[burning] = _flames(intensity[burning] if intensity is not None else np.full(burning.sum(), 500.0))
    scale = max(1, size // max(land.shape))
    large = np.ascontiguousarray(colours.astype(np.uint8).repeat(scale, 0).repeat(scale, 1))
    return _annotate(large, land, scale, agents, wind, minutes, int((burned | burning).sum()))


def _side_by_side(left: Array, right: Array) -> Array:
    """Two pictures of one height with a white line between: a fire and its benchmark in step."""
    gap = np.full((left.shape[0], 6, 3), 255, np.uint8)
    return np.concatenate([left, gap, right], 1)


def save_gif(frames: Sequence[Array], path: str | Path, *, fps: float = 10.0) -> None:
    """Frames as a gif that goes on for ever; the last one stands for two seconds."""
    image, _ = _pillow()
    images = [image.fromarray(frame).quantize(128) for frame in frames]
    each = max(20, int(1000 / fps))
    durations = [each] * (len(images) - 1) + [2000]
    images[0].save(path, save_all=True, append_images=images[1:], duration=durations, loop=0, disposal=1)


def _pillow() -> tuple[Any, Any]:
    try:
        from PIL import Image, ImageDraw
    except ImportError:
        raise MissingExtraError("pictures of wildfires", "rl") from None
    return Image, ImageDraw


def _ground(land: Land) -> Array:
    """Colours of the fuel under a light from the north-west."""
    table = fuel_table()
    palette = np.array([_WATER if code == "NB8" else _FAMILIES[code[:2]] for code in table.code], np.float64)
    north, east = land.gradient
    steep = np.sqrt(1.0 + north**2 + east**2)
    light = np.array([0.5, -0.5, math.sqrt(0.5)])  # north, east, up
    shade = np.clip((-north * light[0] - east * light[1] + light[2]) / steep / light[2], 0.35, 1.3)
    return np.asarray(np.clip(palette[land.rows] * shade[..., None], 0, 255))


def _flames(intensity: Array) -> Array:
    """Dark red at 10 kW/m, orange, yellow, nearly white at 10,000."""
    stops = np.array([[150, 20, 10], [235, 80, 15], [255, 160, 30], [255, 245, 170]], np.float64)
    at = np.clip(np.log10(np.maximum(intensity, 1.0)) - 1.0, 0.0, 3.0)
    return np.stack([np.interp(at, range(4), stops[:, channel]) for channel in range(3)], -1)


def _annotate(
    large: Array, land: Land, scale: int, agents: Sequence[tuple[int, int]],
    wind: tuple[float, float] | None, minutes: float | None, burnt: int,
) -> Array:  # fmt: skip
    image, draw = _pillow()
    height, width = large.shape[:2]
    canvas = image.new("RGB", (width, height + 22), (255, 255, 255))
    canvas.paste(image.fromarray(large), (0, 0))
    pen = draw.Draw(canvas)
    radius = max(3.0, 0.75 * scale)
    for number, (row, column) in enumerate(agents):
        x, y = (column + 0.5) * scale, (row + 0.5) * scale
        colour = _AGENTS[number % len(_AGENTS)]
        pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour, outline=(255, 255, 255))
    if wind is not None and min(width, height) >= 64:
        _arrow(pen, width - 26, 26, wind[1])
        pen.text((width - 48, 46), f"{wind[0]:.1f} m/s", fill=(0, 0, 0))
    metres, length = _scale_bar(land.cell_size / scale, width / 4)
    base = height + 16
    pen.line((6, base, 6 + length, base), fill=(0, 0, 0), width=2)
    for x in (6.0, 6 + length):
        pen.line((x, base - 4, x, base), fill=(0, 0, 0), width=1)
    pen.text((12 + length, height + 6), f"{metres:g} m", fill=(0, 0, 0))
    if minutes is not None:
        words = f"{max(minutes, 0.0):.0f} min   {burnt * land.cell_size**2 / 10_000:.1f} ha"
        pen.text((max(width - 6 * len(words) - 6, 12 + length + 48), height + 6), words, fill=(0, 0, 0))
    return np.asarray(canvas)


def _arrow(pen: Any, x: float, y: float, comes_from: float) -> None:
    """Where the wind blows to."""
    angle = math.radians(comes_from + 180.0)
    east, south = math.sin(angle), -math.cos(angle)
    tip, tail = (x + 15 * east, y + 15 * south), (x - 15 * east, y - 15 * south)
    pen.ellipse((x - 20, y - 20, x + 20, y + 20), fill=(255, 255, 255), outline=(0, 0, 0))
    pen.line((*tail, *tip), fill=(0, 0, 0), width=2)
    for turn in (2.6, -2.6):
        side = angle + turn
        pen.line((*tip, tip[0] + 8 * math.sin(side), tip[1] - 8 * math.cos(side)), fill=(0, 0, 0), width=2)


def _scale_bar(metres_per_pixel: float, most: float) -> tuple[float, float]:
    """A round length and how many pixels it takes, at most ``most``."""
    longest = max(metres_per_pixel * most, 1e-9)
    unit = 10.0 ** math.floor(math.log10(longest))
    metres = next(unit * factor for factor in (5, 2, 1) if unit * factor <= longest)
    return metres, metres / metres_per_pixel
