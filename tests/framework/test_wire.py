from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from operant.framework.parallel.wire import BodyLayout, WireError, decode, encode

# How long an example takes says something about the machine, not about the code.
patient = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def round_trip(value: Any, allow_pickle: bool = False) -> Any:
    layout = BodyLayout()
    head = encode(value, layout)
    return decode(head, layout.to_bytes(), allow_pickle=allow_pickle)


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(max_size=100),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=4)
        | st.sets(st.integers(), max_size=4)
        | st.frozensets(st.text(max_size=3), max_size=4)
    ),
    max_leaves=20,
)


@patient
@given(plain)
def test_plain_data_comes_back_the_same_without_pickle(value: Any) -> None:
    result = round_trip(value)
    assert result == value and type(result) is type(value)


@patient
@given(
    hnp.arrays(
        dtype=hnp.scalar_dtypes() | hnp.array_dtypes(max_size=3),
        shape=hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    )
)
def test_arrays_of_every_dtype_and_shape(value: np.ndarray[Any, Any]) -> None:
    result = round_trip({"x": value})["x"]
    assert result.dtype == value.dtype and result.shape == value.shape
    assert result.tobytes() == np.ascontiguousarray(value).tobytes()
    assert result.flags.writeable


def test_long_bytes_travel_like_arrays() -> None:
    value = bytes(range(256)) * 100
    layout = BodyLayout()
    head = encode([value], layout)
    assert len(head) < 100 and decode(head, layout.to_bytes(), allow_pickle=False) == [value]


def test_views_that_are_not_contiguous() -> None:
    base = np.arange(24).reshape(4, 6)
    for value in (base[::2, 1::2], base.T, np.asfortranarray(base)):
        assert np.array_equal(round_trip(value), value)


def test_numpy_scalars_keep_their_type() -> None:
    for value in (np.float32(1.5), np.int8(-3), np.bool_(True), np.datetime64("2020-01-02"), np.str_("ä")):
        result = round_trip(value)
        assert result == value and type(result) is type(value)


def test_tensors_of_every_dtype_and_parameters() -> None:
    torch = pytest.importorskip("torch")
    state = OrderedDict(
        weight=torch.nn.Parameter(torch.randn(3, 4)),
        half=torch.randn(5).to(torch.bfloat16),
        scalar=torch.tensor(3),
        flags=torch.tensor([True, False]),
        empty=torch.empty(0, 2),
        strided=torch.arange(12).reshape(3, 4).t(),
        complex=torch.randn(2, dtype=torch.complex64),
    )
    result = round_trip(state)
    assert type(result) is OrderedDict and list(result) == list(state)
    for name, value in state.items():
        assert result[name].dtype == value.dtype and torch.equal(result[name], value.detach()), name
        assert not result[name].requires_grad


@dataclass
class Episode:
    length: int
    observations: np.ndarray[Any, Any]
    value: Any = None


def test_objects_are_pickled_only_where_that_is_allowed_and_their_arrays_never() -> None:
    torch = pytest.importorskip("torch")
    episode = Episode(3, np.arange(30_000.0), torch.ones(20_000))
    layout = BodyLayout()
    head = encode([episode], layout)
    assert len(head) < 2_000 and layout.payload_bytes == 30_000 * 8 + 20_000 * 4
    with pytest.raises(WireError, match="pickled object"):
        decode(head, layout.to_bytes(), allow_pickle=False)
    (result,) = decode(head, layout.to_bytes(), allow_pickle=True)
    assert result.length == 3 and np.array_equal(result.observations, episode.observations)
    assert torch.equal(result.value, episode.value)


def test_what_cannot_be_sent_says_so() -> None:
    for value in (lambda: None, {"x": (i for i in "ab")}):
        with pytest.raises(WireError, match="cannot be sent"):
            encode(value, BodyLayout())


@patient
@given(st.binary(max_size=200))
def test_garbage_is_refused_or_harmless(data: bytes) -> None:
    try:
        decode(data, None, allow_pickle=False)
    except WireError:
        pass


@patient
@given(plain, st.data())
def test_a_truncated_message_is_refused(value: Any, data: st.DataObject) -> None:
    layout = BodyLayout()
    head = encode(value, layout)
    cut = data.draw(st.integers(0, len(head) - 1))
    with pytest.raises(WireError):
        decode(head[:cut], layout.to_bytes(), allow_pickle=False)
