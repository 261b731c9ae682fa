"""Pictures of fires: shaded terrain in the colours of its fuel, the front, flames by intensity, lines, agents, wind."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from operant.envs.vector import Array
from operant.envs.wildfire.land import Land
from operant.envs.wildfire.physics.fuels import fuel_table
from operant.envs.wildfire.verbs import BURNED, BURNING, TOOLS
from operant.envs.wildfire.weather import Weather
from operant.errors import MissingExtraError

if TYPE_CHECKING:
    from operant.envs.wildfire.world import World

Colour = tuple[int, int, int]

_FAMILIES: dict[str, tuple[str, Colour]] = {  # by the first two letters of a model's code
    "GR": ("grass", (214, 205, 130)), "GS": ("grass and shrub", (190, 190, 110)), "SH": ("shrub", (150, 160, 90)),
    "TU": ("timber understory", (104, 140, 84)), "TL": ("timber litter", (82, 118, 74)),
    "SB": ("slash", (156, 130, 96)), "NB": ("nothing to burn", (170, 170, 170)),
    "FM": ("fuel of the 13", (178, 178, 104)),
}  # fmt: skip
_WATER: tuple[str, Colour] = ("water", (120, 165, 210))
_ASSET, _CHARRED, _FRONT = (170, 60, 150), (60, 54, 50), (110, 10, 5)
_LINES: dict[str, Colour] = {
    "fireline": (110, 62, 30), "scratchline": (190, 140, 90), "wetline": (60, 120, 220),
    "crew": (130, 80, 40), "bulldozer": (90, 50, 25), "air_drop": (220, 70, 90),
}  # fmt: skip
_AGENTS: tuple[Colour, ...] = ((20, 60, 200), (0, 140, 140), (120, 20, 160), (20, 110, 30))
_BLACK, _WHITE = (0, 0, 0), (255, 255, 255)
_WEAKEST, _STRONGEST = 10.0, 10_000.0  # kW/m: the ends of the colours of flames
_GAP = 10


def draw_frame(world: World, index: int = 0, *, size: int = 512) -> Array:
    """Fire ``index`` of an environment as it stands, [height, width, 3] uint8."""
    scenario, clock = world.scenarios[index], float(world.fires.clock[index])
    which = int(scenario.weather.at(np.array(clock)))
    shown: dict[str, Any] = {"intensity": scenario.rates.intensity[which], "minutes": clock, "size": size}
    shown["wind"] = (scenario.weather, which)
    agents = [(int(row), int(column)) for row, column in world.position[index]]
    beside = world.settings.render_benchmark
    panels = [_panel(scenario.land, world.status[index], agents=agents, title="fought" if beside else "", **shown)]
    if beside:
        bench = scenario.benchmark
        status = np.where(bench.arrival > clock, 0, np.where(bench.arrival + bench.duration > clock, BURNING, BURNED))
        panels.append(_panel(scenario.land, status, title="nobody fights", **shown))
    lines = [name for name in world.verbs.interactions if name in TOOLS]
    return _with_key(panels, scenario.land, size, lines, len(agents))


def picture(
    land: Land, status: Array, *, intensity: Array | None = None, wind: tuple[Weather, int] | None = None,
    minutes: float | None = None, size: int = 512,
) -> Array:  # fmt: skip
    """A map with its fire. ``status`` holds the numbers of ``fire_map``; ``wind`` a weather and which of its times."""
    return _with_key([_panel(land, status, intensity=intensity, wind=wind, minutes=minutes, size=size)], land, size)


def save_gif(frames: Sequence[Array], path: str | Path, *, fps: float = 10.0) -> None:
    """Frames as a gif that goes on for ever; the last one stands for two seconds."""
    image, _, _ = _pillow()
    images = [image.fromarray(frame).quantize(128) for frame in frames]
    each = max(20, int(1000 / fps))
    durations = [each] * (len(images) - 1) + [2000]
    images[0].save(path, save_all=True, append_images=images[1:], duration=durations, loop=0, disposal=1)


def _pillow() -> tuple[Any, Any, Any]:
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ImportError:
        raise MissingExtraError("pictures of wildfires", "rl") from None
    return Image, ImageDraw, ImageFont


# A map under its head line.


def _panel(
    land: Land, status: Array, *, intensity: Array | None, wind: tuple[Weather, int] | None, minutes: float | None,
    size: int, agents: Sequence[tuple[int, int]] = (), title: str = "",
) -> Array:  # fmt: skip
    scale = _scale(land, size)
    burnt = (status == BURNED) | (status == BURNING)
    large = np.ascontiguousarray(_colours(land, status, intensity).astype(np.uint8).repeat(scale, 0).repeat(scale, 1))
    large[_front(burnt.repeat(scale, 0).repeat(scale, 1), max(1, scale // 12))] = _FRONT
    image, draw, _ = _pillow()
    head = 2 * _text_size(size)
    canvas = image.new("RGB", (large.shape[1], large.shape[0] + head), _WHITE)
    canvas.paste(image.fromarray(large), (0, head))
    for number, (row, column) in enumerate(agents):
        mark = _disc(max(11, round(0.7 * scale)), _AGENTS[number % len(_AGENTS)])
        _put(canvas, mark, (column + 0.5) * scale, head + (row + 0.5) * scale)
    words = []
    if minutes is not None:
        words = [f"{burnt.sum() * land.cell_size**2 / 10_000:.1f} ha", f"{max(minutes, 0.0):.0f} min"]
    if wind is not None:
        _wind_field(canvas, *wind, head, land.shape, scale)
        words.append(f"{wind[0].mean_wind(wind[1])[0]:.1f} m/s")
    pen, font, end = draw.Draw(canvas), _font(size), canvas.width - 4
    begin = 4 + (pen.textlength(title, font=font) if title else 0)
    pen.text((4, head // 2), title, fill=_BLACK, font=font, anchor="lm")
    for word in words:
        begins = end - pen.textlength(word, font=font)
        is_wind = word.endswith("m/s")
        if begins - is_wind * head < begin:
            break
        pen.text((end, head // 2), word, fill=_BLACK, font=font, anchor="rm")
        if is_wind and wind is not None:
            _put(canvas, _arrow(round(0.8 * head), round(wind[0].mean_wind(wind[1])[1])), begins - head / 2, head / 2)
        end = begins - _text_size(size)
    return np.asarray(canvas)


def _colours(land: Land, status: Array, intensity: Array | None) -> Array:
    colours = _ground(land)
    colours[land.assets > 0] = 0.35 * colours[land.assets > 0] + 0.65 * np.array(_ASSET)
    for name, tool in TOOLS.items():
        colours[status == tool.code] = _LINES[name]
    burned, burning = status == BURNED, status == BURNING
    colours[burned] = 0.2 * colours[burned] + 0.8 * np.array(_CHARRED)
    colours[burning] = _flames(intensity[burning] if intensity is not None else np.full(burning.sum(), 500.0))
    return colours


def _ground(land: Land) -> Array:
    """Colours of the fuel under a light from the north-west."""
    kinds = [_kind(code) for code in fuel_table().code]
    palette, water = np.array([colour for _, colour in kinds], np.float64), np.array([kind is _WATER for kind in kinds])
    north, east = land.gradient
    steep = np.sqrt(1.0 + north**2 + east**2)
    light = np.array([0.5, -0.5, math.sqrt(0.5)])  # north, east, up
    shade = np.clip((-north * light[0] - east * light[1] + light[2]) / steep / light[2], 0.35, 1.3)
    shade[water[land.rows]] = 1.0
    return np.asarray(np.clip(palette[land.rows] * shade[..., None], 0, 255))


def _kind(code: str) -> tuple[str, Colour]:
    return _WATER if code == "NB8" else _FAMILIES[code[:2]]


def _flames(intensity: Array) -> Array:
    """Dark red where they are weakest, orange, yellow, nearly white where they are strongest."""
    stops = np.array([[150, 20, 10], [235, 80, 15], [255, 160, 30], [255, 245, 170]], np.float64)
    at = np.log(np.clip(intensity, _WEAKEST, _STRONGEST) / _WEAKEST) / math.log(_STRONGEST / _WEAKEST) * 3.0
    return np.stack([np.interp(at, range(4), stops[:, channel]) for channel in range(3)], -1)


def _front(burnt: Array, thickness: int) -> Array:
    """The rim of what has burnt, ``thickness`` pixels within it; none at the edge of the map."""
    inner = burnt.copy()
    for _ in range(thickness):
        shrunk = inner.copy()
        shrunk[1:] &= inner[:-1]
        shrunk[:-1] &= inner[1:]
        shrunk[:, 1:] &= inner[:, :-1]
        shrunk[:, :-1] &= inner[:, 1:]
        inner = shrunk
    return np.asarray(burnt & ~inner)


def _wind_field(canvas: Any, weather: Weather, which: int, head: int, shape: tuple[int, int], scale: int) -> None:
    """Arrows over the map where the wind is not everywhere the same, longer where it blows harder."""
    speed, direction = (np.asarray(each[which]) for each in (weather.wind_speed, weather.wind_direction))
    height, width = shape[0] * scale, shape[1] * scale
    apart = max(width, height) / 8
    if not speed.ndim or apart < 24:
        return
    speed, direction = np.broadcast_to(speed, shape), np.broadcast_to(direction, shape)
    for y in np.arange(apart / 2, height, apart):
        for x in np.arange(apart / 2, width, apart):
            cell = int(y) // scale, int(x) // scale
            length = round(apart * (0.25 + 0.5 * speed[cell] / max(speed.max(), 1e-9)))
            _put(canvas, _arrow(length, round(float(direction[cell])), 120), x, head + y)


# What the colours mean.


def _with_key(panels: list[Array], land: Land, size: int, lines: Sequence[str] = (), agents: int = 0) -> Array:
    """Panels beside each other over a scale and what the colours mean."""
    gap = np.full((panels[0].shape[0], _GAP, 3), 255, np.uint8)
    row = panels[0] if len(panels) == 1 else np.concatenate([panels[0], gap, panels[1]], 1)
    return np.concatenate([row, _key(row.shape[1], land, size, lines, agents)])


def _key(width: int, land: Land, size: int, lines: Sequence[str], agents: int) -> Array:
    image, draw, _ = _pillow()
    font, unit = _font(size), _text_size(size)
    measure = draw.Draw(image.new("RGB", (1, 1)))
    metres, length = _scale_bar(land.cell_size / _scale(land, size), min(width, size) / 4)
    entries: list[tuple[str, float, Any]] = [(f"{metres:g} m", length, None)]
    if width >= 16 * unit:
        marks = dict(_kind(fuel_table().code[row]) for row in np.unique(land.rows))
        if land.assets.any():
            marks["assets"] = _ASSET
        marks |= {name.replace("_", " "): _LINES[name] for name in lines}
        marks["burned"] = _CHARRED
        bar = _flames(np.geomspace(_WEAKEST, _STRONGEST, 4 * unit))[None].repeat(unit, 0).astype(np.uint8)
        entries += [(name, unit, image.new("RGB", (unit, unit), colour)) for name, colour in marks.items()]
        entries.append((f"burning, {_WEAKEST:g} to {_STRONGEST:,g} kW/m", 4 * unit, image.fromarray(bar)))
        entries += [("agent" if agents == 1 else "agents", unit, _disc(unit, _AGENTS[0]))] if agents else []
    places, x, y = [], 4.0, 0
    for text, wide, _ in entries:
        needs = wide + 0.4 * unit + measure.textlength(text, font=font)
        if x > 4 and x + needs > width:
            x, y = 4.0, y + 1
        places.append((x, (2 * y + 1) * 0.8 * unit + 0.2 * unit))
        x += needs + unit
    canvas = image.new("RGB", (width, round((y + 1) * 1.6 * unit + 0.4 * unit)), _WHITE)
    pen = draw.Draw(canvas)
    for (text, wide, mark), (x, middle) in zip(entries, places, strict=True):
        if mark is None:
            pen.line([(x, middle - 4), (x, middle + 2), (x + wide, middle + 2), (x + wide, middle - 4)], _BLACK, 2)
        else:
            _put(canvas, mark, x + wide / 2, middle)
        pen.text((x + wide + 0.4 * unit, middle), text, fill=_BLACK, font=font, anchor="lm")
    return np.asarray(canvas)


def _scale_bar(metres_per_pixel: float, most: float) -> tuple[float, float]:
    """A round length and how many pixels it takes, at most ``most``."""
    longest = max(metres_per_pixel * most, 1e-9)
    unit = 10.0 ** math.floor(math.log10(longest))
    metres = next(unit * factor for factor in (5, 2, 1) if unit * factor <= longest)
    return metres, metres / metres_per_pixel


# Small parts.


def _scale(land: Land, size: int) -> int:
    """Pixels to each side of a cell."""
    return max(1, size // max(land.shape))


def _text_size(size: int) -> int:
    return min(max(size // 32, 9), 28)


@lru_cache
def _font(size: int) -> Any:
    return _pillow()[2].load_default(_text_size(size))


_FINER = 4  # marks are drawn so much larger and made smaller, which makes their edges smooth


@lru_cache
def _disc(wide: int, colour: Colour) -> Any:
    image, draw, _ = _pillow()
    mark = image.new("RGBA", (_FINER * wide, _FINER * wide))
    draw.Draw(mark).ellipse((1, 1, _FINER * wide - 2, _FINER * wide - 2), colour, _WHITE, max(2, _FINER * wide // 14))
    return mark.resize((wide, wide), image.Resampling.BOX)


@lru_cache
def _arrow(wide: int, comes_from: int, opaque: int = 255) -> Any:
    """Where the wind blows to."""
    image, draw, _ = _pillow()
    half = _FINER * wide / 2
    mark = image.new("RGBA", (_FINER * wide, _FINER * wide))
    angle = math.radians(comes_from + 180.0)

    def at(along: float, aside: float) -> tuple[float, float]:
        east = along * math.sin(angle) + aside * math.cos(angle)
        south = -along * math.cos(angle) + aside * math.sin(angle)
        return half * (1 + east), half * (1 + south)

    shape = [at(0.95, 0), at(0.3, 0.35), at(0.3, 0.08), at(-0.95, 0.08)]
    shape += [at(-0.95, -0.08), at(0.3, -0.08), at(0.3, -0.35)]
    draw.Draw(mark).polygon(shape, (*_BLACK, opaque))
    return mark.resize((wide, wide), image.Resampling.BOX)


def _put(canvas: Any, mark: Any, x: float, y: float) -> None:
    """Draw a mark with its middle at a place."""
    corner = round(x - mark.width / 2), round(y - mark.height / 2)
    canvas.paste(mark, corner, mark if mark.mode == "RGBA" else None)
