"""Maps in files: ASCII grids and arrays by ourselves, GeoTIFF where rasterio is installed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from operant.envs.vector import Array
from operant.errors import MissingExtraError, UsageError


@dataclass(frozen=True)
class Grid:
    """A map and where it lies: the west and the south edge, in the units of its projection."""

    values: Array
    cell_size: float | None = None
    west: float = 0.0
    south: float = 0.0


def read_grid(path: str | Path) -> Grid:
    """A map of the kind that the name's ending tells: ``.asc``, ``.tif``, ``.npy``."""
    path = Path(path)
    if not path.is_file():
        raise UsageError(f"there is no map {path}")
    match path.suffix.lower():
        case ".npy":
            values = np.load(path, allow_pickle=False)
            if values.ndim != 2:
                raise UsageError(f"{path} holds an array of {values.shape}; a map has rows and columns")
            return Grid(values)
        case ".asc":
            return _ascii_grid(path)
        case ".tif" | ".tiff":
            return _geotiff(path)
    raise UsageError(f"{path} is no map that can be read; known are .asc, .tif and .npy")


def write_ascii_grid(
    path: str | Path, values: Array, *, cell_size: float, west: float = 0.0, south: float = 0.0
) -> None:
    """An ESRI ASCII grid, which every GIS reads; what is not finite becomes -9999."""
    rows, columns = values.shape
    head = (
        f"ncols {columns}\nnrows {rows}\nxllcorner {west:.10g}\nyllcorner {south:.10g}\n"
        f"cellsize {cell_size:.10g}\nNODATA_value -9999\n"
    )
    lines = (" ".join(f"{value:.6g}" for value in row) for row in np.where(np.isfinite(values), values, -9999))
    Path(path).write_text(head + "\n".join(lines) + "\n", encoding="ascii")


def _ascii_grid(path: Path) -> Grid:
    head: dict[str, float] = {}
    with path.open(encoding="ascii", errors="replace") as file:
        try:
            while len(head) < 6:
                place = file.tell()
                words = file.readline().split()
                if len(words) != 2 or not words[0][:1].isalpha():
                    file.seek(place)
                    break
                head[words[0].lower()] = float(words[1])
            values = np.loadtxt(file, ndmin=2)
        except ValueError as error:
            raise UsageError(f"{path} is no ASCII grid: {error}") from None
    size = head.get("cellsize", 0.0)
    shape = (int(head.get("nrows", -1)), int(head.get("ncols", -1)))
    if values.shape != shape or size <= 0:
        raise UsageError(
            f"{path} is no ASCII grid: its head tells of {shape} cells of {size}, but it has {values.shape}"
        )
    shift = 0.5 * size
    west = head.get("xllcorner", head.get("xllcenter", shift) - shift)
    south = head.get("yllcorner", head.get("yllcenter", shift) - shift)
    return Grid(values, size, west, south)


def _geotiff(path: Path) -> Grid:
    try:
        import rasterio
    except ImportError:
        raise MissingExtraError(f"{path.name}, a GeoTIFF,", "wildfire") from None
    with rasterio.open(path) as file:
        place = file.transform
        if abs(abs(place.a) - abs(place.e)) > 1e-6 * abs(place.a):
            raise UsageError(f"{path} has cells of {abs(place.a):g} by {abs(place.e):g}; they must be square")
        if file.crs is not None and file.crs.is_geographic:
            raise UsageError(f"{path} is in degrees; project it to metres (gdalwarp -t_srs EPSG:5070) first")
        return Grid(file.read(1), abs(place.a), place.c, place.f + place.e * file.height)
