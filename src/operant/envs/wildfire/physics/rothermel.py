"""Rothermel's surface fire (1972, INT-115) with Albini's changes (1976, INT-30), as BehavePlus computes it.

Everything is elementwise over arrays of any shape. Units are those of the papers: ft, lb, Btu, minutes; moisture is a
fraction, slope the tangent of its angle, wind ft/min at midflame height (88 for 1 mile an hour).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from operant.envs.vector import Array
from operant.envs.wildfire.physics.fuels import FuelTable

FEET = 0.3048  # metres
MILES_PER_HOUR = 88.0  # ft/min
_PARTICLE_DENSITY = 32.0
_TOTAL_MINERAL = 0.0555
_MINERAL_DAMPING = min(1.0, 0.174 * 0.010**-0.19)
_SAV_BINS = (1200.0, 192.0, 96.0, 48.0, 16.0)


@dataclass(frozen=True)
class Moisture:
    """Water in the fuel as a fraction of its dry weight: numbers, or arrays of one shape."""

    dead_1h: Any = 0.06
    dead_10h: Any = 0.07
    dead_100h: Any = 0.08
    live_herb: Any = 0.60
    live_woody: Any = 0.90


@dataclass(frozen=True)
class Bed:
    """What a fuel bed of some moisture does without wind and slope, and how it answers to them."""

    rate: Array  # R0, ft/min
    reaction_intensity: Array  # I_R, Btu/ft²/min
    sav: Array  # characteristic surface-to-volume ratio, 1/ft
    packing_ratio: Array
    live_extinction: Array  # moisture of extinction of live fuel; 0 where there is none
    wind_factor: Array  # phi_w = wind_factor * U ** wind_exponent
    wind_exponent: Array
    slope_factor: Array  # phi_s = slope_factor * slope²

    @property
    def residence_time(self) -> Array:
        """Minutes that flames stand in one place (Anderson 1969)."""
        return np.asarray(384.0 / self.sav)

    def at(self, rows: Array) -> Bed:
        """The bed of each cell of a map, where this one is that of each fuel model."""
        return Bed(**{name: value[rows] for name, value in vars(self).items()})


@dataclass(frozen=True)
class Behaviour:
    """The head of the fire. ``heading`` is in radians from upslope, in the sense in which the wind's angle is."""

    rate: Array  # ft/min
    heading: Array
    effective_wind: Array  # ft/min: the wind that alone would have this effect
    length_to_width: Array
    fireline_intensity: Array  # Byram, Btu/ft/s

    @property
    def eccentricity(self) -> Array:
        ratio = self.length_to_width
        return np.asarray(np.sqrt(ratio * ratio - 1.0) / ratio)

    @property
    def backing_rate(self) -> Array:
        return np.asarray(self.rate * (1 - self.eccentricity) / (1 + self.eccentricity))

    @property
    def flanking_rate(self) -> Array:
        return np.asarray((self.rate + self.backing_rate) / 2 / self.length_to_width)


