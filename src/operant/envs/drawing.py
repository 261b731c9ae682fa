"""Pictures of the classic tasks, drawn with Pillow: no window system, no pygame."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from operant.envs.vector import Array
from operant.errors import MissingExtraError

_WHITE, _BLACK, _GREY = (255, 255, 255), (0, 0, 0), (120, 120, 120)
_WOOD, _AXLE, _LINK, _FLAG = (202, 152, 101), (129, 132, 203), (0, 160, 170), (204, 190, 0)


def _canvas(width: int, height: int) -> tuple[Any, Any]:
    try:
        from PIL import Image, ImageDraw
    except ImportError:
        raise MissingExtraError("rendering a classic environment", "rl") from None
    image = Image.new("RGB", (width, height), _WHITE)
    return image, ImageDraw.Draw(image)


def _disc(pen: Any, x: float, y: float, radius: float, colour: tuple[int, int, int]) -> None:
    pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour)


def cart_pole(x: float, angle: float) -> Array:
    image, pen = _canvas(600, 400)
    centre, rail = 300 + x * 600 / 4.8, 300
    pen.line((0, rail, 600, rail), fill=_BLACK)
    pen.rectangle((centre - 25, rail - 15, centre + 25, rail + 15), fill=_BLACK)
    axle = rail - 7
    pen.line((centre, axle, centre + 125 * math.sin(angle), axle - 125 * math.cos(angle)), fill=_WOOD, width=10)
    _disc(pen, centre, axle, 5, _AXLE)
    return np.asarray(image)


def acrobot(angle1: float, angle2: float) -> Array:
    image, pen = _canvas(500, 500)
    middle, scale = 250.0, 500 / 4.4
    pen.line((0, middle - scale, 500, middle - scale), fill=_GREY)  # the height that ends the episode
    x, y, angle = middle, middle, 0.0
    for turn in (angle1, angle2):
        angle += turn
        next_x, next_y = x + scale * math.sin(angle), y + scale * math.cos(angle)
        pen.line((x, y, next_x, next_y), fill=_LINK, width=20)
        _disc(pen, x, y, 10, _FLAG)
        x, y = next_x, next_y
    return np.asarray(image)


def mountain_car(position: float, *, goal: float) -> Array:
    image, pen = _canvas(600, 400)
    scale = 600 / 1.8

    def place(at: float) -> tuple[float, float]:
        return (at + 1.2) * scale, 400 - (math.sin(3 * at) * 0.45 + 0.55) * scale

    pen.line([place(at) for at in np.linspace(-1.2, 0.6, 100).tolist()], fill=_BLACK, width=2)
    flag_x, flag_y = place(goal)
    pen.line((flag_x, flag_y, flag_x, flag_y - 50), fill=_BLACK)
    pen.polygon(((flag_x, flag_y - 50), (flag_x, flag_y - 40), (flag_x + 25, flag_y - 45)), fill=_FLAG)
    x, y = place(position)
    tilt = math.atan(1.35 * math.cos(3 * position))  # the slope of the hill here
    along, up = (math.cos(tilt), -math.sin(tilt)), (-math.sin(tilt), -math.cos(tilt))
    corners = [(x + a * along[0] + b * up[0], y + a * along[1] + b * up[1])
               for a, b in ((-20, 8), (-20, 24), (20, 24), (20, 8))]  # fmt: skip
    pen.polygon(corners, fill=_BLACK)
    for wheel in (-10, 10):
        _disc(pen, x + wheel * along[0] + 8 * up[0], y + wheel * along[1] + 8 * up[1], 8, _GREY)
    return np.asarray(image)


def pendulum(angle: float) -> Array:
    image, pen = _canvas(500, 500)
    tip = (250 - 114 * math.sin(angle), 250 - 114 * math.cos(angle))
    pen.line((250, 250, *tip), fill=(204, 77, 77), width=22)
    _disc(pen, *tip, 11, (204, 77, 77))
    _disc(pen, 250, 250, 6, _BLACK)
    return np.asarray(image)
