"""A run in the formats of others: CSV, JSON lines, Parquet, TensorBoard."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

from operant.errors import MissingExtraError, UsageError, nearest
from operant.tracking.reading.run import Run

__all__ = ["FORMATS", "export_run"]


def export_run(run: Run, kind: str, target: Path | None = None) -> Path:
    """Write ``run`` as ``kind`` (a key of :data:`FORMATS`) to ``target`` and return where it went.

    CSV, JSON lines and Parquet hold the scalars, a row for each point; ``tensorboard`` is a folder that
    TensorBoard opens, with text, pictures, histograms and settings too.
    """
    if kind not in FORMATS:
        raise UsageError(f"there is no export to {kind!r}{nearest(kind, FORMATS)}: it is one of {', '.join(FORMATS)}")
    suffix, write = FORMATS[kind]
    target = target or Path(f"{run.id.replace('/', '-')}{suffix}")
    if target.exists():
        raise UsageError(f"{target} exists already: name another place with --out, or remove it")
    target.parent.mkdir(parents=True, exist_ok=True)
    staged = target.with_name(f".{target.name}.part")
    write(run, staged)
    staged.rename(target)
    return target


def _to_csv(run: Run, path: Path) -> None:
    with path.open("w", encoding="utf-8", errors="surrogatepass", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(("tag", "step", "wall", "value"))
        for tag in run.scalar_tags:
            rows.writerows((tag, *point) for point in run.scalars(tag).tolist())


def _to_jsonl(run: Run, path: Path) -> None:
    with path.open("w", encoding="utf-8") as stream:
        for tag in run.scalar_tags:
            name = json.dumps(tag)
            for step, wall, value in run.scalars(tag).tolist():
                # JSON has no NaN: readers of other languages get null, or the infinities' names as text.
                shown = repr(value) if abs(value) < float("inf") else {"nan": "null"}.get(str(value), f'"{value}"')
                stream.write(f'{{"tag": {name}, "step": {step}, "wall": {wall!r}, "value": {shown}}}\n')


def _to_parquet(run: Run, path: Path) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingExtraError("the export to Parquet", "parquet") from None
    tag_type = pa.dictionary(pa.int32(), pa.string())
    schema = pa.schema([("tag", tag_type), ("step", pa.int64()), ("wall", pa.float64()), ("value", pa.float64())])
    with pq.ParquetWriter(path, schema, compression="zstd") as out:
        for tag in run.scalar_tags:
            points = run.scalars(tag)
            tags = pa.DictionaryArray.from_arrays(pa.array([0] * len(points), pa.int32()), pa.array([tag]))
            columns = [pa.array(points[name]) for name in ("step", "wall", "value")]
            out.write_table(pa.Table.from_arrays([tags, *columns], schema=schema))


def _to_tensorboard(run: Run, folder: Path) -> None:
    from operant.tracking.exchange.tfevents_write import EventFileWriter

    with EventFileWriter(folder, wall=run.summary.started) as out:
        for tag in run.scalar_tags:
            points = run.scalars(tag)
            out.add_points(tag, points["step"], points["wall"], points["value"])
        for text in run.text():
            out.add_text(text.tag, text.text, text.step, text.wall)
        for record in run.records("media"):
            if record["media"] == "image" and "width" in record:
                data = (run.folder / "blobs" / record["blob"]["name"]).read_bytes()
                out.add_image(record["tag"], data, record["width"], record["height"], record["step"], record["wall"])
        for one in run.histograms():
            out.add_histogram(
                one["tag"], one["edges"], one["counts"], one["min"], one["max"], one["sum"], one["sum_squares"],
                one["step"], one["wall"],
            )  # fmt: skip
        settings = {
            name: value if isinstance(value, (bool, int, float, str)) else json.dumps(value)
            for name, value in run.params.items()
        }
        if settings:
            metrics = [tag for record in run.records("hparams") for tag in record["metrics"]]
            out.add_hparams(settings, metrics, run.summary.started or 0.0)


FORMATS: dict[str, tuple[str, Callable[[Run, Path], None]]] = {
    "csv": (".csv", _to_csv),
    "jsonl": (".jsonl", _to_jsonl),
    "parquet": (".parquet", _to_parquet),
    "tensorboard": ("-tensorboard", _to_tensorboard),
}