def fuel_bed(fuel: FuelTable, moisture: Moisture, *, rows: Array | None = None) -> Bed:
    """The bed of every fuel model, or of the models ``rows``; moisture may differ for each of them.

    Numbers in the comments are those of the equation sheet in ``docs/wildfire.md``.
    """
    pick: Any = slice(None) if rows is None else rows
    load5, sav5 = fuel.load[pick], fuel.sav[pick]
    depth, extinction, heat = fuel.depth[pick], fuel.extinction[pick], fuel.heat[pick]
    shape = depth.shape
    m1, m10, m100, herb, woody = (
        np.broadcast_to(np.asarray(value, np.float64), shape)
        for value in (
            moisture.dead_1h,
            moisture.dead_10h,
            moisture.dead_100h,
            moisture.live_herb,
            moisture.live_woody,
        )
    )
    cured = _cured(herb) * fuel.dynamic[pick]  # 1
    dead_load = np.stack([*np.moveaxis(load5[..., :3], -1, 0), load5[..., 3] * cured], -1)
    live_load = np.stack([load5[..., 3] * (1 - cured), load5[..., 4]], -1)
    dead_sav, live_sav = sav5[..., :4], sav5[..., 3:]
    dead_moisture, live_moisture = np.stack([m1, m10, m100, m1], -1), np.stack([herb, woody], -1)

    dead_area, live_area = dead_load * dead_sav / _PARTICLE_DENSITY, live_load * live_sav / _PARTICLE_DENSITY  # 2
    dead_sum, live_sum = dead_area.sum(-1), live_area.sum(-1)
    dead_part, live_part = _shares(dead_area), _shares(live_area)
    dead_whole = _ratio(dead_sum, dead_sum + live_sum)
    live_whole = _ratio(live_sum, dead_sum + live_sum)
    dead_net = (_bin_sums(dead_part, dead_sav) * dead_load).sum(-1) * (1 - _TOTAL_MINERAL)  # 3, 4
    live_net = (_bin_sums(live_part, live_sav) * live_load).sum(-1) * (1 - _TOTAL_MINERAL)
    sav = dead_whole * (dead_part * dead_sav).sum(-1) + live_whole * (live_part * live_sav).sum(-1)  # 5
    sav = np.where(sav > 0, sav, 1.0)  # of beds without fuel; nothing follows from it

    bulk_density = (dead_load.sum(-1) + live_load.sum(-1)) / depth  # 6
    packing = bulk_density / _PARTICLE_DENSITY
    relative = packing / (3.348 * sav**-0.8189)
    safe_relative = np.where(relative > 0, relative, 1.0)
    safe_packing = np.where(packing > 0, packing, 1.0)

    live_extinction = _live_extinction(dead_load, dead_sav, dead_moisture, live_load, live_sav, extinction)  # 7
    dead_damping = _moisture_damping((dead_part * dead_moisture).sum(-1), extinction)  # 8
    live_damping = _moisture_damping((live_part * live_moisture).sum(-1), live_extinction)

    power = sav**1.5  # 9
    exponent = 133.0 * sav**-0.7913
    velocity = power / (495.0 + 0.0594 * power) * safe_relative**exponent * np.exp(exponent * (1 - safe_relative))
    reaction = velocity * heat * (dead_net * dead_damping + live_net * live_damping) * _MINERAL_DAMPING  # 10
    flux = np.exp((0.792 + 0.681 * np.sqrt(sav)) * (packing + 0.1)) / (192.0 + 0.2595 * sav)  # 11
    sink = bulk_density * (  # 12
        dead_whole * _heat_sink(dead_part, dead_moisture, dead_sav)
        + live_whole * _heat_sink(live_part, live_moisture, live_sav)
    )
    wind_exponent = 0.02526 * sav**0.54  # 14
    wind_factor = 7.47 * np.exp(-0.133 * sav**0.55) * safe_relative ** -(0.715 * np.exp(-3.59e-4 * sav))
    return Bed(
        rate=_ratio(reaction * flux, sink),  # 13
        reaction_intensity=reaction,
        sav=sav,
        packing_ratio=packing,
        live_extinction=live_extinction,
        wind_factor=wind_factor,
        wind_exponent=wind_exponent,
        slope_factor=5.275 * safe_packing**-0.3,
    )


def fire_behaviour(bed: Bed, wind: Any, slope: Any = 0.0, angle: Any = 0.0, *, wind_limit: bool = False) -> Behaviour:
    """The head of a fire in ``wind`` (ft/min at midflame) that blows ``angle`` radians off the upslope direction.

    ``wind_limit`` holds the effective wind at 0.9 I_R, which BehavePlus did until 2025; today it does not.
    """
    wind, slope = np.asarray(wind, np.float64), np.asarray(slope, np.float64)
    by_wind = bed.wind_factor * wind**bed.wind_exponent
    by_slope = bed.slope_factor * slope * slope
    along, across = by_slope + by_wind * np.cos(angle), by_wind * np.sin(angle)  # 15
    both = np.sqrt(along * along + across * across)
    effective = (both / bed.wind_factor) ** (1.0 / bed.wind_exponent)  # 16
    if wind_limit:
        limit = 0.9 * bed.reaction_intensity
        both = np.where(effective > limit, bed.wind_factor * limit**bed.wind_exponent, both)
        effective = np.minimum(effective, limit)
    rate = bed.rate * (1.0 + both)
    return Behaviour(
        rate=rate,
        heading=np.arctan2(across, along),
        effective_wind=effective,
        length_to_width=length_to_width(effective),
        fireline_intensity=rate * bed.reaction_intensity * bed.residence_time / 60.0,  # 17
    )


