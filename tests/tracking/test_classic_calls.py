"""Calls of TensorBoard's writer that programs rarely make."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from operant import Run, SummaryWriter
from operant.errors import UsageError


@pytest.fixture
def writer() -> SummaryWriter:
    return SummaryWriter("classic", system_metrics=False)


def reopened(writer: SummaryWriter) -> Run:
    writer.close()
    return Run.open(writer.run_id)


@pytest.mark.parametrize("close", [True, False])
def test_a_figure_becomes_a_picture_and_is_closed_unless_told(writer: SummaryWriter, close: bool) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(2, 1))
    axes.plot([1, 2, 4])
    writer.add_figure("curve", figure, global_step=7, close=close)
    assert pyplot.fignum_exists(figure.number) != close
    pyplot.close(figure)
    (picture,) = reopened(writer).media("curve")
    assert (picture.step, picture.path.read_bytes()[:4]) == (7, b"\x89PNG")


def test_a_mesh_is_kept_with_what_was_given(writer: SummaryWriter) -> None:
    vertices = np.arange(18.0).reshape(1, 6, 3)
    faces = np.array([[[0, 1, 2], [3, 4, 5]]])
    writer.add_mesh("body", vertices, faces=faces, global_step=3)
    found = reopened(writer).files
    kept = np.load(found["mesh/body-3.npz"])
    assert sorted(kept.files) == ["faces", "vertices"]
    np.testing.assert_array_equal(kept["vertices"], vertices)
    np.testing.assert_array_equal(kept["faces"], faces)


def test_a_histogram_that_was_counted_elsewhere(writer: SummaryWriter) -> None:
    told = {"min": 0.0, "max": 3.0, "num": 4, "sum": 6.0, "sum_squares": 14.0}
    writer.add_histogram_raw("weights", **told, bucket_limits=[1.0, 2.0, 3.0], bucket_counts=[1, 1, 2], global_step=5)
    with pytest.raises(UsageError, match="3 bucket limits but 2 counts"):
        writer.add_histogram_raw("weights", **told, bucket_limits=[1.0, 2.0, 3.0], bucket_counts=[1, 1])
    (histogram,) = reopened(writer).histograms("weights")
    assert (histogram["edges"], histogram["counts"]) == ([0.0, 1.0, 2.0, 3.0], [1, 1, 2])
    assert {name: histogram[name] for name in told} == told


def test_the_folder_of_the_run(writer: SummaryWriter) -> None:
    assert Path(writer.get_logdir()) == Path(writer.log_dir) == reopened(writer).folder
