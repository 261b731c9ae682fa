"""Maps in files: ASCII grids and arrays by ourselves, GeoTIFF where rasterio is installed."""

from __future__ import annotations

import math
import tokenize
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from operant.envs.vector import Array
from operant.errors import MissingExtraError, UsageError

MOST_CELLS = 1 << 26


@dataclass(frozen=True)
class Grid:
    """A map and where it lies: the west and the south edge, in the units of its projection."""

    values: Array
    cell_size: float | None = None
    west: float = 0.0
    south: float = 0.0
    no_data: float | None = None  # what stands in cells of which nothing is known


def read_grid(path: str | Path) -> Grid:
    """A map of the kind that the name's ending tells: ``.asc``, ``.tif``, ``.npy``."""
    path = Path(path)
    if not path.is_file():
        raise UsageError(f"there is no map {path}")
    match path.suffix.lower():
        case ".npy":
            return Grid(_array(path))
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


def _array(path: Path) -> Array:
    try:
        with warnings.catch_warnings(action="ignore"):  # of headers as Python 2 wrote them
            found = np.lib.format.open_memmap(path, mode="r")  # what it says of its size is held against the file's
    except (ValueError, TypeError, OverflowError, OSError, EOFError, SyntaxError, tokenize.TokenError) as error:
        raise UsageError(f"{path} is no array of numbers: {error!s:.200}") from None
    if found.ndim != 2:
        raise UsageError(f"{path} holds an array of {found.shape}; a map has rows and columns")
    if found.dtype.kind not in "biuf":
        raise UsageError(f"{path} holds {found.dtype}; a map is of numbers")
    check_cells(found.shape, str(path))
    return np.array(found)


def check_cells(shape: tuple[int, ...], what: str) -> None:
    """Refuse a map that takes more memory than a machine has to give for one."""
    if math.prod(shape) > MOST_CELLS:
        raise UsageError(f"{what} has {' x '.join(map(str, shape))} cells; at most {MOST_CELLS:,} are taken")


def _ascii_grid(path: Path) -> Grid:
    head: dict[str, float] = {}
    with path.open(encoding="ascii", errors="replace") as file, warnings.catch_warnings(action="ignore"):
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
    shape = (head.get("nrows", -1), head.get("ncols", -1))
    if values.shape != shape or not values.size or not 0 < size < math.inf:
        raise UsageError(
            f"{path} is no ASCII grid: its head tells of {shape[0]:g} x {shape[1]:g} cells of {size:g}, "
            f"but it has {' x '.join(map(str, values.shape))}"
        )
    shift = 0.5 * size
    west = head.get("xllcorner", head.get("xllcenter", shift) - shift)
    south = head.get("yllcorner", head.get("yllcenter", shift) - shift)
    return Grid(values, size, west, south, head.get("nodata_value"))


def _geotiff(path: Path) -> Grid:
    try:
        import rasterio
    except ImportError:
        raise MissingExtraError(f"{path.name}, a GeoTIFF,", "wildfire") from None
    try:
        # By this driver only: others, such as GDAL's virtual files, read whatever place a file names.
        with warnings.catch_warnings(action="ignore"), rasterio.open(path, driver="GTiff") as file:
            return _band(path, file)
    except (rasterio.errors.RasterioError, OSError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{path} is no GeoTIFF: {error!s:.200}") from None


def _band(path: Path, file: Any) -> Grid:
    place = file.transform
    if abs(abs(place.a) - abs(place.e)) > 1e-6 * abs(place.a):
        raise UsageError(f"{path} has cells of {abs(place.a):g} by {abs(place.e):g}; they must be square")
    if file.crs is not None and file.crs.is_geographic:
        raise UsageError(f"{path} is in degrees; project it to metres (gdalwarp -t_srs EPSG:5070) first")
    check_cells((file.height, file.width), str(path))
    if place.is_identity:  # what no place was written into
        return Grid(file.read(1), no_data=file.nodata)
    return Grid(file.read(1), abs(place.a), place.c, place.f + place.e * file.height, file.nodata)