def flame_length(fireline_intensity: Array) -> Array:
    """Byram's flame length in ft, of an intensity in Btu/ft/s."""
    return np.asarray(0.45 * fireline_intensity**0.46)


def length_to_width(effective_wind: Array) -> Array:
    """Anderson's (1983) ratio, whose constants want miles an hour; at most 8, and 1 in calm air."""
    mph = np.asarray(effective_wind) / MILES_PER_HOUR
    ratio = 0.936 * np.exp(0.1147 * np.minimum(mph, 50.0)) + 0.461 * np.exp(-0.0692 * mph) - 0.397
    return np.asarray(np.clip(ratio, 1.0, 8.0))


def wind_adjustment(depth: Any, *, cover: Any = 0.0, height: Any = 0.0, crown_ratio: Any = 0.5) -> Array:
    """Midflame wind over wind at 20 ft: unsheltered, or under a canopy that covers the fraction ``cover``.

    ``depth`` of the fuel and ``height`` of the canopy are in ft (Albini and Baughman 1979).
    """
    depth, height = np.asarray(depth, np.float64), np.asarray(height, np.float64)
    fill = np.asarray(crown_ratio) * np.asarray(cover) / 3.0
    open_air = 1.83 / np.log((20.0 + 0.36 * depth) / (0.13 * depth))
    sheltered = (fill >= 0.05) & (height >= 6.0)
    tall = np.where(sheltered, height, 6.0)
    below = 0.555 / (np.sqrt(np.where(sheltered, fill, 1.0) * tall) * np.log((20.0 + 0.36 * tall) / (0.13 * tall)))
    return np.asarray(np.where(sheltered, below, open_air))


def _cured(herb: Array) -> Array:
    """The part of the herbaceous fuel that has cured (BehavePlus rounds the coefficients of (1.2 - M) / 0.9)."""
    return np.where(herb < 0.30, 1.0, np.where(herb > 1.20, 0.0, np.clip(1.333 - 1.11 * herb, 0.0, 1.0)))


def _ratio(part: Array, whole: Array) -> Array:
    return np.divide(part, whole, out=np.zeros(np.broadcast(part, whole).shape), where=np.asarray(whole) > 0)


def _shares(area: Array) -> Array:
    return _ratio(area, area.sum(-1, keepdims=True))


def _bin_sums(part: Array, sav: Array) -> Array:
    """Albini: a size class weighs as much as all classes in the same bin of surface-to-volume ratios."""
    bins = np.zeros(sav.shape, np.int64)
    for edge in _SAV_BINS:
        bins += sav >= edge
    same = bins[..., :, None] == bins[..., None, :]
    return np.where(bins > 0, (same * part[..., None, :]).sum(-1), 0.0)


def _live_extinction(
    dead_load: Array, dead_sav: Array, dead_moisture: Array, live_load: Array, live_sav: Array, extinction: Array
) -> Array:
    fine_dead = dead_load * np.exp(-138.0 / dead_sav)
    fine_live = (live_load * np.exp(-500.0 / live_sav)).sum(-1)
    dead_sum = fine_dead.sum(-1)
    moisture = _ratio((fine_dead * dead_moisture).sum(-1), dead_sum)
    wet = 2.9 * _ratio(dead_sum, fine_live) * (1.0 - moisture / extinction) - 0.226
    return np.where(live_load.sum(-1) > 0, np.maximum(extinction, wet), 0.0)


def _moisture_damping(moisture: Array, extinction: Array) -> Array:
    q = np.where(extinction > 0, moisture / np.where(extinction > 0, extinction, 1.0), 1.0)
    return np.where(q < 1.0, np.maximum(0.0, 1.0 - 2.59 * q + 5.11 * q * q - 3.52 * q * q * q), 0.0)


def _heat_sink(part: Array, moisture: Array, sav: Array) -> Array:
    return np.asarray((part * (250.0 + 1116.0 * moisture) * np.exp(-138.0 / sav)).sum(-1))
