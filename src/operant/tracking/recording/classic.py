"""The calls of TensorBoard's ``SummaryWriter`` beyond scalars: text, media, histograms, settings, files."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from time import time
from typing import Any, TypeVar

from operant.errors import UsageError
from operant.tracking.recording import media
from operant.tracking.recording.recorder import Recorder
from operant.tracking.recording.values import as_array, as_number, as_plain, as_tag

_Method = TypeVar("_Method", bound=Callable[..., Any])


def _tensorboard_names(**ours: str) -> Callable[[_Method], _Method]:
    """Let a call use TensorBoard's argument names where ours are shorter."""
    ours = {"global_step": "step", **ours}

    def decorate(method: _Method) -> _Method:
        @wraps(method)
        def call(self: Any, *args: Any, **named: Any) -> Any:
            return method(self, *args, **{ours.get(name, name): value for name, value in named.items()})

        return call  # type: ignore[return-value]

    return decorate


class ClassicCalls:
    _core: Recorder

    def add_scalar(self, tag: str, value: Any, step: int | None = None, walltime: float | None = None) -> None:
        raise TypeError("add_scalar is SummaryWriter's")

    def _step_of(self, tag: str, step: Any) -> int:
        raise TypeError("_step_of is SummaryWriter's")

    @property
    def log_dir(self) -> str:
        return str(self._core.folder)

    def get_logdir(self) -> str:
        return self.log_dir

    @_tensorboard_names(text_string="text")
    def add_text(self, tag: str, text: str, step: int | None = None, walltime: float | None = None) -> None:
        """Record a text (Markdown is welcome)."""
        if not isinstance(text, str):
            raise UsageError(f"text of {tag!r} must be a string, got {type(text).__name__}")
        self._record("text", tag, step, walltime, text=text)

    @_tensorboard_names(img_tensor="image")
    def add_image(
        self,
        tag: str,
        image: Any,
        step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:
        """Record a picture: floats in 0…1 or integers to 255, in the layout that ``dataformats`` spells;
        or the bytes of a PNG, JPEG, GIF or WebP file as they are."""
        if isinstance(image, bytes):
            suffix, shape = media.picture_format(image)
            self._record_media("image", tag, image, suffix, step, walltime, shape)
            return
        array = as_array(image)
        if array.ndim == 2 and dataformats == "CHW":
            dataformats = "HW"
        pixels = media.pixels_from(array, dataformats)
        self._record_media("image", tag, media.encode_png(pixels), ".png", step, walltime, pixels.shape)

    @_tensorboard_names(img_tensor="images")
    def add_images(
        self,
        tag: str,
        images: Any,
        step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:
        """Record several pictures as one grid."""
        pixels = media.pixels_from(images, dataformats)
        self._record_media("image", tag, media.encode_png(pixels), ".png", step, walltime, pixels.shape)

    @_tensorboard_names()
    def add_figure(
        self,
        tag: str,
        figure: Any,
        step: int | None = None,
        close: bool = True,
        walltime: float | None = None,
    ) -> None:
        """Record a Matplotlib figure; it is closed unless ``close=False``."""
        data = media.figure_png(figure)
        if close:
            from matplotlib import pyplot

            pyplot.close(figure)
        self._record_media("image", tag, data, ".png", step, walltime)

    @_tensorboard_names(vid_tensor="video")
    def add_video(
        self, tag: str, video: Any, step: int | None = None, fps: float = 4, walltime: float | None = None
    ) -> None:
        """Record a film as GIF.

        ``video`` is an N,T,C,H,W tensor as TensorBoard has it, T,H,W,C frames as environments render
        them, or the path of a ``.gif``, ``.mp4`` or ``.webm`` file.
        """
        if isinstance(video, (str, os.PathLike)):
            self._record_media("video", tag, Path(video), Path(video).suffix, step, walltime)
            return
        frames = media.frames_from(video if not isinstance(video, list) else [as_array(one) for one in video])
        data = media.encode_gif(frames, fps)
        self._record_media("video", tag, data, ".gif", step, walltime, frames[0].shape)

    @_tensorboard_names(snd_tensor="sound")
    def add_audio(
        self,
        tag: str,
        sound: Any,
        step: int | None = None,
        sample_rate: int = 44100,
        walltime: float | None = None,
    ) -> None:
        """Record sound: samples in -1…1."""
        self._record_media("audio", tag, media.encode_wav(sound, sample_rate), ".wav", step, walltime)

    @_tensorboard_names()
    def add_histogram(
        self,
        tag: str,
        values: Any,
        step: int | None = None,
        bins: Any = 64,
        walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:
        """Record how values are distributed. ``bins`` is numpy's; TensorBoard's own bin name means 64 here."""
        import numpy as np

        array = as_array(values).reshape(-1).astype(np.float64)
        finite = array[np.isfinite(array)]
        counts, edges = np.histogram(finite, bins=64 if bins == "tensorflow" else bins)
        self.add_histogram_raw(
            tag,
            min=float(finite.min()) if finite.size else 0.0,
            max=float(finite.max()) if finite.size else 0.0,
            num=int(finite.size),
            sum=float(finite.sum()),
            sum_squares=float(np.square(finite).sum()),
            bucket_limits=edges[1:],
            bucket_counts=counts,
            step=step,
            walltime=walltime,
            first_edge=float(edges[0]),
        )

    @_tensorboard_names()
    def add_histogram_raw(
        self,
        tag: str,
        min: float,
        max: float,
        num: int,
        sum: float,
        sum_squares: float,
        bucket_limits: Any,
        bucket_counts: Any,
        step: int | None = None,
        walltime: float | None = None,
        first_edge: float | None = None,
    ) -> None:
        """Record a histogram that was counted elsewhere: ``bucket_limits`` are the buckets' right edges."""
        limits, counts = as_plain(as_array(bucket_limits)), as_plain(as_array(bucket_counts))
        if len(limits) != len(counts):
            raise UsageError(f"histogram {tag!r} has {len(limits)} bucket limits but {len(counts)} counts")
        self._record(
            "histogram",
            tag,
            step,
            walltime,
            edges=[as_number(min if first_edge is None else first_edge), *limits],
            counts=counts,
            min=as_number(min),
            max=as_number(max),
            num=int(num),
            sum=as_number(sum),
            sum_squares=as_number(sum_squares),
        )

    def add_hparams(
        self,
        hparam_dict: Mapping[str, Any],
        metric_dict: Mapping[str, Any] | None = None,
        hparam_domain_discrete: Any = None,
        run_name: str | None = None,
        global_step: int | None = None,
    ) -> None:
        """Record settings, and the numbers they led to. Later calls add to earlier ones."""
        for name, given in (("hparam_dict", hparam_dict), ("metric_dict", metric_dict or {})):
            if not isinstance(given, Mapping):
                raise UsageError(f"{name} must be a dict, got {type(given).__name__}")
        metrics = dict(metric_dict or {})
        self._core.record("hparams", params=as_plain(hparam_dict), metrics=[str(tag) for tag in metrics])
        for tag, value in metrics.items():
            self.add_scalar(tag, value, global_step)

    def add_file(self, path: str | os.PathLike[str], name: str | None = None) -> None:
        """Keep a copy of a file with the run, under ``name`` (default: the file's own name)."""
        source = Path(path)
        if not source.is_file():
            raise UsageError(f"add_file: there is no file {str(source)!r}")
        blob = self._core.store(source)
        if blob is not None:
            self._core.record("file", name=name or source.name, blob=blob)

    def add_graph(self, model: Any, *_: Any, **__: Any) -> None:
        """Record a model as its printed form."""
        self.add_text("graph", f"```\n{model}\n```")

    @_tensorboard_names()
    def add_embedding(
        self,
        mat: Any,
        metadata: Any = None,
        label_img: Any = None,
        step: int | None = None,
        tag: str = "default",
        **_: Any,
    ) -> None:
        """Keep an embedding's matrix and labels as an ``.npz`` file of the run."""
        labels = {} if metadata is None else {"metadata": as_array([str(one) for one in metadata])}
        self._keep_arrays(f"embedding/{as_tag(tag)}", step, matrix=as_array(mat), **labels)

    @_tensorboard_names()
    def add_mesh(
        self, tag: str, vertices: Any, colors: Any = None, faces: Any = None, config_dict: Any = None,
        step: int | None = None, walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Keep a mesh as an ``.npz`` file of the run."""
        given = {"vertices": vertices, "colors": colors, "faces": faces}
        self._keep_arrays(
            f"mesh/{as_tag(tag)}",
            step,
            **{name: as_array(one) for name, one in given.items() if one is not None},
        )

    @_tensorboard_names()
    def add_pr_curve(
        self, tag: str, labels: Any, predictions: Any, step: int | None = None, num_thresholds: int = 127,
        weights: Any = None, walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Record precision and recall over thresholds."""
        import numpy as np

        truth, score = as_array(labels).reshape(-1).astype(bool), as_array(predictions).reshape(-1)
        weight = np.ones(len(truth)) if weights is None else as_array(weights).reshape(-1)
        thresholds = np.linspace(0.0, 1.0, num_thresholds)
        chosen = score[None, :] >= thresholds[:, None]
        hits = (chosen * (truth * weight)).sum(1)
        named = (chosen * weight).sum(1)
        total, everything = float((truth * weight).sum()), float(weight.sum())
        precision = np.divide(hits, named, out=np.ones_like(hits, dtype=float), where=named > 0)
        recall = hits / total if total else np.zeros_like(precision)
        self._record(
            "pr_curve", tag, step, walltime,
            thresholds=thresholds.tolist(), precision=precision.tolist(), recall=recall.tolist(),
            true_positives=hits.tolist(), false_positives=(named - hits).tolist(),
            positives=total, negatives=everything - total,
        )  # fmt: skip

    def add_custom_scalars(self, layout: Mapping[str, Any]) -> None:
        """Record how charts should be laid out."""
        self._core.record("layout", layout=as_plain(layout))

    def _record(self, kind: str, tag: str, step: Any, walltime: Any, **fields: Any) -> None:
        wall = time() if walltime is None else as_number(walltime, "walltime")
        tag = as_tag(tag)
        fields = {"tag": tag, "step": self._step_of(tag, step), **fields}
        self._core.record(kind, **{**fields, "wall": wall})

    def _record_media(
        self,
        kind: str,
        tag: str,
        source: bytes | Path,
        suffix: str,
        step: Any,
        walltime: Any,
        shape: tuple[int, ...] | None = None,
    ) -> None:
        tag = as_tag(tag)
        if isinstance(source, Path) and not source.is_file():
            raise UsageError(f"{kind} {tag!r}: there is no file {str(source)!r}")
        blob = self._core.store(source, suffix)
        if blob is not None:
            size = {} if shape is None else {"height": shape[0], "width": shape[1]}
            self._record("media", tag, step, walltime, media=kind, blob=blob, **size)

    def _keep_arrays(self, name: str, step: Any, **arrays: Any) -> None:
        import numpy as np

        stream = io.BytesIO()
        np.savez_compressed(stream, **arrays)
        blob = self._core.store(stream.getvalue(), ".npz")
        if blob is not None:
            self._core.record("file", name=f"{name}-{self._step_of(name, step)}.npz", blob=blob)
