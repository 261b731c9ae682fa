"""A run in the formats of others: CSV, JSON lines, Parquet, TensorBoard, and the stores of W&B, MLflow and Aim."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from operant._util.files import replacing
from operant.errors import MissingExtraError, UsageError, nearest
from operant.tracking.reading.run import Run
from operant.tracking.recording.media import picture_format

__all__ = ["FORMATS", "Format", "export_run", "find_format"]


class Format(NamedTuple):
    suffix: str
    write: Callable[[Run, Path], Path | None]
    """Writes a run to a path; a store says where in it the run went."""
    hint: str = ""
    """How to open what was written, with ``{target}`` for its place."""
    store: str = ""
    """For a format that holds many runs: what it is called by default. Runs are added to one that exists."""
    each: bool = False
    """Whether the hint is about the run alone, not about the whole store."""
    left_out: Callable[[Run], list[str]] = lambda run: []
    """What of a run the format has no place for, beyond what it says of itself."""


def find_format(kind: str, also: str = "") -> Format:
    """The format called ``kind``; ``also`` is another name that the error should mention."""
    known = [*FORMATS, *([also] if also else [])]
    if kind not in FORMATS:
        raise UsageError(f"there is no export to {kind!r}{nearest(kind, known)}: it is one of {', '.join(known)}")
    return FORMATS[kind]


def export_run(run: Run, kind: str, target: Path | None = None) -> Path:
    """Write ``run`` as ``kind`` (a key of :data:`FORMATS`) to ``target`` and return where it went.

    CSV, JSON lines and Parquet hold the scalars, a row for each point; ``tensorboard`` is a folder that TensorBoard
    opens, with text, pictures, films (GIF), sound, histograms, curves and settings too. ``wandb``, ``mlflow`` and
    ``aim`` add the run to a store of that tool, which must be installed.
    """
    form = find_format(kind)
    if form.store:
        place = target or Path(form.store)
        return form.write(run, place) or place
    target = target or Path(f"{run.id.replace('/', '-')}{form.suffix}")
    if target.exists():
        raise UsageError(f"{target} exists already: name another place with --out, or remove it")
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as staged:
        form.write(run, staged)
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
        for item in run.media():
            if not item.path.exists():
                continue
            if item.path.suffix == ".wav":
                out.add_audio(item.tag, item.path.read_bytes(), item.step, item.wall)
            elif item.path.suffix in _TENSORBOARD_PICTURES:  # a film is a GIF that moves
                data = item.path.read_bytes()
                height, width = _picture_size(data)
                out.add_image(item.tag, data, width, height, item.step, item.wall)
        for record in run.records("pr_curve"):
            out.add_pr_curve(record["tag"], _pr_rows(record), record["step"], record["wall"])
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
            metrics = [tag for record in run.records("hparams") for tag in record.get("metrics", ())]
            out.add_hparams(settings, metrics, run.summary.started or 0.0)


def _picture_size(data: bytes) -> tuple[int, int]:
    try:
        return picture_format(data)[1] or (0, 0)
    except UsageError:  # a file that is damaged, or not what its name says
        return 0, 0


# What TensorBoard shows as a picture.
_TENSORBOARD_PICTURES = (".png", ".jpg", ".gif")


def _pr_rows(record: dict[str, Any]) -> list[list[float]]:
    precision, recall = record["precision"], record["recall"]
    if "true_positives" not in record:  # of an older version, which kept no counts
        nothing = [0.0] * len(recall)
        return [nothing, nothing, nothing, nothing, precision, recall]
    right, wrong = record["true_positives"], record["false_positives"]
    refused = [record["negatives"] - one for one in wrong]
    missed = [record["positives"] - one for one in right]
    return [right, wrong, refused, missed, precision, recall]


def _not_for_tensorboard(run: Run) -> list[str]:
    """What is left out of an export to TensorBoard."""
    shown = (*_TENSORBOARD_PICTURES, ".wav")
    media = sorted({one.path.suffix for one in run.media() if one.path.suffix not in shown})
    found = [f"{count} file(s) of `add_file`, `add_mesh` or `add_embedding`"] if (count := len(run.files)) else []
    if missing := sum(not one.path.exists() for one in run.media()):
        found.append(f"{missing} picture(s) or the like whose files are missing")
    return [*(f"{suffix} media, which TensorBoard does not show" for suffix in media), *found]


def _to_wandb(run: Run, folder: Path) -> Path:
    from operant.tracking.exchange.to_wandb import write_wandb

    return write_wandb(run, folder)


def _to_mlflow(run: Run, file: Path) -> Path:
    from operant.tracking.exchange.to_mlflow import write_mlflow

    return write_mlflow(run, file)


def _to_aim(run: Run, folder: Path) -> Path:
    from operant.tracking.exchange.to_aim import write_aim

    return write_aim(run, folder)


FORMATS: dict[str, Format] = {
    "csv": Format(".csv", _to_csv),
    "jsonl": Format(".jsonl", _to_jsonl),
    "parquet": Format(".parquet", _to_parquet),
    "tensorboard": Format(
        "-tensorboard",
        _to_tensorboard,
        "Open it with: tensorboard --logdir {target}",
        left_out=_not_for_tensorboard,
    ),
    "wandb": Format("", _to_wandb, "Send it with: wandb sync {target}", store="wandb-runs", each=True),
    "mlflow": Format(
        "", _to_mlflow, "Open it with: mlflow ui --backend-store-uri sqlite:///{target}", store="mlflow.db"
    ),
    "aim": Format("", _to_aim, "Open it with: aim up --repo {target}", store="aim-runs"),
}
